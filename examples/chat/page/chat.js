import { connect } from '{{.}}/lastseen.js'

// A real chat knows its user from the session. Here it is a guest, the same in all tabs of a browser.
const newGuest = () => `guest-${100 + Math.floor(Math.random() * 900)}`
const names = [new URLSearchParams(location.search).get('user'), localStorage.getItem('user')]
const me = names.find(name => /^[A-Za-z0-9-]{1,32}$/.test(name ?? '')) ?? newGuest()
localStorage.setItem('user', me)

// This keeps the user online while the page is open. The dots below need no code.
const client = connect({ namespace: 'chat', user: me })

const byId = id => document.getElementById(id)

// element returns an element with attributes and children. Text is a child.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  made.append(...children)
  return made
}

// avatar returns a picture of a user, with a dot in its corner.
function avatar(user) {
  const hue = 137.5 * [...user].reduce((sum, letter) => sum + letter.codePointAt(), 0) % 360
  const face = element('span', { class: 'face', 'aria-hidden': 'true' }, user.slice(0, 2))
  face.style.setProperty('--hue', hue)
  return element('span', { class: 'avatar' }, face, element('presence-dot', { user, namespace: 'chat' }))
}

// showWords shows the words of each member's dot, now and when they change.
function showWords() {
  for (const text of document.querySelectorAll('#members small')) {
    text.textContent = text.parentNode.querySelector('presence-dot').text
  }
}
addEventListener('presencechange', showWords)
setInterval(showWords, 5000) // for the times in them

function addMember(user) {
  if (document.querySelector(`#members [data-user="${user}"]`)) return
  const name = element('span', { class: 'name' }, user === me ? `${user} (you)` : user)
  byId('members').append(element('li', { 'data-user': user }, avatar(user), name, element('small')))
  showWords()
}

function addMessage({ user, text }) {
  const line = user ? element('li', {}, avatar(user), element('b', {}, user), element('span', {}, text))
    : element('li', { class: 'note' }, text)
  const talk = byId('talk')
  talk.append(line)
  if (talk.children.length > 100) talk.firstElementChild.remove()
  talk.scrollTop = talk.scrollHeight
}

byId('me').textContent = me
byId('leave').addEventListener('click', async () => {
  await client.leave()
  byId('leave').replaceWith('(signed out: reload the page to come back)')
})
// The form shows the user's availability, also if another tab has set it, or if it has ended.
client.addEventListener('self', ({ detail: own }) => {
  byId('availability').value = own?.availability ?? ''
  byId('note').value = own?.note ?? ''
  byId('until').textContent = own?.until ? `until ${own.until.toLocaleTimeString()}` : ''
})
byId('self').addEventListener('submit', async event => {
  event.preventDefault()
  const [availability, note, time] = ['availability', 'note', 'for'].map(id => byId(id).value || undefined)
  try {
    await (availability || note ? client.setAvailability({ availability, note, for: time }) : client.clearAvailability())
    byId('self-error').textContent = ''
  } catch {
    byId('self-error').textContent = 'Your availability was not recorded. Try again.'
  }
})

// Members see who types. Typing ends by itself after 10 seconds, or when the message arrives.
const typists = new Set()
function showTypists() {
  byId('typing').textContent = typists.size > 0 ? `Typing: ${[...typists].join(', ')} …` : ''
}
client.addEventListener('typing', ({ detail: { user, in: place, typing } }) => {
  if (place !== 'chat') return
  typists[typing ? 'add' : 'delete'](user)
  showTypists()
})
byId('text').addEventListener('input', () => {
  const others = [...document.querySelectorAll('#members li')].map(({ dataset }) => dataset.user)
  const guests = others.filter(user => user !== me && user.startsWith('guest-'))
  if (guests.length > 0) client.typing(guests.slice(-20), 'chat')
})

byId('say').addEventListener('submit', event => {
  event.preventDefault()
  fetch('/messages', { method: 'POST', body: JSON.stringify({ user: me, text: byId('text').value }) })
  event.target.reset()
})

const events = new EventSource(`/events?user=${encodeURIComponent(me)}`)
events.onopen = () => byId('talk').replaceChildren() // after a pause, all messages come again
events.onmessage = ({ data }) => {
  const { member, message } = JSON.parse(data)
  if (member) addMember(member)
  if (message) addMessage(message)
  if (message && typists.delete(message.user)) showTypists()
}

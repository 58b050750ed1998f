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

// words returns what the dot of a user says, as text that follows the status.
function words(user) {
  const text = element('small')
  const named = { green: 'online', yellow: 'was here just now', grey: 'offline', unknown: 'unknown' }
  client.watch(user, ({ status, lastSeen }) => {
    const since = status === 'grey' && lastSeen ? `, last seen at ${lastSeen.toLocaleTimeString()}` : ''
    text.textContent = named[status] + since
  })
  return text
}

function addMember(user) {
  if (document.querySelector(`#members [data-user="${user}"]`)) return
  const name = element('span', { class: 'name' }, user === me ? `${user} (you)` : user)
  byId('members').append(element('li', { 'data-user': user }, avatar(user), name, words(user)))
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
}

import { connect } from '{{.}}/lastseen.js'
import { Media } from './media.js'

// A real app knows its user from the session, and its people from its users' contacts.
const people = ['alice', 'bob', 'carol', 'dave']
const named = new URLSearchParams(location.search).get('user')
const me = /^[A-Za-z0-9-]{1,32}$/.test(named ?? '') ? named : people[0]
const namespace = 'calls'

// This keeps the user online while the page is open, and reports changes of the user's calls.
const client = connect({ namespace, user: me })

let call // the one of this user that rings or is active, on whichever device
let over // the last one that ended
let media // of the call on this page; there before its call, since the offer is
let gaveUp // why this page ended one: its ID, and the reason
let message = ''

const byId = id => document.getElementById(id)
const rings = () => call?.state === 'ringing'
const other = ({ from, to }) => (from === me ? to : from)
// isHere returns whether a call is on this page, and not on another device of the user.
const isHere = ({ from, fromDevice, toDevice }) => (from === me ? fromDevice : toDevice) === client.device

// send sends a request about calls, and returns the response. It tries twice: calls know their requests again.
async function send(method, path, { headers, ...init } = {}, tries = 2) {
  try {
    const response = await fetch(`{{.}}/v1/namespaces/${namespace}/calls${path}`, { ...init, method, headers })
    const answer = await response.json()
    if (!response.ok) throw Object.assign(new Error(answer.title), { status: response.status, reason: answer.code })
    return answer
  } catch (error) {
    if (tries === 1 || error.status < 500) throw error
    return send(method, path, { headers, ...init }, tries - 1)
  }
}

// act lets the user of this page, on this page, do something about a call.
function act(id, action, app, init) {
  return send('POST', `/${id}/${action}`, { ...init, body: JSON.stringify({ user: me, device: client.device, app }) })
}

// newMedia begins the media of a call, and ends those before.
function newMedia(about) {
  media?.close()
  const own = new Media(() => {
    if (own === media) end('The media connection failed.')
  })
  message = ''
  return (media = Object.assign(own, about))
}

function closeMedia(own, why = '') {
  own?.close()
  if (own !== media) return
  media = undefined
  message = why
}

async function start(to) {
  if (!client.calls) return show('Not connected yet. Try again.')
  const own = newMedia({ to })
  show()
  try {
    const offer = await own.offer()
    if (own.closed) return
    show() // the own picture
    const body = JSON.stringify({ from: me, to, device: client.device, app: { offer } })
    const { id } = await send('POST', '', { body, headers: { 'Idempotency-Key': crypto.randomUUID() } })
    own.id = id
    if (own.closed) await act(id, 'end') // the user cancelled before the call had an ID
    else if (over?.id === id) closeMedia(own, ending(over)) // it was faster than the response
  } catch (error) {
    closeMedia(own, problem(error, to))
    if (['caller_busy', 'callee_busy'].includes(error.reason)) await acceptFrom(to)
  }
  show()
}

// acceptFrom accepts the call of a user whom this user wanted to call at the same moment.
async function acceptFrom(user) {
  const { calls } = await send('GET', `?user=${encodeURIComponent(me)}`).catch(() => ({ calls: [] }))
  const ringing = calls.find(({ from, state }) => from === user && state === 'ringing')
  if (ringing) await accept(ringing)
}

async function accept({ id, from, app }) {
  const own = newMedia({ id })
  show()
  try {
    const answer = await own.answer(app.offer)
    if (own.closed) return
    await act(id, 'accept', { answer })
  } catch (error) {
    if (!own.closed) closeMedia(own, problem(error, from))
  }
  show()
}

async function end(why = '') {
  const id = media?.id ?? call?.id
  gaveUp = { id, why }
  closeMedia(media, why)
  if (id) await act(id, 'end').catch(error => failed(error))
  show()
}

// failed shows that a request failed. Calls that have ended need no further end.
function failed(error) {
  if (error.status !== 404 && error.reason !== 'call_refused') message = problem(error)
}

// receive takes a call of this user: the server sends each one to all pages of both users, after each change.
function receive(next) {
  if (['ringing', 'active'].includes(next.state)) {
    if (call?.id !== next.id) message = ''
    call = next
    if (isHere(next)) join(next)
    else if (media?.id === next.id && next.state === 'active') closeMedia(media) // another device accepted it
  } else {
    over = next
    if (call?.id === next.id) call = undefined
    if (media?.id === next.id) closeMedia(media)
    if (!media) message = gaveUp?.id === next.id && gaveUp.why || ending(next)
  }
  show()
}

// join connects the media with the call that they are for. A call on this page without media cannot go on.
function join({ id, to, state, app }) {
  if (media && !media.id && media.to === to) media.id = id
  if (media?.id !== id) act(id, 'end').catch(error => failed(error))
  else if (state === 'active') media.connect(app?.answer).catch(() => end('The other page sent no valid answer.'))
}

// ending returns how a call ended.
function ending({ state, from, by, ...rest }) {
  const who = other({ from, ...rest })
  switch (state) {
    case 'rejected': return from === me ? `${who} declined.` : 'You declined.'
    case 'cancelled': return from === me ? 'You cancelled the call.' : `Missed call from ${who}.`
    case 'missed': return from === me ? `${who} did not answer.` : `Missed call from ${who}.`
    case 'lost': return 'The call was lost.'
    default: return by?.user === who ? `${who} hung up.` : 'The call has ended.'
  }
}

// problem returns why something failed.
function problem({ reason, name }, user) {
  const all = {
    callee_busy: `${user} is in another call.`,
    caller_busy: 'You are in another call.',
    callee_unavailable: `${user} cannot be called.`,
    call_too_soon: `${user} did not answer just now. Try again later.`,
    call_refused: 'The call is no longer ringing.',
    NotAllowedError: 'Allow this page to use your camera and microphone.',
    NotFoundError: 'No camera or microphone was found.',
    NotReadableError: 'Another program uses the camera or microphone.',
  }
  return all[reason ?? name] ?? 'Something went wrong. Try again.'
}

// stateText returns the state of the call.
function stateText() {
  if (!call) return media ? `Calling ${media.to} …` : message
  const place = isHere(call) || media?.id === call.id ? '' : ' on another device'
  if (!rings()) return `In a call with ${other(call)}${place}.`
  if (call.from === me) return `Calling ${call.to}${place} …`
  return media?.id === call.id ? 'Connecting …' : `${call.from} is calling.`
}

// show shows what is known now.
function show(text = message) {
  message = text
  const incoming = rings() && call.to === me && media?.id !== call.id
  byId('state').textContent = [stateText(), call || media ? message : ''].filter(Boolean).join(' ')
  byId('accept').hidden = byId('reject').hidden = !incoming
  byId('end').hidden = incoming || !call && !media
  byId('videos').hidden = !media
  const streams = { local: media?.local, remote: media?.remote }
  for (const [id, stream = null] of Object.entries(streams)) {
    if (byId(id).srcObject !== stream) byId(id).srcObject = stream
  }
  for (const button of document.querySelectorAll('#people button')) button.disabled = Boolean(call || media)
  document.title = incoming ? `${call.from} is calling` : 'Video call · lastseen example'
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  made.append(...children)
  return made
}

function addPerson(user) {
  const button = element('button', { type: 'button', 'aria-label': `Call ${user}` }, 'Call')
  button.addEventListener('click', () => start(user))
  const dot = element('presence-dot', { user, namespace }), text = element('small')
  const row = [dot, element('span', { class: 'name' }, user), text, button]
  byId('people').append(element('li', { 'data-user': user }, ...row))
  const showWords = () => { text.textContent = dot.text }
  dot.addEventListener('presencechange', showWords)
  setInterval(showWords, 5000) // for the time in them
  showWords()
  if (byId('others').hasChildNodes()) byId('others').append(', ')
  byId('others').append(element('a', { href: `?user=${user}`, target: '_blank' }, user))
}

byId('me').textContent = me
people.filter(user => user !== me).forEach(addPerson)
byId('accept').addEventListener('click', () => accept(call))
byId('reject').addEventListener('click', () => act(call.id, 'reject').catch(error => failed(error)))
byId('end').addEventListener('click', () => end())
client.addEventListener('call', ({ detail }) => receive(detail))
// A page that is closed or loaded again hangs up, with a request that outlives it. If it crashes, the call is lost after
// a while.
addEventListener('pagehide', () => {
  if (call && isHere(call)) act(call.id, 'end', undefined, { keepalive: true }).catch(() => {})
  closeMedia(media)
})
show()

import { Availability } from './availability.js'
import { listDevices } from './devices.js'
import { make, say } from './dom.js'
import { ago, exact, now, span } from './times.js'

let rows = 0 // for IDs

// Row is a user in the list: the dot, the name, the availability, when the user was last seen and, once opened, the
// devices.
export class Row {
  #view
  #presence
  #about = make('span', { class: 'about' })
  #time = make('time')
  #details
  #availability
  #button
  #unwatch

  constructor(view, user) {
    this.#view = view
    this.user = user
    const id = `user-${++rows}`
    this.#details = make('div', { id, class: 'details', hidden: true })
    this.#button = make('button', {
      type: 'button', 'aria-expanded': 'false', 'aria-controls': id, onclick: () => this.open(!this.opened),
    }, make('bdi', {}, user))
    const dot = make('presence-dot', { user, namespace: view.namespace })
    this.element = make('li', { 'data-user': user },
      make('div', { class: 'row' }, dot, this.#button, this.#about, this.#time), this.#details)
    this.#unwatch = view.client.watch(user, presence => {
      this.#presence = presence
      this.tick()
    })
  }

  close() { this.#unwatch() }

  get opened() { return !this.#details.hidden }

  // open shows the devices and what can be done, or hides them.
  open(opened = true) {
    this.#button.setAttribute('aria-expanded', String(opened))
    this.#details.hidden = !opened
    if (!opened) return
    const devices = make('div', {}, make('p', { class: 'quiet' }, 'Loading devices …'))
    const act = action => () => this.#view.act(action, this.user)
    this.#availability = new Availability(this.#view, this.user)
    this.#details.replaceChildren(devices, this.#availability.element, make('p', { class: 'actions' },
      make('button', { type: 'button', onclick: act('ping') }, 'Send ping as ', make('bdi', {}, this.user)),
      make('button', { type: 'button', onclick: act('leave') }, 'Send leave')))
    this.refresh()
  }

  // refresh loads the devices again if they are shown.
  refresh() {
    if (!this.opened) return
    const { session, namespace, signal } = this.#view
    this.#availability.refresh()
    return listDevices(session, namespace, this.user, this.#details.firstChild, signal)
  }

  // tick updates the relative times.
  tick() {
    const { status, lastSeen, left } = this.#presence
    say(this.#about, details(this.#presence))
    this.element.dataset.status = status
    say(this.#time, describe(status, lastSeen, left))
    this.#time.dateTime = lastSeen?.toISOString() ?? ''
    this.#time.title = lastSeen ? exact(lastSeen) : ''
  }
}

// details returns whether a user is in a call, the availability, and for how long the user has been idle.
function details({ availability, idleSince, inCall, note }) {
  const minutes = Math.floor((now() - idleSince) / 60_000)
  const idle = idleSince && (minutes > 0 ? `idle for ${span(60_000 * minutes)}` : 'idle')
  return [inCall && 'in a call', availability, idle, note && `“${note}”`].filter(Boolean).join(' · ')
}

function describe(status, lastSeen, left) {
  if (status === 'unknown') return 'status unknown'
  if (status === 'green') return 'online now'
  if (lastSeen === null) return 'never seen'
  return left ? `left ${ago(lastSeen)}` : ago(lastSeen)
}

import { find, make, say } from './dom.js'
import { dotOf, mark } from './marks.js'
import { link } from './route.js'

const most = 100
const remembered = 1000 // users

// Feed lists the last changes, newest first.
export class Feed {
  #namespace
  #last = new Map() // the last presences by user, to see what changed
  #why = '' // newer changes are missing
  #waiting = [] // rows that arrived while the list is paused

  constructor(namespace) {
    this.#namespace = namespace
    find('changes').replaceChildren()
    find('pause').onclick = () => this.#pause(!this.paused)
    this.#pause(false)
  }

  get paused() { return find('pause').getAttribute('aria-pressed') === 'true' }

  #pause(paused) {
    find('pause').setAttribute('aria-pressed', String(paused))
    if (!paused) find('changes').prepend(...this.#waiting.splice(0).reverse())
    this.#trim()
  }

  // add takes changes in the order in which they were.
  add(users) {
    const rows = users.slice(-most).map(user => this.#row(user))
    this.#waiting = [...this.#waiting, ...rows].slice(-most)
    if (!this.paused) this.#pause(false)
    else this.#trim()
  }

  // trim shows how many changes wait, and removes the oldest rows.
  #trim() {
    const rows = find('changes').children
    while (rows.length > most) rows[rows.length - 1].remove()
    const waiting = this.#waiting.length
    say(find('pause'), !this.paused ? 'Pause' : waiting ? `Resume (${waiting === most ? '99+' : waiting})` : 'Resume')
    this.note(this.#why)
  }

  // note shows why newer changes are missing; '' if none are.
  note(why) {
    this.#why = why
    say(find('feed-note'), why || (find('changes').children.length > 0 ? '' : 'No changes yet.'))
  }

  #row(presence) {
    const { user, status } = presence
    const what = describe(presence, this.#last.get(user))
    this.#last.delete(user) // so that the oldest is the first
    this.#last.set(user, presence)
    if (this.#last.size > remembered) this.#last.delete(this.#last.keys().next().value)
    const time = new Date()
    return make('li', {},
      make('time', { datetime: time.toISOString() }, time.toLocaleTimeString('en', { hour12: false })),
      mark(dotOf(presence)),
      make('span', {}, make('a', { href: link({ namespace: this.#namespace, user }) }, make('bdi', {}, user)),
        make('span', { class: 'quiet' }, ` ${what}`)))
  }
}

// describe returns what changed in words. Without the presence before, that can be anything.
function describe(presence, before) {
  const { last_seen, left, status, activity, in_call } = presence
  const own = availabilityOf(presence), measured = left ? 'left' : `turned ${status}`
  const changed = own || 'availability ended'
  if (last_seen === null) return own || before?.last_seen === null ? changed : 'was deleted'
  if (!before) return own ? `${left ? 'left' : `is ${status}`}, ${changed}` : measured
  if (before.status !== status || before.left !== left) return measured
  if (availabilityOf(before) !== own) return changed
  if (before.in_call !== in_call) return in_call ? 'is in a call' : 'is no longer in a call'
  return before.activity === activity ? measured : activity ? 'is idle' : 'is active'
}

const availabilityOf = ({ availability, note }) =>
  [availability && `is ${availability}`, note && `note “${note}”`].filter(Boolean).join(', ')

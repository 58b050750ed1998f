import { find, make, say } from './dom.js'
import { dotOf, mark } from './marks.js'
import { link } from './route.js'

const most = 100
const remembered = 1000 // users

// Feed lists the last changes, newest first.
export class Feed {
  #namespace
  #last = new Map() // the last presences by user, to see what changed
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
    if (rows.length > 0) this.note('')
  }

  // wait shows that there were no changes yet.
  wait() { this.note(find('changes').children.length > 0 ? '' : 'Waiting for the first change.') }

  // note says why there are no changes.
  note(text) { say(find('feed-note'), text) }

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
  const said = says(presence), measured = left ? 'left' : `turned ${status}`
  if (last_seen === null) return said || before?.last_seen === null ? `says ${said || 'nothing'}` : 'was deleted'
  if (!before) return said ? `${measured}, says ${said}` : measured
  if (before.status !== status || before.left !== left) return measured
  if (says(before) !== said) return `says ${said || 'nothing'}`
  if (before.in_call !== in_call) return in_call ? 'is in a call' : 'is not in a call'
  return before.activity === activity ? measured : activity ? 'is idle' : 'is active'
}

const says = ({ availability, note }) => [availability, note && `“${note}”`].filter(Boolean).join(', ')

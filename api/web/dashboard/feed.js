import { find, make, say } from './dom.js'
import { mark } from './marks.js'
import { link } from './place.js'

const most = 100

// Feed lists the last changes, newest first.
export class Feed {
  #namespace
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

  #row({ user, status, left, last_seen }) {
    const what = last_seen === null ? 'was deleted' : left ? 'left' : `turned ${status}`
    const time = new Date()
    return make('li', {},
      make('time', { datetime: time.toISOString() }, time.toLocaleTimeString('en', { hour12: false })),
      mark(status),
      make('span', {}, make('a', { href: link({ namespace: this.#namespace, user }) }, make('bdi', {}, user)),
        make('span', { class: 'quiet' }, ` ${what}`)))
  }
}

import { arrange, find, make, say } from './dom.js'
import { link } from './route.js'
import { ago, narrow } from './times.js'

// Namespaces is the list of namespaces that the caller can read.
export class Namespaces {
  #session
  #rows = new Map()
  #limit = 50 // grows with "More"
  forbidden = false // asking again is of no use

  constructor(session) {
    this.#session = session
    find('open').addEventListener('submit', event => {
      event.preventDefault()
      location.hash = link({ namespace: find('namespace').value })
      find('open').reset()
    })
    find('namespaces-more').addEventListener('click', () => {
      this.#limit = Math.min(1000, 2 * this.#limit)
      this.refresh().catch(() => {}) // the list of users says why
    })
  }

  // refresh lists the namespaces and returns them.
  async refresh() {
    try {
      const { namespaces, next_cursor } = await this.#session.call('v1/namespaces', { query: { limit: this.#limit } })
      this.forbidden = false
      this.#show(namespaces)
      find('namespaces-more').hidden = !next_cursor || this.#limit === 1000
      say(find('namespaces-note'), namespaces.length > 0 ? '' : 'No namespaces yet. The first ping in one creates it.')
      return namespaces
    } catch (error) {
      this.forbidden = error.status === 403
      if (this.forbidden) say(find('namespaces-note'), 'You cannot list namespaces. Open one by name.')
      throw error
    }
  }

  #show(namespaces) {
    const rows = namespaces.map(({ namespace, last_ping }) => {
      const row = this.#rows.get(namespace) ?? this.#make(namespace)
      row.time.dataset.time = last_ping ?? ''
      return row
    })
    this.#rows = new Map(rows.map(row => [row.namespace, row]))
    arrange(find('namespaces'), rows.map(row => row.element))
    this.tick()
  }

  #make(namespace) {
    const time = make('span', { class: 'quiet' })
    const anchor = make('a', { href: link({ namespace }) }, make('bdi', {}, namespace), time)
    return { namespace, anchor, time, element: make('li', {}, anchor) }
  }

  // mark marks the namespace that is open.
  mark(current) {
    this.current = current
    this.tick()
  }

  // tick updates the relative times.
  tick() {
    for (const { namespace, anchor, time } of this.#rows.values()) {
      if (namespace === this.current) anchor.setAttribute('aria-current', 'page')
      else anchor.removeAttribute('aria-current')
      say(time, time.dataset.time ? ago(Date.parse(time.dataset.time), narrow) : 'no users')
    }
  }
}

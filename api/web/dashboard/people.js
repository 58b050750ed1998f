import { path } from './api.js'
import { arrange, find, say } from './dom.js'
import { link } from './route.js'
import { Row } from './row.js'
import { noteTime } from './times.js'

const pageSize = 25

// People lists users by when they were last seen, page by page, or shows one user.
export class People {
  #view
  #rows = new Map()
  #route // statuses and user
  #opens = false // the one user is to be opened, once
  #cursor // of this page; none for the first, which alone follows what changes
  #next
  #number = 1

  constructor(view) {
    this.#view = view
    find('first').onclick = () => view.attempt(() => this.#turn(undefined, 1))
    find('next').onclick = () => view.attempt(() => this.#turn(this.#next, this.#number + 1))
    find('everyone').onclick = () => {
      location.hash = link({ ...this.#route, namespace: view.namespace, user: undefined })
      find('user').value = ''
    }
  }

  close() {
    for (const row of this.#rows.values()) row.close()
    find('users').replaceChildren() // with the dots, which would go on
  }

  // go shows other statuses, or another user.
  go(route) {
    this.#route = route
    this.#opens = Boolean(route.user)
    say(find('found').firstElementChild, route.user ? 'Showing one user.' : '')
    find('found').hidden = !route.user
    find('filter').disabled = Boolean(route.user)
    for (const box of find('filter').elements) {
      box.checked = route.status.length === 0 || route.status.includes(box.value)
    }
    return this.#turn(undefined, 1)
  }

  // query returns the parameters of the list on the screen.
  get query() { return { status: this.#route.status, limit: pageSize } }

  async #turn(cursor, number) {
    [this.#cursor, this.#number] = [cursor, number]
    await this.#load()
    if (number > 1) find('people').scrollIntoView({ block: 'nearest' })
  }

  // refresh lists the users again if the first page is shown; a later one stays as it was.
  async refresh() {
    if (this.#cursor === undefined) await this.#load()
  }

  async #load() {
    const route = this.#route, cursor = this.#cursor
    try {
      const found = route.user ? await this.#look(route.user) : await this.#list(cursor)
      if (route !== this.#route || cursor !== this.#cursor) return // another page was opened meanwhile
      noteTime(found.as_of)
      this.#next = found.next_cursor ?? undefined
      this.#show(found.users)
    } catch (error) {
      if (!this.#view.signal.aborted) this.#fail(error)
      throw error
    }
  }

  #list(cursor) {
    const { session, namespace, signal } = this.#view
    return session.call(path(namespace, 'users'), { query: { ...this.query, cursor }, signal })
  }

  async #look(user) {
    const { session, namespace, signal } = this.#view
    const presence = await session.call(path(namespace, 'users', user), { signal })
    return { as_of: presence.as_of, users: [presence] }
  }

  #show(users) {
    const rows = users.map(({ user }) => this.#rows.get(user) ?? new Row(this.#view, user))
    for (const [user, row] of this.#rows) if (!rows.includes(row)) { row.close(); this.#rows.delete(user) }
    for (const row of rows) this.#rows.set(row.user, row)
    arrange(find('users'), rows.map(row => row.element))
    if (this.#opens) rows[0]?.open()
    this.#opens &&= rows.length === 0
    say(find('people-note'), users.length > 0 ? '' : this.#empty())
    find('pager').hidden = this.#number === 1 && !this.#next
    find('first').disabled = this.#number === 1
    find('next').disabled = !this.#next
    find('page').textContent = `Page ${this.#number}`
    for (const row of this.#rows.values()) row.refresh()
  }

  #empty() {
    return this.#route.status.length > 0
      ? 'No users with these statuses.'
      : 'No users yet. Enter a user ID and choose “Send ping” to add one.'
  }

  // doubt shows that nothing is known now. The rows stay, and their dots turn unknown by themselves.
  doubt() {
    if (this.#rows.size === 0) say(find('people-note'), 'Status unknown.')
    for (const row of this.#rows.values()) row.refresh()
  }

  // fail shows why the list is missing.
  #fail(error) {
    if (error.outage || error.status === 429) return
    this.#show([])
    say(find('people-note'), error.status === 403 ? `You cannot list users here. ${error.message}` : error.message)
  }

  // tick updates the relative times.
  tick() { for (const row of this.#rows.values()) row.tick() }
}

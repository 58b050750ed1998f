const hurry = 5000 // milliseconds between lookups of users whose status may have decayed

// Poller looks users up: all of them every interval, and sooner those of whom nothing is known and those whose status may
// have decayed. The client has options, interval and states, and takes found(facts) and onrefused(problem). It calls
// tick once a second.
class Poller {
  #client
  #users = null
  #asking // aborts the lookup in progress
  #sinceAsked = never
  #sinceAll = never // since the last lookup of all, or the last failure
  #wait = 0 // until the next one
  #failed = false
  #jitter = 0
  #backoff = new Backoff()
  #newest = {} // response to a GET of all: query, etag, users

  constructor(client) { this.#client = client }

  // watch replaces the set of users to look up; null for none.
  watch(users) {
    if (!users) this.#asking?.abort()
    this.#users = users
    this.tick()
  }

  async tick() {
    if (!this.#users || this.#asking) return
    const all = this.#sinceAll() >= this.#wait
    const users = all ? [...this.#users] : this.#soon()
    if (users.length === 0) return
    this.#asking = new AbortController()
    const { signal } = this.#asking
    this.#sinceAsked = stopwatch()
    try {
      await this.#lookUp(users.sort(), signal)
      this.#succeeded(all)
    } catch (error) {
      if (!signal.aborted) this.#fail(error)
    }
    this.#asking = undefined
  }

  // #soon returns whom to look up before all are.
  #soon() {
    if (this.#failed) return []
    const { states } = this.#client
    const due = states.due(this.#users, this.#jitter)
    return this.#sinceAsked() < hurry ? due.filter(user => !states.has(user)) : due
  }

  // Everything is random a little: pages must not look up the same user at the same moment.
  #succeeded(all) {
    this.#failed = false
    this.#backoff.reset()
    this.#jitter = 3000 * Math.random()
    if (!all) return
    this.#sinceAll = this.#sinceAsked
    this.#wait = this.#client.interval * (0.8 + 0.4 * Math.random())
  }

  #fail(error) {
    this.#failed = true
    this.#sinceAll = stopwatch()
    this.#wait = this.#backoff.next(error.retryAfter)
    if (!error.final) return
    this.#users = null
    this.#client.onrefused(error)
  }

  async #lookUp(users, signal) {
    const query = new URLSearchParams(users.map(user => ['user', user])).toString()
    if (users.length <= 100 && query.length < 4000) return this.#get(query, signal)
    for (let i = 0; i < users.length; i += 1000) {
      const body = { users: users.slice(i, i + 1000) }
      const response = await request(this.#client.options, '/lookup', { method: 'POST', body, signal })
      this.#receive(await response.json(), signal)
    }
  }

  async #get(query, signal) {
    const headers = this.#newest.query === query && this.#newest.etag ? { 'If-None-Match': this.#newest.etag } : {}
    const response = await request(this.#client.options, `/lookup?${query}`, { headers, signal })
    if (response.status === 304) return this.#receive({ users: this.#newest.users }, signal)
    const found = await response.json()
    this.#newest = { query, etag: response.headers.get('ETag'), users: found.users, green: found.green_ms }
    this.#receive(found, signal)
  }

  #receive({ users, as_of, green_ms = this.#newest.green }, signal) {
    if (signal.aborted) return
    this.#client.found({ users, asOf: as_of, limit: Math.max(green_ms, 2 * this.#client.interval) })
  }
}

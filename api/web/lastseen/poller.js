const hurry = 5000 // milliseconds between lookups of users whose status may have turned yellow or grey

// Poller looks up all users every interval, and sooner those of whom nothing is known and those whose status may have
// changed. The client has options, interval and states, and takes found(facts) and onrefused(problem). It calls tick
// once a second.
class Poller {
  #client
  #users = null
  #asking // aborts the lookup in progress
  #sinceAsked = never
  #sinceAll = never // since the last lookup of all, or the last failure
  #wait = 0 // until the next one
  #failed = false
  #jitter = 3000 * Math.random() // so that pages do not look up the same user at the same moment
  #backoff = new Backoff()

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
    const users = all ? [...this.#users] : this.#due()
    if (users.length === 0) return
    const { signal } = this.#asking = new AbortController()
    this.#sinceAsked = stopwatch()
    try {
      await this.#lookUp(users.sort(), signal)
      this.#failed = false
      this.#backoff.reset()
      if (all) this.#lookUpAfter(this.#client.interval * (0.8 + 0.4 * Math.random()))
    } catch (error) {
      if (!signal.aborted) this.#fail(error)
    }
    this.#asking = undefined
  }

  // #due returns whom to look up before all are.
  #due() {
    if (this.#failed) return []
    return this.#client.states.due(this.#users, this.#sinceAsked() < hurry ? Infinity : this.#jitter)
  }

  #lookUpAfter(wait) {
    this.#sinceAll = stopwatch()
    this.#wait = wait
  }

  #fail(error) {
    this.#failed = true
    this.#lookUpAfter(this.#backoff.next(error?.retryAfter)) // a token callback can fail with anything
    if (error?.final) this.#client.onrefused(error)
  }

  async #lookUp(users, signal) {
    while (users.length > 0) {
      const body = { users: users.splice(0, 1000) }
      const response = await request(this.#client.options, '/lookup', { method: 'POST', body, signal })
      const { users: found, as_of: asOf, green_ms } = await response.json()
      const limit = Math.max(green_ms, 2 * this.#client.interval)
      if (!signal.aborted) this.#client.found({ users: found, asOf, limit })
    }
  }
}

const maxWatched = 5000 // users of a connection

// Leader lets the visible tabs of an origin with the same user watch together: one of them leads, and sends the others
// what it receives. The client is called by lead(users), with the users to watch for all tabs, or null if another tab
// leads, and by receive(facts). It has states.
//
// Each tab has its own lock, so that the leader notices its end, and waits for the lock of the leader.
class Leader {
  #client
  #name
  #users // of this tab
  #end // releases locks
  #id // of this tab while it is visible
  #channel
  #leads = false
  #wants = new Map() // users of other tabs

  constructor(client, name) {
    this.#client = client
    this.#name = name
  }

  // want replaces the set of users that this tab watches, and begins to watch.
  want(users) {
    this.#users = users
    if (!this.#end) this.#start()
    else if (this.#leads) this.#watch()
    else this.#ask()
  }

  stop() {
    this.#end?.abort()
    this.#channel?.close()
    this.#end = this.#channel = undefined
    this.#leads = false
    this.#wants.clear()
    this.#client.lead(null)
  }

  // share sends facts to the tabs that this one leads, or some of them.
  share(facts, to = [...this.#wants.keys()]) {
    if (to.length > 0) this.#channel.postMessage({ to, facts })
  }

  #start() {
    this.#end = new AbortController()
    this.#id = this.#name + randomID()
    if (!navigator.locks) return this.#lead() // in an insecure context
    this.#channel = new BroadcastChannel(this.#name)
    this.#channel.onmessage = ({ data }) => this.#receive(data)
    this.#hold(this.#id, () => this.#ask())
    this.#hold(this.#name, () => this.#lead())
  }

  // #hold calls f when this tab has a lock, and keeps it until the end.
  #hold(name, f) {
    const { signal } = this.#end
    navigator.locks.request(name, { signal }, () => new Promise(release => {
      if (signal.aborted) return release()
      signal.addEventListener('abort', release)
      f(release)
    })).catch(() => signal.aborted || this.#lead()) // where locks are forbidden
  }

  #ask() { this.#channel.postMessage({ from: this.#id, users: [...this.#users] }) }

  #lead() {
    this.#leads = true
    this.#channel?.postMessage({ leads: true })
    this.#watch()
  }

  #receive({ to, facts, leads, from, users }) {
    if (to?.includes(this.#id)) this.#client.receive(facts)
    if (leads) this.#ask()
    if (from && this.#leads) this.#serve(from, users)
  }

  // #serve watches users for another tab, unless they are too many: they are unknown there.
  #serve(tab, users) {
    const drop = () => { this.#wants.delete(tab); this.#watch() }
    if (!this.#wants.has(tab)) this.#hold(tab, release => { release(); drop() })
    this.#wants.set(tab, users)
    if (this.#union().size > maxWatched) return drop()
    this.share(this.#client.states.facts(users), [tab])
    this.#watch()
  }

  #union() { return new Set([...this.#users, ...[...this.#wants.values()].flat()]) }

  #watch() { this.#client.lead(this.#union()) }
}

const clients = new Map() // by URL of the namespace

// clientOf returns the client of a namespace, and makes it if there is none.
function clientOf(namespace, url) {
  const key = endpoint({ url, namespace }, '')
  if (!clients.has(key)) clients.set(key, new Client(key, { url, namespace }))
  return clients.get(key)
}

function connect(options) {
  const client = clientOf(options.namespace, options.url)
  client.configure(options)
  return client
}

// isUser returns whether a user ID is valid: because of a single invalid one, the server would refuse all.
const isUser = user => /^(?!\.\.?$)[^\p{Cc}\p{Cs}]+$/u.test(user) && new TextEncoder().encode(user).length <= 256

// Client joins the parts: a pinger for the user of this page, and for the users that it watches the tabs' leader, which
// lets this page use its connection or lookups, or another page. What is known is in states.
class Client extends EventTarget {
  device = randomID()
  states = new States(presence => this.#listeners.get(presence.user)?.forEach(call => call(presence)))
  #key
  #listeners = new Map() // by user
  #connection
  #pinger
  #poller
  #leader // undefined unless the client works
  #ended = false // it must not begin to
  #wanted = null // users to watch for all tabs; null if another tab leads
  #polls = false // the connection cannot watch
  #scheduled
  #clock // checks every second what time has changed, while the page watches
  #own = new OwnAvailability(() => this.#serverTime(), own => this.#dispatch('self', own))
  #calls = new OwnCalls(call => this.#dispatch('call', call))
  #typing = new Typing(typing => this.#dispatch('typing', typing))

  // The work begins in a later task: elements make clients while this module is evaluated, before pages set options.
  constructor(key, options) {
    super()
    this.#key = key
    this.options = options
    const update = event => this.#update(event)
    for (const type of ['pagehide', 'pageshow']) addEventListener(type, update)
    document.addEventListener('visibilitychange', update)
    this.#schedule()
  }

  get namespace() { return this.options.namespace }
  get user() { return this.options.user }
  get self() { return this.#own.current }
  get calls() { return this.#calls.current }
  get interval() { return Math.max(5000, this.options.interval ?? 30_000) }

  now() { return this.states.now() }
  get(user) { return this.states.get(user) }
  request(path, init) { return request(this.options, path, init) }

  watch(users, listener) {
    const names = new Set(typeof users === 'string' ? [users] : users)
    const call = presence => { // a separate one, since the same listener can be there twice
      try { listener(presence) } catch (error) { reportError(error) }
    }
    const stop = () => names.forEach(user => this.#unwatch(user, call))
    for (const user of names) this.#listeners.set(user, (this.#listeners.get(user) ?? new Set()).add(call))
    if (this.#listeners.size > maxWatched) {
      stop()
      throw new RangeError(`More than ${maxWatched} users.`)
    }
    this.#schedule()
    for (const user of names) call(this.get(user))
    return stop
  }

  #unwatch(user, call) {
    const calls = this.#listeners.get(user)
    if (!calls?.delete(call) || calls.size > 0) return
    this.#listeners.delete(user)
    this.#schedule()
  }

  #dispatch(type, detail) { this.dispatchEvent(new CustomEvent(type, { detail })) }

  getAvailability() { return this.#availability('GET') }
  setAvailability(wanted) { return this.#availability('PUT', wanted) }
  clearAvailability() { return this.#availability('DELETE') }

  async #availability(method, body) {
    const { user } = this
    if (!user) throw new Error('There is no user. Pass one to connect().')
    const receive = this.#own.ask()
    const response = await this.request(`/users/${encodeURIComponent(user)}/availability`, { method, body })
    const own = response.status === 204 ? {} : await response.json()
    if (own.until && !this.states.knowsTime) await this.#askTime(user)
    if (this.user === user) receive(own)
    return availabilityAt(own, this.#serverTime())
  }

  // #askTime asks for the time by the server's clock. Without it, a page shows no end of its
  // user's availability.
  async #askTime(user) {
    try {
      const { as_of: asOf } = await (await this.request(`/users/${encodeURIComponent(user)}`)).json()
      this.states.receive({ asOf })
    } catch {}
  }

  #serverTime() { return this.states.knowsTime ? this.now() : 0 }

  typing(to, place) {
    const frame = { to: typeof to === 'string' ? [to] : [...to], in: place }
    return this.#typing.send(frame, typing => !!this.#connection?.typing(typing))
  }

  async leave() {
    const { user } = this
    try {
      await this.#pinger?.leave()
    } finally {
      if (this.user === user) {
        this.options.user = undefined
        this.#forgetUser()
      }
    }
  }

  #forgetUser() {
    this.#own.forget()
    this.#calls.receive()
    this.#typing.clear()
  }

  close() {
    this.#ended = true
    this.#update()
    this.#pinger?.stop()
    this.#connection?.close()
    this.#leader = this.#pinger = this.#connection = undefined
    this.states.clear()
    this.#forgetUser()
  }

  // configure changes options. It starts over only if that is necessary: some pages call connect again and again.
  configure(options) {
    const { user, transport, token } = this.options
    Object.assign(this.options, options)
    const same = user === this.user && transport === this.options.transport && !token === !this.options.token
    if (this.#leader && same) return
    this.close()
    this.#ended = false
    this.#schedule()
  }

  #schedule() {
    this.#scheduled ??= setTimeout(() => {
      this.#scheduled = undefined
      if (!this.#leader && !this.#ended) this.#start()
      this.#update()
    })
  }

  #start() {
    this.#polls = this.options.transport === 'http'
    const own = { availability: this.#own, calls: this.#calls, typing: this.#typing }
    this.#connection = this.#polls ? undefined : new Connection(this, own)
    this.#poller = new Poller(this)
    this.#leader = new Leader(this, `lastseen 1 ${this.#key} ${this.user ?? ''} `)
    this.#pinger = new Pinger(this, this.#connection)
    if (this.user) this.#pinger.start()
  }

  // #update watches what is wanted while the page is visible.
  #update({ type } = {}) {
    const users = new Set([...this.#listeners.keys()].filter(isUser))
    const hidden = document.visibilityState === 'hidden' || type === 'pagehide'
    clearInterval(this.#clock)
    if (this.#ended || hidden || users.size === 0) this.#leader?.stop()
    else if (this.#leader) {
      this.#leader.want(users)
      this.#clock = setInterval(() => this.#tick(), 1000)
    }
    this.#tick()
  }

  #tick() {
    this.states.keep(user => this.#listeners.has(user) || this.#wanted?.has(user))
    this.states.check()
    this.#poller?.tick()
  }

  // lead is called by the leader with the users to watch for all tabs, or null.
  lead(users) {
    if (!users || !this.#wanted) this.states.detach()
    this.#wanted = users
    this.#connection?.watch(users) // also while it cannot, since that can change
    this.#poller.watch(this.#polls ? users : null)
  }

  // receive takes facts from the tab that leads.
  receive(facts) { this.states.receive(facts) }

  // found takes facts from the server. They are ignored if another tab leads now.
  found(facts) {
    if (!this.#wanted) return
    this.#leader.share(facts)
    this.states.receive(facts)
  }

  onusers(users, asOf) { this.found({ users, asOf, feed: true }) }
  ondown() { this.found({ down: true }) }

  onalive() {
    this.#polls = false
    this.#poller.watch(null)
    this.found({ alive: true })
  }

  onunsupported() {
    this.#polls = true
    this.#poller.watch(this.#wanted)
  }

  onrefused({ status, code }) {
    this.close()
    this.options.onrefused?.({ status, code })
    warnRefused(this.options, { status, code })
  }
}

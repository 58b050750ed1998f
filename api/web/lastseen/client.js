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

// isUser says whether a user ID is valid: a single one that is not would make the server refuse all.
const isUser = user => /^\P{Cc}+$/u.test(user) && !['.', '..'].includes(user) && user.isWellFormed?.() !== false &&
  new TextEncoder().encode(user).length <= 256

// Client joins the parts: a pinger for the user of this page, and for the users that it watches the tabs' leader, which
// lets this page use its connection or lookups, or another page. What is known is in states.
class Client {
  device = randomID()
  states = new States(presence => this.#notify(presence))
  #key
  #state = 'new' // running, left, refused or closed
  #listeners = new Map() // by user
  #connection
  #pinger
  #poller
  #leader
  #wanted = null // users to watch for all tabs; null if another tab leads
  #polls = false // the connection cannot watch
  #scheduled = false
  #clock // checks every second what time has changed, while the page watches

  // The work begins in a later task: elements make clients while this module is evaluated, before the page sets options.
  constructor(key, options) {
    this.#key = key
    this.options = options
    const update = () => this.#update()
    for (const type of ['pagehide', 'pageshow']) addEventListener(type, update)
    document.addEventListener('visibilitychange', update)
    this.#schedule()
  }

  get namespace() { return this.options.namespace }
  get user() { return this.options.user }
  get interval() { return Math.max(5000, this.options.interval ?? 30_000) }

  now() { return this.states.now() }
  get(user) { return this.states.get(user) }
  request(path, init) { return request(this.options, path, init) }

  watch(users, listener) {
    const names = new Set(typeof users === 'string' ? [users] : users)
    if (names.union(this.#listeners).size > maxWatched) throw new RangeError(`More than ${maxWatched} users.`)
    const call = presence => listener(presence) // the same listener can be there twice
    for (const user of names) this.#listeners.set(user, (this.#listeners.get(user) ?? new Set()).add(call))
    this.#schedule()
    for (const user of names) call(this.get(user))
    return () => names.forEach(user => this.#unwatch(user, call))
  }

  #unwatch(user, call) {
    const calls = this.#listeners.get(user)
    if (!calls?.delete(call) || calls.size > 0) return
    this.#listeners.delete(user)
    this.#schedule()
  }

  #notify(presence) {
    for (const call of [...this.#listeners.get(presence.user) ?? []]) {
      try { call(presence) } catch (error) { reportError(error) }
    }
  }

  async leave() {
    this.#state = 'left'
    await this.#pinger?.leave()
  }

  close() { this.#stop('closed') }

  // configure changes options. It starts over only if that is necessary: some pages call connect again and again.
  configure(options) {
    const important = () => [this.user, this.options.transport, !this.options.token].join()
    const before = important()
    Object.assign(this.options, options)
    if (this.#state === 'left' ? !options.user : this.#state === 'running' && important() === before) return
    this.#stop('new')
    this.#schedule()
  }

  #schedule() {
    if (this.#scheduled) return
    this.#scheduled = true
    setTimeout(() => {
      this.#scheduled = false
      if (this.#state === 'new') this.#start()
      this.#update()
    })
  }

  #start() {
    this.#state = 'running'
    this.#polls = this.options.transport === 'http'
    this.#connection = this.#polls ? undefined : new Connection(this)
    this.#poller = new Poller(this)
    this.#leader = new Leader(this, `lastseen 1 ${this.#key} ${this.user ?? ''}`)
    this.#pinger = new Pinger(this, this.#connection)
    if (this.user) this.#pinger.start()
  }

  #stop(state) {
    this.#state = state
    this.#update()
    this.#pinger?.stop()
    this.#connection?.close()
    this.#pinger = this.#connection = undefined
    this.states.clear()
  }

  // #update watches what is wanted while the page is visible.
  #update({ type } = {}) {
    const users = new Set([...this.#listeners.keys()].filter(isUser))
    const active = ['running', 'left'].includes(this.#state)
    const visible = document.visibilityState === 'visible' && type !== 'pagehide'
    clearInterval(this.#clock)
    this.states.check()
    if (!active || !visible || users.size === 0) return this.#leader?.stop()
    this.#clock = setInterval(() => this.#tick(), 1000)
    this.#leader.want(users)
    this.#forget()
  }

  // #forget forgets those who are not wanted any longer.
  #forget() { this.states.keep(new Set([...this.#wanted ?? [], ...this.#listeners.keys()])) }

  #tick() {
    this.states.check()
    this.#poller.tick()
  }

  // lead is called by the leader with the users to watch for all tabs, or null.
  lead(users) {
    if (Boolean(users) !== Boolean(this.#wanted)) this.states.detach()
    this.#wanted = users
    this.#forget()
    this.#route()
  }

  #route() {
    this.#connection?.watch(this.#wanted) // also while it cannot, since that can change
    this.#poller.watch(this.#polls ? this.#wanted : null)
  }

  // receive takes facts from the tab that leads.
  receive({ users, ...facts }) {
    this.states.receive({ users: users?.filter(({ user }) => this.#listeners.has(user)), ...facts })
  }

  // found takes facts from the server, which are for nobody if another tab leads now.
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
    this.#route()
  }

  onrefused({ status, code }) {
    this.#stop('refused')
    this.options.onrefused?.({ status, code })
  }
}

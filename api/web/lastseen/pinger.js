// randomID returns an ID for a device.
const randomID = () => [...crypto.getRandomValues(new Uint32Array(3))].map(n => n.toString(36)).join('')

// Pinger keeps the user of a client online: over the connection, if that is not undefined and a WebSocket is available,
// else by pings. The client has options, device and onrefused(problem).
class Pinger {
  idle = false // whether the page is hidden or was not used for some time
  #client
  #connection
  #events // aborted when the pinger stops; undefined unless it runs
  #pings // aborted when the pings stop; undefined unless there are any
  #timer // prevents the next ping
  #pinged = false // the server may know the device by pings
  #body // of pings and leaves: the device, unless the namespace has none
  #token // of the last ping
  #input // the time since the page was used
  #idleTime // the time since it is idle
  #idling // prevents the next look at it
  #backoff = new Backoff()

  constructor(client, connection) {
    this.#client = client
    this.#connection = connection
    this.#body = { device: { id: client.device, kind: 'web' } }
  }

  start() {
    if (this.#events) return
    this.#events = new AbortController()
    const { signal } = this.#events
    const use = () => (this.idle || this.#input() > 1000) && this.#use()
    for (const type of ['pointerdown', 'pointermove', 'keydown', 'scroll']) {
      addEventListener(type, use, { signal, capture: true })
    }
    document.addEventListener('visibilitychange', () => this.#use(), { signal })
    addEventListener('pagehide', event => event.persisted || this.#leaveLater(), { signal })
    this.#use()
    if (this.#connection) this.#connection.keepOnline(this)
    else this.overHTTP(true)
  }

  // activity returns the activity of the page for a hello.
  activity() {
    return this.idle ? { idle: true, idle_ms: Math.min(Math.round(this.#idleTime()), 604_800_000) } : { idle: false }
  }

  // stop stops without a leave.
  stop() {
    this.#events?.abort()
    this.#events = undefined
    this.#idling?.()
    this.#stopPings()
    this.#connection?.keepOnline()
  }

  // leave sends a leave and stops.
  async leave() {
    const confirmed = !this.#pings && await this.#connection?.leave()
    this.stop()
    this.#pinged = false
    if (!confirmed) await this.#post('leave', this.#body)
  }

  // overHTTP starts or stops pings. The connection calls it.
  overHTTP(needed) {
    this.#stopPings()
    if (needed) {
      this.#pings = new AbortController()
      this.#pingAfter(Math.random() * 1000)
    } else if (this.#pinged) { // the device of the pings would keep the user online after the connection
      this.#pinged = false
      this.#post('leave', this.#body).catch(() => {})
    }
  }

  #stopPings() {
    this.#timer?.()
    this.#pings?.abort()
    this.#pings = undefined
  }

  #path(what) { return `/users/${encodeURIComponent(this.#client.options.user)}/${what}` }

  #post(what, body, signal) {
    const { token, ...options } = this.#client.options
    if (token) options.token = async reason => this.#token = await token(reason)
    return request(options, this.#path(what), { method: 'POST', headers: { Prefer: 'return=minimal' }, body, signal })
  }

  #pingAfter(wait) { this.#timer = later(wait, () => this.#ping()) }

  async #ping() {
    const { signal } = this.#pings
    try {
      const activity = this.idle && this.#body.device ? 'idle' : undefined
      this.#pinged = true // it may be recorded, also if the page does not live to see the response
      const response = await this.#post('ping', { ...this.#body, activity }, signal)
      if (signal.aborted) return
      this.#backoff.reset()
      this.#pingAfter(+response.headers.get('Lastseen-Ping-After-Ms') || 30_000)
    } catch (error) {
      if (!signal.aborted) this.#failed(error)
    }
  }

  #failed(error) {
    const { final, status, code, retryAfter } = error ?? {} // a token callback can fail with anything
    if (code === 'devices_unavailable' && this.#body.device) this.#body = {}
    else if (final) return this.#client.onrefused({ status, code })
    this.#pingAfter(this.#backoff.next(retryAfter))
  }

  // #leaveLater sends a leave for a page that closes. It waits at the server, for a page that is only loaded again. The
  // token is in the body, since the browser would have to ask before it sends a header to another origin.
  #leaveLater() {
    const { device } = this.#body
    const { options } = this.#client
    if (!this.#pinged || !device) return
    const body = { device, token: this.#token, after: `${options.grace ?? 5000}ms` }
    navigator.sendBeacon(endpoint(options, this.#path('leave')), JSON.stringify(body))
  }

  // #use notes that the page was used, and reports whether that changes something.
  #use() {
    this.#input = stopwatch()
    this.#observe()
  }

  #observe() {
    const left = (this.#client.options.idleAfter ?? 300_000) - this.#input()
    const idle = document.visibilityState === 'hidden' || left <= 0
    if (idle !== this.idle) {
      this.idle = idle
      this.#idleTime = stopwatch()
      this.#connection?.reportIdle()
    }
    this.#idling?.()
    if (!idle) this.#idling = later(left, () => this.#observe())
  }
}

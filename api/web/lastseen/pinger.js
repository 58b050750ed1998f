const inputs = ['pointerdown', 'pointermove', 'keydown', 'wheel', 'touchstart', 'scroll']

// randomID returns an ID for a device.
function randomID() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map(byte => (byte % 36).toString(36)).join('')
}

// Pinger keeps the user of a client online: over the connection, if that is not undefined and a WebSocket can be had,
// else by pings. The client has options, device and onrefused(problem).
class Pinger {
  #client
  #connection
  #events // aborted when the pinger stops; undefined unless it runs
  #request // aborted with the pings
  #timer = () => {} // prevents the next ping
  #pinged = false // the server knows the device by pings
  #named = true // pings name the device
  #token // of the last ping
  #idle = false
  #input = stopwatch()
  #idling = () => {} // prevents the next check
  #backoff = new Backoff()

  constructor(client, connection) {
    this.#client = client
    this.#connection = connection
  }

  start() {
    if (this.#events) return
    this.#events = new AbortController()
    const { signal } = this.#events
    for (const type of inputs) addEventListener(type, () => this.#used(), { signal, passive: true, capture: true })
    document.addEventListener('visibilitychange', () => this.#used(), { signal })
    addEventListener('pagehide', event => event.persisted || this.#goodbye(), { signal })
    this.#input = stopwatch()
    this.#observe()
    if (this.#connection) this.#connection.keepOnline(this)
    else this.overHTTP(true)
  }

  // stop stops without a goodbye.
  stop() {
    this.#events?.abort()
    this.#events = undefined
    this.#idling()
    this.#stopPings()
    this.#connection?.keepOnline()
  }

  // leave says goodbye and stops.
  async leave() {
    const confirmed = !this.#request && await this.#connection?.leave()
    this.stop()
    this.#pinged = false
    if (!confirmed) await this.#post('leave', this.#device)
  }

  // overHTTP starts or stops pings. The connection calls it.
  overHTTP(needed) {
    this.#stopPings()
    if (needed) {
      this.#request = new AbortController()
      this.#pingAfter(Math.random() * 1000)
    } else if (this.#pinged) { // the device of the pings would keep the user online after the connection
      this.#pinged = false
      this.#post('leave', this.#device).catch(() => {})
    }
  }

  #stopPings() {
    this.#timer()
    this.#request?.abort()
    this.#request = undefined
  }

  get #device() { return this.#named ? { device: { id: this.#client.device, kind: 'web' } } : {} }

  #path(what) { return `/users/${encodeURIComponent(this.#client.options.user)}/${what}` }

  #post(what, body, signal) {
    const { token, ...options } = this.#client.options
    const noting = async reason => this.#token = await token(reason)
    return request({ ...options, token: token && noting }, this.#path(what), {
      method: 'POST', headers: { Prefer: 'return=minimal' }, body, signal,
    })
  }

  #pingAfter(wait) { this.#timer = later(wait, () => this.#ping()) }

  async #ping() {
    const { signal } = this.#request
    const activity = this.#named ? this.#idle ? 'idle' : 'active' : undefined
    try {
      const response = await this.#post('ping', { ...this.#device, activity }, signal)
      if (signal.aborted) return
      this.#pinged = this.#named
      this.#backoff.reset()
      this.#pingAfter(Number(response.headers.get('Lastseen-Ping-After-Ms')) || 30_000)
    } catch (error) {
      if (!signal.aborted) this.#failed(error)
    }
  }

  #failed({ final, status, code, retryAfter }) {
    if (code === 'devices_unavailable' && this.#named) this.#named = false
    else if (final) return this.#client.onrefused({ status, code })
    this.#pingAfter(this.#backoff.next(retryAfter))
  }

  // #goodbye says goodbye for a page that closes. It waits at the server, for a page that is only loaded again.
  #goodbye() {
    if (!this.#pinged) return
    const { options } = this.#client
    const isKey = this.#token?.startsWith('ls_') // which are not accepted in a body
    fetch(endpoint(options, this.#path('leave')), {
      method: 'POST', keepalive: true,
      headers: isKey ? { Authorization: `Bearer ${this.#token}` } : {}, // other pages would have to ask first
      body: JSON.stringify({ ...this.#device, token: this.#token, after: `${options.grace ?? 5000}ms` }),
    }).catch(() => {})
  }

  // #used notes that the page is used, unless that was noted just now.
  #used() {
    if (document.visibilityState === 'visible' && this.#input() < 1000 && !this.#idle) return
    if (document.visibilityState === 'visible') this.#input = stopwatch()
    this.#observe()
  }

  // #observe reports whether the person uses the page, and does so again when that can have changed.
  #observe() {
    const left = (this.#client.options.idleAfter ?? 300_000) - this.#input()
    const idle = document.visibilityState === 'hidden' || left <= 0
    if (idle !== this.#idle) this.#connection?.setIdle(idle)
    this.#idle = idle
    this.#idling()
    if (!idle) this.#idling = later(left, () => this.#observe())
  }
}

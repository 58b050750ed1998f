const finalCodes = [4400, 4403, 4404, 4410, 4413]

// Socket is a WebSocket that connects again by itself.
class Socket {
  opened = false // whether a connection was ever open
  failures = 0 // attempts since the last welcome
  #options
  #url
  #current // the connection, after its welcome
  #next // the one that is being opened
  #attempt // an object for each attempt
  #waiting // prevents the next attempt
  #silence // prevents the end by silence
  #renewing // prevents the renewal of the token
  #limit = 30_000 // milliseconds without a frame
  #renew = false // the last connection ended because of its token
  #backoff = new Backoff()
  #events = new AbortController()

  // ondown is called with whether what was received is not valid any longer, and with a close code and reason if there
  // are any.
  constructor(options) {
    this.#options = options
    this.#url = endpoint(options, '/connect').replace(/^http/, 'ws')
    const { signal } = this.#events
    addEventListener('online', () => this.#waiting && this.#connectAfter(1000 * Math.random()), { signal })
    // A page with a connection cannot be kept in the back/forward cache.
    addEventListener('pagehide', () => this.#stop(), { signal })
    addEventListener('pageshow', event => event.persisted && this.#connect(), { signal })
    this.#connect()
  }

  send(frame) {
    const open = this.#current?.readyState === WebSocket.OPEN
    if (open) this.#current.send(JSON.stringify(frame))
    return open
  }

  close() {
    this.#events.abort()
    this.#stop()
  }

  #stop() {
    for (const cancel of [this.#waiting, this.#silence, this.#renewing]) cancel?.()
    this.#waiting = this.#silence = undefined
    this.#drop()
  }

  // #drop closes the connections, whose ends do not matter any longer.
  #drop() {
    const sockets = [this.#current, this.#next]
    this.#current = this.#next = this.#attempt = undefined
    for (const socket of sockets) socket?.close()
  }

  #connectAfter(wait) {
    this.#waiting?.()
    this.#waiting = later(wait, () => this.#connect())
  }

  async #connect() {
    const attempt = this.#attempt = {}
    this.#waiting?.()
    this.#waiting = undefined
    if (!this.#silence) this.#heard()
    try {
      const token = await this.#token(this.#renew)
      if (this.#attempt === attempt) this.#open(token)
    } catch {
      if (this.#attempt === attempt) this.#failed(false)
    }
  }

  async #token(renew) { return this.#options.token?.({ renew }) }

  #open(token) {
    this.failures++
    this.#next?.close()
    const socket = this.#next = new WebSocket(this.#url, 'lastseen.v1')
    socket.onopen = () => {
      this.opened = true
      socket.send(JSON.stringify({ hello: { ...this.#options.hello(), token } }))
    }
    socket.onmessage = ({ data }) => this.#has(socket) && this.#receive(socket, JSON.parse(data))
    socket.onclose = event => this.#has(socket) && this.#ended(socket, event)
  }

  #has(socket) { return socket === this.#current || socket === this.#next }

  // #heard begins to wait for the next frame.
  #heard() {
    this.#silence?.()
    this.#silence = later(this.#limit, () => {
      this.#drop()
      this.#silence = undefined
      this.#heard()
      this.#failed(true)
    })
  }

  #failed(...how) {
    if (!this.#waiting) this.#connectAfter(this.#backoff.next())
    this.#options.ondown?.(...how)
  }

  #receive(socket, { id, ...frame }) {
    const [[name, value]] = Object.entries(frame)
    if (name === 'welcome') this.#welcome(socket, value)
    if (name === 'bye') this.#connectAfter(value.reconnect_after_ms)
    if (name === 'ok') this.#renewBefore(value.expires_in_ms)
    this.#heard()
    if (socket === this.#current) this.#options.onframe(name, value, id)
  }

  #welcome(socket, { tick_ms, expires_in_ms }) {
    const old = this.#current
    this.#current = socket
    this.#next = undefined
    old?.close()
    this.failures = 0
    this.#limit = tick_ms + 10_000
    this.#renew = false
    this.#backoff.reset()
    this.#renewBefore(expires_in_ms)
  }

  // #renewBefore sends a new token halfway to the end of this one, since timers are late in hidden pages.
  #renewBefore(expiry) {
    if (expiry === undefined) return
    this.#renewing?.()
    this.#renewing = later(Math.max(1000, expiry / 2), async () => {
      const socket = this.#current
      const token = await this.#token(true).catch(() => {})
      if (token && socket === this.#current) this.send({ token: { token } })
    })
  }

  #ended(socket, { code, reason }) {
    if (finalCodes.includes(code) || code === 4401 && this.#renew) {
      this.close()
      this.#options.ondown?.(true, code, reason)
      this.#options.onrefused?.({ status: code - 4000, code: reason })
      return
    }
    this.#renew ||= code === 4401
    const moves = socket === this.#current && (this.#next || this.#waiting)
    if (socket === this.#next) this.#next = undefined
    else this.#current = undefined
    if (!moves) this.#failed(false, code, reason)
  }
}

// hangUp closes a WebSocket, if there is one yet. Browsers log an error for one that is closed while it connects. So
// that one has some seconds more, unless the page itself ends: it would not be kept in the back/forward cache.
function hangUp(socket, now) {
  const close = () => socket?.close?.()
  if (now || socket?.readyState !== WebSocket.CONNECTING) return close()
  socket.onopen = close
  later(10_000, close) // browsers open no other connection to the server meanwhile
}

// Socket is a WebSocket that connects again by itself.
class Socket {
  opened = false // whether a connection was ever open
  failures = 0 // attempts since the last welcome
  #options
  #current // the connection, after its welcome
  #next // the one that is being opened
  #waiting // prevents the next attempt
  #silence // prevents the end by silence
  #renewing // prevents the renewal of the token
  #limit = 30_000 // milliseconds without a frame
  #least // milliseconds to wait before the next attempt, if the last frame asked for it
  #renew = false // the last connection ended because of its token
  #backoff = new Backoff()
  #events = new AbortController()

  // ondown is called with whether what was received is not valid any longer, and with a close code if there is one.
  constructor(options) {
    this.#options = options
    const { signal } = this.#events
    // A page with a connection cannot be kept in the back/forward cache.
    addEventListener('pagehide', () => this.#stop(true), { signal })
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

  #stop(now) {
    this.#waiting?.()
    this.#silence?.()
    this.#renewing?.()
    this.#waiting = this.#silence = undefined
    this.#drop(now)
  }

  // #drop closes the connections, whose ends do not matter any longer.
  #drop(now) {
    for (const socket of [this.#current, this.#next]) hangUp(socket, now)
    this.#current = this.#next = undefined
  }

  #connectAfter(wait) {
    this.#waiting ??= later(wait, () => this.#connect())
  }

  async #connect() {
    this.#waiting?.()
    this.#waiting = undefined
    hangUp(this.#next)
    const attempt = this.#next = {}
    if (!this.#silence) this.#received()
    try {
      const token = await this.#token(this.#renew)
      if (this.#next === attempt) this.#open(token)
    } catch {
      if (this.#next === attempt) this.#failed(false)
    }
  }

  async #token(renew) { return this.#options.token?.({ renew }) }

  #open(token) {
    this.failures++
    const url = endpoint(this.#options, '/connect').replace(/^http/, 'ws')
    const socket = this.#next = new WebSocket(url, 'lastseen.v1')
    const has = () => socket === this.#current || socket === this.#next
    socket.onopen = () => {
      this.opened = true
      socket.send(JSON.stringify({ hello: { ...this.#options.hello(), token } }))
    }
    socket.onmessage = ({ data }) => has() && this.#receive(socket, JSON.parse(data))
    socket.onclose = event => has() && this.#ended(socket, event)
  }

  // #received begins to wait for the next frame.
  #received() {
    this.#silence?.()
    this.#silence = later(this.#limit, () => {
      this.#drop(true)
      this.#received()
      this.#failed(true)
    })
  }

  #failed(invalid, code) {
    this.#connectAfter(this.#backoff.next(this.#least))
    this.#least = 0
    this.#options.ondown?.(invalid, code)
  }

  #receive(socket, { id, ...frame }) {
    const [[name, value]] = Object.entries(frame)
    if (name === 'welcome') this.#welcome(socket, value)
    if (name === 'bye') this.#connectAfter(value.reconnect_after_ms)
    this.#least = value.retry_after_ms
    // Timers are late in hidden pages. Frames about typing also have an end.
    if (name !== 'typing' && value.expires_in_ms >= 0) this.#renewAfter(value.expires_in_ms / 2)
    this.#received()
    if (socket === this.#current) this.#options.onframe(name, value, id)
  }

  #welcome(socket, { tick_ms }) {
    reached(this.#options)
    this.#current?.close()
    this.#current = socket
    this.#next = undefined
    this.failures = 0
    this.#limit = tick_ms + 10_000
    this.#renew = false
    this.#backoff.reset()
  }

  #renewAfter(wait) {
    this.#renewing?.()
    this.#renewing = later(Math.max(1000, wait), async () => {
      const token = await this.#token(true).catch(() => {})
      if (token) this.send({ token: { token } })
    })
  }

  #ended(socket, { code, reason }) {
    if ([4400, 4403, 4404, 4410, 4413].includes(code) || code === 4401 && this.#renew) {
      this.close()
      this.#options.ondown?.(true, code)
      this.#options.onrefused?.({ status: code - 4000, code: reason })
      return
    }
    this.#renew ||= code === 4401
    if (socket === this.#next) this.#next = undefined
    else {
      this.#current = undefined
      if (this.#next || this.#waiting) return // it was the old one of a move
    }
    this.#failed(false, code)
  }
}

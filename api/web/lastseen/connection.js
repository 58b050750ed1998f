const retryInterval = 300_000 // milliseconds until what is not supported is tried again

// Connection is the one connection of a client. It is open while there is a user to keep online or users to watch.
//
// The client has options and device, and these methods:
//
//   onusers(users, asOf)     presences of users, as the server sent them
//   onalive()                everything that is watched is known and up to date
//   ondown()                 nothing that was received is valid any longer
//   onunsupported(watching)  use HTTP, for watching only if watching is true, until the next onalive; the connection
//                            tries again by itself
//   onrefused(problem)       the server refuses the page
//
// What the connection receives for the user of the page itself goes to own: availability, calls and typing.
class Connection {
  #client
  #own
  #socket
  #worked = false // whether there was a connection, by this socket or an earlier one
  #pinger // of the user to keep online
  #sentIdle // what the last hello had
  #wanted = new Set() // users to watch
  #known = new Set() // users watched, up to the cursor
  #resumed = new Set() // users known up to the cursor, to be watched again on this connection
  #removed = new Set() // users to be watched no longer
  #cursor
  #complete // whether everything wanted is known
  #pending // the frame that waits for its response
  #pause // prevents the next frame
  #retry // prevents the next attempt
  #overHTTP = false
  #confirm // ends the wait for the response to leave
  #backoff = new Backoff()

  constructor(client, own) { [this.#client, this.#own] = [client, own] }

  // keepOnline keeps the client's user online until it is called without a pinger. The pinger has idle and activity().
  // Its method overHTTP is called with true if the pinger has to do it, and with false if it no longer has to.
  keepOnline(pinger) {
    this.#pinger = pinger
    this.#disconnect() // since the hello is another one
    if (this.#overHTTP) pinger?.overHTTP(true)
    this.#apply()
  }

  // watch replaces the users to watch. Those who were not watched all the time are received again.
  watch(users) {
    this.#wanted = new Set(users)
    for (const user of this.#known.difference(this.#wanted)) {
      this.#known.delete(user)
      this.#removed.add(user)
    }
    this.#resumed = this.#resumed.intersection(this.#wanted)
    this.#apply()
  }

  // reportIdle reports whether the person uses the page.
  reportIdle() {
    if (this.#pinger) this.#socket?.send({ activity: { idle: this.#pinger.idle } })
  }

  // typing lets users know that the user types, and returns whether it was sent.
  typing(typing) { return !!this.#pinger && !!this.#socket?.send({ typing }) }

  // leave sends a leave of the user, and returns whether the server has confirmed it.
  async leave() {
    return this.#socket?.send({ leave: {}, id: 0 }) && new Promise(resolve => { this.#confirm = resolve })
  }

  close() {
    this.#retry?.()
    this.#pinger = undefined
    this.watch()
  }

  #disconnect() {
    this.#confirm?.(false)
    this.#socket?.close()
    this.#socket = undefined
  }

  #apply() {
    if (!this.#pinger && this.#wanted.size === 0) this.#disconnect()
    else if (this.#socket) this.#send()
    else if (!this.#retry) this.#connect()
  }

  #connect() {
    const { options, device } = this.#client
    this.#socket = new Socket({
      ...options,
      token: reason => this.#client.options.token?.(reason),
      hello: () => {
        if (!this.#pinger) return
        const activity = this.#pinger.activity()
        this.#sentIdle = activity.idle
        return { user: options.user, device: { id: device, kind: 'web' }, activity, grace_ms: options.grace }
      },
      onframe: (...frame) => this.#receive(...frame),
      ondown: (invalid, code) => this.#down(invalid, code),
      onrefused: problem => this.#client.onrefused(problem),
    })
  }

  // #down falls back to HTTP if no WebSocket is available. One that has worked is tried on meanwhile.
  #down(invalid, code) {
    this.#confirm?.(false)
    if (invalid) this.#client.ondown()
    const { opened, failures } = this.#socket
    const impossible = code === 4409 || !opened && !this.#worked && failures > 1 // no devices, or no WebSockets
    if (impossible) {
      this.#disconnect()
      this.#retry = later(retryInterval, () => {
        this.#retry = undefined
        this.#apply()
      })
    }
    if (this.#overHTTP || !impossible && failures < 5) return
    this.#overHTTP = true
    this.#pinger?.overHTTP(true)
    this.#own.calls.lose()
    this.#unsupported(false)
  }

  // #unsupported lets the client look up users. What it finds replaces what the connection has sent, so that all users
  // are received again by the next one.
  #unsupported(watching) {
    this.#known.clear()
    this.#resumed.clear()
    this.#client.onunsupported(watching)
  }

  #receive(name, value, id) {
    const { availability, calls, typing } = this.#own
    if (name === 'welcome') this.#welcome()
    if (id === 0) this.#confirm?.(name === 'ok')
    if (name === 'self') availability.receive(value)
    if (name === 'typing') typing.receive(value)
    if (name === 'call') calls.update(value)
    if (value.self) availability.receive(value.self) // of the welcome
    if (value.calls) calls.receive(value.calls) // the same
    if (value.users) this.#client.onusers(value.users, value.as_of)
    if (id === 1 && !value.more) this.#answered(value)
    if (!value.cursor) return
    if (value.more || this.#resumed.size === 0) this.#cursor = value.cursor // of a part: no other one is valid then
    if (this.#complete && !value.more) this.#client.onalive()
  }

  #welcome() {
    this.#worked = true
    this.#confirm?.(false) // that was for the connection before
    this.#resumed = this.#resumed.union(this.#known)
    this.#known.clear()
    this.#removed.clear()
    this.#pending = undefined
    if (this.#overHTTP) this.#pinger?.overHTTP(false)
    this.#overHTTP = false
    if (this.#pinger?.idle !== this.#sentIdle) this.reportIdle()
    this.#send()
  }

  // #send asks for the next part of what is wanted, one frame after the other.
  #send() {
    const frame = this.#frame()
    this.#complete = !frame && !this.#pending
    if (!frame || this.#pending || this.#pause) return
    if (this.#socket?.send({ watch: frame, id: 1 })) this.#pending = frame
  }

  // #frame returns the content of the next frame; undefined if there is nothing to change.
  #frame() {
    const resumes = this.#resumed.size > 0
    const missing = resumes ? this.#resumed : this.#wanted.difference(this.#known).difference(this.#removed)
    const [add, remove] = [missing, this.#removed].map(users => [...users].slice(0, 1000))
    const frame = { add, remove, cursor: resumes ? this.#cursor : undefined }
    // Frames have up to 64 KiB of UTF-8, which is up to three times as long.
    while (JSON.stringify(frame).length > 20_000) for (const users of [add, remove]) users.length >>= 1
    if (add.length + remove.length > 0) return frame
  }

  #answered({ status, retry_after_ms }) {
    const { add, remove } = this.#pending
    this.#pending = undefined
    if (status) return this.#refused(status, retry_after_ms)
    for (const user of remove) this.#removed.delete(user)
    for (const user of add) {
      this.#resumed.delete(user)
      const set = this.#wanted.has(user) ? this.#known : this.#removed
      set.add(user)
    }
    this.#backoff.reset()
    this.#sendAfter(70) // the limit is 20 frames a second
    this.#send()
  }

  #sendAfter(wait) {
    this.#pause = later(wait, () => {
      this.#pause = undefined
      this.#send()
    })
  }

  // #refused handles a problem with a frame, which had no effect.
  #refused(status, least = 1000) {
    if (status === 429 || status >= 500) return this.#sendAfter(this.#backoff.next(least))
    this.#sendAfter(retryInterval)
    this.#unsupported(true)
  }
}

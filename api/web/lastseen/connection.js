const retryWebSocket = 300_000 // milliseconds
const encoder = new TextEncoder()

// fitting returns as many users as fit into one field of a frame.
function fitting(users, bytes) {
  let n = 0
  while (n < Math.min(users.length, 1000)) {
    bytes -= encoder.encode(JSON.stringify(users[n])).length + 1
    if (bytes < 0) break
    n++
  }
  return users.slice(0, n)
}

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
class Connection {
  #client
  #socket
  #pinger // of the user to keep online
  #wanted = new Set() // users to watch
  #known = new Set() // users watched, up to the cursor
  #resumed = new Set() // users known up to the cursor, to be watched again on this connection
  #removed = new Set() // users to be watched no longer
  #cursor
  #complete = false // everything wanted is known
  #pending // the frame that waits for its response
  #pause // prevents the next frame
  #retry // prevents the next attempt
  #overHTTP = false
  #idle = false
  #confirm // ends the wait for the response to leave
  #scheduled = false
  #id = 0
  #backoff = new Backoff()

  constructor(client) { this.#client = client }

  // keepOnline keeps the client's user online until it is called without a pinger. It calls the method overHTTP of the
  // pinger with true if the pinger has to do it, and with false if it does not have to any longer.
  keepOnline(pinger) {
    if (this.#pinger === pinger) return
    this.#pinger = pinger
    this.#disconnect() // since the hello is another one
    if (pinger && this.#overHTTP) pinger.overHTTP(true)
    this.#schedule()
  }

  // watch replaces the users to watch. Those who were not watched all the time are received again.
  watch(users) {
    this.#wanted = new Set(users)
    this.#complete = false
    for (const user of this.#known.difference(this.#wanted)) {
      this.#known.delete(user)
      this.#removed.add(user)
    }
    this.#resumed = this.#resumed.intersection(this.#wanted)
    this.#schedule()
  }

  // setIdle reports whether the person uses the page.
  setIdle(idle) {
    this.#idle = idle
    if (this.#pinger) this.#socket?.send({ activity: { idle } })
  }

  // leave says goodbye for the user, and returns whether the server has confirmed it.
  async leave() {
    if (!this.#pinger || !this.#socket?.send({ leave: {}, id: 'leave' })) return false
    return new Promise(resolve => {
      const cancel = later(5000, () => this.#confirm(false))
      this.#confirm = confirmed => { cancel(); resolve(confirmed) }
    })
  }

  close() {
    this.#pinger = undefined
    this.watch()
    this.#retry?.()
    this.#disconnect()
  }

  #disconnect() {
    this.#socket?.close()
    this.#socket = undefined
  }

  // #schedule applies what has changed in this task.
  #schedule() {
    if (this.#scheduled) return
    this.#scheduled = true
    setTimeout(() => {
      this.#scheduled = false
      if (!this.#pinger && this.#wanted.size === 0) this.#disconnect()
      else if (!this.#socket && !this.#retry) this.#connect()
      else this.#send()
    })
  }

  #connect() {
    const { url, namespace } = this.#client.options
    this.#socket = new Socket({
      url, namespace,
      token: reason => this.#client.options.token?.(reason),
      hello: () => this.#hello(),
      onframe: (...frame) => this.#receive(...frame),
      ondown: (...how) => this.#down(...how),
      onrefused: problem => this.#client.onrefused(problem),
    })
  }

  #hello() {
    const { options: { user, grace }, device } = this.#client
    return this.#pinger && { user, device: { id: device, kind: 'web' }, grace_ms: grace }
  }

  // #down falls back to HTTP if there is no WebSocket to be had. One that has worked is tried on meanwhile.
  #down(invalid, code, reason) {
    this.#confirm?.(false)
    if (invalid) this.#client.ondown()
    if (reason === 'devices_unavailable') this.#withoutDevices()
    const { opened, failures } = this.#socket
    if (failures < (opened ? 5 : 2)) return
    if (!opened) {
      this.#disconnect()
      this.#retry = later(retryWebSocket, () => { this.#retry = undefined; this.#schedule() })
    }
    if (this.#overHTTP) return
    this.#overHTTP = true
    this.#pinger?.overHTTP(true)
    this.#client.onunsupported(false)
  }

  // #withoutDevices leaves the user to the pinger: the namespace has no devices, which connections of users need.
  #withoutDevices() {
    this.#pinger?.overHTTP(true)
    this.#pinger = undefined
    this.#schedule()
  }

  #receive(name, value, id) {
    if (name === 'welcome') this.#welcome()
    if (id === 'leave') this.#confirm?.(name === 'ok')
    if (value.users) this.#client.onusers(value.users, value.as_of)
    if (this.#pending && id === this.#pending.id) {
      if (name === 'problem') this.#refused(value)
      else if (!value.more) this.#answered()
    }
    if (!value.cursor) return
    if (this.#resumed.size === 0) this.#cursor = value.cursor
    if (this.#complete) this.#client.onalive()
  }

  #welcome() {
    this.#resumed = this.#resumed.union(this.#known)
    this.#known.clear()
    this.#removed.clear()
    this.#complete = false
    this.#pending = undefined
    if (this.#overHTTP) this.#pinger?.overHTTP(false)
    this.#overHTTP = false
    if (this.#idle) this.setIdle(true)
    this.#send()
  }

  // #send asks for the next part of what is wanted, one frame after the other.
  #send() {
    if (this.#pending || this.#pause) return
    const frame = this.#next()
    this.#complete = !frame
    const id = ++this.#id
    if (frame && this.#socket?.send({ watch: frame, id })) this.#pending = { id, ...frame }
  }

  // #next returns the content of the next frame; undefined if there is nothing to change.
  #next() {
    const remove = fitting([...this.#removed], 20_000)
    const resumes = this.#resumed.size > 0
    const missing = resumes ? this.#resumed : this.#wanted.difference(this.#known).difference(this.#removed)
    const add = fitting([...missing], 40_000)
    if (remove.length + add.length > 0) return { add, remove, cursor: resumes ? this.#cursor : undefined }
  }

  #answered() {
    const { add, remove } = this.#pending
    this.#pending = undefined
    for (const user of remove) this.#removed.delete(user)
    for (const user of add) {
      this.#resumed.delete(user)
      const set = this.#wanted.has(user) ? this.#known : this.#removed
      set.add(user)
    }
    this.#backoff.reset()
    this.#complete = !this.#next()
    this.#sendAfter(70) // 20 frames a second are the limit
  }

  #sendAfter(wait) {
    this.#pause = later(wait, () => { this.#pause = undefined; this.#send() })
  }

  // #refused handles a problem with a frame, which had no effect.
  #refused({ status }) {
    this.#pending = undefined
    if ([408, 429].includes(status) || status >= 500) return this.#sendAfter(this.#backoff.next(1000))
    this.#client.onunsupported(true)
    this.#sendAfter(retryWebSocket)
  }
}

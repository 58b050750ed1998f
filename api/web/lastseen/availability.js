// OwnAvailability is the availability of the user of this page. It calls changed(availability) when that changes, also
// when it ends by itself.
class OwnAvailability {
  current // undefined while it is not known
  #now
  #changed
  #sent // by the server
  #begun = 0 // the number of calls of ask and receive
  #newest = 0 // the number of the one whose content is known
  #timer

  constructor(now, changed) {
    this.#now = now
    this.#changed = changed
  }

  // ask is called before a request. It returns a function that takes what the response has, unless the server has sent
  // something on the connection since, or the response to a later request was earlier. The response is older then.
  ask() {
    const number = ++this.#begun
    return sent => { if (number > this.#newest) this.#take(sent, number) }
  }

  // receive takes what the server sent on the connection.
  receive(sent) { this.#take(sent, ++this.#begun) }

  // forget makes it unknown.
  forget() { this.#take(undefined, this.#newest) }

  #take(sent, number) {
    this.#sent = sent
    this.#newest = number
    this.#check()
  }

  // #check looks again from time to time before the end: what is known of the server's clock can change.
  #check() {
    this.#timer?.()
    const now = this.#now(), old = this.current
    const own = this.current = this.#sent && availabilityAt(this.#sent, now)
    if (own?.until) this.#timer = later(Math.min(own.until - now, 5000), () => this.#check())
    if (!old !== !own || own && !sameFields(old, own)) this.#changed(own)
  }
}

const typingPause = 5000 // milliseconds between two frames about the same typing, which ends after 10 seconds

// Typing has the users that type for the user of this page. It calls changed({ user, in, typing }) with true for
// each frame, and with false at the end.
class Typing {
  #changed
  #ends = new Map() // by user and place
  #sent // the last frame
  #sinceSent = never

  constructor(changed) { this.#changed = changed }

  // send sends a frame by a function that returns whether that succeeded, unless it did so a moment ago.
  send(frame, send) {
    const text = JSON.stringify(frame)
    if (text === this.#sent && this.#sinceSent() < typingPause) return true
    const sent = send(frame)
    if (sent) [this.#sent, this.#sinceSent] = [text, stopwatch()]
    return sent
  }

  receive({ user, in: place, expires_in_ms }) {
    const key = JSON.stringify([user, place])
    const end = () => {
      this.#ends.get(key).cancel()
      this.#ends.delete(key)
      this.#changed({ user, in: place, typing: false })
    }
    this.#ends.get(key)?.cancel()
    this.#ends.set(key, { end, cancel: later(expires_in_ms, end) })
    this.#changed({ user, in: place, typing: true })
  }

  clear() {
    this.#sinceSent = never
    for (const { end } of [...this.#ends.values()]) end()
  }
}

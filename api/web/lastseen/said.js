// OwnSaid is what the user of this page says. It calls changed(said) when that changes, also when it ends by itself.
class OwnSaid {
  current // undefined while it is not known
  #now
  #changed
  #sent // by the server
  #timer

  constructor(now, changed) {
    this.#now = now
    this.#changed = changed
  }

  // receive takes what the server sent; undefined if that is not known any longer.
  receive(sent) {
    this.#sent = sent
    this.#check()
  }

  // #check looks again from time to time before the end: what is known of the server's clock can change.
  #check() {
    this.#timer?.()
    const now = this.#now(), old = this.current
    const said = this.current = this.#sent && saidAt(this.#sent, now)
    if (said?.until) this.#timer = later(Math.min(said.until - now, 5000), () => this.#check())
    if (!old !== !said || said && !sameFields(old, said)) this.#changed(said)
  }
}

const typingPause = 5000 // milliseconds between two frames about the same typing, which ends after 10 seconds

// Typing is who types for the user of this page. It calls changed({ user, in, typing }) with true for each frame, and
// with false at the end.
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

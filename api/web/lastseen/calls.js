// callOf returns a call as pages have it, from what the server sent.
function callOf({ from_device, to_device, created_at, accepted_at, ended_at, expires_at, ...rest }) {
  const [createdAt, acceptedAt, endedAt, expiresAt] = [created_at, accepted_at, ended_at, expires_at].map(dateOf)
  return { ...rest, fromDevice: from_device, toDevice: to_device, createdAt, acceptedAt, endedAt, expiresAt }
}

// OwnCalls are the calls in progress of the user of this page. It calls changed(call) for each that changes, for the
// last time when it has ended.
class OwnCalls {
  current // undefined while they are not known
  #lost // those of before, meanwhile
  #changed
  #known = new Map() // by ID: what the server sent, and what prevents the end of a call that rings

  constructor(changed) { this.#changed = changed }

  // receive takes all calls in progress; undefined if they are no longer known.
  receive(calls) {
    const old = this.current ?? this.#lost ?? []
    this.#lost = undefined
    this.current = []
    for (const call of old) {
      if (calls?.some(({ id }) => id === call.id)) this.current.push(call)
      else if (calls) this.#end(call, 'ended') // how is not known
      else this.#forget(call.id)
    }
    if (calls) for (const call of calls) this.update(call)
    else this.current = undefined
  }

  // lose makes the calls unknown until the next receive, which reports those that ended in between.
  lose() { [this.#lost, this.current] = [this.current ?? this.#lost, undefined] }

  update(sent) {
    const call = callOf(sent), { id, state } = call
    const text = JSON.stringify({ ...sent, expires_at: 0 }) // which moves
    const known = this.#known.get(id), same = known?.text === text, since = known?.since ?? stopwatch()
    this.#forget(id)
    if (['ringing', 'active'].includes(state)) {
      // The server sends the end. Without a connection, the call must not ring on.
      const end = () => this.#end(call, 'missed'), ring = call.expiresAt - call.createdAt + 5000
      this.current.push(call)
      this.#known.set(id, { text, since, cancel: state === 'ringing' && later(ring - since(), end) })
    }
    if (!same) this.#changed(call)
  }

  #forget(id) {
    const known = this.#known.get(id)
    if (known?.cancel) known.cancel()
    this.#known.delete(id)
    const without = calls => calls?.filter(call => call.id !== id)
    ;[this.#lost, this.current] = [without(this.#lost), without(this.current)]
  }

  #end(call, state) {
    this.#forget(call.id)
    this.#changed({ ...call, state, by: null, expiresAt: null, app: null })
  }
}

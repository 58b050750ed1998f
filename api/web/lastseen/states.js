const silence = 30_000 // milliseconds without a sign of life of the feed until statuses are unknown: a tick and 10 s
const never = () => Infinity // a stopwatch for what has not happened

// sameFields reports whether two objects have the same values. Of dates, the times count.
const sameFields = (a, b) => Object.keys(b).every(key => a[key]?.valueOf() === b[key]?.valueOf())

// dotOf returns what one dot shows of a user: the status, or red for those who are busy or in a call.
function dotOf(status, availability, idle, inCall) {
  if (status === 'grey' || status === 'unknown') return status
  if (availability === 'busy' || inCall) return 'red'
  return availability === 'away' || idle ? 'yellow' : status
}

const dateOf = text => text ? new Date(text) : null

// availabilityAt returns the availability of a user, as the API sends it, at a time: nulls from its end on.
function availabilityAt({ availability = null, note = null, until }, now) {
  until = dateOf(until)
  return until && until <= now ? { availability: null, note: null, until: null } : { availability, note, until }
}

// presenceOf returns what a page shows of a user whom the server describes, at a time.
function presenceOf({ user, status, lastSeen, left, availability_until, idle_since, in_call, ...rest }, now) {
  const { until, ...own } = availabilityAt({ ...rest, until: availability_until }, now)
  const inCall = !!in_call, idleSince = dateOf(idle_since)
  const dot = dotOf(status, own.availability, idleSince, inCall)
  return { user, status, dot, lastSeen, left, ...own, availabilityUntil: until, idleSince, inCall }
}

const nothingKnown = user => presenceOf({ user, status: 'unknown', lastSeen: null, left: false }, 0)

// States is what is known of users. It calls changed(presence) when something of a presence changes.
//
// It takes facts, which pages can send each other:
//
//   { users, asOf, limit, feed }  presences as the server sent them. Those of a feed hold while it is alive, others for
//                                 limit milliseconds
//   { alive }                     the feed is complete up to now
//   { down }                      nothing that a feed sent holds any longer, until it is alive again
class States {
  #changed
  #known = new Map() // by user
  #shown = new Map() // presences by user
  #alive = never // the time since the feed was complete

  constructor(changed) { this.#changed = changed }

  // now returns the time by the server's clock in milliseconds, if that is known: the user's clock may be wrong by
  // years.
  now = () => Date.now()
  knowsTime = false

  // get returns the presence of a user: the same object until it changes.
  get(user) {
    if (!this.#shown.has(user)) this.#shown.set(user, this.#evaluate(user, this.now()))
    return this.#shown.get(user)
  }

  receive({ users = [], asOf, limit = silence, feed = false, alive, down }) {
    const since = stopwatch()
    if (asOf) {
      const start = Date.parse(asOf)
      this.now = () => start + since()
      this.knowsTime = true
    }
    for (const fact of users) {
      const lastSeen = dateOf(fact.last_seen), until = Date.parse(fact.valid_until)
      this.#known.set(fact.user, { limit, feed, ...fact, since, lastSeen, until })
    }
    if (alive) this.#alive = since
    if (down) this.#eachOfFeed(entry => { entry.since = never })
    this.check()
  }

  // detach prepares for another source of facts: what the feed sent holds a little longer, however alive that one is.
  detach() {
    this.#eachOfFeed(entry => Object.assign(entry, { limit: this.#rest(entry), since: stopwatch(), feed: false }))
  }

  #eachOfFeed(f) {
    for (const entry of this.#known.values()) if (entry.feed) f(entry)
    this.#alive = never
  }

  // check reports what time has changed.
  check() {
    const now = this.now()
    for (const [user, old] of this.#shown) {
      const presence = this.#evaluate(user, now)
      if (sameFields(old, presence)) continue
      this.#shown.set(user, presence)
      this.#changed(presence)
    }
  }

  // keep forgets all users for whom wanted(user) is false.
  keep(wanted) {
    for (const map of [this.#known, this.#shown]) for (const user of map.keys()) if (!wanted(user)) map.delete(user)
  }

  // clear makes everything unknown.
  clear() {
    this.#known.clear()
    this.check()
  }

  // due returns the users of whom nothing is known, and those whose status may have turned yellow or grey some
  // milliseconds ago. The lookup that it comes from cannot know of later pings, so another one has to confirm that.
  due(users, ago) {
    const before = this.now() - ago
    return [...users].filter(user => !this.#known.has(user) || this.#known.get(user).until <= before)
  }

  // facts returns what is known of users, for another page: also what holds again once the feed is alive.
  facts(users) {
    const entries = users.map(user => this.#known.get(user)).filter(Boolean)
    return {
      asOf: new Date(this.now()).toISOString(),
      users: entries.map(({ since, ...fact }) => ({ ...fact, limit: this.#rest({ since, ...fact }) })),
    }
  }

  // #rest returns the milliseconds for which an entry holds without another sign of life.
  #rest({ since, limit, feed }) { return Math.max(limit - since(), feed ? silence - this.#alive() : 0) }

  #evaluate(user, now) {
    const entry = this.#known.get(user)
    return !entry || this.#rest(entry) <= 0 ? nothingKnown(user) : presenceOf(entry, now)
  }
}

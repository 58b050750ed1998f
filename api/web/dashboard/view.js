import { connect, Socket } from '../lastseen.js'
import { path } from './api.js'
import { Chart } from './chart.js'
import { Counts } from './counts.js'
import { showCommands } from './curl.js'
import { find, say } from './dom.js'
import { Feed } from './feed.js'
import { People } from './people.js'
import { noteTime, span } from './times.js'

const outageText = 'Counts are unknown. Statuses are the last ones known, or unknown: unknown is not offline. ' +
  'All other data on this page is from before the outage.'
const refreshedText = 'The rest of the page is refreshed every few seconds.'
const noFeed = `This namespace has no feed of changes. ${refreshedText}`
const noSocket = `Changes need a WebSocket, and none can be opened here. ${refreshedText}`
const states = { connecting: 'Connecting', live: 'Live', down: 'Polling', outage: 'Outage', denied: 'Not updated' }

// View is an open namespace.
export class View {
  #abort = new AbortController()
  #counts = new Counts()
  #chart = new Chart()
  #feed
  #socket
  #state // of the connection: "connecting", "live" or "down"
  #missing // why newer changes are missing; '' if they are not
  #cursor // of the changes
  #people
  #soon
  #failures = 0
  #retryAfter = 0 // seconds for which the server asked
  #outage = false // the last request got no response that could be used
  #forbidden = false // another request would fail again
  #refreshing = false
  #refreshed = 0 // when, by performance.now()
  #due

  constructor(session, namespace) {
    Object.assign(this, { session, namespace })
    find('title').replaceChildren(namespace)
    say(find('banner'), '')
    say(find('notice'), '')
    this.client = connect({ namespace, token: () => session.key, interval: 10_000 })
    this.#feed = new Feed(namespace)
    this.#people = new People(this)
    this.#socket = new Socket({
      namespace,
      token: () => session.key,
      hello: () => ({ watch: { everyone: true, counts: true }, cursor: this.#cursor }),
      onframe: (name, value) => this.#take(name, value),
      ondown: (_, code) => {
        const cut = 'Newer changes are missing until the connection is back.'
        this.#turn('down', code === 4409 ? noFeed : this.#socket.opened ? cut : noSocket)
      },
      onrefused: problem => {
        this.#turn('down', '')
        this.#refuse(problem)
      },
    })
    this.#turn('connecting', 'Connecting …')
    this.#explain()
  }

  get signal() { return this.#abort.signal }

  close() {
    this.#abort.abort()
    clearTimeout(this.#soon)
    for (const part of [this.#socket, this.#people, this.#chart, this.client]) part.close()
  }

  // go shows other statuses, or another user.
  async go(route) {
    const shown = this.attempt(() => this.#people.go(route))
    showCommands(Boolean(this.session.key), this.namespace, { user: route.user, query: this.#people.query })
    await shown
    this.#refreshIn(0)
  }

  async #explain() {
    try {
      const settings = await this.session.call(path(this.namespace), { signal: this.signal })
      this.#counts.explain(settings)
      say(find('settings'), `Clients ping every ${span(settings.ping_interval_ms)}.`)
    } catch { // the list says why
      say(find('settings'), '')
    }
  }

  // refreshIn refreshes what is shown after some milliseconds, if it is not due earlier.
  #refreshIn(milliseconds) {
    const due = performance.now() + milliseconds
    if (this.#soon && this.#due <= due) return
    clearTimeout(this.#soon)
    this.#due = due
    this.#soon = setTimeout(() => this.#refresh(), milliseconds)
  }

  // refreshChanged refreshes after changes, which can come in quick succession.
  #refreshChanged() { this.#refreshIn(Math.max(200, this.#refreshed + 2000 - performance.now())) }

  async #refresh() {
    this.#soon = undefined
    if (this.#refreshing) return this.#refreshIn(200)
    this.#refreshing = true
    if (document.visibilityState === 'visible') {
      await this.attempt(async () => {
        this.#count(await this.session.call(path(this.namespace, 'counts'), { signal: this.signal }))
        await this.#people.refresh()
      })
    }
    this.#refreshing = false
    this.#refreshed = performance.now()
    if (!this.signal.aborted && !this.#forbidden) this.#refreshIn(this.#pause())
  }

  // pause returns how long to wait until the next refresh: longer on a live connection, and after failures.
  #pause() {
    const pause = this.#failures > 0
      ? Math.min(30_000, 2000 * 2 ** this.#failures)
      : this.#state === 'live' ? 15_000 : 5000
    return 1000 * this.#retryAfter + pause * (0.8 + 0.4 * Math.random())
  }

  // attempt does something that an outage can prevent, and shows the outage or its end.
  async attempt(action) {
    try {
      await action()
      if (this.signal.aborted) return
      this.#failures = this.#retryAfter = 0
      if (this.#forbidden) this.#refreshIn(0) // which had ended
      this.#forbidden = this.#outage = false
      say(find('banner'), '')
      this.#report()
    } catch (error) {
      if (this.signal.aborted) return
      this.#count()
      this.#outage = error.outage
      this.#forbidden = !error.outage && error.status !== 429
      this.#report()
      if (this.#forbidden) return
      this.#people.doubt()
      this.#failures++
      this.#retryAfter = error.retryAfter
      say(find('banner'), `${error.message} ${error.outage ? outageText : ''}`)
    }
  }

  // count shows counts; undefined if they are unknown.
  #count(counts) {
    if (counts) noteTime(counts.as_of)
    this.#counts.show(counts)
    this.#chart.add(counts)
  }

  #take(name, value) {
    if (name === 'problem') return this.#refuse(value)
    const changed = value.users?.length > 0
    this.#cursor = value.cursor ?? this.#cursor
    this.#turn('live', '')
    if (name === 'counts') this.#count(value)
    if (name !== 'reset' && changed) this.#feed.add(value.users)
    if (name === 'reset' || changed) this.#refreshChanged()
  }

  // turn shows the state of the connection, and why newer changes are missing.
  #turn(state, missing) {
    if (state === 'live' && this.#state === state) return
    if (state === 'down' && this.#state !== state) this.#refreshIn(500) // which shows whether the server is there
    this.#state = state
    this.#missing = missing
    this.#report()
  }

  // report shows how the page is kept up to date, or that it is not.
  #report() {
    const state = this.#outage ? 'outage' : this.#forbidden && this.#state !== 'live' ? 'denied' : this.#state
    find('connection').dataset.state = state
    say(find('connection'), states[state])
    this.#feed.note(this.#outage ? 'Newer changes are missing during the outage.' : this.#missing)
  }

  #refuse({ status, code, detail }) {
    if (status === 401) return this.session.refused()
    this.#missing = status === 403 ? 'You cannot follow changes here.' : `No changes: ${detail ?? code}`
    this.#report()
  }

  // act pings or leaves as a user.
  act(action, user) {
    const what = action === 'ping' ? 'ping' : 'leave'
    return this.send(path(this.namespace, 'users', user, action), { method: 'POST' }, ({ status }) =>
      `${user}: ${what} recorded${status ? `, now ${status}` : ''}.`)
  }

  // send changes something, notes the result in words, and returns whether it succeeded.
  async send(resource, request, describe) {
    say(find('notice'), '')
    try {
      say(find('notice'), describe(await this.session.call(resource, request)))
      this.#refreshIn(0)
      return true
    } catch (error) {
      if (this.signal.aborted || error.status === 401) return
      say(find('notice'), error.status === 403 ? `Not allowed. ${error.message}` : error.message)
    }
  }

  // tick updates relative times and the chart.
  tick() {
    this.#people.tick()
    this.#chart.draw()
  }

  // wake refreshes a page that was hidden.
  wake() { this.#refreshIn(0) }
}

// The elements: <presence-dot> shows one user, <presence-list> the users seen most recently.

// Shapes in a square of 16 units, filled by the even-odd rule: a disc, the hands of a clock in it, a bar in it, a ring,
// and the line of a dashed ring. Each colour has a contrast of 3:1 on white and on #111. api/dot.go draws the same.
const disc = 'M8 1a7 7 0 1 0 0 14a7 7 0 0 0 0-14Z'
const shapes = {
  green: disc,
  yellow: disc + 'M7 4h2v3.6l2.7 2.7-1.4 1.4L7 8.4Z',
  red: disc + 'M4 7h8v2H4Z',
  grey: disc + 'M8 3a5 5 0 1 0 0 10a5 5 0 0 0 0-10Z',
  unknown: 'M8 2a6 6 0 1 0 0 12a6 6 0 0 0 0-12Z',
}

const style = new CSSStyleSheet()
style.replaceSync(`
:host { display: block }
[hidden], :host([hidden]) { display: none }
ul { margin: 0; padding: 0; list-style: none }
li { display: flex; align-items: center; gap: .5em; padding: .2em 0 }
[part=text] { margin-inline-start: auto; overflow-wrap: anywhere; unicode-bidi: isolate }`)

const dotStyle = new CSSStyleSheet()
dotStyle.replaceSync(`
:host { display: inline-block; width: var(--presence-size, .75em); height: var(--presence-size, .75em);
  color: var(--presence-unknown, #6e7781) }
:host([hidden]) { display: none }
:host(:state(green)) { color: var(--presence-green, #2da44e) }
:host(:state(yellow)) { color: var(--presence-yellow, #bf8700) }
:host(:state(red)) { color: var(--presence-red, #cf222e) }
:host(:state(grey)) { color: var(--presence-grey, #6e7781) }
svg { display: block; fill: currentColor; fill-rule: evenodd }
:host(:state(unknown)) path { fill: none; stroke: currentColor; stroke-width: 2; stroke-dasharray: 3.6 2.683 }
@media (forced-colors: active) { svg { color: CanvasText; forced-color-adjust: none } }`)

// texts has the words of the elements, by language. Pages can change these, and add languages.
const texts = {
  en: {
    online: 'online', seen: 'last seen {ago}', offline: 'offline', unknown: 'status unknown',
    busy: 'busy', away: 'away', idle: 'idle', call: 'in a call', now: 'just now',
  },
}

const formats = {}

// ago returns how long ago something was, in the largest unit of which at least one has passed. Within the first minute
// it returns the word now, or seconds if the language has no such word.
function ago(ms, locale, now) {
  if (now && ms < 6e4) return now
  const units = { year: 31536e6, month: 2592e6, day: 864e5, hour: 36e5, minute: 6e4, second: 1000 }
  const unit = Object.keys(units).find(unit => ms >= units[unit]) ?? 'second'
  const format = formats[locale] ??= new Intl.RelativeTimeFormat(locale)
  return format.format(-Math.floor(Math.max(ms, 0) / units[unit]), unit)
}

// textOf returns the words for a presence at a time by the server's clock. It is in English unless the page
// names another language that is well-formed. Words that a language does not have are in English.
function textOf(element, { status, lastSeen, availability, idleSince, inCall, note }, now) {
  let locale
  try { locale = new Intl.Locale(element.closest('[lang]').lang) } catch { locale = new Intl.Locale('en') }
  const own = texts[locale] ?? texts[locale.language] ?? texts.en, words = { ...texts.en, ...own }
  if (status === 'unknown') return words.unknown
  const activity = status !== 'grey' && words[inCall ? 'call' : availability ?? (idleSince && 'idle')]
  const measured = lastSeen ? words.seen.replace('{ago}', () => ago(now - lastSeen, locale, own.now)) : words.offline
  const text = status === 'green' ? activity || words.online : [activity, measured].filter(Boolean).join(', ')
  return note ? `${text}: ${note}` : text
}

// shown has the elements in the document. One timer keeps them fresh while the page is visible.
const shown = new Set()
const freshenAll = () => shown.forEach(element => element.freshen())
setInterval(() => document.hidden || freshenAll(), 5000)
document.addEventListener('visibilitychange', freshenAll)

// PresenceElement calls change once after all that a script does to an element, so that one that is only moved is not
// affected. freshen is called now and then while the page is visible.
class PresenceElement extends HTMLElement {
  #changing

  connectedCallback() {
    this.#changing ??= Promise.resolve().then(() => {
      this.#changing = undefined
      shown[this.isConnected ? 'add' : 'delete'](this)
      this.change(this.isConnected && this.getAttribute('namespace'), this.getAttribute('url') ?? undefined)
      this.freshen()
    })
  }

  disconnectedCallback() { this.connectedCallback() }
  attributeChangedCallback() { this.connectedCallback() }
}

class PresenceDot extends PresenceElement {
  static observedAttributes = ['user', 'namespace', 'url', 'label', 'lang']
  #internals = this.attachInternals()
  #path
  #title // the tooltip
  #watched
  #client
  #stop
  #presence = nothingKnown(null)

  constructor() {
    super()
    const [svg, path, title] = ['svg', 'path', 'title'].map(name =>
      document.createElementNS('http://www.w3.org/2000/svg', name))
    svg.setAttribute('viewBox', '0 0 16 16')
    svg.setAttribute('aria-hidden', 'true')
    svg.append(this.#title = title, this.#path = path)
    const root = this.attachShadow({ mode: 'open' })
    root.adoptedStyleSheets = [dotStyle]
    root.append(svg)
    this.#internals.role = 'img'
    this.#draw()
  }

  get presence() { return this.#presence }
  get text() { return textOf(this, this.#presence, this.#client?.now() ?? Date.now()) }

  change(namespace, url) {
    const user = this.getAttribute('user'), watched = namespace && user && [namespace, url, user].join('\n')
    if (watched === this.#watched) return
    const stop = this.#stop
    this.#watched = watched
    this.#client = watched ? clientOf(namespace, url) : undefined
    if (!watched) this.#show(nothingKnown(user))
    this.#stop = this.#client?.watch(user, presence => this.#show(presence))
    stop?.() // after the other, so that a client that both have continues
  }

  #show(presence) {
    const same = sameFields(this.#presence, presence)
    this.#presence = presence
    this.#draw()
    this.freshen()
    if (!same) this.dispatchEvent(new CustomEvent('presencechange', { bubbles: true, detail: presence }))
  }

  #draw() {
    const { states } = this.#internals, { dot } = this.#presence
    if (states.has(dot)) return
    states.clear()
    states.add(dot)
    this.#path.setAttribute('d', shapes[dot])
  }

  freshen() {
    const name = this.getAttribute('label') ?? this.getAttribute('user')
    const label = name ? `${name}, ${this.text}` : this.text
    if (this.#title.textContent !== label) this.#internals.ariaLabel = this.#title.textContent = label
  }
}

// make returns a new element with attributes and children.
function make(name, attributes, ...children) {
  const element = document.createElement(name)
  for (const key in attributes) element.setAttribute(key, attributes[key])
  element.append(...children)
  return element
}

// writeRow repeats the text of the dot of a row.
function writeRow({ firstChild, lastChild }) { lastChild.textContent = firstChild.text }

const maxRows = 1000 // that a server returns at once

// PresenceList asks for the users of a namespace once an interval, and follows everyone in between. It keeps only the
// users that it shows: a new one replaces the last one. Once one goes that another user should replace, it asks again.
// The rows stay while the server cannot be reached, since their dots then show unknown.
class PresenceList extends PresenceElement {
  static observedAttributes = ['namespace', 'url', 'status', 'limit']
  #list = make('ul', { role: 'list' })
  #empty = make('slot', { name: 'empty' })
  #unknown = make('slot', { name: 'unknown' })
  #more = make('button', { type: 'button', part: 'more' }, make('slot', { name: 'more' }, 'More'))
  #rows = new Map() // by user
  #users // of the rows, newest first
  #rest // whether there are more
  #known // whether that is so; undefined until there is a response, or none
  #query // what the rows answer
  #pages
  #loading // changes since the request; undefined if there is none
  #socket
  #due = () => false

  // label returns the name of a user.
  label = user => user

  constructor() {
    super()
    const root = this.attachShadow({ mode: 'open' })
    root.adoptedStyleSheets = [style]
    root.append(this.#list, this.#empty, this.#unknown, this.#more)
    root.addEventListener('presencechange', ({ target }) => writeRow(target.parentNode))
    this.#more.addEventListener('click', () => { this.#pages++; this.#load() })
  }

  get #limit() { return Math.min((this.getAttribute('limit') || 50) * this.#pages, maxRows) }
  get #statuses() { return this.getAttribute('status')?.match(/\w+/g) ?? [] }

  change(namespace, url) {
    const query = namespace && PresenceList.observedAttributes.map(name => this.getAttribute(name)).join('\n')
    if (query === this.#query) return
    this.#query = query
    this.#pages = 1
    this.#stop()
    this.#rest = false
    this.#show([])
  }

  freshen() {
    if (document.hidden) this.#stop()
    else if (this.#due()) this.#load()
    this.#write()
  }

  #stop() {
    this.#socket?.close()
    this.#socket = this.#loading = this.#known = undefined
    this.#due = () => this.#query
  }

  async #load() {
    const client = clientOf(this.getAttribute('namespace'), this.getAttribute('url') ?? undefined)
    const query = new URLSearchParams({ limit: this.#limit })
    for (const status of this.#statuses) query.append('status', status)
    const loading = this.#loading = []
    let pause = client.interval, list
    const { token } = client.options
    this.#due = () => false
    this.#follow(client)
    try {
      list = await (await client.request('/users?' + query)).json()
    } catch (error) {
      pause = Math.max(pause, error?.retryAfter ?? 0)
      if (error?.final) warnRefused(client.options, error)
    }
    if (loading !== this.#loading) return
    const since = stopwatch()
    pause *= 0.8 + 0.4 * Math.random() // so that many pages do not ask at once
    this.#due = () => since() >= pause || client.options.token !== token // the page has signed in
    this.#loading = undefined
    this.#known = !!list
    if (!list) return this.#write()
    this.#users = list.users
    this.#rest = !!list.next_cursor
    this.#take(loading)
  }

  // #follow receives what changes. Each connection begins with a list, so that nothing is missing in between.
  #follow(client) {
    if (this.#socket || client.options.transport === 'http') return
    const forget = () => { if (this.#socket === socket) this.#socket = undefined }
    const socket = this.#socket = new Socket({
      ...client.options,
      token: reason => client.options.token?.(reason),
      hello: () => ({ watch: { everyone: true } }),
      onframe: (name, { users }) => users && (name === 'changes' ? this.#take(users) : this.#load()),
      ondown: (silent, code) => {
        if (silent && !code) this.#load() // which shows whether this is an outage
        if (code !== 4409 && (socket.opened || socket.failures < 2)) return
        socket.close()
        later(retryInterval, forget)
      },
      onrefused: forget,
    })
  }

  // #take applies changes. A green user was seen again since: only those who turn green or leave come before.
  #take(changes) {
    this.#loading?.push(...changes)
    if (!this.#known) return
    let users = this.#users
    for (const change of changes) {
      const { user, status, last_seen: seen, left } = change, green = status === 'green'
      const old = users.find(other => other.user === user)
      if (green && old?.status === status) continue
      users = users.filter(other => other !== old)
      if (!seen || this.#statuses.length > 0 && !this.#statuses.includes(status)) continue
      const place = users.findIndex(other => other.last_seen <= seen && (green || left || other.status !== 'green'))
      if (place >= 0) users.splice(place, 0, change)
      else if (!this.#rest) users.push(change)
    }
    if (this.#rest && users.length < this.#users.length && !this.#loading) this.#due = () => true
    this.#rest ||= users.length > this.#limit
    this.#show(users.slice(0, this.#limit))
  }

  // #show makes the rows those of some users, in their order. Rows that stay are kept.
  #show(users) {
    this.#users = users
    const rows = users.map(({ user }) => this.#rows.get(user) ?? this.#row(user))
    this.#rows = new Map(users.map(({ user }, i) => [user, rows[i]]))
    for (const row of [...this.#list.children]) if (!rows.includes(row)) row.remove()
    rows.forEach((row, i) => {
      if (this.#list.children[i] !== row) this.#list.insertBefore(row, this.#list.children[i])
    })
    this.#write()
  }

  // #row returns a new row. Only its dot is read out, since it has all words.
  #row(user) {
    const label = this.label(user), attributes = { user, label, namespace: this.getAttribute('namespace') }
    if (this.hasAttribute('url')) attributes.url = this.getAttribute('url')
    const [name, text] = ['name', 'text'].map(part => make('span', { part, 'aria-hidden': 'true' }))
    name.textContent = label
    return make('li', { part: 'row' }, make('presence-dot', attributes), name, text)
  }

  // #write updates the texts of the list, in its language. Without rows, the list shows that there are no users only if
  // that is known.
  #write() {
    const none = this.#rows.size === 0
    this.#list.lang = this.closest('[lang]')?.lang ?? ''
    this.#rows.forEach(writeRow)
    this.#empty.hidden = !none || !this.#known || this.#rest
    this.#unknown.hidden = !none || this.#known !== false
    this.#unknown.textContent = textOf(this, nothingKnown(null))
    this.#more.hidden = !this.#rest || this.#limit === maxRows
  }
}

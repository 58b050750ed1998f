// The elements: <presence-dot> shows one user, <presence-list> the users seen most recently.

// Shapes in a square of 16 units, filled by the even-odd rule: a disc, the hands of a clock in it, a ring, and the line
// of a dashed ring. Each colour has a contrast of 3:1 on white and on #111. api/dot.go draws the same.
const disc = 'M8 1a7 7 0 1 0 0 14a7 7 0 0 0 0-14Z'
const shapes = {
  green: disc,
  yellow: disc + 'M7 4h2v3.6l2.7 2.7-1.4 1.4L7 8.4Z',
  grey: disc + 'M8 3a5 5 0 1 0 0 10a5 5 0 0 0 0-10Z',
  unknown: 'M8 2a6 6 0 1 0 0 12a6 6 0 0 0 0-12Z',
}

const dotStyle = styleSheet(`
:host { display: inline-block; width: var(--presence-size, .75em); height: var(--presence-size, .75em);
  color: var(--presence-unknown, #6e7781) }
:host([hidden]) { display: none }
:host(:state(green)) { color: var(--presence-green, #2da44e) }
:host(:state(yellow)) { color: var(--presence-yellow, #bf8700) }
:host(:state(grey)) { color: var(--presence-grey, #6e7781) }
svg { display: block; width: 100%; height: 100%; fill: currentColor; fill-rule: evenodd }
:host(:state(unknown)) path { fill: none; stroke: currentColor; stroke-width: 2; stroke-dasharray: 3.6 2.683 }
@media (prefers-reduced-motion: no-preference) { :host { transition: color .3s } }
@media (forced-colors: active) { :host { color: CanvasText; forced-color-adjust: none; transition: none } }`)

const listStyle = styleSheet(`
:host { display: block }
[hidden], :host([hidden]) { display: none }
ul { margin: 0; padding: 0; list-style: none }
li { display: flex; align-items: center; gap: .5em; padding: .2em 0 }
[part=name] { overflow: hidden; text-overflow: ellipsis }
[part=text] { margin-inline-start: auto; opacity: .8; white-space: nowrap }`)

function styleSheet(css) {
  const sheet = new CSSStyleSheet()
  sheet.replaceSync(css)
  return sheet
}

// texts has what the elements say, by language. Pages can add languages, and change these.
const texts = {
  en: { online: 'online', seen: 'last seen {ago}', offline: 'offline', unknown: 'status unknown' },
}

const formats = new Map()

// ago returns how long ago something was, in the largest unit of which at least one has passed.
function ago(ms, language) {
  const units = { year: 31536e6, month: 2592e6, day: 864e5, hour: 36e5, minute: 6e4 }
  const unit = Object.keys(units).find(unit => ms >= units[unit])
  const numeric = unit ? 'always' : 'auto' // the latter says "now" for 0 seconds
  const key = language + numeric
  if (!formats.has(key)) formats.set(key, new Intl.RelativeTimeFormat(language, { numeric }))
  return formats.get(key).format(unit ? -Math.floor(ms / units[unit]) : 0, unit ?? 'second')
}

// languageOf returns the language of an element, also in a shadow tree: English unless the page has another that is
// well-formed.
function languageOf(element) {
  const marked = element.closest('[lang]'), { host } = element.getRootNode()
  if (!marked && host) return languageOf(host)
  try {
    return Intl.getCanonicalLocales(marked?.lang)[0] ?? 'en'
  } catch {
    return 'en'
  }
}

// textOf returns what an element says of a presence at a time by the server's clock.
function textOf(element, { status, lastSeen }, now) {
  const language = languageOf(element)
  const known = { ...texts.en, ...texts[language.split('-')[0]], ...texts[language] }
  if (status === 'green') return known.online
  if (status === 'unknown') return known.unknown
  return lastSeen ? known.seen.replace('{ago}', () => ago(now - lastSeen, language)) : known.offline
}

const svg = name => document.createElementNS('http://www.w3.org/2000/svg', name)

// make returns a new element with attributes and children.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value)
  element.append(...children)
  return element
}

// shown has the elements in the document. One timer keeps all of them fresh, while the page is visible.
const shown = new Set()
let freshening

function keepFresh() {
  const wanted = shown.size > 0 && !document.hidden
  if (wanted && !freshening) freshening = setInterval(freshenAll, 5000)
  if (!wanted) freshening = clearInterval(freshening)
}

function freshenAll() {
  for (const element of shown) element.freshen()
}

document.addEventListener('visibilitychange', () => {
  keepFresh()
  if (!document.hidden) freshenAll()
})

// PresenceElement calls changed once after all changes that a script makes to an element, so that one that is only
// moved is not affected. freshen is called now and then.
class PresenceElement extends HTMLElement {
  #changing = false

  connectedCallback() { this.change() }
  disconnectedCallback() { this.change() }
  attributeChangedCallback() { this.change() }

  change() {
    if (this.#changing) return
    this.#changing = true
    queueMicrotask(() => {
      this.#changing = false
      if (this.isConnected) shown.add(this)
      else shown.delete(this)
      keepFresh()
      this.changed()
    })
  }
}

class PresenceDot extends PresenceElement {
  static observedAttributes = ['user', 'namespace', 'url', 'label', 'lang']
  #internals = this.attachInternals()
  #path = svg('path')
  #title = svg('title') // what people see who point at the dot
  #watched
  #client
  #stop
  #presence = { user: '', status: 'unknown', lastSeen: null, left: false }

  constructor() {
    super()
    const image = svg('svg')
    image.setAttribute('viewBox', '0 0 16 16')
    image.append(this.#title, this.#path)
    const root = this.attachShadow({ mode: 'open' })
    root.adoptedStyleSheets = [dotStyle]
    root.append(image)
    this.#internals.role = 'img'
    this.#draw()
  }

  get presence() { return this.#presence }
  get text() { return textOf(this, this.#presence, this.#client?.now() ?? Date.now()) }

  changed() {
    const [user, namespace, url] = ['user', 'namespace', 'url'].map(name => this.getAttribute(name))
    const watched = this.isConnected && user && namespace && JSON.stringify([user, namespace, url]) || undefined
    if (watched !== this.#watched) {
      const stop = this.#stop
      this.#watched = watched
      this.#client = watched && clientOf(namespace, url ?? undefined)
      if (!watched) this.#show({ user: user ?? '', status: 'unknown', lastSeen: null, left: false })
      this.#stop = this.#client?.watch(user, presence => this.#show(presence))
      stop?.() // after the other, so that a client that both have goes on
    }
    this.freshen()
  }

  #show(presence) {
    const before = this.#presence
    this.#presence = presence
    this.#draw()
    this.freshen()
    const same = ['user', 'status'].every(key => before[key] === presence[key]) && +before.lastSeen === +presence.lastSeen
    if (!same) this.dispatchEvent(new CustomEvent('presencechange', { bubbles: true, detail: presence }))
  }

  #draw() {
    const { states } = this.#internals, { status } = this.#presence
    if (states.has(status)) return
    states.clear()
    states.add(status)
    this.#path.setAttribute('d', shapes[status])
  }

  freshen() {
    const name = this.getAttribute('label') ?? this.getAttribute('user')
    const label = name ? name + ', ' + this.text : this.text
    if (this.#title.textContent !== label) this.#internals.ariaLabel = this.#title.textContent = label
  }
}

const maxRows = 1000 // of one response of the server

// PresenceList shows the users of a namespace. It asks for them again once an interval; its dots follow them as others
// do. What it shows stays while the server cannot be reached, since the dots then say that nothing is known.
class PresenceList extends PresenceElement {
  static observedAttributes = ['namespace', 'url', 'status', 'limit', 'lang']
  #internals = this.attachInternals()
  #list = make('ul', { role: 'list', part: 'list' })
  #empty = make('slot', { name: 'empty', hidden: '' })
  #more = make('button', { type: 'button', part: 'more', hidden: '' }, make('slot', { name: 'more' }, 'More'))
  #rows = new Map() // by user
  #query // what the rows answer, as a string
  #pages = 1
  #loading // an AbortController
  #due = 0
  #name = user => user

  constructor() {
    super()
    const root = this.attachShadow({ mode: 'open' })
    root.adoptedStyleSheets = [listStyle]
    root.append(this.#list, this.#empty, this.#more)
    root.addEventListener('presencechange', ({ target }) => { target.nextSibling.nextSibling.textContent = target.text })
    this.#more.addEventListener('click', () => { this.#pages++; this.#load() })
  }

  // label is a function that returns what to call a user.
  get label() { return this.#name }
  set label(name) {
    this.#name = name
    for (const [user, row] of this.#rows) this.#call(row, user)
  }

  changed() {
    const query = JSON.stringify(PresenceList.observedAttributes.slice(0, 4).map(name => this.getAttribute(name)))
    if (!this.isConnected) {
      this.#loading?.abort()
      this.#due = 0
    } else if (query !== this.#query) {
      this.#query = query
      this.#pages = 1
      this.#due = 0
      this.#show([])
      this.#empty.hidden = true
    }
    this.freshen()
  }

  freshen() {
    for (const row of this.#rows.values()) row.lastChild.textContent = row.firstChild.text
    if (this.isConnected && this.hasAttribute('namespace') && !document.hidden && Date.now() >= this.#due) this.#load()
  }

  async #load() {
    const client = clientOf(this.getAttribute('namespace'), this.getAttribute('url') ?? undefined)
    const limit = Math.min((Number(this.getAttribute('limit')) || 50) * this.#pages, maxRows)
    const query = new URLSearchParams({ limit })
    for (const status of this.getAttribute('status')?.match(/\w+/g) ?? []) query.append('status', status)
    this.#loading?.abort()
    const loading = this.#loading = new AbortController()
    let pause = client.interval
    try {
      const response = await client.request('/users?' + query, { signal: loading.signal })
      const { users, next_cursor } = await response.json()
      if (loading.signal.aborted) return
      this.#show(users.map(({ user }) => user))
      this.#empty.hidden = users.length > 0
      this.#more.hidden = !next_cursor || limit === maxRows
    } catch (error) {
      pause = Math.max(pause, error.retryAfter ?? 0)
    }
    if (loading === this.#loading) this.#due = Date.now() + pause * (0.8 + 0.4 * Math.random())
  }

  // #show makes the rows those of some users, in their order. Rows that stay are kept.
  #show(users) {
    for (const [user, row] of this.#rows) {
      if (users.includes(user)) continue
      row.remove()
      this.#rows.delete(user)
    }
    users.forEach((user, i) => {
      const row = this.#rows.get(user) ?? this.#row(user)
      this.#rows.set(user, row)
      if (this.#list.children[i] !== row) this.#list.insertBefore(row, this.#list.children[i])
    })
  }

  #row(user) {
    const dot = make('presence-dot', { user, namespace: this.getAttribute('namespace') })
    if (this.hasAttribute('url')) dot.setAttribute('url', this.getAttribute('url'))
    const hidden = { 'aria-hidden': 'true' } // the dot says the same
    const row = make('li', { part: 'row' }, dot, make('span', { part: 'name', ...hidden }),
      make('span', { part: 'text', ...hidden }))
    this.#call(row, user)
    return row
  }

  #call(row, user) {
    row.firstChild.setAttribute('label', this.#name(user))
    row.children[1].textContent = this.#name(user)
  }
}

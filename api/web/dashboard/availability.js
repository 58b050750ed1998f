import { call, path } from './api.js'
import { make, say } from './dom.js'
import { exact } from './times.js'

const choices = { '': 'nothing', away: 'away', busy: 'busy', invisible: 'invisible' }
const times = { '': 'until it is changed', '30m': 'for 30 minutes', '1h': 'for an hour', '8h': 'for 8 hours' }

// Availability shows what a user says, also "invisible", and sets it. Both need the right to ping for the user.
export class Availability {
  #view
  #user
  #changed = false // the fields, since they were filled
  #says = make('p', { class: 'quiet', role: 'status' })
  #choice = select('What the user says', choices)
  #note = make('input', { 'aria-label': 'Note', placeholder: 'Note', autocomplete: 'off', maxlength: '280' })
  #time = select('How long', times)

  constructor(view, user) {
    this.#view = view
    this.#user = user
    const form = make('form', { class: 'saying', oninput: () => { this.#changed = true }, onsubmit: event => {
      event.preventDefault()
      this.#set()
    } }, this.#choice, this.#note, this.#time, make('button', { type: 'submit' }, 'Say'))
    this.element = make('div', { class: 'availability' }, this.#says, form)
    this.#allow(false)
  }

  #allow(allowed) { this.element.lastChild.hidden = !allowed }

  #path() { return path(this.#view.namespace, 'users', this.#user, 'availability') }

  // refresh asks what the user says. Those who cannot know need not sign in: others can read the rest.
  async refresh() {
    const { session, signal } = this.#view
    try {
      const said = await call(session.key, this.#path(), { signal })
      this.#allow(true)
      say(this.#says, describe(said))
      if (this.#changed) return
      this.#choice.value = said.availability ?? ''
      this.#note.value = said.note ?? ''
    } catch (error) {
      if (signal.aborted) return
      this.#allow(error.outage || error.status === 429)
      const forbidden = [401, 403].includes(error.status)
      say(this.#says, forbidden ? 'You cannot see or set what this user says.' : error.message)
    }
  }

  async #set() {
    const fields = { availability: this.#choice.value, note: this.#note.value, for: this.#time.value }
    const { availability, note, ...rest } = Object.fromEntries(Object.entries(fields).filter(([, value]) => value))
    const said = availability || note
    const request = said ? { method: 'PUT', body: { availability, note, ...rest } } : { method: 'DELETE' }
    if (!await this.#view.send(this.#path(), request, () => `${this.#user}: recorded.`)) return
    this.#changed = false
    this.refresh()
  }
}

const select = (label, options) => make('select', { 'aria-label': label },
  ...Object.entries(options).map(([value, text]) => make('option', { value }, text)))

// describe returns what somebody says in words. The note is quoted, since it can say anything.
function describe({ availability, note, until }) {
  if (!availability && !note) return 'Says nothing about themselves.'
  const end = until ? ` until ${exact(until)}` : ''
  return `Says ${[availability, note && `“${note}”`].filter(Boolean).join(', ')}${end}.`
}

import { call, path } from './api.js'
import { make, say } from './dom.js'
import { exact } from './times.js'

const choices = { '': 'not set', away: 'away', busy: 'busy', invisible: 'invisible' }
const times = { '': 'until changed', '30m': 'for 30 minutes', '1h': 'for 1 hour', '8h': 'for 8 hours' }

// Availability shows the availability of a user, also "invisible", and sets it. Both need the permission to ping
// for the user.
export class Availability {
  #view
  #user
  #changed = false // the fields, since they were filled
  #text = make('p', { class: 'quiet', role: 'status' })
  #choice = select('Availability', choices)
  #note = make('input', { 'aria-label': 'Note', placeholder: 'Note', autocomplete: 'off', maxlength: '280' })
  #time = select('How long', times)

  constructor(view, user) {
    this.#view = view
    this.#user = user
    const form = make('form', { class: 'setting', oninput: () => { this.#changed = true }, onsubmit: event => {
      event.preventDefault()
      this.#set()
    } }, this.#choice, this.#time, this.#note, make('button', { type: 'submit' }, 'Set'))
    this.element = make('div', { class: 'availability' }, this.#text, form)
    this.#allow(false)
  }

  #allow(allowed) { this.element.lastChild.hidden = !allowed }

  #path() { return path(this.#view.namespace, 'users', this.#user, 'availability') }

  // refresh loads the availability. Without the permission, it does not ask for a key: the rest may need none.
  async refresh() {
    const { session, signal } = this.#view
    try {
      const current = await call(session.key, this.#path(), { signal })
      this.#allow(true)
      say(this.#text, describe(current))
      if (this.#changed) return
      this.#choice.value = current.availability ?? ''
      this.#note.value = current.note ?? ''
    } catch (error) {
      if (signal.aborted) return
      this.#allow(error.outage || error.status === 429)
      const forbidden = [401, 403].includes(error.status)
      say(this.#text, forbidden ? 'You cannot see or set the availability of this user.' : error.message)
    }
  }

  async #set() {
    const fields = { availability: this.#choice.value, note: this.#note.value, for: this.#time.value }
    const { availability, note, ...rest } = Object.fromEntries(Object.entries(fields).filter(([, value]) => value))
    const wanted = availability || note
    const request = wanted ? { method: 'PUT', body: { availability, note, ...rest } } : { method: 'DELETE' }
    if (!await this.#view.send(this.#path(), request, () => `${this.#user}: availability recorded.`)) return
    this.#changed = false
    this.refresh()
  }
}

const select = (label, options) => make('select', { 'aria-label': label },
  ...Object.entries(options).map(([value, text]) => make('option', { value }, text)))

// describe returns an availability in words. The note is quoted, since it can be any text.
function describe({ availability, note, until }) {
  const parts = [availability ?? 'not set', note && `note “${note}”`, until && `until ${exact(until)}`]
  return `Availability: ${parts.filter(Boolean).join(', ')}.`
}

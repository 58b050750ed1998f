import { call } from './api.js'
import { arrange, find, make, say } from './dom.js'
import { ago, narrow, span } from './times.js'

// Webhooks shows how the webhooks of the configuration fare, to those who operate the service, and tries them.
export class Webhooks {
  #session
  #rows = new Map()
  forbidden = false // asking again is of no use

  constructor(session) { this.#session = session }

  // refresh lists the webhooks. Without the permission, or without webhooks, it shows nothing and does not ask for a
  // key: the rest of the page may need none.
  async refresh() {
    try {
      const { webhooks } = await call(this.#session.key, 'v1/webhooks')
      this.#show(webhooks)
      say(find('webhooks-note'), '')
    } catch (error) {
      this.forbidden = [401, 403].includes(error.status)
      if (this.forbidden) return this.#show([])
      say(find('webhooks-note'), 'How webhooks fare is unknown.') // what is shown is from before
      find('webhooks').hidden = false
    }
  }

  #show(webhooks) {
    const rows = webhooks.map(state => {
      const row = this.#rows.get(state.webhook) ?? new Row(this, state.webhook)
      row.state = state
      return row
    })
    this.#rows = new Map(rows.map(row => [row.state.webhook, row]))
    arrange(find('webhooks-list'), rows.map(row => row.element))
    find('webhooks').hidden = rows.length === 0
    this.tick()
  }

  // act sends a request about a webhook and returns what to say about it.
  async act(name, action, describe) {
    try {
      const response = await call(this.#session.key, `v1/webhooks/${encodeURIComponent(name)}/${action}`, {
        method: 'POST', wait: 30_000, // a receiver has 15 seconds
      })
      this.refresh()
      return describe(response)
    } catch (error) {
      return error.message
    }
  }

  // tick updates the relative times.
  tick() { for (const row of this.#rows.values()) row.tick() }
}

class Row {
  #text = make('p', { class: 'quiet' })
  #result = make('p', { class: 'quiet', role: 'status' })
  #test
  #enable
  #busy = false // an action is not answered yet

  constructor(webhooks, name) {
    const act = (action, describe) => async () => {
      if (this.#busy) return
      this.#busy = true
      say(this.#result, action === 'test' ? 'Sending a test event …' : '')
      say(this.#result, await webhooks.act(name, action, describe))
      this.#busy = false
    }
    const button = (text, onclick) => make('button', { type: 'button', 'aria-label': `${text}: ${name}`, onclick }, text)
    this.#enable = button('Enable', act('enable', () => 'Enabled.'))
    this.#test = button('Test', act('test', ({ result, reason }) =>
      `Test event: ${result.replaceAll('_', ' ')}${reason ? `: ${reason}` : ''}.`))
    say(this.#result, '')
    this.element = make('li', {}, make('bdi', {}, name), make('div', { class: 'actions' }, this.#test, this.#enable),
      this.#text, this.#result)
  }

  tick() {
    this.element.dataset.state = stateOf(this.state)
    if (!this.state.disabled && document.activeElement === this.#enable) this.#test.focus()
    this.#enable.hidden = !this.state.disabled
    say(this.#text, describe(this.state))
  }
}

const stateOf = ({ disabled, delivering, behind_ms }) =>
  disabled ? 'disabled' : !delivering ? 'idle' : behind_ms > 0 ? 'behind' : 'delivering'

// describe returns in words how a webhook fares.
function describe(state) {
  const when = time => ago(Date.parse(time), narrow)
  const { behind_ms, last_delivery, last_failure, last_error } = state
  const delivered = last_delivery ? `Last delivery ${when(last_delivery)}.` : 'Nothing was delivered yet.'
  const failed = last_failure && !(Date.parse(last_failure) < Date.parse(last_delivery)) ? ` Failed ${when(last_failure)}: ${last_error}.` : ''
  const text = {
    disabled: 'Disabled: its receiver answered 410. ',
    idle: 'No server delivers. ',
    behind: `Behind for ${span(Math.max(1000, Math.round(behind_ms / 1000) * 1000))}. `,
    delivering: '',
  }
  return text[stateOf(state)] + delivered + failed
}

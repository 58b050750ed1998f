import { find, make } from './dom.js'
import { mark } from './marks.js'
import { span } from './times.js'

const statuses = ['green', 'yellow', 'grey']
const number = new Intl.NumberFormat('en')

// Counts shows how many users have each status. It is the legend of the chart, too.
export class Counts {
  #values = new Map()
  #details = new Map()

  constructor() {
    find('counts').replaceChildren(...statuses.map(status => this.#make(status)))
    this.show(undefined)
  }

  #make(status) {
    const value = make('dd', { 'data-count': status })
    const detail = make('dd', { class: 'quiet' })
    this.#values.set(status, value)
    this.#details.set(status, detail)
    return make('div', {}, make('dt', {}, mark(status), status), value, detail)
  }

  // show shows counts; undefined if they are unknown.
  show(counts) {
    for (const [status, value] of this.#values) {
      const text = counts ? number.format(counts[status]) : 'unknown'
      if (value.textContent !== text) value.textContent = text
      value.classList.toggle('unknown', !counts)
    }
  }

  // explain shows what the statuses mean in a namespace.
  explain({ green_ms, yellow_ms }) {
    this.#details.get('green').textContent = `seen in the last ${span(green_ms)}`
    this.#details.get('yellow').textContent = `seen in the last ${span(yellow_ms)}`
    this.#details.get('grey').textContent = 'before, or left'
  }
}

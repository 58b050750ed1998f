import { find, make, say } from './dom.js'
import { mark } from './marks.js'
import { span } from './times.js'

const number = new Intl.NumberFormat('en')

// Counts shows how many users have each status. It is also the legend of the chart.
export class Counts {
  #rows = ['green', 'yellow', 'grey'].map(status => {
    const value = make('dd', { 'data-count': status }), meaning = make('dd', { class: 'quiet' })
    return { status, value, meaning, element: make('div', {}, make('dt', {}, mark(status), status), value, meaning) }
  })

  constructor() {
    find('counts').replaceChildren(...this.#rows.map(row => row.element))
    this.show()
  }

  // show shows counts; undefined if they are unknown.
  show(counts) {
    for (const { status, value } of this.#rows) {
      say(value, counts ? number.format(counts[status]) : 'unknown')
      value.classList.toggle('unknown', !counts)
    }
  }

  // explain shows what the statuses mean in a namespace.
  explain({ green_ms, yellow_ms }) {
    const [green, yellow] = [span(green_ms), span(yellow_ms)]
    const meanings = [`seen in the last ${green}`, `seen ${green} to ${yellow} ago`, `not seen for ${yellow}, or left`]
    this.#rows.forEach(({ meaning }, i) => say(meaning, meanings[i]))
  }
}

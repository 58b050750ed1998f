import { draw, find } from './dom.js'
import { span } from './times.js'

const layers = ['green', 'yellow', 'grey'] // from the bottom
const [shortest, longest] = [60_000, 900_000] // milliseconds shown
const margin = { left: 34, right: 6, top: 8, bottom: 20 }
const height = 150

// Chart shows how many users had each status since the page was opened, up to 15 minutes. The server keeps no history.
export class Chart {
  #samples = [] // at most one for each change of the counts; no counts while they are unknown
  #began = performance.now()
  #svg = draw('svg', { role: 'img', height, 'shape-rendering': 'crispEdges' })
  #size

  constructor() {
    find('chart').replaceChildren(this.#svg)
    this.#size = new ResizeObserver(() => this.draw())
    this.#size.observe(find('chart'))
    find('chart-grey').onchange = () => this.draw()
  }

  close() { this.#size.disconnect() }

  // add takes counts, or undefined from when on they are unknown.
  add(counts) {
    const last = this.#samples.at(-1)
    const same = last && Boolean(last.counts) === Boolean(counts) && layers.every(l => last.counts?.[l] === counts?.[l])
    if (!same) this.#samples.push({ at: performance.now(), counts })
    this.draw()
  }

  draw() {
    const width = Math.max(200, find('chart').clientWidth), now = performance.now()
    const shown = Math.min(longest, Math.max(shortest, now - this.#began))
    this.#forget(now - longest)
    const drawn = find('chart-grey').checked ? layers : layers.slice(0, 2)
    const sum = counts => drawn.reduce((total, layer) => total + (counts?.[layer] ?? 0), 0)
    const top = roundUp(Math.max(4, ...this.#samples.map(({ counts }) => sum(counts))))
    const x = at => margin.left + (width - margin.left - margin.right) * Math.max(0, 1 - (now - at) / shown)
    const y = n => height - margin.bottom - (height - margin.bottom - margin.top) * n / top
    this.#svg.setAttribute('width', width)
    this.#svg.setAttribute('aria-label', this.#describe())
    this.#svg.replaceChildren(...grid(top, y, width), ...axis(shown, now, x),
      ...this.#samples.flatMap(({ at, counts }, i) => {
        const right = x(this.#samples[i + 1]?.at ?? now)
        return counts ? stack(drawn, counts, x(at), right, y) : []
      }))
    find('chart-span').textContent = shown < longest ? 'Since this page was opened' : 'The last 15 minutes'
  }

  // forget drops samples that ended before a time.
  #forget(time) {
    while (this.#samples.length > 1 && this.#samples[1].at < time) this.#samples.shift()
  }

  // describe returns the chart in words.
  #describe() {
    const known = this.#samples.filter(({ counts }) => counts)
    if (known.length === 0) return 'Users by status over time: no data yet.'
    const parts = layers.map(layer => {
      const values = known.map(({ counts }) => counts[layer])
      const last = this.#samples.at(-1).counts
      const now = last ? last[layer] : 'unknown'
      return `${layer} between ${Math.min(...values)} and ${Math.max(...values)}, now ${now}`
    })
    const seconds = Math.max(1, Math.round(Math.min(longest, performance.now() - this.#began) / 1000))
    return `Users by status over the last ${span(1000 * seconds)}: ${parts.join('; ')}.`
  }
}

// stack returns a bar of each status, one on the other, for a time with the same counts.
function stack(drawn, counts, left, right, y) {
  let sum = 0
  return drawn.map(layer => {
    const floor = y(sum), ceiling = y(sum += counts[layer]), height = Math.max(0, floor - ceiling - 1) // and a line
    return draw('rect', { class: layer, x: left, y: ceiling, width: right - left, height })
  })
}

function grid(top, y, width) {
  return [0, top / 2, top].flatMap(n => [
    draw('line', { x1: margin.left, x2: width - margin.right, y1: y(n), y2: y(n) }),
    draw('text', { x: margin.left - 6, y: y(n) + 4, 'text-anchor': 'end' }, short(n)),
  ])
}

function axis(shown, now, x) {
  const step = [15_000, 30_000, 60_000, 180_000].find(step => shown / step <= 5.5) ?? 300_000
  const marks = []
  for (let age = 0; age <= shown * 0.93; age += step) {
    const anchor = age === 0 ? 'end' : 'middle'
    marks.push(draw('text', { x: x(now - age), y: height - 4, 'text-anchor': anchor }, age ? `−${span(age)}` : 'now'))
  }
  return marks
}

// roundUp returns an even number that is not less, with one or two digits and then zeros.
function roundUp(n) {
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(n)))
  return [1, 2, 4, 6, 8, 10].map(factor => factor * unit).find(value => value >= n && value % 2 === 0)
}

const short = n => new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 }).format(n)

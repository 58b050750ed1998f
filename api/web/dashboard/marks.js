import { draw } from './dom.js'

// mark returns the shape of a status that was, as text beside it says. <presence-dot> shows the one that is.
export function mark(status) {
  const circle = { cx: 8, cy: 8, r: status === 'green' || status === 'yellow' ? 6 : 5 }
  const shape = draw('svg', { class: `mark ${status}`, viewBox: '0 0 16 16', 'aria-hidden': 'true' },
    draw('circle', circle))
  if (status === 'yellow') shape.append(draw('path', { d: 'M8 4.6V8l2.4 1.6' }))
  return shape
}

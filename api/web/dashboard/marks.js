import { draw } from './dom.js'

const disc = 'M8 1a7 7 0 1 0 0 14a7 7 0 0 0 0-14Z'
const shapes = { // those of <presence-dot>
  green: disc,
  yellow: `${disc}M7 4h2v3.6l2.7 2.7-1.4 1.4L7 8.4Z`,
  grey: `${disc}M8 3a5 5 0 1 0 0 10a5 5 0 0 0 0-10Z`,
}

// mark returns the shape of a status, which text beside it names. <presence-dot> shows the status that a user has now.
export const mark = status => draw('svg', { class: `mark ${status}`, viewBox: '0 0 16 16', 'aria-hidden': 'true' },
  draw('path', { d: shapes[status], 'fill-rule': 'evenodd' }))

import { draw } from './dom.js'

const disc = 'M8 1a7 7 0 1 0 0 14a7 7 0 0 0 0-14Z'
const shapes = { // those of <presence-dot>
  green: disc,
  yellow: `${disc}M7 4h2v3.6l2.7 2.7-1.4 1.4L7 8.4Z`,
  red: `${disc}M4 7h8v2H4Z`,
  grey: `${disc}M8 3a5 5 0 1 0 0 10a5 5 0 0 0 0-10Z`,
}

// mark returns the shape of a dot, which text beside it names. <presence-dot> shows the dot that a user has now.
export const mark = dot => draw('svg', { class: `mark ${dot}`, viewBox: '0 0 16 16', 'aria-hidden': 'true' },
  draw('path', { d: shapes[dot], 'fill-rule': 'evenodd' }))

// dotOf returns what one dot shows of a presence as the API sends it: red for those who are busy or in a call.
export function dotOf({ status, availability, activity, in_call }) {
  if (status === 'grey') return status
  if (availability === 'busy' || in_call) return 'red'
  return availability === 'away' || activity === 'idle' ? 'yellow' : status
}

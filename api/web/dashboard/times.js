const long = new Intl.RelativeTimeFormat('en', { numeric: 'always' })
export const narrow = new Intl.RelativeTimeFormat('en', { numeric: 'always', style: 'narrow' })
const units = [['day', 86_400], ['hour', 3600], ['minute', 60], ['second', 1]]

let ahead = 0 // how far the server's clock is, as far as responses show it: that of this computer can be wrong

// noteTime takes the time in a response that was received just now.
export const noteTime = asOf => { ahead = Date.parse(asOf) - Date.now() }

export const now = () => Date.now() + ahead

// ago returns how long ago a time was, such as "3 minutes ago", or "just now".
export function ago(time, format = long) {
  const seconds = Math.max(0, Math.floor((now() - Number(time)) / 1000))
  if (seconds === 0) return 'just now'
  const [unit, length] = units.find(([, length]) => seconds >= length) ?? units.at(-1)
  return format.format(-Math.floor(seconds / length), unit)
}

// span returns a duration in milliseconds in words, such as "90 s" or "5 min".
export function span(milliseconds) {
  for (const [unit, length] of [['d', 86_400_000], ['h', 3_600_000], ['min', 60_000]]) {
    if (milliseconds >= 2 * length || milliseconds >= length && milliseconds % length === 0) {
      return `${Number((milliseconds / length).toFixed(1))} ${unit}`
    }
  }
  return `${milliseconds / 1000} s`
}

// exact returns a time to the second, in the time zone of the reader.
export const exact = time => new Date(time).toLocaleString('en', { dateStyle: 'medium', timeStyle: 'medium' })

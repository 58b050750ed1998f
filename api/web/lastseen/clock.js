// stopwatch returns a function that returns the milliseconds since the call. performance.now() may stop while a
// computer sleeps, and Date.now() jumps when the clock is set: the greater of the two never shows something old as new.
function stopwatch() {
  const [monotonic, wall] = [performance.now(), Date.now()]
  return () => Math.max(performance.now() - monotonic, Date.now() - wall)
}

const waiting = new Set()
const runDue = () => waiting.forEach(check => check())

// later calls f after some milliseconds, and returns a function that prevents it. After a sleep of the computer and in
// pages that were hidden or frozen it calls f as soon as it can: browsers stop or delay timers there.
function later(ms, f) {
  const since = stopwatch()
  const check = () => {
    if (since() < ms) return
    cancel()
    f()
  }
  const timer = setTimeout(check, ms + 1) // a new one: a repeated one is delayed most in hidden pages
  const cancel = () => {
    clearTimeout(timer)
    waiting.delete(check)
  }
  waiting.add(check)
  return cancel
}
setInterval(runDue, 1000)
document.addEventListener('visibilitychange', runDue)

// Backoff makes the pauses between attempts: random ones, so that clients do not come back all at once.
class Backoff {
  #failures = 0

  // next returns milliseconds: at least some, and up to 1 second more, then up to 2, 4, … and at most 30.
  next(least = 0) { return least + Math.random() * Math.min(1000 * 2 ** this.#failures++, 30_000) }
  reset() { this.#failures = 0 }
}

import { find, say } from './dom.js'
import { Namespaces } from './namespaces.js'
import { link, read, wrong } from './route.js'
import { Session } from './session.js'
import { View } from './view.js'
import { Webhooks } from './webhooks.js'

const session = new Session()
const namespaces = new Namespaces(session)
const webhooks = new Webhooks(session)
let view

// begin shows the namespace in the URL, or the one that was pinged last.
async function begin() {
  view?.close()
  view = undefined
  const listed = await namespaces.refresh().catch(error => {
    if (error.outage) say(find('banner'), error.message)
    return error.status === 401 ? undefined : []
  })
  if (!listed) return
  find('app').hidden = false
  webhooks.refresh()
  if (!read().namespace) {
    const newest = listed.toSorted((a, b) => Date.parse(b.last_ping ?? 0) - Date.parse(a.last_ping ?? 0))[0]
    history.replaceState(null, '', link({ namespace: newest?.namespace ?? 'chat' }))
  }
  show()
}

// show shows what the URL says.
function show() {
  const route = read()
  const mistake = wrong(route)
  if (view && (mistake || view.namespace !== route.namespace)) {
    view.close()
    view = undefined
  }
  document.title = `${route.namespace} · lastseen`
  namespaces.mark(route.namespace)
  for (const part of document.querySelectorAll('main > :not(#banner)')) part.hidden = Boolean(mistake)
  if (mistake) {
    say(find('banner'), mistake)
    return say(find('connection'), '')
  }
  view ??= new View(session, route.namespace)
  view.go(route)
}

find('find').addEventListener('submit', event => {
  event.preventDefault()
  const user = find('user').value
  const mistake = wrong({ namespace: view.namespace, user })
  if (mistake) return say(find('notice'), mistake)
  if (event.submitter?.value === 'find') location.hash = link({ ...read(), user })
  else view.act(event.submitter.value, user)
})

find('filter').addEventListener('change', () => {
  const status = [...find('filter').elements].filter(box => box.checked).map(box => box.value)
  location.hash = link({ ...read(), status: status.length < 3 ? status : [] })
})

addEventListener('hashchange', () => {
  if (find('app').hidden) return
  if (read().namespace) show()
})

document.addEventListener('visibilitychange', () => {
  if (document.visibilityState === 'visible') view?.wake()
})

setInterval(() => {
  if (document.visibilityState !== 'visible') return
  view?.tick()
  namespaces.tick()
  webhooks.tick()
}, 1000)

setInterval(() => {
  if (document.visibilityState !== 'visible' || find('app').hidden) return
  if (!namespaces.forbidden) namespaces.refresh().catch(() => {}) // the list of users says why
  if (!webhooks.forbidden) webhooks.refresh()
}, 30_000)

session.onchange = begin
begin()

import { call, path } from './api.js'
import { make } from './dom.js'
import { ago, narrow } from './times.js'

// listDevices shows the devices of a user in an element, or why they cannot be shown. It does not ask for a key,
// since other parts of the page can do without one.
export async function listDevices(session, namespace, user, element, signal) {
  try {
    const found = await call(session.key, path(namespace, 'users', user, 'devices'), { signal })
    element.replaceChildren(found.devices ? table(found.devices) : kinds(found.kinds))
  } catch (error) {
    if (signal.aborted) return
    const forbidden = [401, 403].includes(error.status)
    const text = forbidden ? `You cannot see the devices of this user. ${error.message}` : error.message
    element.replaceChildren(make('p', { class: 'quiet' }, text))
  }
}

// kinds is what other users can see at most.
function kinds(names) {
  return make('p', { class: 'quiet' }, names.length > 0 ? `On: ${names.join(', ')}.` : 'On no known device.')
}

function table(devices) {
  if (devices.length === 0) {
    return make('p', { class: 'quiet' }, 'No devices. Pings can name one; WebSocket connections always do.')
  }
  return make('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': 'Devices' }, make('table', {},
    make('thead', {}, make('tr', {}, ...['Device', 'Kind', 'State', 'Last heard'].map(name =>
      make('th', { scope: 'col' }, name)))),
    make('tbody', {}, ...devices.map(row))))
}

function row({ id, kind, meta, last_seen, activity, gone, live }) {
  const state = gone ? 'gone' : live ? activity : 'silent'
  return make('tr', {},
    make('th', { scope: 'row', title: meta ? JSON.stringify(meta) : undefined }, make('bdi', {}, id)),
    make('td', {}, kind), make('td', {}, state), make('td', {}, ago(Date.parse(last_seen), narrow)))
}

import { call, path } from './api.js'
import { make } from './dom.js'
import { ago, narrow } from './times.js'

// listDevices shows the devices of a user in an element, or why they cannot be shown. It does not ask for a key,
// since other parts of the page can work without one.
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

// kinds shows all that other users can see of devices.
function kinds(names) {
  return make('p', { class: 'quiet' }, names.length > 0 ? `Devices: ${names.join(', ')}.` : 'No known devices.')
}

function table(devices) {
  if (devices.length === 0) {
    return make('p', { class: 'quiet' }, 'No devices. A ping can name one; a WebSocket always does.')
  }
  return make('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': 'Devices' }, make('table', {},
    make('thead', {}, make('tr', {}, ...['Device', 'Kind', 'State', 'Last seen'].map(name =>
      make('th', { scope: 'col' }, name)))),
    make('tbody', {}, ...devices.map(row))))
}

function row({ id, kind, meta, last_seen, activity, gone, live }) {
  const state = gone ? 'left' : live ? activity : 'offline'
  return make('tr', {},
    make('th', { scope: 'row', title: meta ? JSON.stringify(meta) : undefined }, make('bdi', {}, id)),
    make('td', {}, kind), make('td', {}, state), make('td', {}, ago(Date.parse(last_seen), narrow)))
}

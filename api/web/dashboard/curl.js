import { address, path } from './api.js'
import { find, make } from './dom.js'

// showCommands shows what is on the screen as commands for curl. They have a variable for the key, and never the key.
export function showCommands(signedIn, namespace, { user, query }) {
  const command = (options, names, parameters) => [
    'curl -sS', ...options, ...signedIn ? ['-H "Authorization: Bearer $LASTSEEN_KEY"'] : [],
    `'${address(path(namespace, ...names), parameters)}'`,
  ].join(' ')
  const shown = user ? [
    ['Status of the user', command([], ['users', user])],
    ['Devices', command([], ['users', user, 'devices'])],
    ['Ping', command(['-X POST'], ['users', user, 'ping'])],
    ['Leave', command(['-X POST'], ['users', user, 'leave'])],
    ['Set busy', command([`-X PUT -d '{"availability":"busy","for":"1h"}'`], ['users', user, 'availability'])],
  ] : [
    ['Recently seen', command([], ['users'], query)],
    ['Counts', command([], ['counts'])],
  ]
  shown.push(['Changes', command(["-N -H 'Accept: text/event-stream'"], ['changes'], { user })])
  find('curl-note').hidden = !signedIn
  find('commands').replaceChildren(...shown.map(row))
}

function row([title, command]) {
  const code = make('code', {}, command)
  const onclick = () => copy(code, button)
  const button = make('button', { type: 'button', 'aria-label': `Copy: ${title}`, onclick }, 'Copy')
  return make('li', {}, make('span', {}, title), make('pre', { tabindex: '0', 'aria-label': title }, code), button)
}

// copy copies a command. Where pages cannot, because they came over plain HTTP, it selects the text.
async function copy(code, button) {
  try {
    await navigator.clipboard.writeText(code.textContent)
    button.textContent = 'Copied'
  } catch {
    getSelection().selectAllChildren(code)
    button.textContent = 'Selected'
  }
  setTimeout(() => { button.textContent = 'Copy' }, 2000)
}

import { call, Problem } from './api.js'
import { find, say } from './dom.js'

const storage = 'lastseen.key'
const sendable = /^[\x21-\x7E]+$/ // what every key and token consists of; not all else can be in a header

// Session holds the key or token, in the session storage of this tab or, where that is blocked, in memory.
export class Session {
  #key

  constructor() {
    try { this.#key = sessionStorage.getItem(storage) ?? undefined } catch {}
    this.#set(this.#key)
    find('signout').addEventListener('click', () => this.#signOut())
    find('signin').querySelector('form').addEventListener('submit', event => {
      event.preventDefault()
      this.#signIn(find('key').value.trim())
    })
  }

  get key() { return this.#key }

  // call sends a request with the key. If the key is refused, or missing, it also asks for one.
  async call(resource, options) {
    const key = this.#key
    try {
      return await call(key, resource, options)
    } catch (error) {
      if (error.status === 401 && key === this.#key) this.refused()
      throw error
    }
  }

  // refused asks for a key, since the server does not accept this one, or requires one.
  refused() {
    if (find('signin').hidden) {
      say(find('signin-reason'), this.#key
        ? 'The server refused the key or token: it is invalid, was removed, or has expired. Sign in again.'
        : 'This server requires an API key or a JWT.')
      find('signin').hidden = false
      find('key').focus()
    }
    this.#set(undefined)
  }

  async #signIn(key) {
    say(find('signin-error'), '')
    try {
      if (!sendable.test(key)) throw new Problem(401, {})
      await call(key, 'v1/namespaces', { query: { limit: 1 } })
    } catch (error) {
      if (error.status !== 403) { // a key that cannot list namespaces is valid
        const wrong = error.status === 401
        say(find('signin-error'), wrong ? 'The server does not accept this key or token.' : error.message)
        find('key').select()
        return
      }
    }
    find('key').value = ''
    this.#set(key)
    find('signin').hidden = true
    this.onchange?.()
  }

  #signOut() {
    this.#set(undefined)
    location.reload() // which also forgets everything that the key could read
  }

  #set(key) {
    this.#key = key
    find('signout').hidden = !key
    try {
      if (key) sessionStorage.setItem(storage, key)
      else sessionStorage.removeItem(storage)
    } catch {}
  }
}

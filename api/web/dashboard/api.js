// Requests to the server of this page, also below a path of a reverse proxy.
export const base = new URL('..', import.meta.url)

// Problem is an error response; its status is 0 if there was no response.
export class Problem extends Error {
  constructor(status, { code = '', title = '', detail = '' }, retryAfter = 0) {
    super(detail || title || `The server responded with status ${status}.`)
    Object.assign(this, { status, code, retryAfter })
  }

  // outage is whether what is on the page cannot be confirmed at the moment.
  get outage() { return this.status === 0 || this.status >= 500 }
}

// path returns the path of a resource: namespaces, and then names that can contain anything.
export const path = (...names) => `v1/namespaces/${names.map(encode).join('/')}`

// encode also encodes quotes, for curl.
const encode = name => encodeURIComponent(name.toWellFormed()).replaceAll("'", '%27')

// address returns the URL of a resource. The query has lists for parameters that are repeated.
export function address(resource, query = {}) {
  const url = new URL(resource, base)
  for (const [name, values] of Object.entries(query)) {
    for (const value of [values ?? []].flat()) url.searchParams.append(name, value)
  }
  return url.href.replaceAll("'", '%27')
}

// call sends a request with a key, and returns the body of the response, for which it waits some milliseconds. It throws
// a Problem.
export async function call(key, resource, { method = 'GET', query, body, signal, wait = 15_000 } = {}) {
  const limit = AbortSignal.timeout(wait)
  const headers = key ? { Authorization: `Bearer ${key}` } : {}
  let response
  try {
    response = await fetch(address(resource, query), {
      method, headers, body: body && JSON.stringify(body), cache: 'no-store',
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    })
    if (response.ok) return response.status === 204 ? {} : await response.json()
  } catch (error) {
    if (signal?.aborted) throw error
    throw new Problem(0, { detail: 'The server cannot be reached.' })
  }
  const problem = await response.json().catch(() => ({}))
  throw new Problem(response.status, problem ?? {}, Number(response.headers.get('Retry-After')) || 0)
}

// endpoint returns the URL of a path below a namespace. The default server is the one that served this script.
function endpoint({ url = new URL('.', import.meta.url), namespace }, path) {
  const base = new URL(url, document.baseURI).href.replace(/\/*$/, '')
  return `${base}/v1/namespaces/${encodeURIComponent(namespace)}${path}`
}

// RequestError is a response other than 2xx and 304. Its code is undefined if the response is not from lastseen.
class RequestError extends Error {
  constructor(status, code, retryAfter = 0) {
    super(`${status} ${code}`)
    Object.assign(this, { status, code, retryAfter }) // retryAfter in milliseconds
  }

  // final says whether the same request would fail again.
  get final() { return Boolean(this.code) && [400, 401, 403, 404, 409, 410, 413, 422].includes(this.status) }
}

// request sends a request to a path below the namespace, such as '/lookup', and returns the response. After a 401 it
// tries once again, with another token. Without a response it throws what fetch throws.
async function request(options, path, { body, headers, signal, ...init } = {}) {
  const attempt = async renew => {
    const token = await options.token?.({ renew })
    return fetch(endpoint(options, path), {
      cache: 'no-store', // a browser's cache would return an old as_of
      ...init,
      headers: { ...(token && { Authorization: `Bearer ${token}` }), ...headers },
      body: body && JSON.stringify(body),
      signal: AbortSignal.any([AbortSignal.timeout(10_000), ...(signal ? [signal] : [])]),
    })
  }
  let response = await attempt(false)
  if (response.status === 401 && options.token) response = await attempt(true)
  if (response.ok || response.status === 304) return response
  const problem = await response.json().catch(() => undefined)
  throw new RequestError(response.status, problem?.code, 1000 * (Number(response.headers.get('Retry-After')) || 0))
}

// endpoint returns the URL of a path below a namespace. The default server is the one that served this script.
function endpoint({ url = new URL('.', import.meta.url), namespace }, path) {
  const base = new URL(url, document.baseURI).href.replace(/\/*$/, '')
  return `${base}/v1/namespaces/${encodeURIComponent(namespace)}${path}`
}

// request sends a request to a path below the namespace, such as '/lookup', and returns the response. After a 401 it
// tries once again, with another token. For other responses than 2xx it throws an error with status, code,
// retryAfter in milliseconds, and final: whether the same request would fail again. The code is undefined if the
// response is not from lastseen. Without a response it throws what fetch throws.
async function request(options, path, { body, headers, signal, ...init } = {}) {
  const attempt = async renew => {
    const token = await options.token?.({ renew })
    return fetch(endpoint(options, path), {
      cache: 'no-store', // a browser's cache would return an old as_of
      ...init,
      headers: { ...(token && { Authorization: `Bearer ${token}` }), ...headers },
      body: body && JSON.stringify(body),
      signal: AbortSignal.any([AbortSignal.timeout(10_000), signal].filter(Boolean)),
    })
  }
  let response = await attempt(false)
  if (response.status === 401 && options.token) response = await attempt(true)
  const { ok, status } = response
  if (ok) return response
  const { code } = await response.json().catch(() => ({}))
  const final = code && status < 500 && ![408, 429].includes(status)
  const retryAfter = 1000 * response.headers.get('Retry-After') || 0
  throw Object.assign(new Error(`${status} ${code}`), { status, code, final, retryAfter })
}

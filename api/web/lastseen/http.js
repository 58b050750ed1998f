// serverOf returns the URL of a server without a slash at its end. The default is the one that served this script.
function serverOf({ url = new URL('.', import.meta.url) }) {
  return new URL(url, document.baseURI).href.replace(/\/*$/, '')
}

// endpoint returns the URL of a path below a namespace.
function endpoint(options, path) {
  return `${serverOf(options)}/v1/namespaces/${encodeURIComponent(options.namespace)}${path}`
}

const warned = new Set() // reasons

// warn writes on the console why statuses stay unknown, once for each reason.
function warn(options, reason) {
  if (!warned.has(reason)) console.warn(`lastseen: ${reason} (see ${serverOf(options)}/guides/faq#my-dots-stay-dashed)`)
  warned.add(reason)
}

// warnRefused warns that the server refuses the page, unless the page handles that itself.
function warnRefused(options, { status, code }) {
  if (!options.onrefused) warn(options, `${status} ${code}: check the token of connect(). ${serverOf(options)}/docs/errors#${code}`)
}

// unreachable returns why a page of another origin may have no response.
const unreachable = options => `No response. Start ${serverOf(options)} with --cors-origins ${origin}`

// reached prevents the warning: an outage later has other reasons.
const reached = options => warned.add(unreachable(options))

// request sends a request to a path below the namespace, such as '/lookup', and returns the response. After a 401 it
// tries once again, with another token. For other responses than 2xx it throws an error with status, code,
// retryAfter in milliseconds, and final: whether the same request would fail again. The code is undefined if the
// response is not from lastseen. Without a response it throws what fetch throws.
async function request(options, path, { body, headers, signal, ...init } = {}) {
  const attempt = async renew => {
    const token = await options.token?.({ renew })
    const response = await fetch(endpoint(options, path), {
      cache: 'no-store', // a browser's cache would return an old as_of
      ...init,
      headers: { ...(token && { Authorization: `Bearer ${token}` }), ...headers },
      body: body && JSON.stringify(body),
      signal: AbortSignal.any([AbortSignal.timeout(10_000), signal].filter(Boolean)),
    }).catch(error => {
      if (error instanceof TypeError && new URL(serverOf(options)).origin !== origin) warn(options, unreachable(options))
      throw error
    })
    reached(options)
    return response
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

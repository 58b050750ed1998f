const statuses = ['green', 'yellow', 'grey']
const validNamespace = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/

// read returns what the fragment of the URL says is to be shown: a namespace, statuses (none for all) and a user.
export function read() {
  const fields = new URLSearchParams(location.hash.slice(1))
  const status = (fields.get('status') ?? '').split(',').filter(name => statuses.includes(name))
  return {
    namespace: fields.get('namespace') ?? undefined,
    status: status.length < statuses.length ? status : [],
    user: fields.get('user') || undefined,
  }
}

// link returns the fragment for what is to be shown. It never has a key: people share links.
export function link({ namespace, status = [], user }) {
  const fields = new URLSearchParams({ namespace })
  if (status.length > 0) fields.set('status', status.join())
  if (user) fields.set('user', user)
  return `#${fields}`
}

// wrong returns why a namespace or user is not valid, and nothing if they are.
export function wrong({ namespace, user }) {
  if (!validNamespace.test(namespace)) {
    return 'Invalid namespace: use 1 to 64 of A–Z a–z 0–9 . _ - and no dot at the start.'
  }
  if (user === undefined) return ''
  const bytes = new TextEncoder().encode(user).length
  const valid = bytes <= 256 && !/[\p{Cc}\u2028-\u202e\u2066-\u2069]/u.test(user) && user !== '.' && user !== '..'
  return valid ? '' : 'Invalid user ID: use 1 to 256 bytes without control characters, line breaks or ' +
    'bidirectional overrides. The IDs . and .. are not valid.'
}

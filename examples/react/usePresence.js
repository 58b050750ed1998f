// A React hook for presence, as text to copy. The client is what connect() of lastseen.js returns. Make one for the
// whole app: all components share its subscription.
//
//     const { connect } = await import(/* webpackIgnore: true */ 'https://presence.example.com/lastseen.js')
//     export const client = connect({ namespace: 'chat', user: 'alice' })

import { useCallback, useSyncExternalStore } from 'react'

const unknown = {
  status: 'unknown', dot: 'unknown', lastSeen: null, left: false,
  availability: null, availabilityUntil: null, note: null, idleSince: null, inCall: false,
}

// usePresence returns what is known of a user, such as { status, dot, lastSeen, availability, note }, and renders the
// component again when that changes. While a server renders, every status is unknown.
export function usePresence(client, user) {
  const subscribe = useCallback(changed => client.watch(user, changed), [client, user])
  const current = useCallback(() => client.get(user), [client, user])
  return useSyncExternalStore(subscribe, current, () => unknown)
}

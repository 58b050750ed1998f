// A React component for a presence dot of your own look, as text to copy. For the usual look, render the element:
// <presence-dot user={user} namespace="chat" />
//
// Style it by its classes. Use shapes as well as colours, and never draw unknown like grey:
//
//     .dot { display: inline-block; width: 12px; height: 12px; border-radius: 50%; border: 2px solid #6e7781; }
//     .dot.green { background: #2da44e; border-color: #2da44e; }
//     .dot.yellow { background: linear-gradient(#bf8700 50%, transparent 50%); border-color: #bf8700; }
//     .dot.red { background: linear-gradient(#cf222e 33%, #fff 33% 66%, #cf222e 66%); border-color: #cf222e; }
//     .dot.unknown { border-style: dashed; }

import { usePresence } from './usePresence.js'

const words = { green: 'online', yellow: 'recently online', grey: 'offline', unknown: 'status unknown' }

export function PresenceDot({ client, user, label = user }) {
  const { status, dot, lastSeen, availability, idleSince, inCall, note } = usePresence(client, user)
  const seen = status === 'grey' && lastSeen ? `, last seen ${lastSeen.toLocaleString()}` : ''
  const activity = status !== 'grey' && (inCall ? 'in a call' : availability ?? (idleSince && 'idle'))
  const text = `${label}, ${activity || words[status] + seen}${note ? `: ${note}` : ''}`
  return <span className={`dot ${dot}`} role="img" title={text} aria-label={text} />
}

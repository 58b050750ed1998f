// A page can load this module from two servers. The elements of the first one stay then.
for (const [name, element] of Object.entries({ 'presence-dot': PresenceDot, 'presence-list': PresenceList })) {
  if (!customElements.get(name)) customElements.define(name, element)
}

export { connect, Socket, texts }

// randomID returns an ID for a device.
function randomID() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map(byte => (byte % 36).toString(36)).join('')
}

// Pinger keeps the user of a client online: over its connection, if that is not undefined and a WebSocket can be had,
// else by pings. The client has options and device, and onrefused(problem).
class Pinger {
  constructor(client, connection) {}

  start() {}

  // stop stops without a goodbye.
  stop() {}

  // leave says goodbye and stops.
  async leave() {}

  // overHTTP is called by the connection.
  overHTTP(needed) {}
}

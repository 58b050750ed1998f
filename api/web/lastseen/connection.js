const retryWebSocket = 300_000 // milliseconds

// Connection is the one connection of a client. It is open while there is a user to keep online or users to watch.
//
// The client has options and device, and these methods:
//
//   onusers(users, asOf)     presences of users, as the server sent them
//   onalive()                everything that is watched is known, and up to date
//   ondown()                 nothing that was received is valid any longer
//   onunsupported(watching)  use HTTP instead, for watching only if watching is true, until the next onalive. Connection
//                            tries again by itself
//   onrefused(problem)       the server refuses the page for good
class Connection {
  #client
  #socket
  #pinger // of the user to keep online
  #wanted // users to watch; null for none
  #asked = new Set() // users that this connection was asked to watch
  #known = new Set() // users who are known up to the cursor
  #cursor
  #pending // the frame that waits for its response
  #next // prevents the next frame
  #retry // prevents the next attempt after one in vain
  #idle = false
  #leaving // ends the wait for the response to leave
  #changed = false
  #ids = 0
  #backoff = new Backoff()

  constructor(client) { this.#client = client }

  // keepOnline keeps the client's user online, until it is called with null. It calls overHTTP of the pinger with
  // whether the pinger has to do it.
  keepOnline(pinger) {
    if (this.#pinger === pinger) return
    this.#pinger = pinger
    this.#close() // since the hello is another one
    this.#update()
  }

  // watch replaces the set of users to watch; null for none.
  watch(users) {
    this.#wanted = users
    this.#update()
  }

  // setIdle reports whether the person uses the page.
  setIdle(idle) {
    this.#idle = idle
    this.#socket?.send({ activity: { idle } })
  }
}

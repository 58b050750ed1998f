import { Socket } from '../lastseen.js'

// Live follows a namespace over a WebSocket. Its state is "connecting", "live" or "down".
export class Live {
  #socket
  #cursor
  state = 'connecting'

  // The listener has onstate(), onchanges(users), onreset(), oncounts(counts) and onproblem({ status, code, detail }).
  constructor(session, namespace, listener) {
    this.#socket = new Socket({
      namespace,
      token: () => session.key,
      hello: () => ({ watch: { everyone: true, counts: true }, cursor: this.#cursor }),
      onframe: (name, value) => this.#take(name, value, listener),
      ondown: (_, code) => {
        this.code = code
        this.#turn('down', listener)
      },
      onrefused: problem => {
        this.#turn('down', listener)
        listener.onproblem(problem)
      },
    })
  }

  // why returns why there are no changes, if that is not merely a connection that broke.
  get why() {
    if (this.code === 4409) return 'This namespace has no feed of changes.'
    return this.#socket.opened ? '' : 'Changes need a WebSocket, and none can be opened here.'
  }

  close() { this.#socket.close() }

  #turn(state, listener) {
    if (this.state === state && state === 'live') return
    this.state = state
    listener.onstate()
  }

  #take(name, value, listener) {
    if (name === 'problem') return listener.onproblem(value)
    this.#cursor = value.cursor ?? this.#cursor
    this.#turn('live', listener)
    if (name === 'counts') listener.oncounts(value)
    if (name === 'reset') listener.onreset()
    if (name !== 'reset' && value.users?.length > 0) listener.onchanges(value.users)
  }
}

// Types of lastseen.js, an ES module that every lastseen server serves at /lastseen.js.

/** A status; `unknown` before the first response, and while the server or its store cannot be reached. */
export type Status = 'green' | 'yellow' | 'grey' | 'unknown'

/** The availability that a user has set. Others see an invisible user as one who left. */
export type Availability = 'away' | 'busy'

/**
 * What one dot shows: grey if the user is offline; otherwise red if busy or in a call, yellow if away or idle, else the
 * status.
 */
export type Dot = Status | 'red'

/** What is known of a user. */
export interface Presence {
  readonly user: string
  readonly status: Status
  readonly dot: Dot
  /** The newest ping or leave; null for a user never seen, and while the status is unknown. */
  readonly lastSeen: Date | null
  /** Whether the user left. */
  readonly left: boolean
  /** The user's availability, and until when; it ends by itself. */
  readonly availability: Availability | null
  readonly availabilityUntil: Date | null
  /** A text by the user. Set it as `textContent`, never as HTML. */
  readonly note: string | null
  /** Since when the user uses none of their devices; null while they use one, and for users who are offline. */
  readonly idleSince: Date | null
  /** Whether the user is in an active call; false for users who are offline. */
  readonly inCall: boolean
}

/** The availability of the user of this page; `null` for what is not set. */
export interface OwnAvailability {
  readonly availability: Availability | 'invisible' | null
  readonly note: string | null
  readonly until: Date | null
}

/** A new availability, with an optional end: `for`, seconds or a text such as "45m", or `until`. */
export interface NewAvailability {
  availability?: Availability | 'invisible' | null
  /** Up to 140 characters. */
  note?: string | null
  for?: string | number
  until?: Date | string
}

/** Another user types for the user of this page. */
export interface Typing {
  readonly user: string
  /** Where, as the sender names it. */
  readonly in: string | undefined
  /** True for each message about it; false when it ends, 10 seconds after the last one. */
  readonly typing: boolean
}

/** Calls with the first two states are in progress, all others have ended. */
export type CallState = 'ringing' | 'active' | 'ended' | 'rejected' | 'cancelled' | 'missed' | 'lost'

/** A call of the user of this page, as the server's API describes it. */
export interface Call {
  readonly id: string
  readonly from: string
  readonly to: string
  readonly state: CallState
  /** The devices that the call is on, which are those of {@link Client.device} if the app sends these. */
  readonly fromDevice: string | null
  readonly toDevice: string | null
  /** The party whose action led to the state; null if time did, or if that is not known. */
  readonly by: { readonly user: string; readonly device: string | null } | null
  readonly createdAt: Date
  readonly acceptedAt: Date | null
  readonly endedAt: Date | null
  /** When it will be missed, while it rings. */
  readonly expiresAt: Date | null
  /** Any JSON of the app's; null once the call has ended. */
  readonly app: any
}

/** The events of a client: the availability of its user changed, a call of its user changed, or another user types. */
export interface ClientEventMap {
  self: CustomEvent<OwnAvailability | undefined>
  /**
   * A call of the user began, changed or ended, on any device. One that ended while the page had no connection has the
   * state `ended`, or `missed` if it rang until then.
   */
  call: CustomEvent<Call>
  typing: CustomEvent<Typing>
}

export interface Options {
  /** The server, such as `https://presence.example.com`. Default: the one that served lastseen.js. */
  url?: string
  namespace: string
  /** The user that this page keeps online. Without it, the page only watches. */
  user?: string
  /**
   * Returns an API key or a JWT. It is called for each connection or request, again before a JWT expires, and after a
   * 401 with `renew` true: return a new one then. Without it, requests have no credentials.
   */
  token?: (reason: { renew: boolean }) => string | undefined | Promise<string | undefined>
  /** `http` never opens a WebSocket. Default: `auto`, a WebSocket if it is available, HTTP otherwise. */
  transport?: 'auto' | 'http'
  /** Milliseconds between two lookups without a WebSocket, 5,000 or more. Default: 30,000. */
  interval?: number
  /** Milliseconds without input after which the device is idle. Default: 300,000. A hidden page is idle at once. */
  idleAfter?: number
  /** Milliseconds from the end of the connection to the leave, up to 60,000. Default: that of the server. */
  grace?: number
  /**
   * Called when the server refuses this page, which then does not try again: a close code or an HTTP status. Without it,
   * the console has a warning.
   */
  onrefused?: (problem: { status: number; code: string }) => void
}

/** A client of one namespace. */
export interface Client extends EventTarget {
  readonly namespace: string
  readonly user: string | undefined
  /** The ID of this page as a device. */
  readonly device: string
  /**
   * Calls `listener` with the presence of each user, now and at each change, until the function that it returns is
   * called. At most 5,000 users in all.
   */
  watch(users: string | Iterable<string>, listener: (presence: Presence) => void): () => void
  /** What is known of a user who is watched. */
  get(user: string): Presence
  /**
   * The availability of the user of this page, also `invisible`, also if another page or server set it. Without a
   * WebSocket, it is what the methods below returned. It is undefined while it is not known.
   */
  readonly self: OwnAvailability | undefined
  /**
   * The calls in progress of the user of this page, also those on other devices. They need a WebSocket. It is undefined
   * while they are not known. Start, accept and end calls with requests to the server's API.
   */
  readonly calls: readonly Call[] | undefined
  /** Replaces the user's availability and note. The promise is rejected with an error that has `status` and `code`. */
  setAvailability(availability: NewAvailability): Promise<OwnAvailability>
  /** Removes the user's availability and note. */
  clearAvailability(): Promise<OwnAvailability>
  /** Requests the user's availability and note from the server. */
  getAvailability(): Promise<OwnAvailability>
  /**
   * Lets up to 20 users know for 10 seconds that the user of this page types, and returns whether that was possible: it
   * needs a WebSocket. Call it at each input: it sends at most one message in 5 seconds.
   */
  typing(to: string | Iterable<string>, place?: string): boolean
  addEventListener<K extends keyof ClientEventMap>(
    type: K, listener: (event: ClientEventMap[K]) => void, options?: boolean | AddEventListenerOptions,
  ): void
  /** Leaves, for a user who signs out, and stops keeping the user online. Watching continues. */
  leave(): Promise<void>
  /** Stops everything, without sending a leave. */
  close(): void
}

/**
 * Returns the client of a namespace. The first call makes it; later ones, with other options, change it. There is one
 * client for each namespace and page, which `<presence-dot>` and `<presence-list>` also use.
 */
export function connect(options: Options): Client

export interface SocketOptions extends Pick<Options, 'url' | 'namespace' | 'token' | 'onrefused'> {
  /** Returns what the hello has besides the token. It is called for each connection. */
  hello: () => Record<string, unknown>
  /** Called with each frame, such as `('welcome', {…})`. */
  onframe: (name: string, value: any, id?: string | number) => void
  /**
   * Called when the connection ended or stopped responding. If `invalid` is false, it broke with this close code: what
   * was received is still valid, and the next connection can continue. Otherwise it is no longer valid. The socket connects
   * again by itself.
   */
  ondown?: (invalid: boolean, code?: number) => void
}

/** A WebSocket that connects again by itself, for programs that need other frames than `connect` uses. */
export class Socket {
  constructor(options: SocketOptions)
  /** Whether a connection was ever open. If not, a WebSocket may not be possible here. */
  readonly opened: boolean
  /** Sends a frame if the connection is open, and returns whether it is. */
  send(frame: Record<string, unknown>): boolean
  close(): void
}

/**
 * The words of the elements, by language: that of the `lang` of the element, or of an element around it. `{ago}` in
 * `seen` is the time, such as "3 minutes ago", and within the first minute `now`, or seconds in a language without it.
 * Pages can change these and add languages. English, `en`, has all words, also for those that another language lacks.
 */
export const texts: Record<string, Partial<Record<
  'online' | 'seen' | 'offline' | 'unknown' | 'busy' | 'away' | 'idle' | 'call' | 'now', string
>>>

/**
 * `<presence-dot user="alice" namespace="chat">`, with the optional attributes `url` and `label`, the name that is read
 * aloud. It has the role `img`, a name such as "alice, busy: in a meeting", and one of the CSS states
 * `:state(green)`, `:state(yellow)`, `:state(red)`, `:state(grey)` and `:state(unknown)`. Custom properties: `--presence-size`,
 * `--presence-green`, `--presence-yellow`, `--presence-red`, `--presence-grey` and `--presence-unknown`.
 */
export interface PresenceDotElement extends HTMLElement {
  readonly presence: Presence
  /** The text after the name, such as "busy, last seen 3 minutes ago: in a meeting". */
  readonly text: string
}

/**
 * `<presence-list namespace="chat">`, with the optional attributes `url`, `status`, such as "green yellow", and `limit`,
 * 50 by default. It has the parts `row`, `name`, `text` and `more`, a button, whose text is the slot `more`. The slot
 * `empty` is shown if there are no users.
 */
export interface PresenceListElement extends HTMLElement {
  /** Returns the name of a user. Default: the user's ID. */
  label: (user: string) => string
}

declare global {
  interface HTMLElementTagNameMap {
    'presence-dot': PresenceDotElement
    'presence-list': PresenceListElement
  }
  interface HTMLElementEventMap {
    /** Sent by a dot when its user or something of the presence changes. It bubbles. */
    presencechange: CustomEvent<Presence>
  }
}

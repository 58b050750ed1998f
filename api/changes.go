package api

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store/feed"
)

const (
	maxWait      = 50 * time.Second       // of a long poll: proxies commonly end requests after 60 seconds
	pollInterval = 5 * time.Second        // advice to clients that poll without waiting
	maxInterval  = time.Minute            // the same under load, at most
	maxPollPause = 250 * time.Millisecond // the same, with waiting
)

// changesBody is the JSON of a request for changes.
type changesBody struct {
	// The users to follow. Omit it and `contacts_of` to follow everyone.
	Users *[]string `json:"users" validate:"optional"`
	// The user whose contacts to follow. Omit `users` then.
	ContactsOf *request.Scalar `json:"contacts_of" swaggertype:"string" validate:"optional"`
	// The `cursor` of the previous response, unchanged. Omit it to begin.
	Cursor *request.Scalar `json:"cursor" swaggertype:"string" validate:"optional"`
	// The maximum number of users in the response, except in one that has all users followed: from 1 to 1000.
	Limit *request.Scalar `json:"limit" swaggertype:"integer" minimum:"1" maximum:"1000" default:"1000" validate:"optional"` //nolint:lll // a tag
	// The statuses that users of the first pages have; only to follow everyone.
	Statuses []lastseen.Status `json:"status" validate:"optional"`
	// `none` to follow everyone without the first pages.
	Snapshot *request.Scalar `json:"snapshot" swaggertype:"string" validate:"optional"`
	// How long to wait for a change.
	Wait *request.Scalar `json:"wait" swaggertype:"string" validate:"optional"`
} // @name ChangesRequest

// query returns the body as the query with the same meaning.
func (b changesBody) query() request.Query {
	q := request.Query{}
	for name, value := range map[string]*request.Scalar{
		"contacts_of": b.ContactsOf, "cursor": b.Cursor, "limit": b.Limit, "wait": b.Wait,
		"snapshot": b.Snapshot,
	} {
		if value != nil {
			q[name] = []string{string(*value)}
		}
	}
	for _, status := range b.Statuses {
		q["status"] = append(q["status"], string(status))
	}
	if b.Users != nil {
		q["user"] = *b.Users // an empty list follows nobody, and is not the same as no list
	}
	return q
}

// changesResponse is the response to a request for changes.
type changesResponse struct {
	// The changes up to this time are complete, unless there are more.
	AsOf request.Timestamp `json:"as_of" swaggertype:"string" format:"date-time"`
	// Each user once, with the newest presence.
	Users []presence `json:"users"`
	// The position in the changes after this response. Pass it as `cursor` to continue from here. It names no users.
	Cursor string `json:"cursor"`
	// Whether more changes follow.
	More bool `json:"more"`
	// Whether changes may be missing between the cursor of the request and this response. If so, `users` has all users
	// followed and replaces what the client knows. For a client that follows everyone, these are this response and the
	// next ones, as long as `more` is true.
	Reset bool `json:"reset"`
	// When to send the next request. It varies, so that clients do not send them at the same time.
	PollAfterMs int64 `json:"poll_after_ms" format:"int64" minimum:"0"`
} // @name Changes

// @ID followChanges
// @Summary Follow changes
// @Description Returns the users whose status or `left` changed since `cursor`, each once, with their newest presence.
// @Description Without `cursor` it returns the presence of all users named. Without `cursor` and users, it returns the first
// @Description page of all users of the namespace: while `more` is true, the next request with `cursor` returns the next
// @Description page, with the changes since. With `status`, the pages have only users with one of these statuses, and changes
// @Description are those of all users. A page has up to about `limit` users; with `status`, up to 5,000. With `snapshot=none`
// @Description there are no pages, only changes.
// @Description
// @Description With `contacts_of` it follows the contacts of a user. Who is added to them is in the next changes; who is
// @Description removed is in them once more, as a user who was never seen.
// @Description
// @Description `valid_until` is null in changes: a status holds until the next change. With `wait` the response waits
// @Description for a change. If `reset` is true, changes may be missing, and the response replaces what the client knows.
// @Description
// @Description With `Accept: text/event-stream`, the response is a stream of Server-Sent Events: `changes` for each batch
// @Description of changes, at first with the presence of all users named; `reset`, which replaces what the client knows;
// @Description and `tick` with `as_of` and `cursor` at least every 20 seconds while changes are complete. The ID of an
// @Description event is its cursor: `Last-Event-ID` continues the stream, on any server. A client that has received
// @Description nothing for 30 seconds shows statuses as unknown and connects again.
// @Description
// @Description Each user that is followed without a cursor counts as a request against the rate limit; after a reset,
// @Description so do those of a request with a cursor. A caller follows at most 100 namespaces at the same time; more get
// @Description 429 `rate_limited`. A namespace counts until a minute after its last request ends.
// @Description
// @Description Requires the scope `read`; `contacts_of` also requires `ping`, and a token can name only its own user.
// @Param user query []string false "users"
// @Param contacts_of query string false "user whose contacts to follow"
// @Param cursor query string false "position in the changes"
// @Param limit query integer false "maximum of a response"
// @Param status query []string false "statuses"
// @Param snapshot query string false "all or none"
// @Param wait query string false "time to wait"
// @Param Last-Event-ID header string false "ID of the last event"
// @Success 200 {object} changesResponse "The changes."
// @Router /v1/namespaces/{namespace}/changes [get]
func (s *server) getChanges(c echo.Context, q request.Query, namespace string) error {
	return s.serveChanges(c, q, namespace, maxLookupQuery, func() {})
}

// @ID followChangesByPost
// @Summary Follow changes of many users
// @Description As the GET request, with the parameters in the body, of at most 512 KiB: up to 1,000 users. An empty list
// @Description of users follows nobody; without a list and `contacts_of`, everyone. Requires the scope `read`,
// @Description and with `contacts_of` what the GET request requires.
// @Param Last-Event-ID header string false "ID of the last event"
// @Param body body changesBody true "What to follow."
// @Success 200 {object} changesResponse "The changes."
// @Router /v1/namespaces/{namespace}/changes [post]
func (s *server) postChanges(c echo.Context, _ request.Query, namespace string) error {
	var asked changesBody
	hold := s.hold(c)
	defer hold.Release()
	if err := lookupForm.Read(c, hold, &asked, strict); err != nil {
		return err
	}
	return s.serveChanges(c, asked.query(), namespace, request.MaxUsers, hold.Release)
}

// serveChanges responds to a request for the changes of up to maxUsers users. It calls opened when it does not need the
// query any longer, since the response can take hours.
func (s *server) serveChanges(
	c echo.Context, q request.Query, namespace string, maxUsers int, opened func(),
) error {
	c.Response().Header().Add(echo.HeaderVary, echo.HeaderAccept)
	events := request.Prefers(c.Request().Header[echo.HeaderAccept], transport.MediaType, request.JSON)
	asked, err := readChangesQuery(c, q, namespace, maxUsers, events)
	if err == nil {
		err = checkContactsOf(namespace, asked.Owner, guard.CallerOf(c))
	}
	if err != nil {
		return err
	}
	w, err := s.watch(c, asked)
	if err != nil {
		return err
	}
	defer w.close()
	opened()
	if events {
		head := c.Request().Method == http.MethodHead
		return w.ServeEvents(w.Subscription, c.Response(), head, asked.cursor, asked.limit, func() func() {
			return w.hold(telemetry.ServerSentEvents)
		})
	}
	return w.respond(asked.limit, asked.wait)
}

// changesQuery is a request for changes.
type changesQuery struct {
	subscription.Query
	namespace string
	cursor    string        // where it continues; empty if it begins
	limit     int           // of users in a batch, except one that has all users followed
	wait      time.Duration // for a batch
}

// lastEventID is the header in which a client repeats the last event ID of a stream that ended.
const lastEventID = "Last-Event-ID"

// readChangesQuery reads a request for the changes of up to maxUsers users, of the contacts of one, or of everyone. For
// a stream of events, Last-Event-ID replaces the cursor: a browser that connects again repeats the query of its first
// request.
func readChangesQuery(
	c echo.Context, q request.Query, namespace string, maxUsers int, events bool,
) (asked changesQuery, err error) {
	asked.namespace = namespace
	r := request.Params{Query: q}
	asked.limit = r.Number("limit", 1, request.MaxLimit, request.MaxLimit)
	asked.wait = r.Wait(maxWait)
	asked.Statuses = r.Statuses()
	asked.NoSnapshot = r.Choice("snapshot", "all", "none") == "none"
	if r.Err != nil {
		return asked, r.Err
	}
	users, named := q["user"]
	if err := request.CheckUsers(users, maxUsers); err != nil {
		return asked, err
	}
	owner, ofContacts := q.Get("contacts_of")
	switch {
	case named && ofContacts:
		return asked, problem.New(problem.InvalidParameter, "Use either users or contacts_of.")
	case ofContacts:
		if err := lastseen.CheckUser(owner); err != nil {
			detail := problem.From(problem.InvalidUser, err).Detail
			return asked, problem.New(problem.InvalidUser, "contacts_of: "+detail)
		}
	}
	asked.Users, asked.Owner, asked.Everyone = users, owner, !named && !ofContacts
	if !asked.Everyone && (asked.NoSnapshot || asked.Statuses != nil) {
		return asked, problem.New(problem.InvalidParameter, "Use status and snapshot only to follow everyone.")
	}
	cursor, continues := q.Get("cursor")
	if id := c.Request().Header.Get(lastEventID); events && id != "" {
		cursor, continues = id, true
	}
	if continues {
		asked.cursor = cursor
		asked.After, err = subscription.OpenCursor(namespace, cursor)
	}
	return asked, err
}

// checkContactsOf returns an error unless a caller can follow the contacts of a user: callers who can list them can.
// The owner "" stands for no contacts.
func checkContactsOf(namespace, owner string, caller *auth.Caller) error {
	if owner == "" {
		return nil
	}
	return guard.ReadUser.Check(namespace, owner, caller)
}

// watch is a request that follows changes, and can stay open for that. One goroutine uses it.
type watch struct {
	*openRequest
	*subscription.Subscription
}

// watch begins to follow changes for an authorized request. The caller closes the watch.
func (s *server) watch(c echo.Context, asked changesQuery) (*watch, error) {
	w := &watch{openRequest: newOpenRequest(s, c, asked.namespace)}
	// The request may stay open for long: the rest of the query, such as its users, is not kept for it.
	owner := asked.Owner
	w.permitted = func(caller *auth.Caller) error { // if the visibility has changed, the client has to begin again
		return cmp.Or(guard.Read.CheckRequest(c, caller), checkContactsOf(w.namespace, owner, caller),
			w.newest.Load().live.CheckVisibility(w.namespace, s.isRestricted(w.namespace)))
	}
	w.Subscription = subscription.New(subscription.Options{
		Ledger: subscription.Ledger{
			Shared: s.Subscriptions, Namespace: w.namespace,
			Payer: func() (limit.Key, bool) { return w.gate.Limiter.Key(c.Request(), w.caller) },
		},
		Server: func() *subscription.Server { return s.newest.Load().live.Server },
		Caller: func() *auth.Caller { return w.caller },
		Wake:   w.Wake,
	})
	if err := w.Open(c.Request().Context(), asked.Query); err != nil {
		return nil, err
	}
	w.Waiting.Open()
	return w, nil
}

// close ends the watch.
func (w *watch) close() {
	w.Waiting.Close()
	w.Close()
}

// respond writes a response with the next changes. It waits for changes up to a time.
func (w *watch) respond(limit int, wait time.Duration) error {
	batch, err := w.nextWithin(wait, limit)
	if err == nil {
		err = w.Charge(batch)
	}
	if err == nil {
		err = w.ChargePage(batch)
	}
	if err != nil {
		return err
	}
	if w.Draining() {
		w.c.Response().Header().Set(echo.HeaderConnection, "close") // the next request is for another server
	}
	response := changesResponse{
		AsOf: request.Timestamp(batch.AsOf), Users: make([]presence, len(batch.Users)), More: batch.More,
		Cursor: subscription.Cursor(w.namespace, batch.Positions), Reset: batch.Reset,
		PollAfterMs: w.pollAfter(batch.More, wait),
	}
	for i, u := range batch.Users {
		response.Users[i] = published(u.User, u.Published)
	}
	if err := request.Respond(w.c, response); err != nil {
		return err
	}
	w.Sent(w.c.Request().Context(), batch)
	return nil
}

// nextWithin returns the next batch, which has no users if nothing changes in the time to wait.
func (w *watch) nextWithin(wait time.Duration, limit int) (batch feed.Batch, err error) {
	if wait > 0 && w.c.Request().Method != http.MethodHead {
		found, err := w.awaitWithin(telemetry.LongPoll, wait,
			func(ctx context.Context) (found bool, again time.Duration, err error) {
				batch, found, again, err = w.NextBatch(ctx, limit)
				return found, again, err
			})
		if found || err != nil {
			return batch, err
		}
	}
	return w.Poll(w.c.Request().Context(), limit)
}

// AppendJSON is for [request.WriteJSON].
func (r changesResponse) AppendJSON(b []byte) []byte {
	b = append(r.AsOf.AppendJSON(append(b, `{"as_of":`...)), `,"users":`...)
	b = append(appendPresences(b, r.Users), `,"cursor":`...)
	b = request.AppendString(b, r.Cursor)
	b = strconv.AppendBool(append(b, `,"more":`...), r.More)
	b = strconv.AppendBool(append(b, `,"reset":`...), r.Reset)
	return append(strconv.AppendInt(append(b, `,"poll_after_ms":`...), r.PollAfterMs, 10), '}')
}

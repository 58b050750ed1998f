package api

import (
	"context"
	"encoding/binary"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/live/session"
	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store"
)

// @ID getCall
// @Summary Get a call
// @Description Returns a current call, or one that ended less than 10 minutes ago. A user's token gets calls of its user
// @Description only. Requires the scope `read`, for API keys also `ping`, or the token of a party.
// @Success 200 {object} session.Call "The call."
// @Router /v1/namespaces/{namespace}/calls/{id} [get]
func (s *server) getCall(c echo.Context, _ request.Query) error {
	namespace, id, err := pathCall(c)
	if err != nil {
		return err
	}
	var users []string
	if caller := guard.CallerOf(c); caller != nil && caller.Kind == auth.ByToken {
		users = []string{caller.Name}
	}
	calls, err := s.Store.ReadCalls(c.Request().Context(), namespace, []string{id}, users)
	if err != nil {
		return err
	}
	call := calls[0]
	if call.ID == "" || len(users) > 0 && !isParty(users[0], call, calls[1]) {
		return store.ErrCallNotFound
	}
	return request.Respond(c, session.ShowCall(call))
}

// isParty reports whether a user with an ongoing call is a party of a call. While that rings, the callee may not be
// one: see [store.NewCall].
func isParty(user string, call, ongoing lastseen.Call) bool {
	reached := call.State != lastseen.Ringing || ongoing.ID == call.ID
	party := call.Party(user)
	return party == lastseen.Caller || party == lastseen.Callee && reached
}

// pathCall returns the namespace and the call in the path.
func pathCall(c echo.Context) (namespace, id string, err error) {
	if namespace, err = request.Namespace(c); err != nil {
		return "", "", err
	}
	if id, err = request.PathParam(c, "id"); err != nil || !request.IsCall(id) {
		return "", "", store.ErrCallNotFound // no call has such an ID
	}
	return namespace, id, nil
}

// callsPause is how long a request that waits for calls relies on signals, which can be lost. Then it looks again.
const callsPause = 5 * time.Second

// callsResponse is the response about the calls of a user.
type callsResponse struct {
	// The ongoing call, if there is one. Before it, once, the call that the cursor was for, if that has ended.
	Calls []session.Call `json:"calls"`
	// Pass it as `cursor` to get what changes after this response.
	Cursor string `json:"cursor"`
	// When to send the next request. It varies, so that clients do not send them at the same time.
	PollAfterMs int64 `json:"poll_after_ms" format:"int64" minimum:"0"`
} // @name Calls

// @ID listCalls
// @Summary Follow a user's calls
// @Description Returns the user's ongoing call: a user has one at most. With `cursor` and `wait`, the response
// @Description waits until this is not what the cursor's response had: a call rings, was accepted, has other `app`, or is
// @Description over. A call that has ended since then is in the response once more, with its last state.
// @Description
// @Description Without `cursor` it responds at once. Calls that begin and end between two requests are not in the responses.
// @Description Requires the scope `read`, for API keys also `ping`, or the user's own token.
// @Param user query string false "user"
// @Param cursor query string false "the last response"
// @Param wait query string false "time to wait"
// @Success 200 {object} callsResponse "The calls."
// @Router /v1/namespaces/{namespace}/calls [get]
func (s *server) listCalls(c echo.Context, q request.Query, namespace string) (err error) {
	p := &callsPoll{openRequest: newOpenRequest(s, c, namespace)}
	if p.user, err = readCallsUser(q, p.caller); err != nil {
		return err
	}
	r := request.Params{Query: q}
	if p.wait = r.Wait(maxWait); r.Err != nil {
		return r.Err
	}
	cursor, continues := q.Get("cursor")
	if continues {
		if p.after, err = openCallsCursor(namespace, p.user, cursor); err != nil {
			return err
		}
	}
	p.waits = continues && p.wait > 0 && c.Request().Method != http.MethodHead
	return p.respond()
}

// readCallsUser returns the user whose calls a query asks for. A token can read those of its user alone.
func readCallsUser(q request.Query, caller *auth.Caller) (string, error) {
	if n := len(q["user"]); n > 1 {
		return "", problem.Errorf(problem.InvalidParameter, "The parameter user appears %d times: send it once.", n)
	}
	user, _ := q.Get("user")
	return partyOf(caller, auth.Read, "user", user)
}

// callsPoll is a request for the calls of a user.
type callsPoll struct {
	*openRequest
	user  string
	wait  time.Duration // as asked
	waits bool
	after callPosition
}

// callPosition holds which call in progress the client knows, and in which version. The zero value means none.
type callPosition struct {
	id      string
	version int64
}

// respond writes a response with the calls, after waiting for another than the client knows.
func (p *callsPoll) respond() error {
	calls, position, err := p.next()
	if err != nil {
		return err
	}
	if p.Draining() {
		p.c.Response().Header().Set(echo.HeaderConnection, "close") // the next request is for another server
	}
	r := callsResponse{
		Calls: make([]session.Call, len(calls)), Cursor: position.cursor(p.namespace, p.user),
		PollAfterMs: p.pollAfter(p.waits && position != p.after, p.wait),
	}
	for i, call := range calls {
		r.Calls[i] = session.ShowCall(call)
	}
	return request.Respond(p.c, r)
}

// next returns the calls for the response, and the position after it. It waits if the client knows them.
func (p *callsPoll) next() (calls []lastseen.Call, position callPosition, err error) {
	if !p.waits {
		return p.read(p.c.Request().Context())
	}
	counted := subscription.Ledger{Shared: p.Subscriptions}
	if err := counted.Set(1, p.caller); err != nil {
		return nil, callPosition{}, err
	}
	defer counted.Clear()
	of := lastseen.UserKey{Namespace: p.namespace, User: p.user}
	defer p.FollowCalls(of, p.Wake)()
	p.permitted = func(caller *auth.Caller) error {
		err := guard.ReadCall.CheckRequest(p.c, caller)
		if err == nil {
			_, err = partyOf(caller, auth.Read, "user", p.user)
		}
		return err
	}
	p.Open()
	defer p.Close()
	changed, err := p.awaitWithin(telemetry.CallPoll, p.wait,
		func(ctx context.Context) (changed bool, again time.Duration, err error) {
			calls, position, err = p.read(ctx)
			return err == nil && position != p.after, p.live.Jitter(callsPause*4/5, callsPause), err
		})
	if !changed && err == nil {
		return p.read(p.c.Request().Context())
	}
	return calls, position, err
}

// read returns the call of the user that goes on, after the one that the client knows if that is over, and the position
// of a client that has these.
func (p *callsPoll) read(ctx context.Context) (calls []lastseen.Call, position callPosition, err error) {
	read, err := p.Store.ReadCalls(ctx, p.namespace, []string{p.after.id}, []string{p.user})
	if err != nil {
		return nil, position, err
	}
	known, going := read[0], read[1]
	if known.ID != going.ID && known.State.Over() && known.Party(p.user) != "" { // the cursor is not signed
		calls = append(calls, known)
	}
	if going.ID != "" {
		calls = append(calls, going)
	}
	return calls, callPosition{going.ID, going.Version}, nil
}

// callsList is what cursors of a user's calls are bound to. It differs from the name of every list, since no namespace
// contains a slash.
func callsList(namespace, user string) string { return namespace + "/calls\x00" + user }

// cursor returns the cursor for a position in the calls of a user.
func (p callPosition) cursor(namespace, user string) string {
	return request.SealCursor(callsList(namespace, user), append(binary.AppendVarint(nil, p.version), p.id...))
}

// openCallsCursor returns the position in a cursor, which is hostile input.
func openCallsCursor(namespace, user, cursor string) (callPosition, error) {
	content, err := request.OpenCursor(callsList(namespace, user), cursor)
	version, n := binary.Varint(content)
	if err != nil || n <= 0 || len(content) > n && !request.IsCall(string(content[n:])) {
		return callPosition{}, problem.New(problem.InvalidCursor,
			"Invalid cursor for the calls of this user. Pass the cursor of a response unchanged, or omit it to start "+
				"over.")
	}
	return callPosition{string(content[n:]), version}, nil
}

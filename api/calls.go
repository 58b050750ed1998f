package api

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/session"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
)

// MaxRedialWait is the longest time that a caller waits before calling the same user again.
const MaxRedialWait = 5 * time.Minute

// @ID startCall
// @Summary Call a user
// @Description Begins a call, which rings until the callee accepts or rejects it, the caller ends it, or the namespace's
// @Description `ring_timeout_ms` has passed. A grey callee also rings: a push message of your app can wake their phone. With
// @Description `"if":"present"` the response is 409 `callee_unavailable` instead. A user has one call at a time: others
// @Description get 409 `caller_busy` or `callee_busy`. A user who started too many calls gets 429 `too_many_calls`, and one
// @Description whose last call to the callee was rejected, cancelled or missed just before gets 429 `call_too_soon`. An
// @Description invisible callee looks like one who left.
// @Description
// @Description With the header `Idempotency-Key`, repeating the request returns the call that it started, as it is now, for
// @Description at least 10 minutes. A different request with the same key of the same user is 422
// @Description `idempotency_key_reused`.
// @Description
// @Description With the setting `visibility: contacts`, a user's token can call users who have that user among their
// @Description contacts. All others get 409 `callee_unavailable`. Requires the scope `ping` or the token of the user who calls.
// @Param Idempotency-Key header string false "key"
// @Param body body newCallBody true "The call."
// @Success 201 {object} session.Call "The call."
// @Router /v1/namespaces/{namespace}/calls [post]
func (s *server) startCall(c echo.Context, _ request.Query, namespace string) error {
	finish := func() {}
	request.AfterResponse(c, func() { finish() }) // whatever comes of it, so that all responses are sent alike
	key, err := request.ReadIdempotencyKey(c.Request().Header)
	if err != nil {
		return err
	}
	var sent newCallBody
	if err := s.readBody(c, newCallForm, &sent); err != nil {
		return err
	}
	asked, err := sent.newCall(guard.CallerOf(c), key)
	if err != nil {
		return err
	}
	if err := s.checkCallee(c, namespace, sent.If == ifPresent, &asked); err != nil {
		return err
	}
	settings := s.settings(namespace)
	asked.ID = crand.Text()
	asked.Ring, asked.Timeout = settings.ringTimeout(), settings.Thresholds.Green
	asked.Shown = settings.ShowCalls
	step, then, err := s.beginCall(c.Request().Context(), namespace, asked)
	finish = then
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, "calls/"+step.Call.ID) // relative: a proxy may serve us below a path
	return request.WriteJSON(c, http.StatusCreated, showCallTo(guard.CallerOf(c), namespace, step.Call))
}

// checkCallee notes in a new call whether the callee is invisible, and whether the caller of the request cannot call
// them. Callers never learn what an invisible user does, not even services, which could pass it on. Refusing is left to
// the store, which knows whether the request was possible before and is repeated. The calls to the store depend only on
// what was asked and on whether the caller sees the callee.
func (s *server) checkCallee(c echo.Context, namespace string, present bool, n *store.NewCall) error {
	ctx, caller := c.Request().Context(), guard.CallerOf(c)
	if present && !caller.Can(auth.Read, namespace) {
		return guard.ErrForbidden(auth.Read, "if also needs the scope read in this namespace.")
	}
	if v := s.newest.Load().viewerOf(caller, namespace); v.Restricted {
		seen, err := v.Sees(ctx, s.Store, namespace, []string{n.To})
		if err != nil {
			return err
		}
		if n.CalleeUnavailable = !seen[0]; n.CalleeUnavailable {
			return nil
		}
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return err
	}
	availability, err := s.Store.ReadAvailability(ctx, namespace, n.To, now)
	if err != nil {
		return err
	}
	n.CalleeHidden = availability.At(now).Availability == lastseen.Invisible
	if !present {
		return nil
	}
	states, _, err := s.Store.Describe(ctx, namespace, []string{n.To})
	if err != nil {
		return err
	}
	shown := s.settings(namespace).Thresholds.Presence(n.To, states[0], now)
	n.CalleeUnavailable = shown.Status == lastseen.Grey
	return nil
}

// @ID acceptCall
// @Summary Accept a call
// @Description The callee accepts a call that rings: it is active from then on. The first device that accepts wins; the
// @Description others get 409 `call_refused`, whose member `call` is the call as it is. Accepting again on the same device
// @Description is 200. `app` replaces that of the call, for example by an answer to an offer.
// @Description
// @Description The call stays active while both parties keep it alive: by a WebSocket, or by requests to `…/alive`. Requires the
// @Description scope `ping` or the token of the callee.
// @Param body body callAnswerBody false "Who accepts."
// @Success 200 {object} session.Call "The call."
// @Router /v1/namespaces/{namespace}/calls/{id}/accept [post]
func (s *server) acceptCall(c echo.Context, _ request.Query) error {
	return s.act(c, lastseen.Accept, new(callAnswerBody))
}

// @ID rejectCall
// @Summary Reject a call
// @Description The callee rejects a call that rings, on all devices. Rejecting it again is 200. If the call no longer
// @Description rings, the response is 409 `call_refused`, whose member `call` is the call as it is. Requires the scope
// @Description `ping` or the token of the callee.
// @Param body body callActionBody false "Who rejects."
// @Success 200 {object} session.Call "The call."
// @Router /v1/namespaces/{namespace}/calls/{id}/reject [post]
func (s *server) rejectCall(c echo.Context, _ request.Query) error {
	return s.act(c, lastseen.Reject, new(callActionBody))
}

// @ID endCall
// @Summary End a call
// @Description Hangs up. While the call rings, the caller cancels it, and the callee rejects it. Ending it again is 200. If
// @Description the other party acted first, or the call timed out, the response is 409 `call_refused`, whose member `call`
// @Description is the call as it is. Requires the scope `ping` or the token of a party. A page that closes can send the
// @Description token in the body, because `navigator.sendBeacon` cannot set headers.
// @Param body body callEndBody false "Who ends it."
// @Success 200 {object} session.Call "The call."
// @Router /v1/namespaces/{namespace}/calls/{id}/end [post]
func (s *server) endCall(c echo.Context, _ request.Query) error {
	return s.act(c, lastseen.End, new(callEndBody))
}

// @ID keepCallAlive
// @Summary Keep a call alive
// @Description Keeps the call alive for one of its parties. An active call is lost if nothing is received from a party for
// @Description the namespace's `green_ms`, so send this each `ping_interval_ms` unless the device has a WebSocket, which
// @Description does the same. `app` replaces that of the call, for example by more ICE candidates: ten times at once, and then
// @Description twice a second; more are 429 `rate_limited`. If the call has ended, the
// @Description response is 409 `call_refused`, whose member `call` is the call as it is. Requires the scope `ping` or the
// @Description token of a party.
// @Param body body callAnswerBody false "Who takes part."
// @Success 200 {object} session.Call "The call."
// @Router /v1/namespaces/{namespace}/calls/{id}/alive [post]
func (s *server) keepCall(c echo.Context, _ request.Query) error {
	return s.act(c, lastseen.Alive, new(callAnswerBody))
}

// callAction is a body that says who acts in a call.
type callAction interface {
	// act validates the body, and returns what a caller does with a call.
	act(caller *auth.Caller, id string, action lastseen.CallAction) (store.CallAct, error)
}

// act does an action in the call in the path, for the party in the body of the request.
func (s *server) act(c echo.Context, action lastseen.CallAction, body callAction) error {
	namespace, id, err := pathCall(c)
	if err != nil {
		return err
	}
	if err := s.readBody(c, actionForm, body); err != nil {
		return err
	}
	if sent, ok := body.(*callEndBody); ok && guard.CallerOf(c).IsAnonymous() {
		if err := s.gate.AuthorizeToken(c, guard.EndCall, sent.Token); err != nil {
			return err
		}
	}
	act, err := body.act(guard.CallerOf(c), id, action)
	if err != nil {
		return err
	}
	if err := s.chargeApp(namespace, act); err != nil {
		return err
	}
	s.load.Begin()
	step, finish, err := s.Calls.Act(c.Request().Context(), namespace, act)
	request.AfterResponse(c, finish)
	s.load.End()
	if err != nil {
		return err
	}
	shown := showCallTo(guard.CallerOf(c), namespace, step.Call)
	if step.Outcome == lastseen.Refused {
		return errCallRefused(action, shown)
	}
	return request.Respond(c, shown)
}

// errCallRefused is the error of an action that is not possible in a call as it is.
func errCallRefused(action lastseen.CallAction, call session.Call) error {
	detail := fmt.Sprintf("The user cannot %s this call: it is %s.", map[lastseen.CallAction]string{
		lastseen.Accept: "accept", lastseen.Reject: "reject", lastseen.End: "end", lastseen.Alive: "take part in",
	}[action], call.State)
	if call.State == lastseen.Ringing { // the state is not the reason
		detail = fmt.Sprintf("Only the callee can %s this call.", action)
	}
	return &problem.Error{Code: problem.CallRefused, Detail: detail, Call: call}
}

// notAnswered reports whether a call has ended without an answer.
func notAnswered(c lastseen.Call) bool {
	return c.State.Over() && c.State != lastseen.Ended && c.State != lastseen.Lost
}

// beginCall begins a call, unless the caller has to wait after calls that the callee did not answer. A request that is
// repeated returns its call all the same, which only the store knows: it is asked as if the callee were unavailable.
// Finish is that of the manager.
func (s *server) beginCall(
	ctx context.Context, namespace string, n store.NewCall,
) (step store.CallStep, finish func(), err error) {
	finish = func() {}
	unanswered := 0
	wait := s.settings(namespace).RedialWait
	refused := store.ErrCalleeUnavailable // if the store says so
	if !n.CalleeUnavailable && wait > 0 {
		if unanswered, refused, err = s.checkRedial(ctx, namespace, n, wait); err != nil {
			return step, finish, err
		}
		n.CalleeUnavailable = refused != nil
	}
	if n.CalleeUnavailable && n.Key == "" {
		return step, finish, refused // without a call to the store: there is nothing to repeat
	}
	s.load.Begin() // the manager's store does not count calls
	step, finish, err = s.Calls.Start(ctx, namespace, n)
	s.load.End()
	switch {
	case errors.Is(err, store.ErrCalleeUnavailable):
		return step, finish, refused
	case err == nil && wait > 0 && step.Outcome == lastseen.Stepped:
		s.redials.Set(namespace, n.From, n.To, limit.Redial{ID: step.Call.ID, Unanswered: unanswered})
	}
	return step, finish, err
}

// checkRedial returns how many calls to the callee in a row were not answered, and why the caller cannot call now; nil
// if they can. It depends only on calls of the caller, as the caller knows them.
func (s *server) checkRedial(
	ctx context.Context, namespace string, n store.NewCall, wait time.Duration,
) (unanswered int, refused, err error) {
	last := s.redials.Get(namespace, n.From, n.To)
	if last.ID == "" {
		return 0, nil, nil
	}
	call, err := store.ReadCall(ctx, s.Store, namespace, last.ID)
	switch {
	case errors.Is(err, store.ErrCallNotFound):
		return 0, nil, nil
	case err == nil && !call.State.Over(): // the store might not see it any longer, and begin a call without a wait
		return 0, store.ErrCallerBusy, nil
	case err != nil || !notAnswered(call):
		return 0, nil, err
	}
	since := s.Now().Sub(last.Over)
	if last.Over.IsZero() { // noted, so that a clock of the store that is set makes nobody wait for longer
		now, err := s.Store.Now(ctx)
		if err != nil {
			return 0, nil, err
		}
		ago := min(max(0, now-call.Over), lastseen.Instant(store.CallsKept.Milliseconds())) // whatever its clock says
		since = time.Duration(ago) * time.Millisecond
		s.redials.SetOver(namespace, n.From, n.To, last.ID, s.Now().Add(-since))
	}
	unanswered = last.Unanswered + 1
	if rest := min(wait<<min(unanswered-1, 16), MaxRedialWait) - since; rest > 0 {
		refused = errCallTooSoon(rest)
	}
	return unanswered, refused, nil
}

// errCallTooSoon is the error of a caller who has to wait.
func errCallTooSoon(wait time.Duration) error {
	return problem.New(problem.CallTooSoon, "The callee did not answer the last call of this caller: wait before the "+
		"next one. No call was started.").RetryAfter(guard.WholeSeconds(wait))
}

// appChanges are how often a party can change app of a call per second. The other party is sent each change.
const appChanges = 2

// chargeApp returns an error if a party changes app of a call too often.
func (s *server) chargeApp(namespace string, a store.CallAct) error {
	if a.App == "" {
		return nil
	}
	return s.gate.Limiter.ChargeWithin(limit.ByCall(namespace, a.ID, a.User), limit.Limits{Caller: appChanges}, 1)
}

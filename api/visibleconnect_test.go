package api

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// types sends the frame typing with a content. Frames of that name can come before the response.
func (s *testSocket) types(content string) {
	s.t.Helper()
	s.send(`{"typing":` + content + `,"id":"typed"}`)
	deadline := time.Now().Add(eventually)
	for {
		name, refusal, id := s.nextBy(deadline)
		if name == frameTyping || name == frameTick {
			continue
		}
		require.Equal(s.t, frameOK, name, "%v", refusal)
		require.Equal(s.t, "typed", id)
		return
	}
}

// TestTypingToContacts: where users are visible to contacts, others do not learn that a user types, whoever the caller
// is. The response and the calls to the store are the same.
func TestTypingToContacts(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		authenticator, headers := callers(t)
		for _, w := range []*testServer{one, two} {
			w.reload(func(c *Config) {
				toContacts(c)
				c.Auth = authenticator
			})
		}
		know(t, one.store, "alice", "bob")
		know(t, one.store, "carol", "alice") // so alice sees carol, but not the reverse
		open := func(w *testServer, user, caller string) *testSocket {
			s, _ := w.hello(fmt.Sprintf(`{"user":%q}`, user), headersOf(headers[caller])...)
			return s
		}
		bob, stranger := open(two, "bob", "bob"), open(two, "carol", "all")
		for _, caller := range []string{"alice", "all"} {
			alice := open(one, "alice", caller)
			alice.types(`{"to":["carol"]}`)
			alice.types(`{"to":["carol","bob","alice","bob"],"in":"room"}`)
			require.Equal(t, "room", bob.want(frameTyping)["in"], caller)
			require.Equal(t, http.StatusNoContent, two.send(http.MethodPatch, "/chat/users/alice/contacts",
				`{"add":["carol"],"remove":["bob"]}`, headersOf(headers["all"])...).status)
			alice.types(`{"to":["carol","bob"],"in":"later"}`)
			require.Equal(t, "later", stranger.want(frameTyping)["in"], "it is the first that carol gets")
			bob.asks(`{"activity":{"idle":false}}`, frameOK) // nothing else came before
			know(t, one.store, "alice", "bob")
		}
	})
}

// TestTypingAsksTheSame: of the invisible as well, and nothing is sent if contacts cannot be read. Users are not
// contacts of their own: their other connections learn it.
func TestTypingAsksTheSame(t *testing.T) {
	t.Parallel()
	s := &loggedStore{Store: fileStore(t)}
	w := newSocketServerOn(t, s, toContacts)
	know(t, s, "alice", "bob")
	alice, _ := w.hello(`{"user":"alice"}`)
	bob, _ := w.hello(`{"user":"bob"}`)
	for _, availability := range []string{"busy", "invisible"} {
		say(t, w, `{"availability":"`+availability+`"}`)
		alice.want(frameSelf)
		s.take()
		alice.asks(`{"typing":{"to":["bob","carol"],"in":"`+availability+`"}}`, frameOK)
		require.Equal(t, []string{"AreContacts [{alice bob} {alice carol}]"}, s.take())
	}
	say(t, w, `{"availability":null,"note":"here"}`)
	alice.want(frameSelf)
	s.fail(fmt.Errorf("%w: away", store.ErrUnavailable), nil)
	alice.refuses(problem.StoreUnavailable, `{"typing":{"to":["bob"],"in":"failed"}}`)
	s.fail(nil, nil)
	other, _ := w.hello(`{"user":"alice"}`)
	s.take()
	alice.types(`{"to":["alice","bob"],"in":"last"}`)
	require.Equal(t, []string{"AreContacts [{alice bob}]"}, s.take())
	require.Equal(t, "last", other.want(frameTyping)["in"])
	require.Equal(t, "busy", bob.want(frameTyping)["in"])
	require.Equal(t, "last", bob.want(frameTyping)["in"])
}

// TestCountsAreRefused: counts are of all users, so that callers who do not see all of them get none on connections.
// The refusal comes before the connection is recorded.
func TestCountsAreRefused(t *testing.T) {
	t.Parallel()
	authenticator, headers := callers(t)
	w := newSocketServer(t, toContacts, func(c *Config) { c.Auth = authenticator })
	alice := headersOf(headers["alice"])
	for _, content := range []string{
		`{"watch":{"counts":true}}`, `{"user":"alice","watch":{"counts":true}}`,
		`{"user":"alice","watch":{"counts":true,"users":["bob"]}}`,
	} {
		s := w.dialSocket("chat", alice...)
		s.send(`{"hello":` + content + `}`)
		s.fails(problem.Forbidden)
	}
	states, err := w.store.Lookup(t.Context(), "chat", []string{"alice"})
	require.NoError(t, err)
	require.False(t, states[0].Known(), "no connection was recorded")
	s, _ := w.hello(`{"user":"alice"}`, alice...)
	s.refuses(problem.Forbidden, `{"watch":{"counts":true}}`)
	s.refuses(problem.Forbidden, `{"watch":{"counts":true,"add":["bob"]}}`)
	s.asks(`{"watch":{"counts":false}}`, frameOK)
	service, _ := w.hello(`{"watch":{"counts":true}}`, headersOf(headers["read"])...)
	require.EqualValues(t, 1, service.want(frameCounts)["total"])
}

// TestCountsEndWithAReload: what was counted before is not sent to callers who do not see all users any longer.
func TestCountsEndWithAReload(t *testing.T) {
	t.Parallel()
	authenticator, headers := callers(t)
	w := newSocketServer(t, func(c *Config) { c.Auth = authenticator })
	caller, err := authenticator.Authenticate(t.Context(), []string{headers["alice"]})
	require.NoError(t, err)
	n := &session{Shared: w.config.Shared, namespace: "chat", caller: caller}
	require.NoError(t, n.newest.Load().checkCounts("chat", caller))
	w.reload(toContacts)
	require.True(t, (&following{session: n}).sendCounts(countsResponse{}), "it would fail without a socket")
}

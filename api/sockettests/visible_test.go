package sockettests

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// say sets alice's availability over HTTP.
func say(_ *testing.T, w *apitest.Server, body string) { w.Say(body) }

// types sends the frame typing with a content. Frames of that name can come before the response.
func types(s *kit.Socket, content string) {
	s.T.Helper()
	s.Send(`{"typing":` + content + `,"id":"typed"}`)
	deadline := time.Now().Add(kit.Eventually)
	for {
		name, refusal, id := s.NextBy(deadline)
		if name == "typing" || name == "tick" {
			continue
		}
		require.Equal(s.T, "ok", name, "%v", refusal)
		require.Equal(s.T, "typed", id)
		return
	}
}

// TestTypingToContacts: where users are visible to contacts, others do not learn that a user types, whoever the caller
// is. The response and the calls to the store are the same.
func TestTypingToContacts(t *testing.T) {
	t.Parallel()
	apitest.EachPair(t, func(t *testing.T, one, two *apitest.Server) {
		authenticator, headers := kit.Callers(t)
		for _, w := range []*apitest.Server{one, two} {
			w.Reload(func(c *api.Config) {
				apitest.ToContacts(c)
				c.Auth = authenticator
			})
		}
		kit.SetContacts(t, one.Store, "alice", "bob")
		kit.SetContacts(t, one.Store, "carol", "alice") // so alice sees carol, but not the reverse
		open := func(w *apitest.Server, user, caller string) *kit.Socket {
			s, _ := w.Hello(fmt.Sprintf(`{"user":%q}`, user), kit.HeadersOf(headers[caller])...)
			return s
		}
		bob, stranger := open(two, "bob", "bob"), open(two, "carol", "all")
		for _, caller := range []string{"alice", "all"} {
			alice := open(one, "alice", caller)
			types(alice, `{"to":["carol"]}`)
			types(alice, `{"to":["carol","bob","alice","bob"],"in":"room"}`)
			require.Equal(t, "room", bob.Want("typing")["in"], caller)
			require.Equal(t, http.StatusNoContent, two.Send(http.MethodPatch, "/chat/users/alice/contacts",
				`{"add":["carol"],"remove":["bob"]}`, kit.HeadersOf(headers["all"])...).Status)
			types(alice, `{"to":["carol","bob"],"in":"later"}`)
			require.Equal(t, "later", stranger.Want("typing")["in"], "it is the first that carol gets")
			bob.Asks(`{"activity":{"idle":false}}`, "ok") // nothing else came before
			kit.SetContacts(t, one.Store, "alice", "bob")
		}
	})
}

// TestTypingAsksTheSame: of the invisible as well, and nothing is sent if contacts cannot be read. Users are not
// contacts of their own: their other connections learn it.
func TestTypingAsksTheSame(t *testing.T) {
	t.Parallel()
	s := &kit.LoggedStore{Store: kit.FileStore(t)}
	w := apitest.NewSocketServerOn(t, s, apitest.ToContacts)
	kit.SetContacts(t, s, "alice", "bob")
	alice, _ := w.Hello(`{"user":"alice"}`)
	bob, _ := w.Hello(`{"user":"bob"}`)
	for _, availability := range []string{"busy", "invisible"} {
		say(t, w, `{"availability":"`+availability+`"}`)
		alice.Want("self")
		s.Take()
		alice.Asks(`{"typing":{"to":["bob","carol"],"in":"`+availability+`"}}`, "ok")
		require.Equal(t, []string{"AreContacts [{alice bob} {alice carol}]"}, s.Take())
	}
	say(t, w, `{"availability":null,"note":"here"}`)
	alice.Want("self")
	s.Fail(fmt.Errorf("%w: away", store.ErrUnavailable), nil)
	alice.Refuses(problem.StoreUnavailable, `{"typing":{"to":["bob"],"in":"failed"}}`)
	s.Fail(nil, nil)
	other, _ := w.Hello(`{"user":"alice"}`)
	s.Take()
	types(alice, `{"to":["alice","bob"],"in":"last"}`)
	require.Equal(t, []string{"AreContacts [{alice bob}]"}, s.Take())
	require.Equal(t, "last", other.Want("typing")["in"])
	require.Equal(t, "busy", bob.Want("typing")["in"])
	require.Equal(t, "last", bob.Want("typing")["in"])
}

// TestCountsAreRefused: counts are of all users, so that callers who do not see all of them get none on connections.
// The refusal comes before the connection is recorded.
func TestCountsAreRefused(t *testing.T) {
	t.Parallel()
	authenticator, headers := kit.Callers(t)
	w := apitest.NewSocketServer(t, apitest.ToContacts, func(c *api.Config) { c.Auth = authenticator })
	alice := kit.HeadersOf(headers["alice"])
	for _, content := range []string{
		`{"watch":{"counts":true}}`, `{"user":"alice","watch":{"counts":true}}`,
		`{"user":"alice","watch":{"counts":true,"users":["bob"]}}`,
	} {
		s := w.DialSocket("chat", alice...)
		s.Send(`{"hello":` + content + `}`)
		s.Fails(problem.Forbidden)
	}
	states, _, err := w.Store.Describe(t.Context(), "chat", []string{"alice"})
	require.NoError(t, err)
	require.False(t, states[0].Known(), "no connection was recorded")
	s, _ := w.Hello(`{"user":"alice"}`, alice...)
	s.Refuses(problem.Forbidden, `{"watch":{"counts":true}}`)
	s.Refuses(problem.Forbidden, `{"watch":{"counts":true,"add":["bob"]}}`)
	s.Asks(`{"watch":{"counts":false}}`, "ok")
	service, _ := w.Hello(`{"watch":{"counts":true}}`, kit.HeadersOf(headers["read"])...)
	require.EqualValues(t, 1, service.Want("counts")["total"])
}

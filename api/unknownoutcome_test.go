package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestUnknownOutcomesAreSignalled: a write whose outcome is unknown may be done, so servers look again. One that was
// refused, or that changes nothing, has them do nothing.
func TestUnknownOutcomesAreSignalled(t *testing.T) {
	t.Parallel()
	s := &silencedStore{Store: fileStore(t)}
	w, headers := newVisibleServer(t, s)
	user := "/chat/users/bob"
	for _, request := range []struct {
		method, path, body string
		signals            []string
	}{
		{http.MethodPut, user + "/contacts", `{"users":["alice"]}`, []string{"contacts bob"}},
		{http.MethodPatch, user + "/contacts", `{"remove":["alice"]}`, []string{"contacts bob"}},
		{http.MethodDelete, user + "/contacts", "", []string{"contacts bob"}},
		{http.MethodDelete, user, "", []string{"contacts bob"}},
		{http.MethodPut, user + "/availability", `{"availability":"busy"}`, []string{"self bob"}},
		{http.MethodDelete, "/chat?confirm=chat", "", []string{"self ", "contacts "}},
	} {
		for _, err := range []error{nil, fmt.Errorf("%w: silence", store.ErrUnavailable), store.ErrNamespaceLimit} {
			s.err, s.sent = err, nil
			r := w.send(request.method, request.path, request.body, headersOf(headers["all"])...)
			require.Equal(t, err == nil, r.status < 300, r.body)
			want := request.signals
			if errors.Is(err, store.ErrNamespaceLimit) {
				want = nil
			}
			require.Equal(t, want, s.sent, "%s %s: %v", request.method, request.path, err)
		}
	}
	s.err, s.sent = nil, nil
	r := w.send(http.MethodPatch, user+"/contacts", `{}`, headersOf(headers["all"])...)
	require.Equal(t, http.StatusNoContent, r.status)
	require.Empty(t, s.sent)
}

// silencedStore does what it is asked to, and then returns an error. It notes the signals. It is for one request at a
// time.
type silencedStore struct {
	store.Store
	err  error
	sent []string
}

func (s *silencedStore) SetContacts(ctx context.Context, namespace, owner string, contacts []string) error {
	return orElse(s.Store.SetContacts(ctx, namespace, owner, contacts), s.err)
}

func (s *silencedStore) ChangeContacts(ctx context.Context, namespace, owner string, add, remove []string) error {
	return orElse(s.Store.ChangeContacts(ctx, namespace, owner, add, remove), s.err)
}

func (s *silencedStore) Forget(ctx context.Context, namespace, user string) error {
	return orElse(s.Store.Forget(ctx, namespace, user), s.err)
}

func (s *silencedStore) DeleteNamespace(ctx context.Context, namespace string) error {
	return orElse(s.Store.DeleteNamespace(ctx, namespace), s.err)
}

func (s *silencedStore) SetAvailability(
	ctx context.Context, namespace, user string, said lastseen.Said, at lastseen.Instant,
) (lastseen.State, error) {
	state, err := s.Store.SetAvailability(ctx, namespace, user, said, at)
	return state, orElse(err, s.err)
}

func (s *silencedStore) Signal(ctx context.Context, signal store.Signal) error {
	s.sent = append(s.sent, signal.Kind+" "+signal.User)
	return s.Store.Signal(ctx, signal)
}

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

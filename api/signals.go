package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
)

// The kinds of signals between servers.
const (
	signalSelf   = "self"   // what the user says has changed; without a user, that of all users of the namespace
	signalTyping = "typing" // the user types: see typing
)

// signalTimeout bounds how long a caller waits for a signal to be sent.
const signalTimeout = time.Second

// signalChange sends a signal to all servers, also to this one, after what it is about was done. That was done whether
// the signal arrives or not, so a failure is logged, with its consequence. Where rights are missing, the store logs it.
func (s *server) signalChange(ctx context.Context, signal store.Signal, consequence string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signalTimeout)
	defer cancel()
	if err := s.Store.Signal(ctx, signal); err != nil && !errors.Is(err, store.ErrNoSignals) {
		s.defects.Log(slog.LevelWarn, "signal "+signal.Kind, "a signal to other servers was not sent: "+consequence,
			slog.String("namespace", signal.Namespace), slog.Any("error", err))
	}
}

// signalSelf has the connections of a user learn what the user says now.
func (s *server) signalSelf(ctx context.Context, namespace, user string) {
	s.signalChange(ctx, store.Signal{Kind: signalSelf, Namespace: namespace, User: user},
		"connections of the user to other servers are not sent what the user says now until they open again")
}

// Listen passes the signals of all servers on to the connections to this one, until the context ends. A handler has to
// exist.
func (s *Shared) Listen(ctx context.Context) {
	s.newest.Load().Store.Listen(ctx, s.receive)
}

// receive handles a signal. It does not wait for the store or for clients.
func (s *Shared) receive(signal store.Signal) {
	defer s.recoverSignal()
	switch {
	case signal.Kind == signalSelf && signal.User != "":
		of := lastseen.UserKey{Namespace: signal.Namespace, User: signal.User}
		s.userStates.refresh(of, reason{availability: true, renewed: true})
	case signal.Kind == signalSelf:
		s.userStates.refreshAll(signal.Namespace)
	case signal.Kind == signalTyping:
		s.deliverTyping(signal)
	case signal.Kind == "":
		s.newest.Load().Keeper.Receive(signal)
		s.userStates.refreshAll("")
	default:
		s.newest.Load().Keeper.Receive(signal)
		s.userStates.receiveCall(signal.Namespace, calls.OfSignal(signal))
	}
}

// recoverSignal logs a panic of what handles a signal.
func (s *Shared) recoverSignal() {
	if panicked := recover(); panicked != nil {
		s.defects.Log(slog.LevelError, "signal", "a signal could not be handled",
			slog.String("error", fmt.Sprint(panicked)))
	}
}

// sessionsOf returns the sessions of a user, also those that are being opened.
func (s *Shared) sessionsOf(p lastseen.UserKey) (sessions []*session) {
	for _, peer := range s.newest.Load().Connections.Peers(p.Namespace, p.User) {
		if n, ok := peer.(*session); ok {
			sessions = append(sessions, n)
		}
	}
	return sessions
}

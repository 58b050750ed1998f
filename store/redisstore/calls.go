package redisstore

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// StartCall implements [store.Store].
func (s *Store) StartCall(_ context.Context, _ string, _ store.NewCall) (store.CallStep, error) {
	return store.CallStep{}, store.ErrNoCalls
}

// StepCall implements [store.Store].
func (s *Store) StepCall(_ context.Context, _ string, _ store.CallAct) (store.CallStep, error) {
	return store.CallStep{}, store.ErrNoCalls
}

// HearCalls implements [store.Store].
func (s *Store) HearCalls(_ context.Context, _ string, _ []store.CallHeard) ([]store.CallStep, error) {
	return nil, store.ErrNoCalls
}

// ReadCall implements [store.Store].
func (s *Store) ReadCall(_ context.Context, _ string, _ string) (lastseen.Call, error) {
	return lastseen.Call{}, store.ErrNoCalls
}

// ReadCalls implements [store.Store].
func (s *Store) ReadCalls(_ context.Context, _ string, _ []string) ([]lastseen.Call, error) {
	return nil, store.ErrNoCalls
}

// ExpireCalls implements [store.Store].
func (s *Store) ExpireCalls(_ context.Context, _ string) (store.ExpiredCalls, error) {
	return store.ExpiredCalls{}, store.ErrNoCalls
}

// UnconfirmedInCalls implements [store.Store].
func (s *Store) UnconfirmedInCalls(_ context.Context, _ string, _ time.Duration) ([]store.InCall, error) {
	return nil, store.ErrNoCalls
}

// SetInCalls implements [store.Store].
func (s *Store) SetInCalls(_ context.Context, _ string, _ []store.InCall) error {
	return store.ErrNoCalls
}

// ConfirmInCalls implements [store.Store].
func (s *Store) ConfirmInCalls(_ context.Context, _ string, _ []store.InCall) ([]store.InCall, error) {
	return nil, store.ErrNoCalls
}

// CallNamespaces implements [store.Store].
func (s *Store) CallNamespaces(_ context.Context, _ string, _ int) ([]string, error) {
	return nil, nil
}

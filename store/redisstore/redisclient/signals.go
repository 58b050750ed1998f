package redisclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const (
	signalRetry      = 500 * time.Millisecond // until another attempt to subscribe
	signalRightsWait = time.Minute            // the same while rights are missing
	signalCheck      = "-"                    // the kind of those signals
	maxSignalHead    = 1 << 10                // bytes of a message besides the data
)

// signalRights are the rights that only signals need, besides those on the channel.
const signalRights = "+publish +subscribe"

// Signals implements [store.Signals] with Redis' Pub/Sub, and counts signals: see docs/decisions/signals.md.
type Signals struct {
	// CheckEvery is the time between two signals of a listener to itself, set before the first Listen; default 10 s.
	CheckEvery time.Duration

	client   *Client
	hub      store.SignalHub // of this process
	process  string
	channel  string
	channels string // matches the channel with any database

	forbidden   atomic.Bool // rights are missing
	listening   atomic.Int64
	sent        atomic.Int64
	received    atomic.Int64
	ignored     atomic.Int64
	interrupted atomic.Int64
}

// NewSignals returns the signals of a process, whose name no other process has. Channels do not belong to a database,
// so its number is part of the name of theirs.
func NewSignals(client *Client, prefix, process string) *Signals {
	s := &Signals{
		CheckEvery: 10 * time.Second, client: client, process: process, channel: prefix + ":signals",
		channels: prefix + ":signals*",
	}
	if n := client.Database; n != 0 {
		s.channel += ":" + strconv.Itoa(n)
	}
	return s
}

// SignalStats describes the signals of this store at this moment, and since Open.
type SignalStats struct {
	Listening   bool  // to those of other processes
	Sent        int64 // to other processes
	Received    int64 // from other processes
	Ignored     int64 // messages on the channel that are not signals
	Interrupted int64 // times that signals may have been lost
}

// SignalStats returns statistics of signals.
func (s *Signals) SignalStats() SignalStats {
	return SignalStats{
		Listening: s.listening.Load() > 0, Sent: s.sent.Load(), Received: s.received.Load(),
		Ignored: s.ignored.Load(), Interrupted: s.interrupted.Load(),
	}
}

// Signal implements [store.Store]. Listeners of this process get the signal directly, so they do not depend on Redis.
func (s *Signals) Signal(ctx context.Context, signal store.Signal) error {
	if s.client.Closed() {
		return store.ErrClosed
	}
	s.hub.Send(signal)
	if s.forbidden.Load() {
		return store.ErrNoSignals
	}
	ctx, cancel, err := s.client.Begin(ctx, s.client.Timeout)
	if err != nil {
		return err
	}
	defer cancel()
	if err := s.publish(ctx, encodeSignal(s.process, signal)); err != nil {
		return err
	}
	s.sent.Add(1)
	return nil
}

// publish sends a message on the channel of signals.
func (s *Signals) publish(ctx context.Context, message []byte) error {
	err := s.tryPublish(ctx, message)
	switch {
	case err == nil:
		return nil
	case strings.HasPrefix(ReplyError(err), "NOPERM"):
		s.noteSignalRights(err)
		return fmt.Errorf("%w: %w", store.ErrNoSignals, err)
	}
	return Translate(err)
}

// tryPublish sends a message. In a Cluster it goes to the server that listeners subscribe to: the client would choose
// any, and messages of two servers overtake each other.
func (s *Signals) tryPublish(ctx context.Context, message []byte) error {
	c, inCluster := s.client.UniversalClient.(*redis.ClusterClient)
	if !inCluster {
		return s.client.Publish(ctx, s.channel, message).Err()
	}
	node, err := c.MasterForKey(ctx, s.channel)
	if err != nil {
		return err
	}
	return node.Publish(ctx, s.channel, message).Err()
}

// noteSignalRights notes that rights are missing, or that none is for nil.
func (s *Signals) noteSignalRights(missing error) {
	s.forbidden.Store(missing != nil)
	s.client.Log.LogIf(missing != nil, slog.LevelWarn, s.client.Name, "signals",
		"the user of this Redis lacks rights: connections to other servers get no typing, and learn late what their "+
			"users say; allow "+signalRights+" &"+s.channels, "error", missing)
}

// Listen implements [store.Store].
func (s *Signals) Listen(ctx context.Context, receive func(store.Signal)) {
	l := s.hub.Join()
	defer s.hub.Leave(l)
	var following sync.WaitGroup
	following.Go(func() { s.follow(ctx, l) })
	l.Run(ctx, receive)
	following.Wait()
}

// follow passes the signals of other processes to a listener until the context ends.
func (s *Signals) follow(ctx context.Context, l *store.SignalListener) {
	for !s.client.Closed() {
		known := s.forbidden.Load()
		err := s.subscribe(ctx, l)
		if ctx.Err() != nil {
			return
		}
		wait := signalRetry
		if strings.HasPrefix(ReplyError(err), "NOPERM") {
			s.noteSignalRights(err)
			wait = signalRightsWait
			if !known {
				l.Lose() // those of this process arrive
			}
		}
		store.Pause(ctx, wait)
	}
	<-ctx.Done()
}

// errSilent means that a listener did not receive its own signal.
var errSilent = errors.New("signals do not arrive")

// subscribe passes signals to a listener until something fails.
func (s *Signals) subscribe(ctx context.Context, l *store.SignalListener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sub := s.client.Subscribe(ctx, s.channel)
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // a read does not end with the context
	defer func() {
		stop()
		_ = sub.Close() // nothing is left to be read
	}()
	if _, err := sub.ReceiveTimeout(ctx, 2*s.client.Timeout); err != nil {
		return err
	}
	s.listening.Add(1)
	defer s.listening.Add(-1)
	s.interrupted.Add(1)
	l.Lose()
	check := encodeSignal(s.process, store.Signal{Kind: signalCheck, Data: []byte(s.process)})
	var checking sync.WaitGroup
	checking.Go(func() {
		Repeat(ctx, s.CheckEvery, func(ctx context.Context) { s.checkSignals(ctx, check, cancel) })
	})
	defer checking.Wait()
	defer cancel(nil)
	err := s.receive(ctx, sub, string(check), l)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// checkSignals sends a listener's signal to itself. Without the right to send, the listener ends.
func (s *Signals) checkSignals(ctx context.Context, check []byte, cancel context.CancelCauseFunc) {
	ctx, done := context.WithTimeout(ctx, s.client.Timeout)
	defer done()
	err := s.publish(ctx, check)
	switch {
	case err == nil:
		s.noteSignalRights(nil)
	case errors.Is(err, store.ErrNoSignals):
		cancel(err)
	}
}

// receive passes the messages of a subscription to a listener. It returns an error if the listener's own signal, which
// is sent again and again, does not arrive: a connection can be dead without an error.
func (s *Signals) receive(ctx context.Context, sub *redis.PubSub, check string, l *store.SignalListener) error {
	patience := s.CheckEvery + 2*s.client.Timeout
	for due := time.Now().Add(patience); ; {
		rest := time.Until(due)
		if rest <= 0 {
			return errSilent
		}
		message, err := sub.ReceiveTimeout(ctx, rest)
		if err != nil {
			return err
		}
		m, ok := message.(*redis.Message)
		switch {
		case !ok:
		case m.Payload == check:
			due = time.Now().Add(patience)
		default:
			s.pass(m.Payload, l)
		}
	}
}

// pass passes a message to a listener, unless it is of this process, or not a signal.
func (s *Signals) pass(message string, l *store.SignalListener) {
	sender, signal, ok := decodeSignal(message)
	switch {
	case !ok:
		s.ignored.Add(1)
	case sender != s.process && signal.Kind != signalCheck:
		s.received.Add(1)
		l.Push(signal)
	}
}

// encodeSignal returns the message of a signal: the sender, the kind, the namespace, the length of the user's ID in
// bytes, each with a space, and then the ID and the data.
func encodeSignal(sender string, s store.Signal) []byte {
	b := make([]byte, 0, maxSignalHead+len(s.Data))
	b = fmt.Appendf(b, "%s %s %s %d %s", sender, s.Kind, s.Namespace, len(s.User), s.User)
	return append(b, s.Data...)
}

// decodeSignal is the reverse of encodeSignal. Messages are untrusted: other programs can send on the channel.
func decodeSignal(message string) (sender string, s store.Signal, ok bool) {
	parts := strings.SplitN(message, " ", 5)
	if len(parts) != 5 || len(message) > maxSignalHead+store.MaxSignalData {
		return "", s, false
	}
	n, err := strconv.ParseUint(parts[3], 10, 16)
	if err != nil || int(n) > len(parts[4]) {
		return "", s, false
	}
	s.Kind, s.Namespace, s.User = parts[1], parts[2], parts[4][:n]
	if data := parts[4][n:]; data != "" {
		s.Data = []byte(data)
	}
	isCheck := s.Kind == signalCheck
	return parts[0], s, len(s.Data) <= store.MaxSignalData && (isCheck || isSignal(s))
}

// isSignal reports whether a signal could have been sent.
func isSignal(s store.Signal) bool {
	isKind := s.Kind != "" && len(s.Kind) <= 16 && strings.Trim(s.Kind, "abcdefghijklmnopqrstuvwxyz") == ""
	isUser := s.User == "" || lastseen.CheckStoredUser(s.User) == nil
	return isKind && isUser && lastseen.CheckNamespace(s.Namespace) == nil
}

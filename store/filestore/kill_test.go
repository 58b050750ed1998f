package filestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore"
	"github.com/lastseen/lastseen/store/memstore/packed"
	"github.com/lastseen/lastseen/store/storetest/devices"
)

// The child is this test binary, started again to write to a store until it is killed. Its output has a line, written
// at once and so never cut, for each event:
//
//	ack USER AT    a ping returned
//	gone USER      a forget returned
//	dropped NAME   a namespace's deletion returned
//	safe USER AT   a flush that contained this ended
//	said USER N    a call of SetAvailability returned
//	flushed N      a flush that began after N acks ended
const (
	childFile = "LASTSEEN_CHILD_FILE"
	childSync = "LASTSEEN_CHILD_SYNC"

	childWriters = 8
	childUsers   = 50
)

// crashLog writes lines one at a time and counts the acks among them.
type crashLog struct {
	mu   sync.Mutex
	acks int
}

func (l *crashLog) line(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if strings.HasPrefix(text, "ack") {
		l.acks++
	}
	fmt.Println(text)
}

func (l *crashLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acks
}

func child(path, sync string) {
	every, err := time.ParseDuration(sync)
	if err != nil {
		panic(err)
	}
	s, err := Open(Options{Path: path, Sync: every, CompactAfter: 1 << 14, Logger: quiet()})
	if err != nil {
		panic(err)
	}
	var out crashLog
	commit, acks := s.writer.commit, 0
	s.writer.commit = func(run changes) error {
		held, err := tablesOf(run.all()...)
		if err != nil {
			panic(err)
		}
		if err := commit(run); err != nil {
			panic(err)
		}
		for user, s := range dumpOf(held).states["chat"] {
			out.line("safe %s %d", user, packed.ScoreOf(s))
		}
		out.line("flushed %d", acks)
		acks = out.count() // before the next flush takes what is pending
		return nil
	}
	start := lastseen.InstantOf(time.Now().Add(-24 * time.Hour)) // times run ahead of the clock here
	if every < defaultSync {                                     // otherwise the test is about delayed flushes
		go sayForever(s, &out, start)
	}
	for w := range childWriters {
		go pingForever(s, &out, w, start, every < defaultSync)
	}
	select {} // until killed
}

// pingForever pings a writer's own users with ever later times, every other writer on devices. Unless the test is about
// delayed flushes, it also erases a user and a namespace now and then, which makes flushes begin at once.
func pingForever(s *Store, out *crashLog, writer int, at lastseen.Instant, erasing bool) {
	ctx := context.Background()
	for n := 0; ; n++ {
		at++
		user := fmt.Sprintf("%d-%d", writer, n%childUsers)
		var err error
		if writer%2 == 0 {
			_, err = s.Ping(ctx, "chat", []store.PresenceEvent{{User: user, At: at}})
		} else {
			device := devices.On(user, fmt.Sprint("device-", n/childUsers%3), at)
			device.Meta = user + " on " + device.ID
			_, err = s.RecordDevices(ctx, "chat", time.Second, []store.DeviceEvent{device})
		}
		if err != nil {
			panic(err)
		}
		out.line("ack %s %d", user, at)
		if erasing && n%50 == 49 {
			eraseOnce(ctx, s, out, fmt.Sprintf("once-%d-%d", writer, at), at)
		}
	}
}

// eraseOnce writes a user and a namespace to the file and then erases them.
func eraseOnce(ctx context.Context, s *Store, out *crashLog, name string, at lastseen.Instant) {
	batch := []store.PresenceEvent{{User: name, At: at}}
	device := devices.On(name, "a", at)
	device.Meta = name + " on a"
	_, userErr := s.RecordDevices(ctx, "chat", time.Second, []store.DeviceEvent{device})
	_, nameErr := s.Ping(ctx, name, batch)
	flushErr := s.writer.Do(ctx, memstore.Write{Durable: true})
	if err := errors.Join(userErr, nameErr, flushErr, s.Forget(ctx, "chat", name)); err != nil {
		panic(err)
	}
	out.line("gone %s", name)
	if err := s.DeleteNamespace(ctx, name); err != nil {
		panic(err)
	}
	out.line("dropped %s", name)
}

// events is the output of a child.
type events struct {
	acks    []store.PresenceEvent
	gone    []string
	dropped []string
	safe    []store.PresenceEvent
	said    map[string]int
	flushed int // acks that the flushes which ended had to hold
}

// runChild starts a child, and kills it after a number of flushes and then lines of output.
func runChild(t *testing.T, path, sync string, flushes, lines int) events {
	t.Helper()
	cmd := testenv.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childFile+"="+path, childSync+"="+sync)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()
	var h events
	scanner := bufio.NewScanner(out)
	for n := 0; scanner.Scan(); {
		if n == lines {
			require.NoError(t, cmd.Process.Kill())
		}
		if flushes <= 0 {
			n++
		}
		var user string
		var at lastseen.Instant
		switch line := scanner.Text(); {
		case strings.HasPrefix(line, "ack "):
			_, err := fmt.Sscanf(line, "ack %s %d", &user, &at)
			require.NoError(t, err)
			h.acks = append(h.acks, store.PresenceEvent{User: user, At: at})
		case strings.HasPrefix(line, "safe "):
			_, err := fmt.Sscanf(line, "safe %s %d", &user, &at)
			require.NoError(t, err)
			h.safe = append(h.safe, store.PresenceEvent{User: user, At: at})
		case strings.HasPrefix(line, "said "):
			h.addAvailability(t, line)
		case strings.HasPrefix(line, "gone "):
			h.gone = append(h.gone, strings.TrimPrefix(line, "gone "))
		case strings.HasPrefix(line, "dropped "):
			h.dropped = append(h.dropped, strings.TrimPrefix(line, "dropped "))
		default:
			_, err := fmt.Sscanf(line, "flushed %d", &h.flushed)
			require.NoError(t, err, line)
			flushes--
		}
	}
	var end *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &end)
	require.Equal(t, "signal: killed", end.Error(), "it ended by itself")
	return h
}

// requireDevicesOf checks that the users who have devices have them as of their last event.
func requireDevicesOf(t *testing.T, s *Store, held map[string]lastseen.State) {
	t.Helper()
	with := 0
	for user, state := range held {
		d := devices.Of(t, s, user)
		if len(d.Records) == 0 {
			require.Zero(t, user[0]%2, "%s is pinged on devices", user) // '0' is even
			continue
		}
		with++
		require.Equal(t, state.At, d.Records[0].At, user)
		for i, r := range d.Records {
			require.Equal(t, user+" on "+r.ID, d.Meta[i])
		}
	}
	require.Positive(t, with)
}

// TestKill kills a writing process several times. With sync=0, all writes that returned are in the file. Otherwise
// those that returned before the last completed flush began are; only later ones can be lost. Forgotten users stay
// forgotten.
func TestKill(t *testing.T) {
	t.Parallel() // it waits for the disk
	for sync, rounds := range map[string]int{"0s": 5, "10ms": 5, "1s": 2} {
		t.Run(sync, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "lastseen.db") // on a disk
			random := rand.New(rand.NewPCG(1, 1))
			kept, erased := map[string]lastseen.Instant{}, 0
			for range rounds {
				flushes := 0
				if sync == defaultSync.String() {
					flushes = 2 // the first comes at once
				}
				h := runChild(t, path, sync, flushes, 1000+random.IntN(4000))
				safe := slices.Concat(h.safe, h.acks[:h.flushed])
				if sync == "0s" {
					safe = h.acks
				}
				require.NotEmpty(t, safe)
				for _, a := range safe {
					if !strings.Contains(a.User, "once") {
						kept[a.User] = max(kept[a.User], a.At)
					}
				}
				s := open(t, Options{Path: path, Sync: defaultSync})
				all := truthOf(t, s)
				held := all["chat"]
				for user, at := range kept {
					require.GreaterOrEqual(t, held[user].At, at, user)
				}
				for _, user := range h.gone {
					require.NotContains(t, held, user, "forgotten, and back")
				}
				for _, name := range h.dropped {
					require.NotContains(t, all, name, "deleted, and back")
				}
				erased += len(h.dropped)
				requireDevicesOf(t, s, held)
				h.requireAvailability(t, s, sync != defaultSync.String())
				require.NoError(t, s.Close())
			}
			if sync != defaultSync.String() {
				require.Positive(t, erased, "killed before anything was erased")
			}
		})
	}
}

// sayForever has users set an availability again and again, numbered in the note. Users with an odd number become
// invisible after that.
func sayForever(s *Store, out *crashLog, at lastseen.Instant) {
	ctx := context.Background()
	for n := 0; ; n++ {
		user := fmt.Sprint("says-", n%10)
		availability := lastseen.AvailabilityState{Availability: lastseen.Busy, Note: strconv.Itoa(n)}
		_, err := s.SetAvailability(ctx, "said", user, availability, at)
		if n%2 == 1 {
			availability.Availability = lastseen.Invisible
			_, hideErr := s.SetAvailability(ctx, "said", user, availability, at)
			err = errors.Join(err, hideErr)
		}
		if n%100 == 99 {
			once := fmt.Sprint("once-", at, "-", n)
			_, onceErr := s.SetAvailability(ctx, "said", once, availability, at)
			err = errors.Join(err, onceErr, s.Forget(ctx, "said", once))
		}
		if err != nil {
			panic(err)
		}
		out.line("said %s %d", user, n)
	}
}

func (h *events) addAvailability(t *testing.T, line string) {
	t.Helper()
	var user string
	var n int
	_, err := fmt.Sscanf(line, "said %s %d", &user, &n)
	require.NoError(t, err)
	if h.said == nil {
		h.said = map[string]int{}
	}
	h.said[user] = n
}

// requireAvailability checks that users have the last availability, or a later one, and that users who were forgotten
// have nothing.
func (h *events) requireAvailability(t *testing.T, s *Store, some bool) {
	t.Helper()
	require.Equal(t, some, len(h.said) > 0, "killed before anything was said")
	d := dumpOf(s.tables)
	for user, last := range h.said {
		availability, err := s.ReadAvailability(context.Background(), "said", user, base)
		require.NoError(t, err)
		n, err := strconv.Atoi(availability.Note)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, last, user)
		seen := d.availabilities["said/"+user]
		if n%2 == 0 {
			require.Equal(t, lastseen.Busy, availability.Availability)
			require.Equal(t, availability, seen)
		} else if availability.Availability != lastseen.Busy { // it was killed between the calls
			require.Equal(t, lastseen.Invisible, availability.Availability)
			require.Equal(t, lastseen.AvailabilityState{Availability: lastseen.Busy, Note: availability.Note}, seen)
		}
	}
	if some {
		// Ten users set an availability, five of them are invisible, and each kill can leave one that was not forgotten
		// yet.
		require.LessOrEqual(t, len(d.availabilities)+len(d.hidden), 20)
	}
}

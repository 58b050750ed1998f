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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// The victim is this test binary, started again to write to a store until it is killed. What it says
// on its output, a line each, in one write and so never cut:
//
//	ack USER AT    a ping is answered
//	gone USER      a forget is answered
//	dropped NAME   a namespace's deletion is answered
//	safe USER AT   a flush that held this has ended
//	flushed N      a flush has ended that began after N acks
const (
	victimFile = "LASTSEEN_VICTIM_FILE"
	victimSync = "LASTSEEN_VICTIM_SYNC"

	victimWriters = 8
	victimUsers   = 50
)

// say writes lines one at a time and counts the acks among them.
type say struct {
	mu   sync.Mutex
	acks int
}

func (s *say) line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if strings.HasPrefix(text, "ack") {
		s.acks++
	}
	fmt.Println(text)
}

func (s *say) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acks
}

func victim(path, sync string) {
	every, err := time.ParseDuration(sync)
	if err != nil {
		panic(err)
	}
	s, err := Open(Options{Path: path, Sync: every, CompactAfter: 1 << 14, Logger: quiet()})
	if err != nil {
		panic(err)
	}
	var out say
	commit, acks := s.writer.commit, 0
	s.writer.commit = func(run [][]byte) error {
		held := contents{}
		for _, part := range run {
			if err := held.replay(part); err != nil {
				panic(err)
			}
		}
		if err := commit(run); err != nil {
			panic(err)
		}
		for user, at := range held.plain()["chat"] {
			out.line("safe %s %d", user, at)
		}
		out.line("flushed %d", acks)
		acks = out.count() // before the next flush takes what is pending
		return nil
	}
	start := lastseen.InstantOf(time.Now().Add(-24 * time.Hour)) // times run ahead of the clock here
	for w := range victimWriters {
		go write1(s, &out, w, start, every < DefaultSync)
	}
	select {} // until killed
}

// write1 pings a writer's own users with ever later times. Unless it would hurry flushes that are to
// come by themselves, it now and then erases a user and a namespace for good.
func write1(s *Store, out *say, writer int, at lastseen.Instant, erasing bool) {
	ctx := context.Background()
	for n := 0; ; n++ {
		at++
		user := fmt.Sprintf("%d-%d", writer, n%victimUsers)
		if _, err := s.Ping(ctx, "chat", []store.Sighting{{User: user, At: at}}); err != nil {
			panic(err)
		}
		out.line("ack %s %d", user, at)
		if erasing && n%50 == 49 {
			eraseOnce(ctx, s, out, fmt.Sprintf("once-%d-%d", writer, at), at)
		}
	}
}

// eraseOnce brings a user and a namespace into the file and then erases them.
func eraseOnce(ctx context.Context, s *Store, out *say, name string, at lastseen.Instant) {
	batch := []store.Sighting{{User: name, At: at}}
	_, userErr := s.Ping(ctx, "chat", batch)
	_, nameErr := s.Ping(ctx, name, batch)
	flushErr := s.writer.do(ctx, write{durable: true, op: opFunc(func(*transaction) {})})
	if err := errors.Join(userErr, nameErr, flushErr, s.Forget(ctx, "chat", name)); err != nil {
		panic(err)
	}
	out.line("gone %s", name)
	if err := s.DeleteNamespace(ctx, name); err != nil {
		panic(err)
	}
	out.line("dropped %s", name)
}

// heard is what a victim said before it died.
type heard struct {
	acks    []store.Sighting
	gone    []string
	dropped []string
	safe    []store.Sighting
	flushed int // acks that the flushes which ended had to hold
}

// runVictim starts a victim, listens, and kills it when it has said so many lines after so many
// flushes.
func runVictim(t *testing.T, path, sync string, flushes, lines int) heard {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimFile+"="+path, victimSync+"="+sync)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()
	var h heard
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
			h.acks = append(h.acks, store.Sighting{User: user, At: at})
		case strings.HasPrefix(line, "safe "):
			_, err := fmt.Sscanf(line, "safe %s %d", &user, &at)
			require.NoError(t, err)
			h.safe = append(h.safe, store.Sighting{User: user, At: at})
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

// TestKill kills a writing process several times. With sync=0 everything answered is in the file.
// Otherwise everything answered before the last completed flush began is: only that flush's successor
// and what came since can be lost. What was forgotten stays forgotten.
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
				if sync == DefaultSync.String() {
					flushes = 2 // the first comes at once
				}
				h := runVictim(t, path, sync, flushes, 1000+random.IntN(4000))
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
				s := open(t, Options{Path: path, Sync: DefaultSync})
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
				require.NoError(t, s.Close())
			}
			if sync != DefaultSync.String() {
				require.Positive(t, erased, "killed before anything was erased")
			}
		})
	}
}

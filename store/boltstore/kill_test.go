package boltstore

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
	s, err := Open(Options{Path: path, Sync: every, FoldAfter: 1 << 14, Logger: quiet()})
	if err != nil {
		panic(err)
	}
	var out say
	commit, acks := s.writer.commit, 0
	s.writer.commit = func(run []byte) error {
		held := contents{}
		if err := errors.Join(held.replay(run), commit(run)); err != nil {
			panic(err)
		}
		for user, at := range held["chat"] {
			out.line("safe %s %d", user, at)
		}
		out.line("flushed %d", acks)
		acks = out.count() // before the next flush takes what is pending
		return nil
	}
	start := lastseen.InstantOf(time.Now())
	for w := range victimWriters {
		go write1(s, &out, w, start)
	}
	select {} // until killed
}

// write1 pings a writer's own users with ever later times, and now and then forgets one for good.
func write1(s *Store, out *say, writer int, at lastseen.Instant) {
	ctx := context.Background()
	for n := 0; ; n++ {
		at++
		user := fmt.Sprintf("%d-%d", writer, n%victimUsers)
		if _, err := s.Ping(ctx, "chat", []store.Sighting{{User: user, At: at}}); err != nil {
			panic(err)
		}
		out.line("ack %s %d", user, at)
		if n%200 == 199 {
			user := fmt.Sprintf("%d-once-%d-%d", writer, at, n)
			_, err := s.Ping(ctx, "chat", []store.Sighting{{User: user, At: at}})
			if err == nil {
				err = s.Forget(ctx, "chat", user)
			}
			if err != nil {
				panic(err)
			}
			out.line("gone %s", user)
		}
	}
}

// heard is what a victim said before it died.
type heard struct {
	acks    []store.Sighting
	gone    []string
	safe    []store.Sighting
	flushed int // acks that the flushes which ended had to hold
}

// runVictim starts a victim, listens, and kills it after it has said so many lines.
func runVictim(t *testing.T, path, sync string, lines int) heard {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimFile+"="+path, victimSync+"="+sync)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var h heard
	scanner := bufio.NewScanner(out)
	for n := 0; scanner.Scan(); n++ {
		if n == lines {
			require.NoError(t, cmd.Process.Kill())
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
		default:
			_, err := fmt.Sscanf(line, "flushed %d", &h.flushed)
			require.NoError(t, err, line)
		}
	}
	return h
}

// TestKill kills a writing process several times. With sync=0 everything answered is in the file.
// Otherwise everything answered before the last completed flush began is: only that flush's successor
// and what came since can be lost. What was forgotten stays forgotten.
func TestKill(t *testing.T) {
	for sync, rounds := range map[string]int{"0s": 5, "10ms": 5, "1s": 2} {
		t.Run(sync, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lastseen.db")
			random := rand.New(rand.NewPCG(1, 1))
			kept := map[string]lastseen.Instant{}
			for range rounds {
				lines := 2000 + random.IntN(6000)
				if sync == "1s" {
					lines += 50_000 // more than a second's worth of writing
				}
				h := runVictim(t, path, sync, lines)
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
				held := truthOf(t, s)["chat"]
				for user, at := range kept {
					require.GreaterOrEqual(t, held[user].At, at, user)
				}
				for _, user := range h.gone {
					require.NotContains(t, held, user, "forgotten, and back")
				}
				require.NoError(t, s.Close())
			}
		})
	}
}

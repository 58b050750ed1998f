package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
)

// stream is an upload of lines that goes on until the test ends it.
type stream struct {
	*io.PipeWriter
	answer chan reply
}

// stream begins an upload.
func (w *world) stream(headers ...string) stream {
	w.t.Helper()
	reader, writer := io.Pipe()
	w.t.Cleanup(func() { _ = writer.Close() })
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, w.url+"/v1/namespaces/chat/pings",
		reader)
	require.NoError(w.t, err)
	for _, header := range append(headers, ndjson) {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	s := stream{writer, make(chan reply, 1)}
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			s.answer <- reply{body: err.Error()}
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		s.answer <- reply{response.StatusCode, response.Header, string(body)}
	}()
	return s
}

// TestStreamsAreAuthorizedAgain: what a caller may not do any more ends its stream, before the next lines are recorded.
func TestStreamsAreAuthorizedAgain(t *testing.T) {
	secret, hash := auth.NewKey()
	_, otherHash := auth.NewKey()
	key := auth.Key{Name: "backend", Hash: hash, Scopes: []auth.Scope{auth.Ping}, Namespaces: []auth.Pattern{"*"}}
	other := auth.Key{Name: "other", Hash: otherHash, Scopes: auth.Scopes(), Namespaces: []auth.Pattern{"*"}}
	elsewhere := key
	elsewhere.Namespaces = []auth.Pattern{"elsewhere"}
	guard := func(keys ...auth.Key) *auth.Authenticator { return newGuard(t, auth.Config{Keys: keys}) }
	for name, after := range map[string]struct {
		guard  *auth.Authenticator
		status int
		code   code
	}{
		"a key that was removed":              {guard(other), http.StatusUnauthorized, codeUnauthenticated},
		"a key that is for another namespace": {guard(elsewhere, other), http.StatusForbidden, codeForbidden},
		"a key that is as it was":             {guard(key, other), http.StatusOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGuardedWorld(t, fileStore(t), guard(key, other))
			total := func() int {
				infos, err := w.store.Count(t.Context(), "chat", []lastseen.Range{{From: 1, To: noon + maxAhead}})
				require.NoError(t, err)
				return int(infos[0])
			}
			s := w.stream("Authorization: Bearer " + secret)
			fmt.Fprint(s, "{\"user\":\"alice\"}\n\n{\"user\":\"bob\"}\n")
			require.Eventually(t, func() bool { return total() == 2 }, time.Minute, time.Millisecond)
			w.reload(func(c *Config) { c.Auth = after.guard })
			fmt.Fprint(s, "{\"user\":\"eve\"}\n")
			require.NoError(t, s.Close())
			r := <-s.answer
			require.Equal(t, after.status, r.status, r.body)
			if after.code == "" {
				require.Equal(t, 3, total())
				return
			}
			problem := r.json(t)
			require.Equal(t, string(after.code), problem["code"])
			require.EqualValues(t, 4, problem["line"])
			require.EqualValues(t, 2, problem["recorded"])
			require.Contains(t, r.header.Get("WWW-Authenticate"), "Bearer")
			require.Equal(t, 2, total(), "nothing of it is recorded")
		})
	}
}

// TestStreamsTakeMemory: what a stream keeps counts, and is given back chunk by chunk.
func TestStreamsTakeMemory(t *testing.T) {
	t.Parallel() // it waits until the server has read enough of a stream that it refused
	memory := newBodyMemory(MinBodyMemory)
	w := newWorld(t, fileStore(t), func(c *Config) { withBodies(c, memory) })
	used := func() int64 {
		memory.mu.Lock()
		defer memory.mu.Unlock()
		return memory.used
	}
	s := w.stream()
	for i := range 3 {
		fmt.Fprintf(s, "{\"user\":\"u%d\"}\n{\"user\":", i)
		require.Eventually(t, func() bool { return w.total("chat") == 2*i+1 }, time.Minute, time.Millisecond)
		require.Eventually(t, func() bool { return used() == readBuffer }, time.Minute, time.Millisecond,
			"between two chunks")
		fmt.Fprintf(s, "\"v%d\"}\n", i)
		require.Eventually(t, func() bool { return w.total("chat") == 2*i+2 }, time.Minute, time.Millisecond)
	}
	require.Eventually(t, func() bool { return used() == readBuffer }, time.Minute, time.Millisecond,
		"between two chunks")
	full := bodyHold{memory: memory, key: limit.ByAPIKey("another")}
	require.NoError(t, full.grow(int(memory.limit-used())))
	w.fails(codeOverloaded, http.MethodPost, "/chat/pings", "{\"user\":\"bob\"}\n", ndjson)
	fmt.Fprint(s, "{\"user\":\"eve\"}\n")
	r := <-s.answer
	require.Equal(t, http.StatusServiceUnavailable, r.status)
	require.EqualValues(t, 6, r.json(t)["recorded"], r.body)
	full.release()
	require.NoError(t, s.Close())
	require.Zero(t, used())
}

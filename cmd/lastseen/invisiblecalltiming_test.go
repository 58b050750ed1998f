package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// TestInvisibleCallTiming checks that it takes as long to call a user who left, one never seen, and one who is
// invisible, also in another call. Where callers cannot call those who do not know them, these take as long as each
// other. As in [TestInvisibleTiming], a comparison that fails has to fail three times.
func TestInvisibleCallTiming(t *testing.T) {
	requireTiming(t)
	eachTwins(t, func(t *testing.T, servers []string, s store.Store) {
		known := twins{hidden: "hide-0", servers: servers, store: s}
		strangers := twins{hidden: "hide-2", servers: servers, store: s}
		token := bearerOf(t, "stranger", strangers.hidden)
		for i, callee := range []string{neverCallee, hiddenCallee, busyCallee} {
			for j, c := range []callTimer{
				{twins: known, credential: "ls_all", rounds: 500, status: http.StatusCreated},
				{twins: known, credential: "ls_all", rounds: 1000, fields: `,"if":"present"`},
				{twins: strangers, credential: token, rounds: 1000},
			} {
				// The users are new: how long it takes also depends on the calls to a user that are kept.
				suffix := fmt.Sprintf("-%d-%d", i, j)
				c.hideCallees(t, suffix)
				sameTime(t, c.rounds, c.untilResponse(t, leftCallee+suffix), c.untilResponse(t, callee+suffix))
			}
		}
	})
}

// TestInvisibleCallFrameTiming checks that a caller's connection is sent a call as soon after the response if the
// callee is invisible, and has many connections, as if the callee left.
func TestInvisibleCallFrameTiming(t *testing.T) {
	requireTiming(t)
	eachTwins(t, func(t *testing.T, servers []string, s store.Store) {
		w := twins{hidden: "hide-0", servers: servers, store: s}
		w.hideCallees(t, "")
		for range 10 { // that the caller waits for each of them would be noticed
			w.connectQuietly(t, 0, hiddenCallee)
		}
		c := callTimer{twins: w, credential: "ls_all", status: http.StatusCreated}
		sameTime(t, 300, c.untilFrame(t, leftCallee), c.untilFrame(t, hiddenCallee))
	})
}

// callTimer starts calls in the namespace of hidden users, whose times are compared.
type callTimer struct {
	twins
	credential string
	rounds     int
	fields     string // more of the body
	status     int    // of the response; if 0, the callee is not available
	started    int
	last       string // the path of the call, until it is ended
}

// start returns a function that starts a call to a user.
func (c *callTimer) start(t *testing.T, callee string) func() {
	t.Helper()
	path := "/v1/namespaces/" + c.hidden + "/calls"
	return func() {
		body := fmt.Sprintf(`{"from":%q,"to":%q%s}`, c.caller(), callee, c.fields)
		var call struct{ ID, Code string }
		r := send(t, c.servers[0], http.MethodPost, path, body, c.credential)
		if err := json.Unmarshal([]byte(r.body), &call); err != nil {
			t.Error(err)
		}
		switch {
		case r.status == http.StatusCreated && c.status == r.status:
			c.last = path + "/" + call.ID
		case c.status != 0 || call.Code != "callee_unavailable":
			t.Errorf("%d: %s", r.status, r.body)
		}
	}
}

// untilResponse returns what starts a call to a user, and ends it. It returns the time until the response to the start.
func (c *callTimer) untilResponse(t *testing.T, callee string) timer {
	t.Helper()
	start := timed(c.start(t, callee))
	return func() time.Duration {
		defer c.end(t)
		return start()
	}
}

// untilFrame returns what starts a call of a connected user, and ends it. It returns the time from the response to the
// start until the connection is sent the call.
func (c *callTimer) untilFrame(t *testing.T, callee string) timer {
	t.Helper()
	start := c.start(t, callee)
	return func() time.Duration {
		socket := c.connect(t, 0, c.caller(), `"device":{"id":"phone","kind":"mobile"}`)
		start()
		begun := time.Now()
		socket.await(t, "call")
		took := time.Since(begun)
		c.end(t)
		_ = socket.CloseNow()
		return took
	}
}

// end ends the call. The next one has another caller, since the calls of a user are limited.
func (c *callTimer) end(t *testing.T) {
	t.Helper()
	if c.last != "" {
		body := fmt.Sprintf(`{"user":%q}`, c.caller())
		r := send(t, c.servers[0], http.MethodPost, c.last+"/end", body, c.credential)
		require.Equal(t, http.StatusOK, r.status, r.body)
	}
	c.last = ""
	c.started++
}

// caller returns the user who calls. A token calls for its own user.
func (c *callTimer) caller() string {
	if c.credential != "ls_all" {
		return "stranger"
	}
	return fmt.Sprintf("caller-%06d", c.started)
}

package scenarios

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// crowd are many users of the namespace chat, and a client that follows everyone by polls.
type crowd struct {
	*testserver.Server
	users []string
	knows map[string]string // user → status, and "left"
	fresh map[string]bool   // users who were sent since a reset; nil if there was none, or its pages have ended
	after string            // the cursor
}

// TestSnapshotOfACrowd reads pages of everyone at an interval while users ping, come and leave. In the end, nobody is
// missing, and nobody has a status that they do not have. It continues so after the feed has lost its position.
func TestSnapshotOfACrowd(t *testing.T) {
	t.Parallel()
	t.Run("file", func(t *testing.T) { testCrowd(t, nil) })
	for _, shards := range []string{"1", "4"} {
		t.Run("redis, shards "+shards, func(t *testing.T) {
			server := redistest.StartProcess(t)
			lose := func() { // the feed, and not the users
				keys, err := server.Client(t).Keys(t.Context(), "presence:changes:*").Result()
				require.NoError(t, err)
				require.NotEmpty(t, keys)
				require.NoError(t, server.Client(t).Del(t.Context(), keys...).Err())
			}
			testCrowd(t, lose, "--store", server.URL(), "--redis-shards", shards,
				"--redis-timeout", "30s", "--redis-dial-timeout", "30s")
		})
	}
}

func testCrowd(t *testing.T, lose func(), args ...string) {
	t.Helper()
	c := &crowd{Server: testserver.Start(t, append([]string{"--auth", "none"}, args...)...), knows: map[string]string{}}
	for i := range testenv.Choose(12_000, 3_000) {
		c.users = append(c.users, fmt.Sprintf("user-%d", i))
	}
	for i := 0; i < len(c.users); i += 1000 {
		c.ping(t, c.users[i:i+1000])
	}
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; !stop.Load(); n++ {
			c.disturb(t, n)
			time.Sleep(20 * time.Millisecond) // a client that cannot keep up with changes gets no pages
		}
	}()
	c.pages(t)
	if lose != nil {
		lose()
		c.after = ""
		c.pages(t)
		lose()
		c.pages(t)
	}
	stop.Store(true)
	<-ended
	wrong := ""
	for deadline := time.Now().Add(scenarioWait); time.Now().Before(deadline); time.Sleep(time.Second) {
		if wrong = c.wrong(t); wrong == "" {
			return
		}
	}
	t.Error(wrong)
}

// disturb has some users ping, one leave and one come.
func (c *crowd) disturb(t *testing.T, n int) {
	var some []string
	for range 100 {
		some = append(some, c.users[rand.IntN(len(c.users))]) //nolint:gosec // not a secret
	}
	c.ping(t, append(some, fmt.Sprintf("new-%d", n)))
	c.Call(t, http.MethodPost, "/v1/namespaces/chat/users/"+some[0]+"/leave", "")
}

func (c *crowd) ping(t *testing.T, users []string) {
	pings := make([]string, len(users))
	for i, user := range users {
		pings[i] = fmt.Sprintf(`{"user":%q}`, user)
	}
	c.Call(t, http.MethodPost, "/v1/namespaces/chat/pings", `{"pings":[`+strings.Join(pings, ",")+`]}`)
}

// pages polls until there is no more, with pauses.
func (c *crowd) pages(t *testing.T) {
	t.Helper()
	for more := true; more; time.Sleep(50 * time.Millisecond) {
		more = c.poll(t)
	}
}

// poll applies the next response, and reports whether there are more.
func (c *crowd) poll(t *testing.T) (more bool) {
	t.Helper()
	query := url.Values{"limit": {"100"}}
	if c.after != "" {
		query.Set("cursor", c.after)
	}
	status, r := c.Call(t, http.MethodGet, "/v1/namespaces/chat/changes?"+query.Encode(), "")
	if status == http.StatusServiceUnavailable { // the feed is behind
		return true
	}
	require.Equal(t, http.StatusOK, status, "%v", r)
	if r["reset"] == true {
		c.fresh = map[string]bool{}
	}
	for _, u := range r["users"].([]any) {
		user := u.(map[string]any)
		name := user["user"].(string)
		c.knows[name] = fmt.Sprint(user["status"], user["left"])
		if c.fresh != nil {
			c.fresh[name] = true
		}
	}
	c.after, more = r["cursor"].(string), r["more"].(bool)
	if !more && c.fresh != nil {
		for user := range c.knows {
			if !c.fresh[user] {
				delete(c.knows, user)
			}
		}
		c.fresh = nil
	}
	return more
}

// wrong polls, and returns what the client knows that is not so; "" for nothing.
func (c *crowd) wrong(t *testing.T) string {
	c.pages(t)
	want := map[string]string{}
	for next := ""; ; {
		r := c.Get(t, "/v1/namespaces/chat/users?limit=1000"+next)
		for _, u := range r["users"].([]any) {
			user := u.(map[string]any)
			want[user["user"].(string)] = fmt.Sprint(user["status"], user["left"])
		}
		cursor, more := r["next_cursor"].(string)
		if !more {
			break
		}
		next = "&cursor=" + cursor
	}
	for user, shown := range want {
		if c.knows[user] != shown {
			return fmt.Sprintf("%s is %s, not %q", user, shown, c.knows[user])
		}
	}
	if len(want) != len(c.knows) {
		return fmt.Sprintf("%d users are known, not %d", len(c.knows), len(want))
	}
	return ""
}

package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

func TestPing(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		r := w.send(http.MethodPost, "/chat/users/alice/ping", "")
		require.JSONEq(t, `{"user":"alice","status":"green","last_seen":"2026-11-20T12:00:00.000Z","left":false,
			"valid_until":"2026-11-20T12:01:00.000Z","as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000,"ping_after_ms":27000}`, r.body)
		require.Equal(t, "application/json", r.header.Get("Content-Type"))

		older := w.post("/chat/users/alice/ping", `{"at":"2026-11-20T11:00:00Z"}`)
		require.Equal(t, "2026-11-20T12:00:00.000Z", older["last_seen"], "what is stored")
		ahead := w.post("/chat/users/alice/ping", `{"at":1795176005}`)
		require.Equal(t, "2026-11-20T12:00:05.000Z", ahead["last_seen"], "5 seconds ahead are allowed")
		require.Equal(t, "green", ahead["status"])
		require.Equal(t, "2026-11-20T12:01:05.000Z", ahead["valid_until"])
	})
}

func TestTimesIn(t *testing.T) {
	w := newWorld(t, fileStore(t))
	for i, at := range []string{
		`"2026-11-20T11:00:00.1239Z"`, `"2026-11-20T12:00:00.123+01:00"`, `1795172400.1239`, `"1795172400.123"`,
		`17951724001.239e-1`,
	} {
		answer := w.post(fmt.Sprintf("/chat/users/u%d/ping", i), `{"at":`+at+`}`)
		require.Equal(t, "2026-11-20T11:00:00.123Z", answer["last_seen"], at)
	}
}

func TestBodiesReadAsJSON(t *testing.T) {
	w := newWorld(t, fileStore(t))
	for i, media := range []string{
		"", "application/json", "application/json; charset=UTF-8", "text/plain", "text/plain;charset=us-ascii",
		"application/x-www-form-urlencoded",
	} {
		answer := w.post(fmt.Sprintf("/chat/users/u%d/ping", i), `{"at":100123}`, "Content-Type: "+media)
		require.Equal(t, "1970-01-02T03:48:43.000Z", answer["last_seen"], media)
	}
}

func TestLeave(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		unseen := w.send(http.MethodPost, "/game/users/zoe/leave", "")
		require.JSONEq(t, `{"user":"zoe","status":"grey","last_seen":"2026-11-20T12:00:00.000Z","left":true,"valid_until":null,
			"as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000}`, unseen.body)
		require.Equal(t, 1, w.total("game"), "a leave of a user never seen is recorded")
		require.Len(t, w.get("")["namespaces"], 1, "and its namespace exists")
		require.Equal(t, "grey", w.post("/game/users/zoe/ping", `{"at":"2026-11-20T11:59:59Z"}`)["status"],
			"the ping was earlier")

		w.post("/chat/users/alice/ping", "")
		left := w.send(http.MethodPost, "/chat/users/alice/leave", "")
		require.JSONEq(t, `{"user":"alice","status":"grey","last_seen":"2026-11-20T12:00:00.000Z","left":true,
			"valid_until":null,"as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000}`, left.body)
		require.Equal(t, true, w.post("/chat/users/alice/ping", "")["left"], "at one millisecond left beats present")
		w.store.now++
		require.Equal(t, "green", w.post("/chat/users/alice/ping", "")["status"], "another device")
		require.Equal(t, "green", w.post("/chat/users/alice/leave", `{"at":"2026-11-20T11:59:00Z"}`)["status"],
			"too old")
	})
}

func TestPreferMinimal(t *testing.T) {
	w := newWorld(t, fileStore(t))
	for _, prefer := range []string{"return=minimal", "respond-async, Return=minimal; foo", `return="minimal"`} {
		r := w.send(http.MethodPost, "/chat/users/alice/ping", "", "Prefer: "+prefer)
		require.Equal(t, http.StatusNoContent, r.status, prefer)
		require.Equal(t, "return=minimal", r.header.Get("Preference-Applied"))
		require.Equal(t, "27000", r.header.Get("Lastseen-Ping-After-Ms"))
		r = w.send(http.MethodPost, "/chat/users/alice/leave", "", "Prefer: "+prefer)
		require.Equal(t, http.StatusNoContent, r.status)
		require.Empty(t, r.header.Get("Lastseen-Ping-After-Ms"), "who leaves need not ping")
	}
	for _, prefer := range []string{"return=representation", "minimal", ""} {
		require.Equal(t, http.StatusOK, w.send(http.MethodPost, "/chat/users/alice/ping", "", "Prefer: "+prefer).status)
	}
}

func TestPingAfter(t *testing.T) {
	for random, want := range map[float64]int64{0: 24_000, 0.5: 27_000, 0.9999999: 29_999} {
		s := &server{random: func() float64 { return random }}
		require.Equal(t, want, s.pingAfter(Settings{PingInterval: 30 * time.Second}))
	}
}

func TestBulkIsAllOrNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		answer := w.post("/chat/pings",
			`{"pings":[{"user":"alice"},{"user":"bob","at":100123},{"user":"alice","at":1}]}`)
		require.EqualValues(t, 3, answer["recorded"], "superseded ones count")
		require.Equal(t, 2, w.total("chat"))
		require.EqualValues(t, 3, w.post("/chat/leaves",
			`{"leaves":[{"user":"alice"},{"user":"zoe"},{"user":"bob"}]}`)["recorded"])
		require.Equal(t, 3, w.total("chat"), "a leave of a user never seen is recorded")
		require.EqualValues(t, 0, w.post("/chat/leaves", `{"leaves":[]}`)["recorded"])

		var items []string
		for i := range 50 {
			item := fmt.Sprintf(`{"user":"new-%d"}`, i)
			if i%2 == 1 {
				item = `{"user":"new","at":-1}`
			}
			items = append(items, item)
		}
		problem := w.fails(codeInvalidTime, http.MethodPost, "/chat/pings", `{"pings":[`+strings.Join(items, ",")+`]}`)
		bad := problem["errors"].([]any)
		require.Len(t, bad, 20, "the first 20")
		for i, e := range bad {
			require.EqualValues(t, 2*i+1, e.(map[string]any)["index"])
			require.NotEmpty(t, e.(map[string]any)["detail"])
		}
		require.Equal(t, 3, w.total("chat"), "one bad item and nothing is recorded")

		most := `{"pings":[` + strings.Repeat(`{"user":"u"},`, 9_999) + `{"user":"u"}]}`
		require.EqualValues(t, 10_000, w.post("/chat/pings", most)["recorded"])
	})
}

func TestLines(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		var b strings.Builder
		for i := range 20_000 {
			fmt.Fprintf(&b, "{\"user\":\"u%d\"}\n", i)
		}
		require.EqualValues(t, 20_000, w.post("/many/pings", b.String(), ndjson)["recorded"])
		require.Equal(t, 20_000, w.total("many"))

		lines := "\n{\"user\":\"alice\"}\r\n  \n\n{\"user\":\"bob\",\"at\":100123}"
		require.EqualValues(t, 2, w.post("/chat/pings", lines, ndjson)["recorded"],
			"blank lines, CRLF, no final newline")
		require.EqualValues(t, 1, w.post("/chat/leaves", `{"user":"bob"}`, ndjson)["recorded"])
		require.EqualValues(t, 0, w.post("/chat/pings", "", ndjson)["recorded"])
		longest := `{"user":"eve"` + strings.Repeat(" ", 4096-len(`{"user":"eve"}`)) + "}"
		require.EqualValues(t, 1, w.post("/chat/pings", longest+"\n", ndjson)["recorded"])
		w.fails(codeBodyTooLarge, http.MethodPost, "/chat/pings", longest+" \n", ndjson)
		require.Equal(t, 3, w.total("chat"))
	})
}

func TestLinesBeforeABadOneAreRecorded(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		for i, bad := range []string{`{"user":""}`, `{"user":"x","at":0}`, `{`, strings.Repeat("x", 5000)} {
			namespace := fmt.Sprintf("n%d", i)
			var b strings.Builder
			for i := range 1500 {
				fmt.Fprintf(&b, "{\"user\":\"u%d\"}\n", i)
			}
			r := w.send(http.MethodPost, "/"+namespace+"/pings", b.String()+"\n"+bad+"\n{\"user\":\"after\"}\n", ndjson)
			problem := r.json(t)
			require.EqualValues(t, 1502, problem["line"], r.body)
			require.EqualValues(t, 1500, problem["recorded"])
			require.Equal(t, 1500, w.total(namespace))
		}
	})
}

// TestLinesAreRecordedAsTheyCome keeps a stream open: what was sent is recorded before its end.
func TestLinesAreRecordedAsTheyCome(t *testing.T) {
	w := newWorld(t, fileStore(t))
	reader, writer := io.Pipe()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, w.url+"/v1/namespaces/chat/pings",
		reader)
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/x-ndjson")
	done := make(chan string, 1)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			done <- err.Error()
			return
		}
		defer response.Body.Close()
		line, _ := bufio.NewReader(response.Body).ReadString('\n')
		done <- line
	}()
	for i := range 3 {
		fmt.Fprintf(writer, "{\"user\":\"u%d\"}\n{\"us", i)
		require.Eventually(t, func() bool { return w.total("chat") == i+1 }, time.Minute, time.Millisecond)
		fmt.Fprintf(writer, "er\":\"u%d\"}\n", i)
	}
	require.NoError(t, writer.Close())
	require.Equal(t, "{\"recorded\":6}\n", <-done)
}

// TestStoreFailsInTheMiddle tells how far the stream got, and does not deny it.
func TestStoreFailsInTheMiddle(t *testing.T) {
	for want, failure := range map[code]error{
		codeStoreUnavailable: store.ErrUnavailable,
		codeOverloaded:       store.ErrOverloaded,
	} {
		w := newWorld(t, &failsLater{Store: fileStore(t), err: fmt.Errorf("%w: the cause", failure)})
		problem := w.fails(want, http.MethodPost, "/chat/pings", strings.Repeat("{\"user\":\"a\"}\n", maxChunk+1),
			ndjson)
		require.Positive(t, problem["recorded"])
		require.EqualValues(t, problem["line"], int(problem["recorded"].(float64))+1)
		require.NotContains(t, problem["detail"], "had no effect")
		require.Contains(t, w.log.String(), "the cause")
	}
}

func TestForgetAndDelete(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"a/b"},{"user":"c"}]}`)
		for _, user := range []string{"alice", "a%2Fb", "nobody"} {
			require.Equal(t, http.StatusNoContent, w.send(http.MethodDelete, "/chat/users/"+user, "").status)
		}
		require.Equal(t, []string{"c"}, names(w.get("/chat/users")))
		require.Equal(t, http.StatusNoContent, w.send(http.MethodDelete, "/chat?confirm=chat", "").status)
		require.Equal(t, http.StatusNoContent, w.send(http.MethodDelete, "/chat?confirm=chat", "").status)
		require.Zero(t, w.total("chat"))
		require.Empty(t, w.get("")["namespaces"])
	})
}

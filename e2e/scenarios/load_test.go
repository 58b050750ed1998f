package scenarios

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

// This file runs normal clients and attackers on one server.

const (
	mixedUsers   = 200
	mixedWorkers = 4 // of each kind
)

// footprint2 is what the process of a server holds.
type footprint2 struct{ goroutines, files, heap int }

// takeFootprint returns what a server holds after a garbage collection.
func takeFootprint2(t *testing.T, s *testserver.Server) (f footprint2) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	response, err := http.Get(s.Admin + "/debug/pprof/heap?gc=1")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	text := s.Metrics(t)
	return footprint2{
		metric(t, text, "go_goroutines"), metric(t, text, "process_open_fds"),
		metric(t, text, "go_memstats_heap_alloc_bytes"),
	}
}

// metric returns the value of a metric without labels.
func metric(t *testing.T, text, name string) int {
	t.Helper()
	_, value, found := strings.Cut(text, "\n"+name+" ")
	require.True(t, found, name)
	value, _, _ = strings.Cut(value, "\n")
	n, err := strconv.ParseFloat(value, 64)
	require.NoError(t, err)
	return int(n)
}

// untilFootprint waits until a server holds no more than before, except a little that varies, such as the connections
// of a pool.
func untilFootprint(t *testing.T, s *testserver.Server, before footprint2) {
	t.Helper()
	require.Eventually(t, func() bool {
		now := takeFootprint2(t, s)
		t.Logf("%+v, %+v before", now, before)
		return now.goroutines <= before.goroutines+10 && now.files <= before.files+10 && now.heap <= before.heap+8<<20
	}, scenarioWait, 100*time.Millisecond, "the server should hold nothing of clients that have disconnected")
}

// TestMixedLoad runs attacks beside normal use. What normal clients record is exact, and after all clients have
// disconnected the process holds nothing of them.
func TestMixedLoad(t *testing.T) {
	rounds, events := testenv.Choose(3, 2), testenv.Choose(400, 200)
	testserver.EachStore(t, func(t *testing.T, args []string) {
		s := testserver.Start(t, append(args, "--admin-listen", "127.0.0.1:0")...)
		d := &day{t: t, s: s, states: map[int]dayState{}, begin: time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC)}
		var before footprint2
		for round := range rounds {
			d.mixedRound(round, events)
			d.compareLists(dayLength, []string{"newest", "oldest"}[round%2])
			if round == 0 {
				before = takeFootprint2(t, s)
			}
		}
		untilFootprint(t, s, before)
		require.NotContains(t, s.Log.String(), "level=ERROR", "an attack is not an error of the service")
		require.Zero(t, s.Terminate(t), s.Log)
	})
}

// mixedRound runs normal clients and attackers at the same time.
func (d *day) mixedRound(round, events int) {
	var clients sync.WaitGroup
	for worker := range mixedWorkers {
		random := rand.New(rand.NewPCG(uint64(round), uint64(worker)))
		good := make([]event, events/mixedWorkers)
		for i := range good {
			good[i] = event{user: random.IntN(mixedUsers), at: 1 + random.Int64N(dayLength), leave: random.IntN(4) == 0}
			d.apply(good[i])
		}
		clients.Go(func() { d.sendEvents(good) })
		clients.Go(func() { d.sendAttacks(random, len(good)/25) })
	}
	clients.Wait()
}

// sendEvents records the events, one by one and many at once, and reads between them.
func (d *day) sendEvents(events []event) {
	for i, e := range events {
		kind := map[bool]string{false: "ping", true: "leave"}[e.leave]
		one := fmt.Sprintf(`"at":%q}`, d.when(e.at))
		item := fmt.Sprintf(`{"user":%q,%s`, userName(e.user), one)
		path, body, media := dayPath+"/"+kind+"s", "", "application/json"
		switch i % 4 {
		case 0, 1:
			path, body = dayPath+"/users/"+userName(e.user)+"/"+kind, "{"+one
		case 2:
			body = fmt.Sprintf(`{"%ss":[%s,%s]}`, kind, item, item)
		case 3:
			body, media = item+"\n\n"+item, "application/x-ndjson"
		}
		d.expectOK(http.Post(d.s.URL+path, media, strings.NewReader(body)))
		read := []string{
			"/users?limit=7", "/counts", "/lookup?user=a&user=" + userName(e.user),
			"/users/" + userName(e.user),
		}[i%4]
		d.expectOK(http.Get(d.s.URL + dayPath + read))
	}
}

func (d *day) expectOK(response *http.Response, err error) {
	if err != nil {
		d.t.Error(err)
		return
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		d.t.Errorf("%s %s: %d %s", response.Request.Method, response.Request.URL, response.StatusCode, body)
	}
}

// sendAttacks attacks the service for some rounds, in another namespace than that of the normal clients. It closes
// the connections that it left open at the end.
func (d *day) sendAttacks(random *rand.Rand, rounds int) {
	var open []net.Conn
	for range rounds {
		for _, attack := range attacks() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(d.s.URL, "http://"))
			if err != nil {
				d.t.Error(err)
				return
			}
			_ = conn.SetDeadline(time.Now().Add(time.Minute)) // longer than the service waits for anyone
			_, _ = conn.Write(attack.bytes(random))           // the service may have closed the connection
			switch attack.end {
			case reads:
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			case resets:
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			case stays:
				open = append(open, conn)
			}
		}
	}
	for _, conn := range open {
		_ = conn.Close()
	}
}

// ending is what an attacker does after sending.
type ending int

const (
	reads  ending = iota // to the end, which the service makes
	resets               // at once, without reading
	stays
)

type attack struct {
	bytes func(*rand.Rand) []byte
	end   ending
}

func attacks() []attack {
	const host, last = " HTTP/1.1\r\nHost: a\r\n", "Connection: close\r\n"
	const lines, chunked = "Content-Type: application/x-ndjson\r\n", "Transfer-Encoding: chunked\r\n"
	post := func(path, headers, body string) string {
		return "POST /v1/namespaces/hostile" + path + host + headers + "\r\n" + body
	}
	get := func(path string) string { return "GET /v1/namespaces/hostile" + path + host + "\r\n" }
	good := post("/pings", "Content-Length: 27\r\n"+last, `{"pings":[{"user":"mallory"}`+"]}")
	always := func(raw string, end ending) attack {
		return attack{func(*rand.Rand) []byte { return []byte(raw) }, end}
	}
	return []attack{
		{func(random *rand.Rand) []byte { return mutated(random, good) }, resets},
		{func(random *rand.Rand) []byte { return mutated(random, get("/users?limit=1&cursor=AQAAAA")) }, resets},
		{randomBytes, resets},
		always(good[:len(good)-10], stays),
		always("GET /heal", stays),
		always(post("/pings", lines+chunked, "10\r\n{\"user\":\"eve\"}\n\n\r\n5\r\n{\"use"), stays),
		always(post("/pings", lines+chunked, "10\r\n{\"user\":\"eve\"}\n\n\r\n5\r\n{\"use"), resets),
		always(post("/pings", lines+last+"Content-Length: 100000\r\n",
			strings.Repeat("{\"user\":\"eve\"}\n", 5000)+strings.Repeat("x", 25_000)), reads),
		always(post("/pings", last+"Content-Length: 2000000\r\n", strings.Repeat("[", 2_000_000)), reads),
		always(post("/pings", last+"Content-Length: 200000\r\n", `{"pings":`+strings.Repeat("[", 199_991)), reads),
		always(post("/lookup", last+"Content-Encoding: gzip\r\nContent-Length: 4\r\n", "\x1f\x8b\x08\x00"), reads),
		always(post("/users/eve/ping", chunked+"Content-Length: 5\r\n", "0\r\n\r\n"+get("/users")), reads),
		always(post("/users/eve/ping", "X: "+strings.Repeat("x", 200_000)+"\r\n", ""), reads),
		always(strings.Repeat(get("/users?limit=1000"), 50), resets),
		always(strings.Repeat(get("/counts"), 50)+"GET /version"+host+last+"\r\n", reads),
		always(strings.Replace(get("/users/eve"), "GET", "DELETE", 1)+strings.Replace(get("?confirm=hostile"), "GET",
			"DELETE", 1), resets),
		always("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", stays),
		always("", stays),
	}
}

func mutated(random *rand.Rand, request string) []byte {
	changed := []byte(request)
	for range 1 + random.IntN(5) {
		at := random.IntN(len(changed))
		switch random.IntN(3) {
		case 0:
			changed[at] = byte(random.UintN(256))
		case 1:
			changed = append(changed[:at], changed[at+1:]...)
		case 2:
			changed = append(changed[:at], append([]byte{"\r\n \x00:%/"[random.IntN(7)]}, changed[at:]...)...)
		}
	}
	return changed
}

func randomBytes(random *rand.Rand) []byte {
	var b bytes.Buffer
	for range random.IntN(5000) {
		b.WriteByte(byte(random.UintN(256)))
	}
	return b.Bytes()
}

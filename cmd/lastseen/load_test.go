package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastseen/lastseen/internal/testenv"
)

// This file runs normal clients and attackers on one service. The service runs in this process, so that the race
// detector sees all of it and leaks can be counted.

const (
	mixedUsers   = 200
	mixedWorkers = 4 // of each kind
)

// startInProcess runs the service in this process. The function that it returns stops it and returns its exit code.
func startInProcess(t *testing.T, args []string) (s *service, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, announce := io.Pipe()
	s = &service{log: &lockedBuffer{}}
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, append([]string{"--listen", "127.0.0.1:0"}, args...), announce, s.log) }()
	banner := make([]byte, 1<<10) // it is written in one piece
	n, err := out.Read(banner)
	require.NoError(t, err, "%s", s.log)
	_, url, _ := strings.Cut(string(banner[:n]), "  API   ")
	s.url, _, _ = strings.Cut(url, "/v1/namespaces")
	stopped := sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { stopped() })
	return s, stopped
}

// footprint is what a process holds.
type footprint struct {
	goroutines, files int
	heap              uint64
}

func takeFootprint(t *testing.T) footprint {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{runtime.NumGoroutine(), len(files), m.HeapAlloc}
}

// requireFootprint waits until the process holds no more than before, except a little that varies, such as the
// connections of a pool.
func requireFootprint(t *testing.T, before footprint) {
	t.Helper()
	var now footprint
	enough := func() bool {
		now = takeFootprint(t)
		return now.goroutines <= before.goroutines+10 && now.files <= before.files+10 && now.heap <= before.heap+8<<20
	}
	if !assertEventually(enough) {
		buffer := make([]byte, 1<<20)
		t.Fatalf("%+v became %+v: %s", before, now, buffer[:runtime.Stack(buffer, true)])
	}
}

// assertEventually reports whether a condition comes true within a minute.
func assertEventually(condition func() bool) bool {
	for range 600 {
		if condition() {
			return true
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false
}

// TestMixedLoad runs attacks beside normal use. What normal clients record is exact, and after all clients have
// disconnected the process holds nothing of them.
func TestMixedLoad(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("counting open files needs /proc")
	}
	rounds, events := testenv.Choose(3, 2), testenv.Choose(400, 200)
	eachStore(t, func(t *testing.T, args []string) {
		leftBefore := goleak.IgnoreCurrent()
		s, stop := startInProcess(t, args)
		d := &day{t: t, s: s, states: map[int]dayState{}, begin: time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC)}
		var before footprint
		for round := range rounds {
			d.mixedRound(round, events)
			d.compareLists(dayLength, []string{"newest", "oldest"}[round%2])
			if round == 0 {
				before = takeFootprint(t)
			}
		}
		requireFootprint(t, before)
		require.NotContains(t, s.log.String(), "level=ERROR", "an attack is not an error of the service")
		require.Zero(t, stop(), s.log)
		http.DefaultClient.CloseIdleConnections()
		goleak.VerifyNone(t, leftBefore)
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
		d.expectOK(http.Post(d.s.url+path, media, strings.NewReader(body)))
		read := []string{
			"/users?limit=7", "/counts", "/lookup?user=a&user=" + userName(e.user),
			"/users/" + userName(e.user),
		}[i%4]
		d.expectOK(http.Get(d.s.url + dayPath + read))
	}
}

func (d *day) expectOK(response *http.Response, err error) {
	if !assertNoError(d.t, err) {
		return
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		d.t.Errorf("%s %s: %d %s", response.Request.Method, response.Request.URL, response.StatusCode, body)
	}
}

// assertNoError is for goroutines of a test, which must not end it.
func assertNoError(t testing.TB, err error) bool {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// sendAttacks attacks the service for some rounds, in another namespace than that of the normal clients. It closes
// the connections that it left open at the end.
func (d *day) sendAttacks(random *rand.Rand, rounds int) {
	var open []net.Conn
	for range rounds {
		for _, attack := range attacks() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(d.s.url, "http://"))
			if !assertNoError(d.t, err) {
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

// attacks returns one of each kind.
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

// mutated changes a few bytes of a request.
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

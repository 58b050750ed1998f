package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain lets the tests start the measured servers and their clients, which are this program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "serve" || os.Args[1] == "hold") {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestTableIsComplete(t *testing.T) {
	known := (&fixture{}).workloads()
	rows := map[int]bool{}
	for _, e := range comparisons() {
		rows[e.row] = true
		require.Contains(t, known, e.subject)
		if e.reference != "" {
			require.Contains(t, known, e.reference)
		}
		require.False(t, e.target.least > 0 && e.target.most > 0, e.work)
	}
	for row := range 32 {
		require.True(t, rows[row], "row %d", row)
	}
}

func TestChoose(t *testing.T) {
	chosen, err := choose(comparisons(), nil)
	require.NoError(t, err)
	require.Len(t, chosen, len(comparisons())-33, "all but the soak, the growth, connections, details and calls")
	chosen, err = choose(comparisons(), []string{"17", "0"})
	require.NoError(t, err)
	require.Len(t, chosen, 3)
	_, err = choose(comparisons(), []string{"32"})
	require.Error(t, err)
}

// TestPaceDrawsNewUsers checks that each batch has its own random users.
func TestPaceDrawsNewUsers(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]bool{}
	counting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a read that fails counts nothing
		mu.Lock()
		defer mu.Unlock()
		for _, user := range bytes.Split(body, []byte(`"user":"`))[1:] {
			seen[string(user[:idSize])] = true
		}
		fmt.Fprintf(w, `{"recorded":%d}`, diskBatch)
	}))
	defer counting.Close()
	f := &fixture{ids: newUsers(10_000_000)}
	_, _ = f.pace(t.Context(), &server{url: counting.URL}, 1500*time.Millisecond) // however slowly
	require.Greater(t, len(seen), 70_000, "of 75,000, nearly all different")
}

// TestBareHasTheSameCollector checks that what row 0 compares differs in the middleware only.
func TestBareHasTheSameCollector(t *testing.T) {
	require.Len(t, tuneGC(""), len(tuneGC("redis://127.0.0.1:6379")))
}

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"-rows", "1,2", "-duration", "3s"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2"}, o.rows)
	require.Equal(t, 3*time.Second, o.duration)
	for _, wrong := range [][]string{{"-duration", "1500ms"}, {"-users", "10"}, {"-rounds", "0"}, {"1"}} {
		_, err := parseOptions(wrong, io.Discard)
		require.Error(t, err, wrong)
	}
}

// testFixture returns a fixture with few users.
func testFixture(t *testing.T) *fixture {
	t.Helper()
	f, err := newFixture(t.Context(), options{users: 20_000, many: 20_000, dir: t.TempDir()}, io.Discard)
	require.NoError(t, err)
	t.Cleanup(f.close)
	return f
}

// TestWorkloadsRespond sends each request once, and measures one workload for a second.
func TestWorkloadsRespond(t *testing.T) {
	for _, command := range []string{"redis-server", "wrk", "webdis"} {
		if _, err := exec.LookPath(command); err != nil {
			t.Skipf("%v: install it to run this test", err)
		}
	}
	f := testFixture(t)
	for _, r := range requests() {
		_, err := f.workloads()[at(r.name, 64)]()
		require.NoError(t, err, r.name)
	}
	s, err := f.server(embedded)
	require.NoError(t, err)
	noOp, err := get(t.Context(), s.url+strings.Replace(noOpPath, "{user}", f.ids.id(0), 1))
	require.NoError(t, err)
	require.Len(t, noOp, len(settingsBody), "the body of bare is as large as the no-op's")
	measure, err := f.workloads()[at("ping, minimal, embedded", 64)]()
	require.NoError(t, err)
	m, err := measure(t.Context(), time.Second)
	require.NoError(t, err)
	require.Positive(t, m.units)
	require.Positive(t, m.server)
	require.Contains(t, m.command, "wrk -t2 -c64 -d1")
	require.NotContains(t, m.command, f.dir)
	f.close()
	require.Error(t, s.alive(), "close stops every server")
}

// TestUnexpectedResponses checks that a workload with an unexpected response is not measured, and that one that starts
// to fail is invalid.
func TestUnexpectedResponses(t *testing.T) {
	if _, err := exec.LookPath("wrk"); err != nil {
		t.Skipf("%v: install it to run this test", err)
	}
	f := testFixture(t)
	s, err := f.server(bareServer)
	require.NoError(t, err)
	r := request{name: "wrong", namespace: randomNS, method: "POST", path: noOpPath, status: 204}
	require.Error(t, f.check(s, r))
	r.status = 405
	measure, err := f.wrk(s, 8, r)
	require.NoError(t, err)
	_, err = measure(t.Context(), time.Second)
	require.ErrorContains(t, err, "returned 400 or more")
}

func TestListsAreWalked(t *testing.T) {
	f := testFixture(t)
	s, err := f.filled(lists, tiedNS)
	require.NoError(t, err)
	path, err := f.page(s, tiedNS, 3)
	require.NoError(t, err)
	require.Contains(t, path, "cursor=")
	require.Equal(t, "/v1/namespaces/tied/users?limit=50&cursor=CURSOR", withoutCursor(path))
	m, err := serial(s, path)(t.Context(), 50*time.Millisecond)
	require.NoError(t, err)
	require.Positive(t, m.p50)
	_, err = f.page(s, "empty", 1)
	require.Error(t, err)
}

func TestUsers(t *testing.T) {
	all := newUsers(1000)
	seen := map[string]bool{}
	for i := range all.len() {
		require.Len(t, all.id(i), idSize)
		seen[all.id(i)] = true
	}
	require.Len(t, seen, 1000)
	require.Equal(t, all[:160], newUsers(10), "more users begin with the same ones")
	require.NotEqual(t, all, all.shuffled())
	require.Len(t, all.shuffled(), len(all))
	require.Equal(t, "user000000000007", newNumbered(8).id(7))
	lines := string(newNumbered(3).lines(1, 3, 1, func(i int) int64 { return int64(1_700_000_000_000 + i) }))
	first, rest, _ := strings.Cut(lines, "\n")
	require.JSONEq(t, `{"user":"user000000000001","at":"1700000000.001"}`, first)
	require.JSONEq(t, `{"user":"user000000000002","at":"1700000000.002"}`, rest)
	require.True(t, strings.HasSuffix(rest, "\n"))
	at := evenly(time.UnixMilli(1000), time.Second, 5)
	require.EqualValues(t, 200, at(0))
	require.EqualValues(t, 1000, at(4))
}

func TestRequestText(t *testing.T) {
	r := request{method: "POST", path: "/lookup", headers: "A: b\r\n", users: 3}
	head, tail := r.text("host")
	user := strings.Repeat("x", idSize)
	body := `{"users":["` + user + `","` + user + `","` + user + `"]}`
	want := fmt.Sprintf("POST /lookup HTTP/1.1\r\nHost: host\r\nA: b\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	require.Equal(t, want, head+strings.Join([]string{user, user, user}, lookupSeparator)+tail)
	head, tail = request{method: "POST", path: "/n-{number}/{user}/ping"}.text("host")
	require.Equal(t, "POST /n-%d/", head)
	require.Equal(t, "/ping HTTP/1.1\r\nHost: host\r\nContent-Length: 0\r\n\r\n", tail)
}

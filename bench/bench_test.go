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
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain lets the tests start the servers that are measured, which are this program again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestTheTableIsWhole(t *testing.T) {
	known := contestants()
	rows := map[int]bool{}
	for _, e := range experiments() {
		rows[e.row] = true
		require.Contains(t, known, e.subject)
		if e.reference != "" {
			require.Contains(t, known, e.reference)
		}
		require.False(t, e.target.least > 0 && e.target.most > 0, e.work)
	}
	for row := range 18 {
		require.True(t, rows[row], "row %d", row)
	}
}

func TestChoose(t *testing.T) {
	chosen, err := choose(experiments(), options{})
	require.NoError(t, err)
	require.Len(t, chosen, len(experiments())-10, "all but the soak, the growth, and two more")
	chosen, err = choose(experiments(), options{all: true})
	require.NoError(t, err)
	require.Len(t, chosen, len(experiments()))
	chosen, err = choose(experiments(), options{rows: []string{"17", "0"}})
	require.NoError(t, err)
	require.Len(t, chosen, 3)
	_, err = choose(experiments(), options{rows: []string{"19"}})
	require.Error(t, err)
}

// TestPaceDrawsAnew: a ping is of any user, however many were pinged before.
func TestPaceDrawsAnew(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]bool{}
	counting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is missing is not counted
		mu.Lock()
		defer mu.Unlock()
		for _, user := range bytes.Split(body, []byte(`"user":"`))[1:] {
			seen[string(user[:idSize])] = true
		}
		fmt.Fprintf(w, `{"recorded":%d}`, diskBatch)
	}))
	defer counting.Close()
	l := &lab{ids: newUsers(10_000_000)}
	_, _ = l.pace(t.Context(), &server{process: &process{url: counting.URL}}, 1500*time.Millisecond) // however slowly
	require.Greater(t, len(seen), 70_000, "of 75,000, nearly all different")
}

// TestBareHasTheSameCollector: what row 0 compares differs in our middleware only.
func TestBareHasTheSameCollector(t *testing.T) {
	require.Len(t, tuneCollector(""), len(tuneCollector("redis://127.0.0.1:6379")))
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

// testLab is a lab with few users.
func testLab(t *testing.T) *lab {
	t.Helper()
	l, err := newLab(t.Context(), options{users: 20_000, many: 20_000, dir: t.TempDir(), threads: 1}, io.Discard)
	require.NoError(t, err)
	t.Cleanup(l.close)
	return l
}

// TestContestantsAnswer asks each contestant for one answer, and measures one of them for a second.
func TestContestantsAnswer(t *testing.T) {
	for _, command := range []string{"redis-server", "wrk", "webdis"} {
		if _, err := exec.LookPath(command); err != nil {
			t.Skipf("%v: install it to run this test", err)
		}
	}
	l := testLab(t)
	for _, r := range requests() {
		_, err := contestants()[at(r.name, 64)](l)
		require.NoError(t, err, r.name)
	}
	s, err := l.server(embedded)
	require.NoError(t, err)
	path := s.url + crowdPath + l.ids.id(0)
	pinged, err := http.Post(path+"/ping", "", nil)
	require.NoError(t, err)
	require.NoError(t, pinged.Body.Close())
	answer, err := get(t.Context(), http.DefaultClient, path)
	require.NoError(t, err)
	require.Len(t, answer, len(sample), "the no-op's body is as large as a real one")
	measure, err := contestants()[at(pingFile, 64)](l)
	require.NoError(t, err)
	m, err := measure(t.Context(), time.Second)
	require.NoError(t, err)
	require.Positive(t, m.units)
	require.Positive(t, m.server)
	require.Contains(t, m.command, "wrk -t1 -c64 -d1")
	require.NotContains(t, m.command, l.dir)
	l.close()
	require.Error(t, s.alive(), "what was started is ended")
}

// TestWrongAnswersSpoil: a contestant that answers otherwise is not measured, and one that begins to
// fail is invalid.
func TestWrongAnswersSpoil(t *testing.T) {
	if _, err := exec.LookPath("wrk"); err != nil {
		t.Skipf("%v: install it to run this test", err)
	}
	l := testLab(t)
	s, err := l.server(echoAlone)
	require.NoError(t, err)
	r := request{namespace: crowd, requestOf: requestOf{method: "GET", before: crowdPath, after: "/ping"}, status: 204}
	require.Error(t, l.check(s, r))
	r.status = 405
	measure, err := l.wrk("wrong", s, 8, r)
	require.NoError(t, err)
	_, err = measure(t.Context(), time.Second)
	require.ErrorContains(t, err, "answered 400 or more")
}

func TestListsAreWalked(t *testing.T) {
	l := testLab(t)
	s, err := l.server(listing)
	require.NoError(t, err)
	require.NoError(t, l.fill(s, tied))
	path, err := l.page(s, tied, 3)
	require.NoError(t, err)
	require.Contains(t, path, "cursor=")
	require.Equal(t, "/v1/namespaces/tied/users?cursor=CURSOR&limit=50", shorten(path))
	m, err := l.serial(s, path)(t.Context(), 50*time.Millisecond)
	require.NoError(t, err)
	require.Positive(t, m.p50)
	_, err = l.page(s, "empty", 1)
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
	require.Equal(t, all[:160], newUsers(10), "a larger crowd begins as a smaller one")
	require.NotEqual(t, all, all.shuffled())
	require.Len(t, all.shuffled(), len(all))
	require.Equal(t, "user000000000007", newNumbered(8).id(7))
	lines := string(newNumbered(3).lines(1, 3, func(i int) int64 { return int64(1_700_000_000_000 + i) }))
	first, rest, _ := strings.Cut(lines, "\n")
	require.JSONEq(t, `{"user":"user000000000001","at":"1700000000.001"}`, first)
	require.JSONEq(t, `{"user":"user000000000002","at":"1700000000.002"}`, rest)
	require.True(t, strings.HasSuffix(rest, "\n"))
	at := spreadOut(time.UnixMilli(1000), time.Second, 5)
	require.EqualValues(t, 200, at(0))
	require.EqualValues(t, 1000, at(4))
}

func TestRequestText(t *testing.T) {
	r := requestOf{method: "POST", before: "/lookup", headers: "A: b\r\n", body: `{"users":["`, each: 3}
	head, tail := r.text("host")
	user := strings.Repeat("x", idSize)
	body := `{"users":["` + user + `","` + user + `","` + user + `"]}`
	require.Equal(t, "POST /lookup HTTP/1.1\r\nHost: host\r\nA: b\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body,
		head+strings.Join([]string{user, user, user}, `","`)+tail)
}

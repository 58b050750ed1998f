package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// idSize is the length of every user's ID in bytes.
const idSize = 16

// users are random IDs, one behind the other: 16 hexadecimal digits each.
type users []byte

// newUsers returns n IDs, the same ones in every run.
func newUsers(n int) users {
	random := rand.NewChaCha8([32]byte([]byte("lastseen benchmark, random users")))
	raw := make([]byte, n*idSize/2)
	_, _ = random.Read(raw) // never fails
	return users(hex.AppendEncode(make([]byte, 0, n*idSize), raw))
}

func (u users) len() int { return len(u) / idSize }

func (u users) id(i int) string { return string(u[i*idSize : (i+1)*idSize]) }

// some returns a user drawn at random.
func (u users) some() string { return u.id(rand.IntN(u.len())) }

// shuffled returns the users in a random order.
func (u users) shuffled() users {
	all := make(users, 0, len(u))
	for _, i := range rand.Perm(u.len()) {
		all = append(all, u[i*idSize:(i+1)*idSize]...)
	}
	return all
}

// lines returns pings of users as NDJSON, those from first to before last. at, unless it is nil, says
// when in Unix milliseconds.
func (u users) lines(first, last int, at func(i int) int64) []byte {
	var b bytes.Buffer
	for i := first; i < last; i++ {
		b.WriteString(`{"user":"`)
		b.Write(u[i*idSize : (i+1)*idSize])
		if at != nil {
			ms := at(i)
			b.WriteString(`","at":"` + strconv.FormatInt(ms/1000, 10) + fmt.Sprintf(".%03d", ms%1000))
		}
		b.WriteString("\"}\n")
	}
	return b.Bytes()
}

// loadStreams is how many requests fill a namespace side by side.
const loadStreams = 4

// load pings users into a namespace, seen at the times that at says.
func (u users) load(ctx context.Context, url, namespace string, n int, at func(i int) int64) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(loadStreams)
	const portion = 50_000
	for first := 0; first < n; first += portion {
		group.Go(func() error {
			last := min(n, first+portion)
			return sendLines(ctx, url, namespace, u.lines(first, last, at), last-first)
		})
	}
	return group.Wait()
}

// loadSpread pings the users into many namespaces: the one at a place into that with the number that is
// the rest of dividing the place by how many there are.
func (u users) loadSpread(ctx context.Context, url string, at func(i int) int64) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(loadStreams)
	for number := range spreadOver {
		group.Go(func() error {
			var lines []byte
			n := 0
			for i := number; i < u.len(); i += spreadOver {
				lines = append(lines, u.lines(i, i+1, at)...)
				n++
			}
			return sendLines(ctx, url, spread+strconv.Itoa(number), lines, n)
		})
	}
	return group.Wait()
}

// sendLines sends a bulk ping and makes sure that all of it was recorded.
func sendLines(ctx context.Context, url, namespace string, lines []byte, n int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/namespaces/"+namespace+"/pings", bytes.NewReader(lines))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-ndjson")
	return sendPings(request, n)
}

// sendPings sends a request that has to record n pings.
func sendPings(request *http.Request, n int) error {
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var answer struct{ Recorded int }
	if response.StatusCode != http.StatusOK || json.Unmarshal(body, &answer) != nil || answer.Recorded != n {
		return fmt.Errorf("pinging %d users: %s %.200s", n, response.Status, body)
	}
	return nil
}

// spreadOut returns times that spread n users evenly over a time that ends now.
func spreadOut(now time.Time, over time.Duration, n int) func(int) int64 {
	newest := now.UnixMilli()
	return func(i int) int64 { return newest - over.Milliseconds()*int64(n-1-i)/int64(n) }
}

// errTooFew is the error of a measurement that measured nothing.
var errTooFew = errors.New("nothing was done in the time")

// newNumbered returns IDs of the same length that redis-benchmark can make up: "user" and twelve digits.
func newNumbered(n int) users {
	all := make(users, 0, n*idSize)
	for i := range n {
		all = fmt.Appendf(all, "user%012d", i)
	}
	return all
}

package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// idSize is the length of every user ID in bytes.
const idSize = 16

// users are IDs of idSize bytes, one after the other.
type users []byte

// newUsers returns n random IDs of hexadecimal digits, the same in every run.
func newUsers(n int) users {
	random := rand.NewChaCha8([32]byte([]byte("lastseen benchmark, random users")))
	raw := make([]byte, n*idSize/2)
	_, _ = random.Read(raw) // never fails
	return users(hex.AppendEncode(make([]byte, 0, n*idSize), raw))
}

// newNumbered returns the IDs that redis-benchmark can generate: "user" and twelve digits.
func newNumbered(n int) users {
	all := make(users, 0, n*idSize)
	for i := range n {
		all = fmt.Appendf(all, "user%012d", i)
	}
	return all
}

func (u users) len() int { return len(u) / idSize }

func (u users) id(i int) string { return string(u[i*idSize : (i+1)*idSize]) }

// random returns a random user.
func (u users) random() string { return u.id(rand.IntN(u.len())) }

// shuffled returns the users in a random order.
func (u users) shuffled() users {
	all := make(users, 0, len(u))
	for _, i := range rand.Perm(u.len()) {
		all = append(all, u[i*idSize:(i+1)*idSize]...)
	}
	return all
}

// lines returns pings as NDJSON: of every step-th user from the first to before the last one. at returns their times in
// Unix milliseconds; without it, they have none.
func (u users) lines(first, last, step int, at func(i int) int64) []byte {
	var b bytes.Buffer
	for i := first; i < last; i += step {
		b.WriteString(`{"user":"`)
		b.Write(u[i*idSize : (i+1)*idSize])
		if at != nil {
			ms := at(i)
			fmt.Fprintf(&b, `","at":"%d.%03d`, ms/1000, ms%1000)
		}
		b.WriteString("\"}\n")
	}
	return b.Bytes()
}

// load pings all users, with the times that at returns, into a namespace, or into spreadOver namespaces with the prefix
// spreadNS: the i-th user into the one with the number i modulo spreadOver.
func (u users) load(ctx context.Context, url, namespace string, at func(i int) int64) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	send := func(namespace string, first, last, step int) {
		group.Go(func() error {
			lines := u.lines(first, last, step, at)
			n := bytes.Count(lines, []byte("\n"))
			return retry(func() error { return sendLines(ctx, url, namespace, lines, n) })
		})
	}
	if namespace == spreadNS {
		for number := range spreadOver {
			send(spreadNS+strconv.Itoa(number), number, u.len(), spreadOver)
		}
		return group.Wait()
	}
	const chunk = 50_000
	for first := 0; first < u.len(); first += chunk {
		send(namespace, first, min(u.len(), first+chunk), 1)
	}
	return group.Wait()
}

// retry calls send up to three times. It is for loading, which is not measured and is harmless to repeat.
func retry(send func() error) error {
	err := send()
	for range 2 {
		if err != nil {
			err = send()
		}
	}
	return err
}

// sendLines sends an NDJSON bulk ping and checks that all n pings were recorded.
func sendLines(ctx context.Context, url, namespace string, lines []byte, n int) error {
	return sendPings(ctx, url, namespace, "application/x-ndjson", lines, n)
}

// sendPings sends a bulk ping and checks that all n pings were recorded.
func sendPings(ctx context.Context, url, namespace, contentType string, body []byte, n int) error {
	url += "/v1/namespaces/" + namespace + "/pings"
	status, body, err := do(ctx, http.MethodPost, url, "Content-Type: "+contentType, body)
	if err != nil {
		return err
	}
	var response struct{ Recorded int }
	if status != http.StatusOK || json.Unmarshal(body, &response) != nil || response.Recorded != n {
		return fmt.Errorf("pinging %d users: %d %.120s", n, status, body)
	}
	return nil
}

// do sends a request, with one header if it is not empty, and returns the status and the body of the response.
func do(ctx context.Context, method, url, header string, body []byte) (int, []byte, error) {
	return doWith(ctx, http.DefaultClient, method, url, header, body)
}

// doWith is do with a client.
func doWith(
	ctx context.Context, client *http.Client, method, url, header string, body []byte,
) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if name, value, ok := strings.Cut(header, ": "); ok {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// evenly returns n times that are evenly distributed over a duration that ends now.
func evenly(now time.Time, over time.Duration, n int) func(int) int64 {
	newest := now.UnixMilli()
	return func(i int) int64 { return newest - over.Milliseconds()*int64(n-1-i)/int64(n) }
}

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// cancellingBody is a body that cancels its request as soon as it is read.
type cancellingBody struct{ cancel context.CancelFunc }

func (t cancellingBody) Read([]byte) (int, error) {
	t.cancel()
	return 0, errors.New("cancelled")
}

// TestHTTP2Resets cancels thousands of requests on one connection as soon as they are sent. Other requests on it are
// served, and nothing leaks.
func TestHTTP2Resets(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("counting open files needs /proc")
	}
	leftBefore := goleak.IgnoreCurrent()
	files := newKeyPair(t, "a.example.com")
	s, stop := startInProcess(t, []string{
		"--store", t.TempDir() + "/data.db", "--tls-cert", files.cert, "--tls-key",
		files.key,
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	client := &http.Client{Transport: transport}
	ping := func(path string) {
		response, err := client.Post(s.URL+"/v1/namespaces/chat/users/"+path+"/ping", "", nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		if response.StatusCode != http.StatusOK || response.ProtoMajor != 2 {
			t.Errorf("%s %s", response.Proto, response.Status)
		}
	}
	reset := func(path string) {
		ctx, cancel := context.WithCancel(context.Background())
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/namespaces/hostile/"+path,
			cancellingBody{cancel})
		if err != nil {
			t.Error(err)
			return
		}
		request.Header.Set("Content-Type", "application/x-ndjson")
		if response, err := client.Do(request); err == nil {
			_ = response.Body.Close() // answered before the body was read
		}
	}
	ping("alice")
	before := takeFootprint(t)
	const good, bad = 100, 1000
	var clients sync.WaitGroup
	clients.Go(func() {
		for i := range good {
			ping(fmt.Sprint(i))
		}
	})
	for range 4 {
		clients.Go(func() {
			for i := range bad / 4 {
				reset([]string{"pings", "users/eve/leave", "../nothing", "lookup"}[i%4])
			}
		})
	}
	clients.Wait()
	response, err := client.Get(s.URL + "/v1/namespaces/chat/counts")
	require.NoError(t, err)
	defer response.Body.Close()
	counts, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Contains(t, string(counts), fmt.Sprintf(`"total":%d`, good+1))
	transport.CloseIdleConnections()
	requireFootprint(t, before)
	require.NotContains(t, s.Log.String(), "level=ERROR")
	require.Zero(t, stop(), s.Log)
	goleak.VerifyNone(t, leftBefore)
	require.NotContains(t, s.Log.String(), "panic")
}

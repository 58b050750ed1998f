package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

func TestHealth(t *testing.T) {
	s := testserver.Start(t)
	address := s.URL[len("http://"):]
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.Zero(t, run(ctx, []string{"health", "--listen", address}, &out, &errs), errs.String())
	t.Setenv("LASTSEEN_CONFIG", testserver.WriteConfig(t, "grene: 1s\nlisten: "+address))
	require.Zero(t, run(ctx, []string{"health"}, &out, &errs), "whatever else is wrong: %s", errs.String())
	t.Setenv("LASTSEEN_CONFIG", "no-such-file")
	require.Zero(t, run(ctx, []string{"health", "--listen", address}, &out, &errs), "it is not needed")
	require.Equal(t, 2, run(ctx, []string{"health"}, &out, &errs))
	require.Equal(t, 2, run(ctx, []string{"health", "--listen", "x"}, &out, &errs))
	s.Kill()
	require.Equal(t, 1, run(ctx, []string{"health", "--listen", address}, &out, &errs))
}

// TestHealthIgnoresProxies: one would answer for the service.
func TestHealthIgnoresProxies(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer proxy.Close()
	health := testenv.Command(testserver.Binary(t), "health", "--listen", "lastseen.invalid:80")
	health.Env = append(os.Environ(), "HTTP_PROXY="+proxy.URL)
	out, err := health.CombinedOutput()
	require.Error(t, err, string(out))
}

func TestHealthAddress(t *testing.T) {
	for listen, want := range map[string]string{
		":8080":          "127.0.0.1:8080",
		"0.0.0.0:80":     "127.0.0.1:80",
		"[::]:80":        "127.0.0.1:80",
		"127.0.0.1:8080": "127.0.0.1:8080",
		"[::1]:9":        "[::1]:9",
		"host:1":         "host:1",
		":http":          "127.0.0.1:80",
	} {
		got, err := healthAddress(listen)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := healthAddress("nonsense")
	require.Error(t, err)
}

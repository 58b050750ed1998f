package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/internal/testserver"
)

// TestTakenPort checks that a port in use is reported with the flag that changes it, before the store is opened.
func TestTakenPort(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer other.Close()
	dir := t.TempDir()
	var log bytes.Buffer
	code := run(context.Background(), []string{
		"--listen", other.Addr().String(), "--store",
		filepath.Join(dir, "new.db"),
	}, io.Discard, &log)
	require.Equal(t, 1, code)
	require.Equal(t, "lastseen: cannot listen on "+other.Addr().String()+" (flag --listen): address already in use; "+
		"stop the process that uses it, or choose another address with --listen or LASTSEEN_LISTEN\n", log.String())
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files, "the store must not be created")
}

// TestListenErrors checks that other reasons not to listen name the flag, too.
func TestListenErrors(t *testing.T) {
	reserved := []string{"LASTSEEN_LISTEN=192.0.2.1:0", "LASTSEEN_AUTH=none"} // for documentation
	c, err := config.Loader{Environ: reserved}.Load()
	require.NoError(t, err)
	_, err = listen(c, "listen", c.Listen)
	require.ErrorContains(t, err, "cannot listen on 192.0.2.1:0 (env LASTSEEN_LISTEN): ")
	require.ErrorContains(t, err, "; choose another address with --listen or LASTSEEN_LISTEN")
}

// TestPortIsFreeAfterFailure checks that a store that cannot be opened leaves nothing listening.
func TestPortIsFreeAfterFailure(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	var log bytes.Buffer
	code := run(context.Background(), []string{"--listen", address, "--store", t.TempDir() + "/none/new.db"},
		io.Discard, &log)
	require.Equal(t, 1, code)
	require.Contains(t, log.String(), "the folder must exist")
	again, err := net.Listen("tcp", address)
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestBanner(t *testing.T) {
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 8080} }
	for _, c := range []struct {
		at   net.Addr
		url  string
		wide bool
	}{
		{at("127.0.0.1"), "http://127.0.0.1:8080", false},
		{at("::1"), "http://[::1]:8080", false},
		{at("192.0.2.7"), "http://192.0.2.7:8080", false},
		{at("0.0.0.0"), "http://localhost:8080", true},
		{at("::"), "http://localhost:8080", true},
	} {
		text := banner{listen: c.at, store: "/data/lastseen.db", callers: "anyone"}.String()
		require.Contains(t, text, "\n  API   "+c.url+"/v1/namespaces\n")
		require.Contains(t, text, "\n  web   "+c.url+"/\n")
		require.Contains(t, text, "\n  docs  "+c.url+"/docs/\n  guide "+c.url+"/guides/\n")
		require.Contains(t, text, "\n  data  /data/lastseen.db\n")
		require.Contains(t, text, "\n  for   anyone\n")
		require.Equal(t, c.wide, strings.Contains(text, "published port"), text)
	}
}

// TestBannerCanBeOpened follows the address that a server on all interfaces prints.
func TestBannerCanBeOpened(t *testing.T) {
	s := testserver.Start(t, "--listen", ":0", "--auth", "none")
	require.Contains(t, s.Docs, "://localhost:")
	response, err := http.Get(strings.TrimSuffix(s.Docs, "docs/"))
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	page, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Contains(t, string(page), "<title>lastseen</title>", "the root is the dashboard")
}

func TestBannerNamesDataFile(t *testing.T) {
	code, stdout, stderr := execute(t, "--listen", "127.0.0.1:0", "--store", "here.db")
	require.Zero(t, code, stderr)
	dir, err := os.Getwd()
	require.NoError(t, err)
	require.Contains(t, stdout, filepath.Join(dir, "here.db"))
	require.Regexp(t, `http://127\.0\.0\.1:[1-9][0-9]*/v1/namespaces`, stdout)
}

func TestBannerNamesCallers(t *testing.T) {
	_, stdout, _ := execute(t, "--listen", "127.0.0.1:0")
	require.Contains(t, stdout, "\n  for   anyone, with full access\n")
	_, stdout, _ = execute(t, "--listen", "127.0.0.1:0", "--config",
		testserver.WriteConfig(t, aKey+testserver.Issuer+"jwt-jwks-url: http://127.0.0.1:1\nanonymous-read: a, b"))
	require.Contains(t, stdout,
		"\n  for   callers with an API key (1), users with a JWT of https://id.example.com, anyone to read a, b\n")

	code, stdout, stderr := execute(t, "--listen", ":0")
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "listen is :0 (flag --listen): other machines can reach this address")
	code, _, stderr = execute(t, "--listen", ":0", "--auth", "none")
	require.Zero(t, code, stderr)
}

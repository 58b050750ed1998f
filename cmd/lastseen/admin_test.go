package main

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/internal/testserver"
)

// adminConfig returns a configuration whose admin address is taken by another process, by default or explicitly.
func adminConfig(t *testing.T, flags map[string]string) *config.Config {
	t.Helper()
	c, err := config.Loader{Flags: flags}.Load()
	require.NoError(t, err)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { other.Close() })
	c.AdminListen = other.Addr().String()
	return c
}

// TestAdminAddressTaken: a second server on a machine starts without one, unless the address was set.
func TestAdminAddressTaken(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	c := adminConfig(t, nil)
	a, err := listenAdmin(c, logger)
	require.NoError(t, err)
	require.Nil(t, a)
	require.Contains(t, log.String(), "level=WARN")
	require.Contains(t, log.String(), c.AdminListen)
	serveAdmin(t.Context(), a, nil)()

	c = adminConfig(t, map[string]string{"admin-listen": "127.0.0.1:8081"})
	_, err = listenAdmin(c, logger)
	require.ErrorContains(t, err, "(flag --admin-listen): address already in use; stop the process that uses it, or "+
		"choose another address with --admin-listen or LASTSEEN_ADMIN_LISTEN")
}

func TestAdminIsOff(t *testing.T) {
	code, out, stderr := execute(t, "--listen", "127.0.0.1:0", "--admin-listen", "off")
	require.Zero(t, code, stderr)
	require.NotContains(t, out, "admin")
}

// TestAdminWarnsOfOpenAddresses: other machines can reach them.
func TestAdminWarnsOfOpenAddresses(t *testing.T) {
	for address, warns := range map[string]bool{
		"127.0.0.1:0": false, "localhost:0": false, "[::1]:0": false, "off": false,
		":0": true, "0.0.0.0:0": true, "192.0.2.1:0": true,
	} {
		c, err := config.Loader{Flags: map[string]string{"admin-listen": address}}.Load()
		require.NoError(t, err)
		require.Equal(t, warns, strings.Contains(strings.Join(c.Warnings, "\n"), "no authentication"), address)
	}
}

// TestAdmin of a running server.
func TestAdmin(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, "--admin-listen", "127.0.0.1:0")
	for path, want := range map[string]string{
		"/metrics": "lastseen_build_info{", "/readyz": "ready", "/healthz": "ok", "/debug/pprof/": "goroutine",
	} {
		response, err := http.Get(s.Admin + path)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode, path)
		require.Contains(t, string(text), want, path)
		status, _ := s.Call(t, http.MethodGet, strings.TrimSuffix(path, "/"), "")
		if strings.HasSuffix(path, "z") {
			require.Equal(t, http.StatusOK, status, path)
		} else {
			require.Equal(t, http.StatusNotFound, status, "clients must not see %s", path)
		}
	}
	require.Zero(t, s.Terminate(t), s.Log)
}

// TestAllowedHosts: names that are allowed to browsers, also by a reload. Operators may not use all names, since
// requests need no credentials there.
func TestAllowedHosts(t *testing.T) {
	r := newReloadTest(t, "allowed-hosts: ['*', presence.example.com]")
	require.Equal(t, []string{"*", "presence.example.com"}, r.served().AllowedHosts)
	for host, allowed := range map[string]bool{
		"127.0.0.1:8081": true, "lastseen:8081": true, "presence.example.com:8081": true,
		"evil.example.com:8081": false,
	} {
		require.Equal(t, allowed, r.config().AllowsOperators(host), host)
	}
	require.Contains(t, r.write("allowed-hosts: ['*.example.net', nas.lan]"),
		"allowed-hosts: *, presence.example.com → *.example.net, nas.lan")
	require.Equal(t, []string{"*.example.net", "nas.lan"}, r.served().AllowedHosts)
	require.False(t, r.config().AllowsOperators("presence.example.com:8081"))
	require.Contains(t, r.write("admin-listen: off"), "requires a restart")
}

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/cli"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
)

// healthTimeout is the time limit of a health check.
const healthTimeout = 3 * time.Second

// healthCmd checks that a running server is alive.
type healthCmd struct {
	config.CommonSettings
}

// Run returns an error unless the server responds.
func (*healthCmd) Run(ctx context.Context, std cli.Streams, loader config.Loader) error {
	listen, err := loader.Text("listen")
	if err != nil {
		return err
	}
	address, err := healthAddress(listen)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	status, err := askHealth(ctx, "http://"+address)
	if err == nil && status == http.StatusBadRequest { // the response of a server with TLS
		status, err = askHealth(ctx, "https://"+address)
	}
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return fmt.Errorf("%s returned %d %s", address, status, http.StatusText(status))
	}
	_, err = fmt.Fprintln(std.Out, "ok")
	return err
}

// askHealth returns the status of /healthz. It does not verify the certificate: an expired one must not cause a restart
// of the server.
func askHealth(ctx context.Context, server string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/healthz", nil)
	if err != nil {
		return 0, err
	}
	client := http.Client{Transport: &http.Transport{ // without the proxies of the environment
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true},
	}}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// healthAddress returns the address at which to reach a server that listens on an address, whose host can be empty.
func healthAddress(listen string) (string, error) {
	host, service, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	port, err := net.LookupPort("tcp", service) // it can be a name
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// versionCmd prints the version.
type versionCmd struct{}

// Run prints one line.
func (versionCmd) Run(std cli.Streams) error {
	_, err := fmt.Fprintln(std.Out, versionLine())
	return err
}

// versionLine returns the version for people.
func versionLine() string {
	v := version()
	return strings.Join(strings.Fields("lastseen "+v.Version+" "+v.Revision+" "+v.Go), " ")
}

// stamp is "VERSION REVISION" in a build without the repository, such as that of the container image. Only the linker
// sets it, with -ldflags "-X 'main.stamp=v1.2.3 1d355ca'".
var stamp string

// version returns the running build, from its stamp and what the Go tool recorded in it.
func version() api.Version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return api.Version{Version: "unknown"}
	}
	v := api.Version{Version: info.Main.Version, Go: info.GoVersion}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			v.Revision = setting.Value
		}
	}
	if number, revision, _ := strings.Cut(stamp, " "); number != "" {
		v.Version, v.Revision = number, revision
	}
	return v
}

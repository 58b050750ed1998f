package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/lastseen/lastseen/api"
)

// healthTimeout bounds a health check.
const healthTimeout = 3 * time.Second

// healthCmd asks a running service whether it is alive.
type healthCmd struct {
	processSettings
}

// Run fails unless the service answers.
func (*healthCmd) Run(ctx context.Context, std streams, from sources) error {
	listen, err := from.listen()
	if err != nil {
		return err
	}
	url, err := healthURL(listen)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{}} // none of the proxies that the environment may name
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	_, err = fmt.Fprintln(std.out, "ok")
	return err
}

// healthURL returns where to ask a service that listens on an address, which may name no host.
func healthURL(listen string) (string, error) {
	host, service, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	port, err := net.LookupPort("tcp", service) // it may have a name
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(port)) + "/healthz", nil
}

// versionCmd prints the version.
type versionCmd struct{}

// Run prints one line.
func (versionCmd) Run(std streams) error {
	v := version()
	_, err := fmt.Fprintln(std.out, strings.Join(strings.Fields("lastseen "+v.Version+" "+v.Revision+" "+v.Go), " "))
	return err
}

// stamp is "VERSION REVISION" in a build that cannot see the repository, as in the container image; only
// the linker sets it, with -ldflags "-X 'main.stamp=v1.2.3 1d355ca'".
var stamp string

// version describes the running build, from its stamp and what the Go tool recorded in it.
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

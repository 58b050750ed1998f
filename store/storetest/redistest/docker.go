package redistest

import (
	"cmp"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// expireAfter is when the engine removes a container whose test died, in seconds.
const expireAfter = 1200

func startContainer(t testing.TB) (string, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return "", err
	}
	if err := pool.Client.Ping(); err != nil { // NewPool does not look whether an engine is there
		return "", err
	}
	image := cmp.Or(os.Getenv("LASTSEEN_TEST_REDIS_IMAGE"), "redis:7")
	repository, tag, _ := strings.Cut(image, ":")
	container, err := pool.RunWithOptions(&dockertest.RunOptions{
		Repository: repository,
		Tag:        tag,
		Cmd:        []string{"redis-server", "--save", ""},
	}, func(h *docker.HostConfig) { h.AutoRemove = true })
	if err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if err := pool.Purge(container); err != nil {
			t.Errorf("removing the Redis container: %v", err)
		}
	})
	if err := container.Expire(expireAfter); err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", container.GetPort("6379/tcp")), nil
}

package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// repository is a Git repository with one commit, of which the image's build context has a part.
type repository struct {
	t      *testing.T
	dir    string
	commit string
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	testenv.Program(t, "git", "git")
	r := &repository{t: t, dir: t.TempDir()}
	r.git("init", "-q", "-b", "main")
	r.git("commit", "-q", "--allow-empty", "-m", "first")
	r.commit = r.git("rev-parse", "HEAD")
	return r
}

func (r *repository) git(args ...string) string {
	r.t.Helper()
	own := []string{
		"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "tag.gpgSign=false", "-c", "commit.gpgSign=false",
		"-c", "core.hooksPath=/dev/null",
	}
	command := testenv.Command("git", append(own, args...)...)
	command.Dir = r.dir
	for _, variable := range os.Environ() { // a hook of Git sets some, for another repository
		if !strings.HasPrefix(variable, "GIT_") {
			command.Env = append(command.Env, variable)
		}
	}
	out, err := command.CombinedOutput()
	require.NoError(r.t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// version runs deploy/version on what .dockerignore leaves of the repository.
func (r *repository) version() string {
	r.t.Helper()
	kept := filepath.Join(r.t.TempDir(), ".git")
	require.NoError(r.t, os.MkdirAll(filepath.Join(kept, "refs"), 0o700))
	for _, name := range []string{"HEAD", "packed-refs", "refs/heads", "refs/tags"} {
		require.Contains(r.t, string(read(r.t, "../.dockerignore")), "\n!.git/"+name+"\n")
		if _, err := os.Stat(filepath.Join(r.dir, ".git", name)); err == nil {
			copied := testenv.Command("cp", "-R", filepath.Join(r.dir, ".git", name), filepath.Join(kept, name))
			out, err := copied.CombinedOutput()
			require.NoError(r.t, err, "%s", out)
		}
	}
	return versionOf(r.t, kept)
}

func versionOf(t *testing.T, dir string) string {
	t.Helper()
	out, err := testenv.Command(testenv.Program(t, "sh", "sh"), "version", dir).Output()
	require.NoError(t, err)
	return strings.TrimSuffix(string(out), "\n")
}

func TestVersionOfTheImage(t *testing.T) {
	r := newRepository(t)
	require.Equal(t, "devel "+r.commit, r.version(), "a branch")
	r.git("checkout", "-q", "-b", "a/branch")
	require.Equal(t, "devel "+r.commit, r.version(), "a branch with a slash")
	r.git("tag", "v1.9.0")
	r.git("tag", "v1.10.0")
	require.Equal(t, "v1.10.0 "+r.commit, r.version(), "tags")
	r.git("checkout", "-q", "--detach")
	require.Equal(t, "v1.10.0 "+r.commit, r.version(), "no branch, as in CI")
	r.git("pack-refs", "--all")
	require.Equal(t, "v1.10.0 "+r.commit, r.version(), "packed")
	r.git("checkout", "-q", "main")
	require.Equal(t, "v1.10.0 "+r.commit, r.version(), "a packed branch")
	r.git("tag", "-a", "-m", "a release", "v1.11.0")
	require.Equal(t, "v1.10.0 "+r.commit, r.version(), "an annotated tag alone is not found")
	r.git("pack-refs", "--all")
	require.Equal(t, "v1.11.0 "+r.commit, r.version(), "an annotated tag, as in a clone")
	r.git("commit", "-q", "--allow-empty", "-m", "second")
	require.Equal(t, "devel "+r.git("rev-parse", "HEAD"), r.version(), "after a release")
}

// TestVersionWithoutARepository: the build does not fail.
func TestVersionWithoutARepository(t *testing.T) {
	require.Equal(t, "devel", versionOf(t, filepath.Join(t.TempDir(), ".git")))
	empty := t.TempDir()
	require.Equal(t, "devel", versionOf(t, empty))
	for _, head := range []string{"ref: refs/heads/none\n", "ref: refs/heads/.invalid\n", "nonsense\n", ""} {
		require.NoError(t, os.WriteFile(filepath.Join(empty, "HEAD"), []byte(head), 0o600))
		require.Equal(t, "devel", versionOf(t, empty), head)
	}
	worktree := filepath.Join(t.TempDir(), ".git") // a file that names a folder elsewhere
	require.NoError(t, os.WriteFile(worktree, []byte("gitdir: /elsewhere\n"), 0o600))
	require.Equal(t, "devel", versionOf(t, worktree))
}

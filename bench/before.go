package main

import (
	"errors"
	"time"
)

// The servers of rows 23, 28 and 29: this version, and the one that -before names.
const (
	thisVersion   = "this version"
	beforeVersion = "before"
	onFile        = ", embedded" // of each, on a file instead of Redis
)

// errNoBefore is the error of workloads that need another version.
var errNoBefore = errors.New("name the commit to compare with, as in -before HEAD~1")

// buildBefore builds cmd/lastseen of another commit and returns the name of the program.
func (f *fixture) buildBefore() (string, error) {
	if f.before == "" {
		return "", errNoBefore
	}
	tree, binary := f.path("before"), f.path("lastseen-before")
	_, _, err := runTool(f.ctx, time.Minute, "git", "-C", "..", "worktree", "add", "--detach", tree, f.before)
	if err != nil {
		return "", err
	}
	_, _, err = runTool(f.ctx, 5*time.Minute, "go", "build", "-C", tree, "-o", binary, "./cmd/lastseen")
	_, _, removeErr := runTool(f.ctx, time.Minute, "git", "-C", "..", "worktree", "remove", "--force", tree)
	return binary, errors.Join(err, removeErr)
}

// launchVersion starts cmd/lastseen, of this or of the other version, on the shared Redis or on a file. Both versions
// ping the same users in the same set.
func (f *fixture) launchVersion(name, version, store string) (*server, error) {
	build := f.build
	if version == beforeVersion {
		build = f.buildBefore
	}
	binary, err := build()
	if err != nil {
		return nil, err
	}
	return f.launchOn(store, name, binary, "--rate-limit", "off", "--admin-listen", "off")
}

// versionRequests returns the workloads that compare versions.
func versionRequests() (all []request) {
	for _, version := range []string{thisVersion, beforeVersion} {
		for _, store := range []string{"", onFile} {
			all = append(all,
				ping("ping"+store+", "+version, version+store, randomNS),
				lookup("lookup of 100"+store+", "+version, version+store, randomNS, 100))
		}
	}
	return all
}

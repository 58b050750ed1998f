//go:build !linux

package testenv

import (
	"os/exec"
	"syscall"
)

// endWithParent does nothing: only Linux has such a signal.
func endWithParent(*exec.Cmd, syscall.Signal) {}

package testenv

import (
	"os/exec"
	"syscall"
)

// Command is exec.Command for a process that must not outlive the test: where the system can, it is killed when the
// process of the test ends, also if that is killed or runs out of time.
func Command(program string, args ...string) *exec.Cmd {
	return CommandUntil(syscall.SIGKILL, program, args...)
}

// CommandUntil is Command for a process with its own children, which it ends when it gets the signal.
func CommandUntil(end syscall.Signal, program string, args ...string) *exec.Cmd {
	command := exec.Command(program, args...)
	endWithParent(command, end)
	return command
}

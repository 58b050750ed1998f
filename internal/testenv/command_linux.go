package testenv

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel send the signal when this process ends. Strictly, it is when the thread ends that starts
// the command. Threads of Go programs end with the program, unless a goroutine ends that is locked to one.
func endWithParent(command *exec.Cmd, end syscall.Signal) {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: end}
}

//go:build unix

package main

import "syscall"

// descriptors returns how many files and connections this process can have open; 0 if that is not known. The Go runtime
// has raised the soft limit to the hard one.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // it is signed on FreeBSD
}

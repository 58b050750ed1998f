//go:build faults

package testserver

// tags are those with which programs are built.
const tags = "faults"

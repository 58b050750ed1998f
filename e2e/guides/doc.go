// Package guides tests the documents: each command, file and piece of code in the README and the guides
// does what the text says.
//
// Its tests start the program as users do. See internal/testserver.
package guides

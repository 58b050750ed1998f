//go:build !race

package main

// raced says that the tests, and the binary that they run, look for data races.
const raced = false

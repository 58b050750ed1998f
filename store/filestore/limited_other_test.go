//go:build !linux

package filestore

func limited(string) {}

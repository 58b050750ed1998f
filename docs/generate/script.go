package main

import (
	"fmt"
	"os"
	"path/filepath"

	esbuild "github.com/evanw/esbuild/pkg/api"
)

// fragments are the files in the folder api/web/lastseen that lastseen.js is made of, in this order: one module, in
// files of one job each. They share one scope, so that they have no imports, and only the last one has exports.
func fragments() []string {
	return []string{
		"clock", "http", "socket", "connection", "pinger", "states", "availability", "calls", "poller", "leader",
		"client", "elements", "exports",
	}
}

// script returns the fragments as one module, in the fewest bytes.
func script(root string) ([]byte, error) {
	var module []byte
	for _, name := range fragments() {
		fragment, err := os.ReadFile(filepath.Join(root, "api", "web", "lastseen", name+".js"))
		if err != nil {
			return nil, err
		}
		module = append(module, fragment...)
	}
	result := esbuild.Transform(string(module), esbuild.TransformOptions{
		Format: esbuild.FormatESModule, Target: esbuild.ES2022, Charset: esbuild.CharsetUTF8,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
	})
	for _, message := range append(result.Errors, result.Warnings...) {
		return nil, fmt.Errorf("lastseen.js: %s: %q", message.Text, message.Location.LineText)
	}
	return result.Code, nil
}

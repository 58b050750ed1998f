package main

import (
	"io"
	"log"
	"path/filepath"
	"strings"

	"github.com/swaggo/swag"
)

// swagger collects the annotations of package api into a Swagger 2.0 document, in JSON. The root is
// the folder of go.mod.
func swagger(root string) ([]byte, error) {
	var excluded []string
	for _, dir := range []string{"cmd", "deploy", "docs", "store", "tools"} {
		excluded = append(excluded, filepath.Join(root, dir))
	}
	p := swag.New(
		swag.SetStrict(true),
		swag.SetDebugger(log.New(io.Discard, "", 0)),
		swag.SetExcludedDirsAndFiles(strings.Join(excluded, ",")),
	)
	p.RequiredByDefault = true // but for json:",omitempty" and validate:"optional"
	if err := p.ParseAPI(root, filepath.Join("api", "openapi.go"), 1); err != nil {
		return nil, err
	}
	return p.GetSwagger().MarshalJSON()
}

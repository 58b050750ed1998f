// Command generate writes the files that describe package api: docs/swagger.yaml from its annotations, in Swagger 2.0,
// and openapi.yaml from that, overlay.yaml and docs/errors.md. It also writes api/web/lastseen.js from the folder of
// that name. Run it at the root with `make generate`. With -check it writes nothing and fails if a file would change.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/swaggo/swag"
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail if a file is stale")
	flag.Parse()
	files, err := documents(".")
	if err == nil {
		err = update(".", files, *check)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// update writes the files below root, the folder of go.mod. With check it returns an error if one of them would change.
func update(root string, files map[string][]byte, check bool) error {
	for name, content := range files {
		path := filepath.Join(root, name)
		if !check {
			if err := os.WriteFile(path, content, 0o644); err != nil {
				return err
			}
			continue
		}
		committed, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(committed, content) {
			return fmt.Errorf("%s is stale: run make generate", name)
		}
	}
	return nil
}

// documents returns the generated files by their names below root.
func documents(root string) (map[string][]byte, error) {
	annotated, err := annotations(root)
	if err != nil {
		return nil, err
	}
	guide, err := readErrors(root)
	if err != nil {
		return nil, err
	}
	swagger, err := encode(annotated, guide)
	if err != nil {
		return nil, err
	}
	doc, err := openAPI(annotated, guide)
	if err != nil {
		return nil, err
	}
	openapi, err := encode(doc, guide)
	if err != nil {
		return nil, err
	}
	module, err := script(root)
	return map[string][]byte{
		"docs/swagger.yaml": swagger, "openapi.yaml": openapi, "api/web/lastseen.js": module,
	}, err
}

// annotations collects the annotations of package api into a Swagger 2.0 document.
func annotations(root string) (doc object, err error) {
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
	if err := remarshal(p.GetSwagger(), &doc); err != nil {
		return nil, err
	}
	for path, item := range doc["paths"].(object) {
		for _, operation := range item.(object) {
			addPathParameters(operation.(object), path)
		}
	}
	return doc, nil
}

var pathParameter = regexp.MustCompile(`{(\w+)}`)

// addPathParameters puts the parameters that a path names before those that an operation lists.
func addPathParameters(operation object, path string) {
	var all []any
	for _, match := range pathParameter.FindAllStringSubmatch(path, -1) {
		all = append(all, object{
			"in": "path", "name": match[1], "description": match[1], "type": "string", "required": true,
		})
	}
	if listed, _ := operation["parameters"].([]any); len(all) > 0 {
		operation["parameters"] = append(all, listed...)
	}
}

package main

import (
	"bytes"
	_ "embed"
	"text/template"

	"github.com/lastseen/lastseen/api"
)

//go:embed errors.md.tmpl
var errorTemplate string

// errorGuide is in Markdown what /docs/errors is in HTML.
func errorGuide() ([]byte, error) {
	guide, err := template.New("errors").Parse(errorTemplate)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = guide.Execute(&b, api.ErrorCodes())
	return b.Bytes(), err
}

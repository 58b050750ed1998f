package lastseen

import (
	_ "embed"
	"slices"
)

//go:embed openapi.yaml
var openAPI []byte

// OpenAPI returns the description of the HTTP API: an OpenAPI 3.0 document in YAML.
func OpenAPI() []byte { return slices.Clone(openAPI) }

package lastseen

import _ "embed"

//go:embed openapi.yaml
var openAPI string

// OpenAPI returns the description of the HTTP interface: an OpenAPI 3.0 document in YAML.
func OpenAPI() []byte { return []byte(openAPI) }

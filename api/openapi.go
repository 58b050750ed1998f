package api

// The annotations below and those of the package describe the HTTP interface in the OpenAPI document: those of an
// operation are at its handler, those of a schema at its type. `make generate` collects them: see
// docs/decisions/openapi.md. The text of the document and its tags are in docs/generate/overlay.yaml.
//
// @title lastseen
// @version 1
// @accept json
// @produce json
//
// @securityDefinitions.apikey bearer
// @in header
// @name Authorization

package api

// What the OpenAPI document says about the whole interface; what it says about an operation is at its
// handler. `make generate` collects these annotations: see docs/decisions/openapi.md.
//
// @title lastseen
// @version 1
// @description Was this person here just now?
// @BasePath /

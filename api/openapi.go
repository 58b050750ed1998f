package api

// What the OpenAPI document says about the whole interface. What it says about an operation is at its
// handler, about a type at the type; `make generate` collects it all: see docs/decisions/openapi.md.
//
// @title lastseen
// @version 1
// @license.name MIT
//
// @description lastseen shows who is online. Clients send a ping every 30 seconds; authorized clients read each user's status, the exact time they were last seen, and who was here recently.
// @description
// @description To try it, open the first operation, choose "Try it out" and "Execute": Alice is **green**. Without another ping she is **yellow** after 60 seconds and **grey** after 5 minutes. Unknown is not offline: if the store cannot answer, the response is 503, never grey. Each error has a `code`, explained in [/docs/errors](/docs/errors).
//
// @tag.name Recording
// @tag.description Pings and leaves.
// @tag.name Reading
// @tag.description Statuses, last-seen times, lists and counts.
// @tag.name Erasing
// @tag.description Forget users and namespaces.
// @tag.name Namespaces
// @tag.description Their names and settings.
// @tag.name Service
// @tag.description For probes and operators.
// @BasePath /
//
// @securityDefinitions.apikey bearer
// @in header
// @name Authorization

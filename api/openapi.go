package api

// The annotations below describe the whole interface in the OpenAPI document. Those of an operation are at its handler,
// those of a schema at its type. `make generate` collects them: see docs/decisions/openapi.md.
//
// @title lastseen
// @version 1
// @license.name MIT
// @accept json
// @produce json
//
// @description lastseen tracks who is online. Clients send a ping every 30 seconds. Authorized clients look up a user's
// @description status, the exact time they were last seen, or a page of recently seen users.
// @description
// @description To try it, open the first operation and select "Try it out" and "Execute": Alice is **green**. Without
// @description another ping she is **yellow** after 60 seconds and **grey** after 5 minutes. Unknown is not offline: if
// @description the store is unavailable, the response is 503, never grey. Each error has a `code`, explained in
// @description [/docs/errors](../docs/errors). Each response has an `X-Request-Id` and, unless documented otherwise,
// @description `Cache-Control: no-store`.
//
// @tag.name Recording
// @tag.description Pings and leaves.
// @tag.name Reading
// @tag.description Statuses, last-seen times, lists and counts.
// @tag.name Availability
// @tag.description The availability of users, and notes.
// @tag.name Contacts
// @tag.description Whom users know.
// @tag.name Calls
// @tag.description Calls between users: ringing, accepting and hanging up.
// @tag.name Connecting
// @tag.description WebSockets, which keep their users online and follow changes.
// @tag.name Deleting
// @tag.description Delete users and namespaces.
// @tag.name Namespaces
// @tag.description Names and settings of namespaces.
// @tag.name Service
// @tag.description For probes and operators.
// @BasePath /
//
// @securityDefinitions.apikey bearer
// @in header
// @name Authorization

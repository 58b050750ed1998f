package api

// What the OpenAPI document says about the whole interface. What it says about an operation is at its
// handler, about a type at the type; `make generate` collects it all: see docs/decisions/openapi.md.
//
// @title lastseen
// @version 1
// @license.name MIT
//
// @description **Was this person here just now?** Clients ping; whoever is allowed to reads the green, yellow or grey dot, the exact time behind it, and the list of who was here recently.
// @description
// @description ### The first minute
// @description
// @description 1. Send `POST /v1/namespaces/chat/users/alice/ping` while Alice is here, about every 30 seconds. There is nothing to create before.
// @description 2. Read `GET /v1/namespaces/chat/users/alice`: she is green. Without another ping she is yellow after 60 seconds, and grey after 5 minutes.
// @description 3. Read `GET /v1/namespaces/chat/users` for everybody, newest first.
// @description
// @description ### Statuses
// @description
// @description Of a user only the newest time is kept, and whether it was a leave. The status is computed when it is read: **green** for less than `green` since then, **yellow** for less than `yellow`, **grey** otherwise, and for who left or was never seen. `valid_until` says when it decays by itself, so a client can age the dot between two requests.
// @description
// @description ### Times
// @description
// @description Times are sent in RFC 3339, or in Unix seconds with an optional fraction. They are answered in RFC 3339, in UTC, with milliseconds.
// @description
// @description ### Errors
// @description
// @description An error is an `application/problem+json` by RFC 9457. Programs go by its `code`, which [/docs/errors](/docs/errors) explains; `detail` tells people what was wrong and what is allowed. When the store cannot answer, the answer is 503 with `Retry-After`, and never grey: unknown is not offline. A defect of the server is 500 `internal`, wherever it happens.
// @description
// @description An unknown path, also one with a slash too many at its end, is 404 `not_found`. A path with an empty segment is 400. A method that a path does not have is 405 `method_not_allowed`, with `Allow`. Unknown query parameters and fields are errors, so that a typo cannot change an answer; only `_` and `utm_*` are passed over.
// @description
// @description ### Who may do what
// @description
// @description A server may ask who its callers are: `Authorization: Bearer` and an API key or a JWT. Services have keys with scopes, of which none contains another: `ping` records, `read` asks, `admin` erases; all in some namespaces only. A user has a token, records for themselves alone, one by one, and reads in the namespaces that it names. Without credentials, or with bad ones, the answer is 401; with good ones that do not suffice it is 403, whatever exists.
// @description
// @description ### What holds for all
// @description
// @description `HEAD` answers wherever `GET` does, and `OPTIONS` lists the methods of a path. Bodies are JSON in UTF-8; a missing type, `text/plain` and `application/x-www-form-urlencoded`, as `curl -d` sends, are read as JSON, too. Paths are percent-decoded once. Send `X-Request-Id`, of up to 128 visible ASCII characters, to find your request in the log of the server; otherwise it makes one.
//
// @tag.name Recording
// @tag.description Clients say who is here, and who went away.
// @tag.name Reading
// @tag.description Who is here, who was here, and when.
// @tag.name Erasing
// @tag.description Users and namespaces are forgotten.
// @tag.name Namespaces
// @tag.description Which there are, and their settings.
// @tag.name Service
// @tag.description For probes and operators.
// @BasePath /
//
// @securityDefinitions.apikey bearer
// @in header
// @name Authorization

// Package client uses a lastseen server over HTTP: it records pings, looks users up, lists them and follows their
// changes.
//
//	presence, err := client.New("https://presence.example.com", client.Options{Key: key})
//	…
//	alice, err := presence.PingUser(ctx, "chat", "alice", client.Ping{})
//
// Methods of a [Client] are named like the operations of openapi.yaml, which describes them in full. Above them are a
// [Pinger], which keeps a user online, a [Batch], which sends concurrent pings and lookups in few requests, a [Cache]
// of statuses, [Client.FollowChanges] and a [Roster] for what changes, [Client.Users] for lists of any length, and a
// [Verifier] of webhooks.
//
// # Errors
//
// A response that is not a success is an [*Error], which has the code of docs/errors.md. Other errors are those of the
// network and of the context, or say that a name is not UTF-8. The server checks the rest.
//
// # Repetitions
//
// A request that was refused for load (429 and some 503), or that could not connect, is sent again up to
// [Options.Tries] times, after Retry-After or a random time that grows. After any other failure without an answer from
// lastseen, so is a request that is safe to repeat. Leaves, CloseConnections and test events are not: a leave that
// arrives twice could undo a ping in between.
//
// # Times
//
// Times are those of the server's clock. A status holds for ValidUntil - AsOf from the arrival of a response: see
// [Presence.ValidFor]. Do not compare them with the clock of the machine.
package client

package webhooks

import (
	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/feed"
)

// Events returns the bodies of events of a namespace: a reset, the changes of users, a snapshot with the same users, a
// part of one, an empty one, halves of an event, and a test event. The users of a snapshot have no Was.
func Events(appendUser func([]byte, feed.Update) []byte, at lastseen.Instant, users []feed.Update) (bodies []string) {
	e := encoder{namespace: "chat", at: at, append: appendUser}
	changes := make([]change, len(users))
	for k, u := range users {
		changes[k].Update = u
	}
	all := append(e.changed(changes), e.reset(), test("app", at))
	all = append(append(all, e.snapshot(users, true)...), e.snapshot(nil, false)...)
	for _, whole := range all {
		halves, _ := e.halves(whole)
		all = append(all, halves...)
	}
	for _, event := range all {
		bodies = append(bodies, string(event.Body))
	}
	return bodies
}

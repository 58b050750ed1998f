package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
)

func TestVisibility(t *testing.T) {
	c := load(t, aKey+"visibility: contacts\nnamespaces: {a: {visibility: everyone}, b: {}}\n")
	require.Equal(t, api.VisibleToContacts, c.ForAPI().Visibility)
	require.Equal(t, api.VisibleToEveryone, c.Namespace("a").ForAPI().Visibility)
	require.Equal(t, api.VisibleToContacts, c.Namespace("b").ForAPI().Visibility)
	require.Equal(t, api.VisibleToContacts, c.Namespace("unknown").ForAPI().Visibility)
	requireRoundTrip(t, c)
	next := load(t, aKey+"namespaces: {a: {visibility: contacts}, b: {}}\n")
	require.Equal(t, api.VisibleToEveryone, next.ForAPI().Visibility, "it is the default")
	require.Equal(t, api.VisibleToContacts, next.Namespace("a").ForAPI().Visibility)
	d := Compare(c, next)
	require.Empty(t, d.Refused, "it can change while the service runs")
	require.Len(t, d.Changes, 2)
}

// TestVisibilityIsChecked: what would show users to others than their contacts, or cannot have contacts, is an error.
func TestVisibilityIsChecked(t *testing.T) {
	const (
		redis     = "store: redis://127.0.0.1:1\n"
		open      = ": without keys and JWTs, anyone sees everyone; configure JWTs, or set visibility to everyone"
		anonymous = ": anonymous callers see no users where they are visible to contacts; let them read only " +
			"namespaces with visibility everyone"
		others = ": users in a set that other programs can write have no contacts: set visibility to everyone for it"
	)
	for content, want := range map[string][]string{
		"visibility: friends": {`lastseen.yaml:1: visibility: "friends" is not valid; use everyone or contacts`},

		"visibility: contacts\nnamespaces: {a: {}}": {"visibility is contacts (lastseen.yaml:1)" + open},
		"auth: none\nvisibility: contacts":          {"visibility is contacts (lastseen.yaml:2)" + open},
		"namespaces: {a: {visibility: contacts}, b: {}}": {
			"namespaces.a.visibility is contacts (lastseen.yaml:1)" + open,
		},

		aKey + "anonymous-read: [x, 'a*']\nnamespaces: {abc: {visibility: contacts}, b: {visibility: contacts}}": {
			"anonymous-read is x, a* (lastseen.yaml:2) and " +
				"namespaces.abc.visibility is contacts (lastseen.yaml:3)" + anonymous,
		},
		aKey + "anonymous-read: x\nvisibility: contacts\nnamespaces: {x: {}}": {
			"anonymous-read is x (lastseen.yaml:2) and visibility is contacts (lastseen.yaml:3)" + anonymous,
		},
		aKey + "anonymous-read: [x]\nvisibility: contacts": {
			"anonymous-read is x (lastseen.yaml:2) and visibility is contacts (lastseen.yaml:3)" + anonymous,
		},
		aKey + "anonymous-read: 'x*'\nvisibility: contacts\nnamespaces: {x: {}, xy: {visibility: contacts}}": {
			"anonymous-read is x* (lastseen.yaml:2) and visibility is contacts (lastseen.yaml:3)" + anonymous,
			"anonymous-read is x* (lastseen.yaml:2) and " +
				"namespaces.xy.visibility is contacts (lastseen.yaml:4)" + anonymous,
		},
		aKey + "anonymous-read: 'x*'\nvisibility: contacts\nunknown-namespaces: refuse\nnamespaces: {xy: {}}": {
			"anonymous-read is x* (lastseen.yaml:2) and visibility is contacts (lastseen.yaml:3)" + anonymous,
		},

		aKey + redis + "namespaces: {a: {redis-key: k, visibility: contacts}}": {
			"namespaces.a.redis-key is k (lastseen.yaml:3) and " +
				"namespaces.a.visibility is contacts (lastseen.yaml:3)" + others,
		},
		aKey + redis + "visibility: contacts\nnamespaces: {a: {redis-score-unit: ms}, b: {}}": {
			"namespaces.a.redis-score-unit is ms (lastseen.yaml:4) and " +
				"visibility is contacts (lastseen.yaml:3)" + others,
		},
		aKey + redis + "visibility: contacts\nredis-score-unit: s\nnamespaces: {b: {}}": {
			"redis-score-unit is s (lastseen.yaml:4) and visibility is contacts (lastseen.yaml:3)" + others,
		},
		aKey + redis + "redis-prefix: 'p{'\nnamespaces: {a: {visibility: contacts}}": {
			"redis-prefix is p{ (lastseen.yaml:3) and namespaces.a.visibility is contacts (lastseen.yaml:4): " +
				"contacts require a prefix without braces",
		},

		aKey + "anonymous-read: [x, y]\nvisibility: contacts\n" +
			"namespaces: {x: {visibility: everyone}, y: {visibility: everyone}}": nil,
		aKey + "anonymous-read: [x, 'y*']\nvisibility: contacts\nunknown-namespaces: refuse\n" +
			"namespaces: {a: {}, yy: {visibility: everyone}}": nil,
		aKey + redis + "visibility: contacts\nnamespaces: {a: {redis-key: k, visibility: everyone}, b: {}}": nil,
		aKey + "redis-prefix: 'p{'\nredis-score-unit: s\nvisibility: contacts":                              nil,
		"visibility: everyone": nil,
	} {
		require.Equal(t, want, problemsOf(t, content), content)
	}
}

package config

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/internal/testserver"
)

func TestKeysOfAFile(t *testing.T) {
	c := load(t, `
keys:
  backend: {hash: "`+testserver.HashOf("ls_a")+`", scopes: [ping, read, admin], namespaces: ["*"]}
  page:
    hash: `+testserver.HashOf("ls_b")+`
    scopes: &some [read]
    namespaces: [chat-*, lobby]
  other: {hash: "`+testserver.HashOf("ls_c")+`", scopes: *some, namespaces: [a]}
`)
	require.Equal(t, []auth.Key{
		{
			Name: "backend", Hash: sha256.Sum256([]byte("ls_a")), Scopes: []auth.Scope{"ping", "read", "admin"},
			Namespaces: []auth.Pattern{"*"},
		},
		{
			Name: "other", Hash: sha256.Sum256([]byte("ls_c")), Scopes: []auth.Scope{"read"},
			Namespaces: []auth.Pattern{"a"},
		},
		{
			Name: "page", Hash: sha256.Sum256([]byte("ls_b")), Scopes: []auth.Scope{"read"},
			Namespaces: []auth.Pattern{"chat-*", "lobby"},
		},
	}, c.Access.Keys)
	requireRoundTrip(t, c)
}

// takesOf returns what a field of a key accepts.
func takesOf(field string) string {
	d, _ := find(keyFields(), field)
	return d.Takes
}

func TestWrongKeys(t *testing.T) {
	hash := testserver.HashOf("ls_a")
	const rest = "', scopes: [read], namespaces: [a]"
	for key, want := range map[string]string{ // "; use" and what a field takes follow a field's name
		"name: b, hash: '" + hash + rest:                          ".name: unknown setting",
		"scope: b, hash: '" + hash + rest:                         ".scope: unknown setting, did you mean scopes?",
		"hash: '" + hash[7:] + rest:                               ".hash: sha256: is missing at the beginning",
		"hash: '" + hash[:70] + rest:                              ".hash: it has 63 characters after sha256:, and not 64",
		"hash: '" + hash[:70] + "g" + rest:                        ".hash: it has a character after sha256: that is not a hexadecimal digit",
		"hash: '" + hash + "', scopes: [write], namespaces: [a]":  `.scopes: "write" is not a scope`,
		"hash: [x], scopes: [read], namespaces: [a]":              ".hash holds a list",
		"hash: '" + hash + "', scopes: read, namespaces: [a]":     ".scopes holds a single value",
		"hash: '" + hash + "', scopes: [], namespaces: [a]":       ".scopes is empty",
		"hash: '" + hash + "', scopes: [[read]], namespaces: [a]": ".scopes: has a list in it",
		"hash: '" + hash + "', scopes: [read], namespaces: [~]":   ".namespaces: has nothing in it",
		"hash: '" + hash + "', scopes: [read], namespaces: ":      ".namespaces holds nothing",
	} {
		field := strings.FieldsFunc(want, func(r rune) bool { return strings.ContainsRune(".: ", r) })[0]
		if takes := takesOf(field); takes != "" {
			want += "; use " + takes
		}
		require.Equal(t, []string{"lastseen.yaml:2: keys.a" + want}, problemsOf(t, "keys:\n  a: {"+key+"}"), key)
	}
	good := "{hash: '" + hash + rest + "}"
	for content, want := range map[string][]string{
		"keys: [a]": {`lastseen.yaml:1: keys holds a list; use a mapping, such as "name: value"`},
		"keys:\n  a: " + hash: {
			`lastseen.yaml:2: keys.a holds a single value; use a mapping, such as "name: value"`,
			"lastseen.yaml:2: keys.a.hash is missing; use " + takesOf("hash"),
			"lastseen.yaml:2: keys.a.scopes is missing; use " + takesOf("scopes"),
			"lastseen.yaml:2: keys.a.namespaces is missing; use " + takesOf("namespaces"),
		},
		"keys: {a: " + good + "}\nkeys: {}": {"lastseen.yaml:2: keys is a duplicate of line 1"},
		"keys:\n  a b: " + good:             {`lastseen.yaml:2: keys: "a b" is not a valid key name; use ` + takesKeyName},
		"keys:\n  a: " + good + "\n  b: " + good: {
			"lastseen.yaml:3: keys.b has the hash of keys.a (lastseen.yaml:2): each key needs its own hash",
		},
	} {
		require.Equal(t, want, problemsOf(t, content), content)
	}
	problems := problemsOf(t,
		"keys:\n  a:\n    hash: '"+hash+"'\n    scopes:\n      - ping\n      - write\n    namespaces: [a/b, 'a*b']\n")
	require.Len(t, problems, 3)
	for i, want := range []string{
		"lastseen.yaml:6: keys.a.scopes: ", "lastseen.yaml:7: keys.a.namespaces: ",
		"lastseen.yaml:7: keys.a.namespaces: ",
	} {
		require.Contains(t, problems[i], want)
	}
}

// TestKeysInTheWrongPlaceAreNotShown: a key that is used as a hash or as a name must not be in a log.
func TestKeysInTheWrongPlaceAreNotShown(t *testing.T) {
	const key = "ls_geheimgeheimgeheimgeheimgeheimgeheimgeheim0"
	for _, content := range []string{
		"keys:\n  a: {hash: " + key + ", scopes: [read], namespaces: [a]}",
		"keys:\n  a: {hash: x, scopes: [" + key + "], namespaces: [a]}",
		"keys:\n  " + key + ": {scopes: [read]}",
		"keys:\n  " + key + ": {scopes: [read]}\n  " + key + ": {scopes: [read]}",
		"keys:\n  a: {" + key + ": x}",
		key + ": x",
	} {
		problems := strings.Join(problemsOf(t, content), "\n")
		require.NotEmpty(t, problems, content)
		require.NotContains(t, problems, "geheim", content)
	}
}

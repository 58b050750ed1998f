package api

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// repeated returns JSON of about a MiB: a text as often as it fits, with commas between and something around it.
func repeated(before, text, after string) []byte {
	n := (maxBody - len(before) - len(after)) / (len(text) + 1)
	return []byte(before + strings.Repeat(text+",", n-1) + text + after)
}

// named returns the inside of a JSON object with n different names.
func named(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%x":0,`, i)
	}
	return b.String() + `"":0`
}

// TestDecodingStops counts what is decoded of a list that is too long.
func TestDecodingStops(t *testing.T) {
	var users lookupBody
	err := unmarshal(repeated(`{"users":[`, `""`, `]}`), &users)
	require.Equal(t, codeTooManyItems, requireProblem(t, err).code)
	require.LessOrEqual(t, len(*users.Users), maxLookup+1, "with a slot for the item that is refused")

	var pings pingsBody
	err = unmarshal(repeated(`{"pings":[`, `{}`, `]}`), &pings)
	require.Equal(t, codeTooManyItems, requireProblem(t, err).code)
	require.LessOrEqual(t, len(*pings.Pings), maxItems+1, "with a slot for the item that is refused")
}

// TestRefusedBodiesCostLittle counts the memory that is taken to refuse a body of a MiB.
func TestRefusedBodiesCostLittle(t *testing.T) {
	wide := named(100_000)
	for name, c := range map[string]struct {
		body []byte
		into any
		want code
	}{
		"users": {repeated(`{"users":[`, `""`, `]}`), &lookupBody{}, codeTooManyItems},
		"a list that is too long, and then no JSON": {
			repeated(`{"users":[`, `""`, ``), &lookupBody{},
			codeTooManyItems,
		},
		"names for users":          {[]byte(`{"users":{` + wide + `}}`), &lookupBody{}, codeInvalidJSON},
		"names in a user":          {[]byte(`{"users":[{` + wide + `}]}`), &lookupBody{}, codeInvalidJSON},
		"a list for a user":        {repeated(`{"users":[[`, `0`, `]]}`), &lookupBody{}, codeInvalidJSON},
		"a list as the body":       {repeated(`[`, `{}`, `]`), &lookupBody{}, codeInvalidJSON},
		"names in a list":          {[]byte(`[{` + wide + `}]`), &pingsBody{}, codeInvalidJSON},
		"names in the user":        {[]byte(`{"pings":[{"user":{` + wide + `}}]}`), &pingsBody{}, codeInvalidJSON},
		"names in the time":        {[]byte(`{"pings":[{"at":{` + wide + `}}]}`), &pingsBody{}, codeInvalidTime},
		"names in a list of pings": {[]byte(`{"pings":[[{` + wide + `}]]}`), &pingsBody{}, codeInvalidJSON},
		"unknown names":            {[]byte(`{"pings":[{` + wide + `}]}`), &pingsBody{}, codeUnknownField},
		"unknown names of a ping":  {[]byte(`{` + wide + `}`), &pingBody{}, codeUnknownField},
		"names in the one time":    {[]byte(`{"at":{` + wide + `}}`), &pingBody{}, codeInvalidTime},
		"names in a token":         {[]byte(`{"token":{` + wide + `}}`), &leaveBody{}, codeInvalidJSON},
		"lists in lists":           {[]byte(`{"pings":` + strings.Repeat("[", 1<<20)), &pingsBody{}, codeInvalidJSON},
		"a list in a time":         {[]byte(`{"at":` + strings.Repeat("[", 1<<20)), &pingBody{}, codeInvalidTime},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := unmarshal(c.body, c.into)
			runtime.ReadMemStats(&after)
			require.Equal(t, c.want, requireProblem(t, err).code, err)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<10), "bytes")
		})
	}
}

// TestErrorsOfItems: what stops the decoding says at which item, as what is found later does.
func TestErrorsOfItems(t *testing.T) {
	w := newWorld(t, fileStore(t))
	problem := w.fails(codeInvalidTime, http.MethodPost, "/chat/pings", `{"pings":[{"user":"a"},{"user":"b","at":{}}]}`)
	require.Len(t, problem["errors"], 1)
	require.EqualValues(t, 1, problem["errors"].([]any)[0].(map[string]any)["index"])
	problem = w.fails(codeInvalidJSON, http.MethodPost, "/chat/pings", `{"pings":[{"user":"a"},{"user":[]}]}`)
	require.Equal(t, "/pings/1/user is a JSON array; a string is expected.", problem["detail"])
	problem = w.fails(codeInvalidJSON, http.MethodPost, "/chat/lookup", `{"users":["a",{}]}`)
	require.Equal(t, "/users/1 is a JSON object; a string is expected.", problem["detail"])
	problem = w.fails(codeInvalidJSON, http.MethodPost, "/chat/lookup", `{"users":{}}`)
	require.Equal(t, "/users is a JSON object; an array is expected.", problem["detail"])
	problem = w.fails(codeInvalidJSON, http.MethodPost, "/chat/leaves", `{"leaves":[[]]}`)
	require.Equal(t, "/leaves/0 is a JSON array; an object is expected.", problem["detail"])
	require.Zero(t, w.total("chat"))
}

// BenchmarkDecode is what a body costs that is right, and one that is far too long.
func BenchmarkDecode(b *testing.B) {
	var ids, items []string
	for n := range maxItems {
		ids, items = append(ids, `"`+benchUser(n)+`"`), append(items, `{"user":"`+benchUser(n)+`"}`)
	}
	honest := []byte(`{"users":[` + strings.Join(ids[:maxLookup], ",") + `]}`)
	pings := []byte(`{"pings":[` + strings.Join(items, ",") + `]}`)
	for _, c := range []struct {
		name string
		body []byte
		into func() any
	}{
		{"1,000 users", honest, func() any { return &lookupBody{} }},
		{"349,522 users", repeated(`{"users":[`, `""`, `]}`), func() any { return &lookupBody{} }},
		{"10,000 pings", pings, func() any { return &pingsBody{} }},
		{"349,522 pings", repeated(`{"pings":[`, `{}`, `]}`), func() any { return &pingsBody{} }},
		{"one ping", []byte(`{"at":1795176000.5}`), func() any { return &pingBody{} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = unmarshal(c.body, c.into())
			}
		})
	}
}

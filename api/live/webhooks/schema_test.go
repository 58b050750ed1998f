package webhooks_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/live/webhooks"
	"github.com/lastseen/lastseen/docs"
	"github.com/lastseen/lastseen/internal/testguide"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

const at lastseen.Instant = 1_795_000_000_000

// users returns users with all statuses, before and after, and all details that a feed publishes. A user who was
// deleted has no time.
func users() (all []feed.Update) {
	note := strings.Repeat("ü", lastseen.MaxNoteLen)
	for _, availability := range []lastseen.AvailabilityState{
		{},
		{Availability: lastseen.Away},
		{Availability: lastseen.Busy, Note: note, Until: at + 1000},
		{Note: `"a" <b> \ 😀`},
	} {
		for _, details := range []store.Details{
			{},
			{IdleSince: at - 1000},
			{InCallUntil: lastseen.MaxInstant},
			{IdleSince: at - 1000, InCallUntil: lastseen.MaxInstant},
		} {
			details.Availability = availability
			for _, state := range []lastseen.State{{At: at}, {At: at, Left: true}, {}} {
				for _, is := range []lastseen.Status{lastseen.Green, lastseen.Yellow, lastseen.Grey} {
					for _, was := range []lastseen.Status{"", lastseen.Green, lastseen.Yellow, lastseen.Grey} {
						all = append(all, feed.Update{
							User:      strings.Repeat("ü", 1+len(all)%lastseen.MaxUserLen/2),
							Published: store.Published{State: state, Status: is, Details: details},
							Was:       store.Published{Status: was},
						})
					}
				}
			}
		}
	}
	return all
}

// TestEventsAreAsInTheirSchemas checks all kinds of event with all details of users, and that the check would find what
// is not in the schemas.
func TestEventsAreAsInTheirSchemas(t *testing.T) {
	t.Parallel()
	schemas, err := docs.Files().ReadFile("webhooks.schema.json")
	require.NoError(t, err)
	check := testguide.Events(t, string(schemas))
	bodies := webhooks.Events(api.AppendPublished, at, users())
	for _, body := range bodies {
		require.NoError(t, check(body), body)
	}
	all := strings.Join(bodies, "\n")
	for name := range fields(t, schemas) {
		require.Contains(t, all, `"`+name+`":`, "no event has it")
	}
	for right, wrong := range map[string]string{
		`{"type":`: `{"x":1,"type":`, `"data":{`: `"data":{"x":1,`, `"users":[{`: `"users":[{"x":1,`,
		`"previous":"green"`: `"previous":"blue"`, `"left":true`: `"left":1`, `"more":true`: `"more":null`,
		`"note":"`: `"notes":"`, `"type":"test"`: `"type":"tests"`, `"user":"ü"`: `"user":""`,
		`"timestamp":"2026`: `"timestamp":"today`, `"status":"grey"`: `"status":null`,
	} {
		found := false
		for _, body := range bodies {
			if strings.Contains(body, right) {
				found = true
				require.Error(t, check(strings.Replace(body, right, wrong, 1)), wrong)
			}
		}
		require.True(t, found, right)
	}
}

// fields returns the names of all fields in some schemas.
func fields(t *testing.T, schemas []byte) map[string]bool {
	t.Helper()
	var document any
	require.NoError(t, json.Unmarshal(schemas, &document))
	names := map[string]bool{}
	var add func(v any)
	add = func(v any) {
		object, _ := v.(map[string]any)
		properties, _ := object["properties"].(map[string]any)
		for name := range properties {
			names[name] = true
		}
		for _, child := range object {
			add(child)
		}
		parts, _ := object["allOf"].([]any)
		for _, part := range parts {
			add(part)
		}
	}
	add(document)
	require.NotEmpty(t, names)
	return names
}

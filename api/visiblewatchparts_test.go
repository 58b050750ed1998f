package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVisibleParts: a client that is cut off in the middle of a batch, and comes back when things are again as they
// were before it, is told so: the cursor of a part leads to a reset.
func TestVisibleParts(t *testing.T) {
	t.Parallel()
	set, key, of := visibleToContacts(t)
	w := newSocketServer(t, set)
	users := []string{"ann"}
	for k := range 999 {
		users = append(users, fmt.Sprintf("%040d", k))
	}
	list := `"` + strings.Join(users, `","`) + `"`
	w.know("ann", "vic")
	record := func(what string) { w.post("/chat/users/ann/"+what, "", key) }
	follow := func(cursor string) (one, two sentEvent) {
		r := w.follow(http.MethodPost, "/chat/changes", `{"users":[`+list+`]}`, of("vic"), "Last-Event-ID: "+cursor)
		one, two = r.changes(), r.changes()
		r.closed()
		return one, two
	}
	record("ping")
	one, two := follow("")
	require.Equal(t, []string{"ann green"}, statuses(one.data)[:1])
	require.Equal(t, one.id, cursorOf(one.data))
	before := two.id

	record("leave")
	one, _ = follow(before)
	require.Equal(t, eventReset, one.name)
	require.Equal(t, []string{"ann grey"}, statuses(one.data)[:1])
	record("ping")
	one, two = follow(one.id)
	require.Equal(t, eventReset, one.name)
	require.Equal(t, []string{"ann green"}, statuses(one.data)[:1])
	require.Equal(t, before, two.id, "as it was")

	watch := func(cursor, name string) (parts []map[string]any) {
		c, _ := w.hello(`{}`, of("vic"))
		parts = append(parts, c.asks(`{"watch":{"add":[`+list+`],"cursor":"`+cursor+`"}}`, name))
		for parts[len(parts)-1]["more"] == true {
			parts = append(parts, c.want(frameChanges))
		}
		return parts
	}
	require.Empty(t, statuses(watch(before, frameChanges)[0]))
	record("leave")
	parts := watch(before, frameReset)
	require.Greater(t, len(parts), 1)
	require.Equal(t, []string{"ann grey"}, statuses(parts[0])[:1])
	record("ping")
	parts = watch(cursorOf(parts[0]), frameReset)
	require.Equal(t, []string{"ann green"}, statuses(parts[0])[:1])
	require.Equal(t, before, cursorOf(parts[len(parts)-1]))

	c, _ := w.hello(`{}`, key)
	first := c.asks(`{"watch":{"add":[`+list+`]}}`, frameChanges)
	require.Equal(t, true, first["more"])
	require.NotContains(t, first, "cursor", "those of a key are places in the feed")
}

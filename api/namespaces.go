package api

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
)

// namespaceAnswer is one namespace of the list.
type namespaceAnswer struct {
	Namespace string    `json:"namespace"`
	LastPing  timestamp `json:"last_ping"` // newest time stored; null if nobody is in it
}

// namespacesAnswer is one page of the namespaces.
type namespacesAnswer struct {
	Namespaces []namespaceAnswer `json:"namespaces"`
	NextCursor *string           `json:"next_cursor"`
}

// namespacesScope binds cursors to the list of namespaces. No namespace has such a name.
const namespacesScope = "/namespaces"

// listNamespaces answers with one page of the namespaces that exist, by name.
func (s *server) listNamespaces(c echo.Context, q query) error {
	limit, err := q.number("limit", 1, maxLimit, defaultLimit)
	if err != nil {
		return err
	}
	after := ""
	if cursor, given := q.get("cursor"); given {
		name, err := openCursor(namespacesScope, cursor)
		if err != nil || lastseen.CheckNamespace(string(name)) != nil {
			return newError(codeInvalidCursor, "This is no cursor of the namespaces; pass next_cursor on as it was, or start without one.")
		}
		after = string(name)
	}
	infos, err := s.store.Namespaces(c.Request().Context(), after, limit+1)
	if err != nil {
		return err
	}
	a := namespacesAnswer{Namespaces: []namespaceAnswer{}}
	if len(infos) > limit {
		infos = infos[:limit]
		cursor := sealCursor(namespacesScope, []byte(infos[limit-1].Name))
		a.NextCursor = &cursor
	}
	for _, info := range infos {
		a.Namespaces = append(a.Namespaces, namespaceAnswer{info.Name, timestamp(info.Newest)})
	}
	return answer(c, a)
}

// settingsAnswer is how a namespace is configured.
type settingsAnswer struct {
	Namespace      string `json:"namespace"`
	GreenMs        int64  `json:"green_ms"`
	YellowMs       int64  `json:"yellow_ms"`
	PingIntervalMs int64  `json:"ping_interval_ms"`
	RetentionMs    *int64 `json:"retention_ms"` // null for ever
	Shards         int    `json:"shards"`
}

// getNamespace answers with the settings of a namespace, whether or not it was ever pinged.
func (s *server) getNamespace(c echo.Context, _ query) error {
	namespace, err := namespaceOf(c)
	if err != nil {
		return err
	}
	settings := s.settings(namespace)
	return answer(c, settingsAnswer{
		Namespace:      namespace,
		GreenMs:        settings.Thresholds.Green.Milliseconds(),
		YellowMs:       settings.Thresholds.Yellow.Milliseconds(),
		PingIntervalMs: settings.PingInterval.Milliseconds(),
		RetentionMs:    millisOrNull(settings.Retention),
		Shards:         settings.Shards,
	})
}

func millisOrNull(d time.Duration) *int64 {
	if d == 0 {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

// deleteNamespace erases a namespace and everyone in it, if the caller repeats its name.
func (s *server) deleteNamespace(c echo.Context, q query) error {
	namespace, err := namespaceOf(c)
	if err != nil {
		return err
	}
	if confirm, _ := q.get("confirm"); confirm != namespace {
		return errorf(codeConfirmationRequired, "This erases everyone in the namespace: add ?confirm=%s to do so.", namespace)
	}
	if err := s.store.DeleteNamespace(c.Request().Context(), namespace); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

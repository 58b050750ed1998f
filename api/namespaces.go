package api

import (
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
)

// namespaceAnswer is one namespace of the list.
type namespaceAnswer struct {
	Namespace string `json:"namespace"`
	// The newest last-seen time of its users. Null if it has no users.
	LastPing timestamp `json:"last_ping" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
} // @name Namespace

// namespacesAnswer is one page of the namespaces.
type namespacesAnswer struct {
	Namespaces []namespaceAnswer `json:"namespaces"`
	// Pass it as `cursor` to get the next page. Null on the last page.
	NextCursor *string `json:"next_cursor" extensions:"x-nullable"`
} // @name NamespacePage

// namespacesScope binds cursors to the list of namespaces. No namespace has such a name.
const namespacesScope = "/namespaces"

// listNamespaces answers with one page of the namespaces that exist, by name.
//
// @ID listNamespaces
// @Tags Namespaces
// @Summary List namespaces
// @Description Returns a page of namespaces, sorted by name. A namespace exists if it is configured, or from its first
// @Description ping on. Requires the scope `read`. Namespaces that the caller cannot read are not listed.
// @Param limit query integer false "maximum of a page"
// @Param cursor query string false "position"
// @Success 200 {object} namespacesAnswer "A page."
// @Router /v1/namespaces [get]
func (s *server) listNamespaces(c echo.Context, q query) error {
	limit, err := q.number("limit", 1, maxLimit, defaultLimit)
	if err != nil {
		return err
	}
	after := ""
	if cursor, given := q.get("cursor"); given {
		name, err := openCursor(namespacesScope, cursor)
		if err != nil || lastseen.CheckNamespace(string(name)) != nil {
			return newError(codeInvalidCursor, "Invalid cursor for the list of namespaces. Pass next_cursor unchanged, or omit it to start over.")
		}
		after = string(name)
	}
	infos, err := s.readable(c, after, limit+1)
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

// readable returns up to so many namespaces after a name, of those that the caller may read. It skips what lies between
// them, which may be a hundred thousand of other people's.
func (s *server) readable(c echo.Context, after string, most int) (found []store.NamespaceInfo, err error) {
	caller := callerOf(c)
	for after, more := caller.SeekReadable(after); more && len(found) < most; {
		infos, err := s.store.Namespaces(c.Request().Context(), after, most-len(found))
		if err != nil {
			return nil, err
		}
		hidden := slices.IndexFunc(infos, func(info store.NamespaceInfo) bool { return !caller.Can(auth.Read, info.Name) })
		if hidden < 0 {
			return append(found, infos...), nil // as many as were asked for, or the last
		}
		found = append(found, infos[:hidden]...)
		after, more = caller.SeekReadable(infos[hidden].Name)
	}
	return found, nil
}

// settingsAnswer is how a namespace is configured.
type settingsAnswer struct {
	Namespace string `json:"namespace"`
	// The age at which users turn yellow.
	GreenMs int64 `json:"green_ms" format:"int64" minimum:"1"`
	// The age at which users turn grey.
	YellowMs int64 `json:"yellow_ms" format:"int64" minimum:"1"`
	// The interval at which clients should ping.
	PingIntervalMs int64 `json:"ping_interval_ms" format:"int64" minimum:"1"`
	// Users not seen for this long are deleted. Null if users are kept forever.
	RetentionMs *int64 `json:"retention_ms" format:"int64" minimum:"1" extensions:"x-nullable"`
	// The number of sorted sets in Redis that hold the namespace. Always 1 with the embedded store.
	Shards int `json:"shards" minimum:"1"`
} // @name NamespaceSettings

// getNamespace answers with the settings of a namespace, whether or not it was ever pinged.
//
// @ID getNamespace
// @Tags Namespaces
// @Summary Get the settings of a namespace
// @Description Durations are in milliseconds. A namespace has settings even before its first ping: the configured
// @Description ones, or the defaults. Requires the scope `read`.
// @Param namespace path string true "namespace"
// @Success 200 {object} settingsAnswer "The settings."
// @Router /v1/namespaces/{namespace} [get]
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
//
// @ID deleteNamespace
// @Tags Deleting
// @Summary Delete a namespace
// @Description Deletes a namespace and all its users at once. The deletion survives a crash. Deleting a namespace that
// @Description does not exist is not an error. The namespace exists again from its next ping on. Requires the scope
// @Description `admin`.
// @Param namespace path string true "namespace"
// @Param confirm query string true "the name again"
// @Success 204 "Deleted."
// @Router /v1/namespaces/{namespace} [delete]
func (s *server) deleteNamespace(c echo.Context, q query) error {
	namespace, err := namespaceOf(c)
	if err != nil {
		return err
	}
	if confirm, _ := q.get("confirm"); confirm != namespace {
		return errorf(codeConfirmationRequired, "This deletes all users in the namespace. To confirm, add ?confirm=%s.", namespace)
	}
	if err := s.store.DeleteNamespace(c.Request().Context(), namespace); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

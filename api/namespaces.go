package api

import (
	"cmp"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/live/session"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
)

// namespaceEntry is one namespace of the list.
type namespaceEntry struct {
	Namespace string `json:"namespace"`
	// The newest last-seen time of its users. Null if it has no users, and for callers who do not see all of them.
	LastPing request.Timestamp `json:"last_ping" swaggertype:"string" format:"date-time" extensions:"x-nullable"`
} // @name Namespace

// namespacesResponse is one page of the namespaces.
type namespacesResponse struct {
	Namespaces []namespaceEntry `json:"namespaces"`
	// Pass it as `cursor` to get the next page. Null on the last page.
	NextCursor *string `json:"next_cursor" extensions:"x-nullable"`
} // @name NamespacePage

// namespaceList binds cursors to the list of namespaces. Namespaces cannot have this name.
const namespaceList = "/namespaces"

// @ID listNamespaces
// @Summary List namespaces
// @Description Returns a page of namespaces, sorted by name. A namespace exists if it is configured, or from its first
// @Description ping on. Requires the scope `read`. Namespaces that the caller cannot read are not listed. For users'
// @Description tokens, `last_ping` is null in namespaces with the setting `visibility: contacts`.
// @Param limit query integer false "maximum of a page"
// @Param cursor query string false "position"
// @Success 200 {object} namespacesResponse "A page."
// @Router /v1/namespaces [get]
func (s *server) listNamespaces(c echo.Context, q request.Query) error {
	limit, err := q.Limit()
	if err != nil {
		return err
	}
	after := ""
	if cursor, given := q.Get("cursor"); given {
		name, err := request.OpenCursor(namespaceList, cursor)
		if err != nil || lastseen.CheckNamespace(string(name)) != nil {
			return problem.New(problem.InvalidCursor, "Invalid cursor for the list of namespaces. "+
				"Pass next_cursor unchanged, or omit it to start over.")
		}
		after = string(name)
	}
	infos, err := s.readable(c, after, limit+1)
	if err != nil {
		return err
	}
	response := namespacesResponse{Namespaces: []namespaceEntry{}}
	if len(infos) > limit {
		infos = infos[:limit]
		response.NextCursor = new(request.SealCursor(namespaceList, []byte(infos[limit-1].Name)))
	}
	for _, info := range infos {
		entry := namespaceEntry{Namespace: info.Name}
		if !s.viewerOf(guard.CallerOf(c), info.Name).Restricted {
			entry.LastPing = request.Timestamp(info.Newest)
		}
		response.Namespaces = append(response.Namespaces, entry)
	}
	return request.Respond(c, response)
}

// readable returns up to max of the namespaces after a name that the caller can read. It seeks past the others,
// possibly a hundred thousand.
func (s *server) readable(c echo.Context, after string, max int) (found []store.NamespaceInfo, err error) {
	caller := guard.CallerOf(c)
	for after, more := caller.SeekReadable(after); more && len(found) < max; {
		infos, err := s.Store.Namespaces(c.Request().Context(), after, max-len(found))
		if err != nil {
			return nil, err
		}
		hidden := slices.IndexFunc(infos, func(info store.NamespaceInfo) bool {
			return !caller.Can(auth.Read, info.Name)
		})
		if hidden < 0 {
			return append(found, infos...), nil // all that were asked for, or the last ones
		}
		found = append(found, infos[:hidden]...)
		after, more = caller.SeekReadable(infos[hidden].Name)
	}
	return found, nil
}

// settingsResponse holds the settings of a namespace.
type settingsResponse struct {
	Namespace string `json:"namespace"`
	// The age at which users turn yellow.
	GreenMs int64 `json:"green_ms" format:"int64" minimum:"1"`
	// The age at which users turn grey.
	YellowMs int64 `json:"yellow_ms" format:"int64" minimum:"1"`
	// The interval at which clients should ping.
	PingIntervalMs int64 `json:"ping_interval_ms" format:"int64" minimum:"1"`
	// Users not seen for this long are deleted. Null if users are kept forever.
	RetentionMs *int64 `json:"retention_ms" format:"int64" minimum:"1" extensions:"x-nullable"`
	// The contacts of users who have not used anything for this long are deleted. Null if they are kept forever.
	ContactsRetentionMs *int64 `json:"contacts_retention_ms" format:"int64" minimum:"1" extensions:"x-nullable"`
	// Who sees the users: everyone who can read the namespace, or with a JWT only users who have the caller among their
	// contacts.
	Visibility Visibility `json:"visibility" swaggertype:"string" enums:"everyone,contacts"`
	// The number of sorted sets in Redis that hold the namespace. Always 1 with the embedded store.
	Shards int `json:"shards" minimum:"1"`
	// How long a call rings before it is missed.
	RingTimeoutMs int64 `json:"ring_timeout_ms" format:"int64" minimum:"1"`
	// Whether others see that a user is in a call.
	ShowCalls bool `json:"show_calls"`
} // @name NamespaceSettings

// @ID getNamespace
// @Summary Get the settings of a namespace
// @Description Durations are in milliseconds. A namespace has settings even before its first ping: the configured
// @Description ones, or the defaults. Requires the scope `read`.
// @Success 200 {object} settingsResponse "The settings."
// @Router /v1/namespaces/{namespace} [get]
func (s *server) getNamespace(c echo.Context, _ request.Query, namespace string) error {
	settings := s.settings(namespace)
	response := settingsResponse{
		Namespace:      namespace,
		GreenMs:        settings.Thresholds.Green.Milliseconds(),
		YellowMs:       settings.Thresholds.Yellow.Milliseconds(),
		PingIntervalMs: settings.PingInterval.Milliseconds(),
		RetentionMs:    optionalMs(settings.Retention),
		Shards:         settings.Shards,
		RingTimeoutMs:  settings.ringTimeout().Milliseconds(),
		ShowCalls:      settings.ShowCalls,

		ContactsRetentionMs: optionalMs(settings.ContactsRetention),
		Visibility:          cmp.Or(settings.Visibility, VisibleToEveryone),
	}
	return request.Respond(c, response)
}

// optionalMs returns a duration in milliseconds; nil for 0.
func optionalMs(d time.Duration) *int64 {
	if d == 0 {
		return nil
	}
	return new(d.Milliseconds())
}

// @ID deleteNamespace
// @Summary Delete a namespace
// @Description Deletes a namespace and all its users at once. The deletion survives a crash. Deleting a namespace that
// @Description does not exist is not an error. The namespace exists again from its next ping on. Connections stay open:
// @Description what they send counts as pings, so their users come back. Requires the scope `admin`.
// @Param confirm query string true "the name again"
// @Success 204 "Deleted."
// @Router /v1/namespaces/{namespace} [delete]
func (s *server) deleteNamespace(c echo.Context, q request.Query, namespace string) error {
	if confirm, _ := q.Get("confirm"); confirm != namespace {
		return problem.Errorf(problem.ConfirmationRequired,
			"This deletes all users in the namespace. To confirm, add ?confirm=%s.", namespace)
	}
	ctx := c.Request().Context()
	// First: what servers have received and not written yet must not bring the namespace back. See [server.deleteUser].
	if err := s.Store.CloseConnections(ctx, namespace, ""); err != nil {
		return err
	}
	err := s.Store.DeleteNamespace(ctx, namespace)
	if store.MayBeDone(err) {
		s.SignalAvailability(ctx, namespace, "")
	}
	return respondNothing(c, err)
}

// @ID countUsers
// @Summary Count users by status
// @Description Counts the users that a list with the same parameters returns over all its pages. Requires the scope
// @Description `read`.
// @Description
// @Description With the setting `visibility: contacts`, a user's token gets the counts of what it can list. Each further
// @Description 1,000 contacts of the user count as a request.
// @Param from query string false "earliest last-seen time"
// @Param to query string false "latest last-seen time"
// @Param as_of query string false "time of evaluation"
// @Success 200 {object} session.Counts "The number of users with each status."
// @Router /v1/namespaces/{namespace}/counts [get]
func (s *server) counts(c echo.Context, q request.Query, namespace string) error {
	ctx, users := c.Request().Context(), s.listReader(c, namespace, q)
	p, err := s.listParams(ctx, users, namespace, q)
	if err != nil {
		return err
	}
	n, err := store.CountByStatus(ctx, users, namespace, p.thresholds, p.asOf, p.from, p.to)
	if err != nil {
		return err
	}
	return request.Respond(c, session.ShowCounts(n, p.asOf))
}

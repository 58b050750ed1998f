package api

import (
	"context"
	"encoding/binary"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/live/audience"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
)

// listParams are the parameters of a list of users or of contacts. The first page fixes them for all pages.
type listParams struct {
	view
	from, to lastseen.Instant
	statuses []lastseen.Status // none means all
	inCall   string            // of contacts: "true" or "false"; "" means both
	order    store.Order
	offset   int // users to skip before the first page
	// The query that asks for this list, without constant defaults: the same text for the same list.
	canonical string
}

// readListParams reads the parameters of a list. A new filter is read here, and is then part of cursors, too.
func readListParams(q request.Query, defaults view) (listParams, error) {
	r, p := request.Params{Query: q}, listParams{}
	p.asOf = r.Time("as_of", defaults.asOf)
	p.thresholds = r.Thresholds(defaults.thresholds)
	r.Canonical = "as_of=" + p.asOf.String() + "&green=" + p.thresholds.Green.String() +
		"&yellow=" + p.thresholds.Yellow.String()
	p.from = r.Time("from", 0)
	p.to = r.Time("to", p.asOf)
	p.offset = r.Number("offset", 0, request.MaxLimit, 0)
	if r.Choice("order", "newest", "oldest") == "oldest" {
		p.order = store.Oldest
	}
	p.statuses = r.Statuses()
	p.inCall = r.Bool("in_call")
	p.canonical = r.Canonical
	switch {
	case r.Err != nil:
		return p, r.Err
	case p.from > p.to:
		return p, problem.Errorf(problem.InvalidRange, "from (%s) is later than to (%s).", p.from, p.to)
	case p.to > p.asOf:
		return p, problem.Errorf(problem.InvalidRange, "to (%s) is later than as_of (%s).", p.to, p.asOf)
	}
	return p, nil
}

// listResponse is one page.
type listResponse struct {
	presences `json:",inline"`
	// Pass it as `cursor` to get the next page. Null on the last page.
	NextCursor *string `json:"next_cursor" extensions:"x-nullable"`
} // @name PresencePage

// @ID listUsers
// @Summary List recently seen users
// @Description Returns a page of users, the most recently seen first by default. Users who left are listed, too,
// @Description unless `status` excludes them.
// @Description
// @Description To get all pages, pass the `next_cursor` of each response as the `cursor` of the next request until it
// @Description is null. The first page fixes `as_of` and `to`. A user whose last-seen time does not change in between
// @Description is listed exactly once. If the first page has the header `Lastseen-Age`, users whose last-seen time
// @Description changed within that time before it can be missing from all pages. With a cursor, `limit` can change;
// @Description omit the other parameters or repeat them unchanged. Requires the scope `read`.
// @Description
// @Description With the setting `visibility: contacts`, the list of a user's token has those of the user's own contacts who
// @Description have the user among theirs. Each further 1,000 contacts of the user count as a request.
// @Param status query []string false "statuses"
// @Param from query string false "earliest last-seen time"
// @Param to query string false "latest last-seen time"
// @Param order query string false "order"
// @Param limit query integer false "maximum of a page"
// @Param cursor query string false "position"
// @Param offset query integer false "users to skip"
// @Param as_of query string false "time of evaluation"
// @Success 200 {object} listResponse "A page."
// @Router /v1/namespaces/{namespace}/users [get]
func (s *server) listUsers(c echo.Context, q request.Query, namespace string) error {
	limit, err := q.Limit()
	if err != nil {
		return err
	}
	ctx, users := c.Request().Context(), s.listReader(c, namespace, q)
	p, after, err := s.listPage(ctx, users, namespace, q, limit)
	if err != nil {
		return err
	}
	skip := 0
	if after == nil {
		skip = p.offset
	}
	records, err := users.List(ctx, namespace, store.ListQuery{
		Ranges: p.thresholds.Ranges(p.statuses, p.asOf, p.from, p.to),
		Order:  p.order, After: after, Limit: skip + limit + 1, // one more shows whether there is a next page
	})
	if err != nil {
		return err
	}
	var next *string
	records = records[min(skip, len(records)):]
	if len(records) > limit {
		records = records[:limit]
		next = new(p.cursor(namespace, positionOf(records[limit-1])))
	}
	details, err := users.ReadDetails(ctx, namespace, records)
	if err != nil {
		return err
	}
	if p.now, err = s.Store.Now(ctx); err != nil {
		return err
	}
	return request.Respond(c, listResponse{p.show(records, details), next})
}

// show returns what a page shows of its records.
func (p listParams) show(records []store.Record, details map[string]store.Details) presences {
	users := make([]presence, len(records))
	for i, r := range records {
		users[i] = p.presence(r.User, r.State, details)
	}
	return presences{p.evaluated(), users}
}

// listPage returns the parameters of the list that the query asks for, and the record before its page, or nil for the
// first page.
func (s *server) listPage(
	ctx context.Context, users audience.Users, namespace string, q request.Query, limit int,
) (listParams, *store.Record, error) {
	if cursor, given := q.Get("cursor"); given {
		p, position, err := openListCursor(namespace, cursor, q)
		if err != nil {
			return p, nil, err
		}
		after, err := p.recordAt(position)
		return p, after, err
	}
	p, err := s.listParams(ctx, users, namespace, q)
	if sum := p.offset + limit; err == nil && sum > request.MaxLimit {
		err = problem.Errorf(problem.InvalidRange,
			"The sum of offset and limit is %d: use at most %d, or the cursor.", sum, request.MaxLimit)
	}
	return p, nil, err
}

// listParams returns the parameters of a new list, with the defaults of the moment for omitted ones.
func (s *server) listParams(
	ctx context.Context, users audience.Users, namespace string, q request.Query,
) (p listParams, err error) {
	defaults := view{thresholds: s.settings(namespace).Thresholds}
	if _, given := q.Get("as_of"); !given {
		if defaults.asOf, err = s.latest(ctx, users, namespace); err != nil {
			return p, err
		}
	}
	return readListParams(q, defaults)
}

// latest returns the later of now and the newest time of users, which may be ahead by up to [request.MaxAhead].
func (s *server) latest(ctx context.Context, users store.Reader, namespace string) (lastseen.Instant, error) {
	now, err := s.Store.Now(ctx)
	if err != nil {
		return 0, err
	}
	newest, err := users.Newest(ctx, namespace)
	if err != nil {
		return 0, err
	}
	return max(now, min(newest, now+request.MaxAhead)), nil
}

// cursor returns the cursor of the page of a list after a position.
func (p listParams) cursor(list string, position []byte) string {
	return request.SealCursor(list, append([]byte(p.canonical+"\x00"), position...))
}

// openListCursor returns the parameters of the list and the position in a cursor: see [request.OpenListCursor].
func openListCursor(list, cursor string, q request.Query) (p listParams, position []byte, err error) {
	position, err = request.OpenListCursor(list, cursor, q, func(q request.Query) (string, error) {
		p, err = readListParams(q, view{})
		return p.canonical, err
	})
	return p, position, err
}

// positionOf returns the position of a record in a list of users.
func positionOf(last store.Record) []byte {
	position := uint64(last.At) << 1
	if last.Left {
		position |= 1
	}
	return append(binary.BigEndian.AppendUint64(nil, position), last.User...)
}

// recordAt returns the record at a position, which is hostile input.
func (p listParams) recordAt(position []byte) (*store.Record, error) {
	if len(position) < 8 {
		return nil, request.ErrListCursor()
	}
	n, user := binary.BigEndian.Uint64(position), string(position[8:])
	at := lastseen.Instant(n >> 1)
	if at < p.from || at > p.to || lastseen.CheckStoredUser(user) != nil {
		return nil, request.ErrListCursor()
	}
	return &store.Record{User: user, State: lastseen.State{At: at, Left: n&1 == 1}}, nil
}

// AppendJSON is for [request.WriteJSON].
func (r listResponse) AppendJSON(b []byte) []byte {
	b = append(r.appendFields(append(b, '{')), `,"next_cursor":`...)
	if r.NextCursor == nil {
		return append(b, "null}"...)
	}
	return append(request.AppendString(b, *r.NextCursor), '}')
}

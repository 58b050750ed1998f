package api

import (
	"context"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const (
	defaultLimit = 50
	maxLimit     = 1000 // also of offset and limit together
)

// walk is what stays the same over all pages of a list. The first page fixes it.
type walk struct {
	statuses   []lastseen.Status // sorted, each once; none means all
	asOf       lastseen.Instant
	from, to   lastseen.Instant
	thresholds lastseen.Thresholds
	order      store.Order
	offset     int // skipped before the first page
}

// listAnswer is one page.
type listAnswer struct {
	presences `json:",inline"`
	// Pass it as cursor to get the next page; null on the last page.
	NextCursor *string `json:"next_cursor" extensions:"x-nullable"`
} // @name PresencePage

// listUsers answers with one page of recently seen users.
//
// @ID listUsers
// @Tags Reading
// @Summary List recently seen users
// @Description Page by page, newest first unless `order` says otherwise. Users who left are in it, too, by their time, unless `status` leaves them out.
// @Description
// @Description To get all pages, pass `next_cursor` of each answer as `cursor` of the next request until it is null. The first page fixes `as_of` and `to`; users whose time does not change meanwhile are listed exactly once. With a cursor only `limit` may differ from the first request; the other parameters may be left out.
// @Description
// @Description Needs the scope `read`.
// @Produce json
// @Param namespace path string true "namespace"
// @Param status query []string false "statuses" Enums(green, yellow, grey) collectionFormat(multi)
// @Param from query string false "earliest last-seen time"
// @Param to query string false "latest last-seen time"
// @Param order query string false "`newest`: last seen first. `oldest`: the exact reverse." Enums(newest, oldest) default(newest)
// @Param limit query integer false "users of a page" minimum(1) maximum(1000) default(50)
// @Param cursor query string false "where the page begins"
// @Param offset query integer false "Skip so many users before the first page. `offset` and `limit` together are at most 1000: use the cursor to go deeper." minimum(0) maximum(1000) default(0)
// @Param as_of query string false "instant of evaluation"
// @Param green query string false "green threshold"
// @Param yellow query string false "yellow threshold"
// @Success 200 {object} listAnswer "One page."
// @Failure 400 {object} problem "invalid_namespace, invalid_time, invalid_duration, invalid_thresholds, invalid_range, invalid_parameter, unknown_parameter, invalid_cursor"
// @Failure 401 {object} problem "unauthenticated"
// @Failure 403 {object} problem "forbidden"
// @Failure 404 {object} problem "not_found"
// @Failure 429 {object} problem "rate_limited"
// @Failure 500 {object} problem "wrong_key_type, namespace_mismatch, internal"
// @Failure 503 {object} problem "store_unavailable, overloaded, keys_unavailable"
// @Security bearer
// @Router /v1/namespaces/{namespace}/users [get]
func (s *server) listUsers(c echo.Context, q query) error {
	namespace, err := namespaceOf(c)
	if err != nil {
		return err
	}
	limit, err := q.number("limit", 1, maxLimit, defaultLimit)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	w, after, err := s.walkOf(ctx, namespace, q, limit)
	if err != nil {
		return err
	}
	skip := 0
	if after == nil {
		skip = w.offset
	}
	records, err := s.store.List(ctx, namespace, store.ListQuery{
		Ranges: w.thresholds.Ranges(w.statuses, w.asOf, w.from, w.to),
		Order:  w.order, After: after, Limit: skip + limit + 1, // one more tells whether there is a next page
	})
	if err != nil {
		return err
	}
	return answer(c, w.page(namespace, records[min(skip, len(records)):], limit))
}

// page makes an answer of at most limit records; more of them mean that there is a next page.
func (w walk) page(namespace string, records []store.Record, limit int) listAnswer {
	var next *string
	if len(records) > limit {
		records = records[:limit]
		cursor := w.cursor(namespace, records[limit-1])
		next = &cursor
	}
	users := make([]presence, len(records))
	for i, r := range records {
		users[i] = presenceOf(w.thresholds.Presence(r.User, r.State, w.asOf))
	}
	return listAnswer{presences{evaluatedAt(w.asOf, w.thresholds), users}, next}
}

// walkOf returns the walk that the query asks for or, with a cursor, goes on with.
func (s *server) walkOf(ctx context.Context, namespace string, q query, limit int) (walk, *store.Record, error) {
	if cursor, given := q.get("cursor"); given {
		w, after, err := parseCursor(namespace, cursor)
		if err != nil {
			return walk{}, nil, err
		}
		repeated, err := w.with(q)
		if err != nil || !repeated.equal(w) {
			return walk{}, nil, newError(codeInvalidCursor,
				"A parameter differs from the first page. With a cursor, only `limit` can change.")
		}
		return w, &after, nil
	}
	w, err := s.firstWalk(ctx, namespace, q)
	if err != nil {
		return walk{}, nil, err
	}
	if w.offset+limit > maxLimit {
		return walk{}, nil, errorf(codeInvalidRange, "The sum of offset and limit is %d: use at most %d, or the cursor.",
			w.offset+limit, maxLimit)
	}
	return w, nil, nil
}

// firstWalk returns the walk of a first page, with everything that the query leaves open settled.
func (s *server) firstWalk(ctx context.Context, namespace string, q query) (walk, error) {
	w := walk{thresholds: s.settings(namespace).Thresholds}
	if _, given := q.get("as_of"); !given {
		latest, err := s.latest(ctx, namespace)
		if err != nil {
			return walk{}, err
		}
		w.asOf = latest
	}
	w, err := w.with(q)
	if err != nil {
		return walk{}, err
	}
	if _, given := q.get("to"); !given {
		w.to = w.asOf
	}
	switch {
	case w.from > w.to:
		return walk{}, errorf(codeInvalidRange, "from (%s) is later than to (%s).", w.from, w.to)
	case w.to > w.asOf:
		return walk{}, errorf(codeInvalidRange, "to (%s) is later than as_of (%s).", w.to, w.asOf)
	}
	return w, nil
}

// latest is the later of now and the newest time stored, which may be ahead by as much as a ping may.
func (s *server) latest(ctx context.Context, namespace string) (lastseen.Instant, error) {
	now, err := s.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	newest, err := s.store.Newest(ctx, namespace)
	if err != nil {
		return 0, err
	}
	return max(now, min(newest, now+maxAhead)), nil
}

// with returns the walk with what the query says in place of what was there.
func (w walk) with(q query) (walk, error) {
	var err error
	if w.asOf, err = q.time("as_of", w.asOf); err != nil {
		return w, err
	}
	if w.from, err = q.time("from", w.from); err != nil {
		return w, err
	}
	if w.to, err = q.time("to", w.to); err != nil {
		return w, err
	}
	if w.thresholds, err = q.thresholds(w.thresholds); err != nil {
		return w, err
	}
	if w.offset, err = q.number("offset", 0, maxLimit, w.offset); err != nil {
		return w, err
	}
	if w.order, err = q.order(w.order); err != nil {
		return w, err
	}
	w.statuses, err = q.statuses(w.statuses)
	return w, err
}

func (w walk) equal(other walk) bool {
	return slices.Equal(w.statuses, other.statuses) && w.asOf == other.asOf && w.from == other.from &&
		w.to == other.to && w.thresholds == other.thresholds && w.order == other.order && w.offset == other.offset
}

// order returns the order asked for, or the fallback if none is.
func (q query) order(fallback store.Order) (store.Order, error) {
	value, given := q.get("order")
	switch {
	case !given:
		return fallback, nil
	case value == "newest":
		return store.Newest, nil
	case value == "oldest":
		return store.Oldest, nil
	default:
		return 0, errorf(codeInvalidParameter, "Invalid order %.40q: use newest or oldest.", value)
	}
}

// statuses returns the statuses asked for, sorted and each once, or the fallback if none is.
func (q query) statuses(fallback []lastseen.Status) ([]lastseen.Status, error) {
	values := q["status"]
	if len(values) == 0 {
		return fallback, nil
	}
	statuses := make([]lastseen.Status, len(values))
	for i, value := range values {
		status, err := lastseen.ParseStatus(value)
		if err != nil {
			return nil, newError(codeInvalidParameter, sentence(err))
		}
		statuses[i] = status
	}
	slices.Sort(statuses)
	return slices.Compact(statuses), nil
}

package client

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/lastseen/lastseen"
)

// List says which users a list has, and in which order. The zero value means all, those seen last first.
type List struct {
	Status      []lastseen.Status // users with one of these; empty for all
	From, To    time.Time         // seen from … to, both included; zero for no bound
	OldestFirst bool
	Limit       int    // users of a page: 1 to 1,000; 0 for 50, in [Client.Users] for 1,000
	Cursor      string // the NextCursor of the page before; "" for the first one
	Offset      int    // users to skip before the first page
	Evaluate
}

func (l List) query() url.Values {
	q := l.Evaluate.query()
	set(q, "from", stamp(l.From))
	set(q, "to", stamp(l.To))
	if l.OldestFirst {
		q.Set("order", "oldest")
	}
	page(q, l.Limit, l.Cursor, l.Status...)
	if l.Offset != 0 {
		q.Set("offset", strconv.Itoa(l.Offset))
	}
	return q
}

// page sets the parameters of a page, which has only some statuses if any are given.
func page(q url.Values, limit int, cursor string, statuses ...lastseen.Status) {
	for _, s := range statuses {
		q.Add("status", string(s))
	}
	if limit != 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	set(q, "cursor", cursor)
}

// PresencePage is one page of a list.
type PresencePage struct {
	PresenceList
	NextCursor string `json:"next_cursor"` // "" on the last page
}

// ListUsers returns one page of the users who were seen.
func (c *Client) ListUsers(ctx context.Context, namespace string, l List) (p PresencePage, err error) {
	path := route("namespaces", namespace, "users")
	err = c.do(ctx, request{method: http.MethodGet, path: path, query: l.query()}, &p)
	dated(p.Users, p.AsOf)
	return p, err
}

// Users returns all users of a list, page by page. It ends with the first error.
func (c *Client) Users(ctx context.Context, namespace string, l List) iter.Seq2[Presence, error] {
	l.Limit = cmp.Or(l.Limit, 1000)
	return pages(l.Cursor, func(cursor string) ([]Presence, string, error) {
		l := l
		if l.Cursor = cursor; cursor != "" {
			l.Offset = 0 // it skips users before the first page
		}
		p, err := c.ListUsers(ctx, namespace, l)
		return p.Users, p.NextCursor, err
	})
}

// pages walks through pages, each with the cursor of the next one.
func pages[T any](cursor string, read func(cursor string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for at := cursor; ; {
			items, next, err := read(at)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if at = next; at == "" {
				return
			}
		}
	}
}

// Counts are numbers of users.
type Counts struct {
	AsOf   time.Time `json:"as_of"`
	Green  int64     `json:"green"`
	Yellow int64     `json:"yellow"`
	Grey   int64     `json:"grey"`
	Total  int64     `json:"total"`
}

// CountUsers counts users by status. Of the list, only From, To and [Evaluate] are used.
func (c *Client) CountUsers(ctx context.Context, namespace string, l List) (n Counts, err error) {
	q := List{From: l.From, To: l.To, Evaluate: l.Evaluate}.query()
	return n, c.do(ctx, request{method: http.MethodGet, path: route("namespaces", namespace, "counts"), query: q}, &n)
}

// Namespace is a namespace that has users.
type Namespace struct {
	Namespace string    `json:"namespace"`
	LastPing  time.Time `json:"last_ping,omitzero"` // zero without users, and for callers who do not see all of them
}

// NamespacePage is one page of namespaces.
type NamespacePage struct {
	Namespaces []Namespace `json:"namespaces"`
	NextCursor string      `json:"next_cursor"` // "" on the last page
}

// ListNamespaces returns one page of the namespaces that the caller may read: up to limit, 0 for 50.
func (c *Client) ListNamespaces(ctx context.Context, limit int, cursor string) (p NamespacePage, err error) {
	q := url.Values{}
	page(q, limit, cursor)
	return p, c.do(ctx, request{method: http.MethodGet, path: route("namespaces"), query: q}, &p)
}

// Namespaces returns all namespaces that the caller may read, page by page. It ends with the first error.
func (c *Client) Namespaces(ctx context.Context) iter.Seq2[Namespace, error] {
	return pages("", func(cursor string) ([]Namespace, string, error) {
		p, err := c.ListNamespaces(ctx, 1000, cursor)
		return p.Namespaces, p.NextCursor, err
	})
}

// NamespaceSettings are the settings of a namespace. Durations are in milliseconds.
type NamespaceSettings struct {
	Namespace           string `json:"namespace"`
	GreenMs             int64  `json:"green_ms"`
	YellowMs            int64  `json:"yellow_ms"`
	PingIntervalMs      int64  `json:"ping_interval_ms"`
	RetentionMs         int64  `json:"retention_ms"`          // 0 if users are kept for ever
	ContactsRetentionMs int64  `json:"contacts_retention_ms"` // 0 if contacts are kept for ever
	RingTimeoutMs       int64  `json:"ring_timeout_ms"`
	Shards              int    `json:"shards"`
	ShowCalls           bool   `json:"show_calls"`
	Visibility          string `json:"visibility"` // "everyone" or "contacts"
}

// GetNamespace returns the settings of a namespace, which need not exist.
func (c *Client) GetNamespace(ctx context.Context, namespace string) (s NamespaceSettings, err error) {
	return s, c.do(ctx, request{method: http.MethodGet, path: route("namespaces", namespace)}, &s)
}

// DeleteNamespace deletes all users of a namespace, with all that is stored of them.
func (c *Client) DeleteNamespace(ctx context.Context, namespace string) error {
	q := url.Values{"confirm": {namespace}}
	return c.do(ctx, request{method: http.MethodDelete, path: route("namespaces", namespace), query: q}, nil)
}

package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// maker prepares a contestant: starts its server, fills it, checks an answer.
type maker func(*lab) (probe, error)

// at names a contestant at so many connections.
func at(name string, conns int) string { return fmt.Sprintf("%s, %d connections", name, conns) }

// The contestants that are asked by wrk; see requests.
const (
	bareNoOp       = "bare"
	noOp           = "no-op"
	noOpBody       = "no-op with a body"
	pingMinimal    = "ping, minimal"
	pingFull       = "ping"
	pingSingle     = "ping, minimal, one command per request"
	webdisZADD     = "webdis ZADD"
	pingFile       = "ping, minimal, embedded"
	pingFileMerged = "ping, minimal, embedded, coalescing"
	noOpFile       = "no-op, embedded"
	getUser        = "lookup of one"
	getUserSingle  = "lookup of one, one command per request"
	lookupRedis    = "lookup of 100"
	lookupFile     = "lookup of 100, embedded"
)

// Those that show how the cost grows.
const (
	pingFew        = "ping, minimal, few users"
	pingMany       = "ping, minimal, many users"
	pingSpread     = "ping, minimal, 1,000 namespaces"
	pingFileFew    = "ping, minimal, few users, embedded"
	pingFileMany   = "ping, minimal, many users, embedded"
	pingFileSpread = "ping, minimal, 1,000 namespaces, embedded"
	lookup10       = "lookup of 10"
	lookup1000     = "lookup of 1,000"
)

// The others.
const (
	redisZMSCORE   = "redis-benchmark ZMSCORE of 100"
	redisZADD      = "redis-benchmark ZADD GT of 100"
	bulkOne        = "NDJSON, one request"
	bulkFour       = "NDJSON, four requests at once"
	openPing       = "ping, open loop"
	openNoOp       = "no-op, open loop"
	allocations    = "allocations of a ping"
	memoryPerUser  = "memory a user"
	diskPerPing    = "disk a ping"
	idleFile       = "idle, embedded"
	idleRedis      = "idle, Redis"
	soak           = "soak"
	minimalHeaders = "Prefer: return=minimal\r\n"
)

// request is a contestant that wrk asks.
type request struct {
	name      string
	server    string
	namespace string // whose users are drawn
	requestOf
	status   int
	contains string // of the answer's body
}

// crowdPath is what the paths about one of the random users begin with.
const crowdPath = "/v1/namespaces/" + crowd + "/users/"

// requests are all contestants that wrk asks.
func requests() []request {
	post := func(action, headers string) requestOf {
		return requestOf{method: http.MethodPost, before: crowdPath, after: action, headers: headers}
	}
	ping := func(namespace string) requestOf {
		return requestOf{method: http.MethodPost, before: "/v1/namespaces/" + namespace + "/users/", after: "/ping", headers: minimalHeaders}
	}
	spreadPing := requestOf{method: http.MethodPost, before: "/v1/namespaces/" + spread, spread: "/users/", after: "/ping", headers: minimalHeaders}
	get := func(action string) requestOf {
		return requestOf{method: http.MethodGet, before: crowdPath, after: action}
	}
	zadd := requestOf{method: http.MethodGet, before: "/ZADD/presence:" + foreign + "/", stamped: true}
	lookup := func(each int) requestOf {
		return requestOf{
			method: http.MethodPost, before: "/v1/namespaces/" + crowd + "/lookup",
			headers: "Content-Type: application/json\r\n", body: `{"users":["`, each: each,
		}
	}
	return []request{
		{bareNoOp, echoAlone, crowd, post("/ping", minimalHeaders), http.StatusNoContent, ""},
		{noOp, merging, crowd, post("/nothing", minimalHeaders), http.StatusNoContent, ""},
		{noOpBody, merging, crowd, get("/fixed"), http.StatusOK, sample},
		{pingMinimal, merging, crowd, post("/ping", minimalHeaders), http.StatusNoContent, ""},
		{pingFull, merging, crowd, post("/ping", ""), http.StatusOK, `"status":"green"`},
		{pingSingle, single, crowd, post("/ping", minimalHeaders), http.StatusNoContent, ""},
		{webdisZADD, webdis, foreign, zadd, http.StatusOK, `{"ZADD":0}`},
		{pingFile, embedded, crowd, post("/ping", minimalHeaders), http.StatusNoContent, ""},
		{noOpFile, embedded, crowd, post("/nothing", minimalHeaders), http.StatusNoContent, ""},
		{pingFileMerged, merged, crowd, post("/ping", minimalHeaders), http.StatusNoContent, ""},
		{getUser, merging, crowd, get(""), http.StatusOK, `"status":`},
		{getUserSingle, single, crowd, get(""), http.StatusOK, `"status":`},
		{lookupRedis, merging, crowd, lookup(100), http.StatusOK, `"status":`},
		{lookupFile, embedded, crowd, lookup(100), http.StatusOK, `"status":`},
		{lookup10, merging, crowd, lookup(10), http.StatusOK, `"status":`},
		{lookup1000, merging, crowd, lookup(1000), http.StatusOK, `"status":`},
		{pingFew, merging, few, ping(few), http.StatusNoContent, ""},
		{pingMany, merging, many, ping(many), http.StatusNoContent, ""},
		{pingSpread, merging, spread, spreadPing, http.StatusNoContent, ""},
		{pingFileFew, listing, few, ping(few), http.StatusNoContent, ""},
		{pingFileMany, listing, many, ping(many), http.StatusNoContent, ""},
		{pingFileSpread, listing, spread, spreadPing, http.StatusNoContent, ""},
	}
}

// contestants are all that can be measured, by name.
func contestants() map[string]maker {
	all := map[string]maker{
		redisZMSCORE: func(l *lab) (probe, error) {
			return l.redisBenchmark(4000, func(int64) []string {
				return append([]string{"ZMSCORE", "presence:" + numbered}, members()...)
			})
		},
		redisZADD: func(l *lab) (probe, error) {
			few := max(500, l.users/20/redisMembers) // so that few users are pinged twice with one score
			return l.redisBenchmark(few, func(score int64) []string {
				return append([]string{"ZADD", "presence:" + numbered, "GT"}, members(fmt.Sprint(score))...)
			})
		},
		bulkOne:       func(l *lab) (probe, error) { return l.bulkTo(1) },
		bulkFour:      func(l *lab) (probe, error) { return l.bulkTo(4) },
		openPing:      func(l *lab) (probe, error) { return l.openTo("/ping") },
		openNoOp:      func(l *lab) (probe, error) { return l.openTo("/nothing") },
		allocations:   func(l *lab) (probe, error) { return l.allocations, nil },
		memoryPerUser: func(l *lab) (probe, error) { return l.memoryPerUser, nil },
		diskPerPing:   func(l *lab) (probe, error) { return l.diskPerPing, nil },
		idleFile:      func(l *lab) (probe, error) { return l.idle("idle-file", l.path("idle.db")), nil },
		idleRedis:     makeIdleRedis,
		soak:          func(l *lab) (probe, error) { return l.soak, nil },
	}
	for _, r := range requests() {
		for _, conns := range []int{64, 256} {
			name := at(r.name, conns)
			all[name] = func(l *lab) (probe, error) { return l.request(name, r, conns) }
		}
	}
	for _, server := range []string{merging, listing} {
		for _, namespace := range []string{few, many, crowd, tied} {
			all[pageOf(server, namespace, false)] = func(l *lab) (probe, error) { return l.list(server, namespace, 1) }
			all[pageOf(server, namespace, true)] = func(l *lab) (probe, error) { return l.list(server, namespace, l.deepPage()) }
		}
	}
	return all
}

// storeOf says which store is behind a server that lists.
func storeOf(server string) string {
	return map[string]string{merging: "Redis store", listing: "embedded"}[server]
}

// pageOf names the contestant that lists one page, the first one or a deep one.
func pageOf(server, namespace string, deep bool) string {
	what := map[string]string{few: "few users", many: "many users", crowd: "users", tied: "users of one millisecond"}[namespace]
	page := "first page"
	if deep {
		page = "deep page"
	}
	return fmt.Sprintf("%s of %s, %s", page, what, storeOf(server))
}

func (l *lab) request(name string, r request, conns int) (probe, error) {
	s, err := l.server(r.server)
	if err != nil {
		return nil, err
	}
	if err := l.prefill(s, r); err != nil {
		return nil, err
	}
	return l.wrk(name, s, conns, r)
}

// prefill gives the request's namespace its users: directly, or through our server on the same Redis.
func (l *lab) prefill(s *server, r request) error {
	switch r.server {
	case echoAlone:
		return nil
	case webdis:
		ours, err := l.server(merging)
		if err != nil {
			return err
		}
		return l.fill(ours, r.namespace)
	default:
		return l.fill(s, r.namespace)
	}
}

func (l *lab) bulkTo(streams int) (probe, error) {
	s, err := l.server(merging)
	if err != nil {
		return nil, err
	}
	return l.bulkPing(s, streams)
}

// openTo prepares an open loop at half of the highest rate of pings.
func (l *lab) openTo(path string) (probe, error) {
	s, err := l.server(merging)
	if err != nil {
		return nil, err
	}
	if err := l.fill(s, crowd); err != nil {
		return nil, err
	}
	half, err := l.halfRate(l.ctx, s)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, d time.Duration) (measurement, error) {
		return s.account(func() (measurement, error) { return l.openLoop(ctx, s, path, half, d) })
	}, nil
}

// listTime is how long one page is asked for in a turn: thousands of times.
const listTime = 500 * time.Millisecond

func (l *lab) list(server, namespace string, number int) (probe, error) {
	s, err := l.server(server)
	if err != nil {
		return nil, err
	}
	if err := l.fill(s, namespace); err != nil {
		return nil, err
	}
	path, err := l.page(s, namespace, number)
	if err != nil {
		return nil, err
	}
	measure := l.serial(s, path)
	return func(ctx context.Context, _ time.Duration) (measurement, error) { return measure(ctx, listTime) }, nil
}

// writesFile reports whether a contestant leaves pings behind that are on their way to a file.
func writesFile(name string) bool {
	return slices.ContainsFunc(requests(), func(r request) bool {
		return r.name == name && r.after == "/ping" && slices.Contains([]string{embedded, merged, listing}, r.server)
	})
}

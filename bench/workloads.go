package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// setup prepares a workload: it starts the server, fills it, checks a response, and returns what measures it.
type setup func() (measureFunc, error)

// at names a workload with a number of connections.
func at(name string, conns int) string { return fmt.Sprintf("%s, %d connections", name, conns) }

// noOpPath is a real route that does not use the store: it returns the settings of a namespace, whether or not the
// namespace exists. So the no-op passes the same middleware, authorization and limits as a ping.
const noOpPath = "/v1/namespaces/{user}"

// request is a workload that wrk sends.
type request struct {
	name      string
	server    string
	namespace string // whose users are drawn
	method    string
	path      string // wrk fills in {user}, {ms} and {number}
	headers   string // each with CRLF
	users     int    // in the body of a lookup; 0 for one, in the path
	status    int    // expected
	contains  string // text expected in the body
}

func noOp(name, server string) request {
	return request{name, server, randomNS, http.MethodGet, noOpPath, "", 0, http.StatusOK, `"green_ms"`}
}

func ping(name, server, namespace string) request {
	path := "/v1/namespaces/" + namespace + "/users/{user}/ping"
	if namespace == spreadNS {
		path = "/v1/namespaces/" + spreadNS + "{number}/users/{user}/ping"
	}
	const minimal = "Prefer: return=minimal\r\n"
	return request{name, server, namespace, http.MethodPost, path, minimal, 0, http.StatusNoContent, ""}
}

// present is in the response about any user.
const present = `"status":`

func lookup(name, server, namespace string, users int) request {
	path := "/v1/namespaces/" + namespace + "/lookup"
	const headers = "Content-Type: application/json\r\n"
	return request{name, server, namespace, http.MethodPost, path, headers, users, http.StatusOK, present}
}

// requests returns the workloads that wrk sends, except for those that compare versions or are about what users say.
// TestTableIsComplete checks that comparisons use no other names.
func requests() []request {
	full := ping("ping", coalescing, randomNS)
	full.headers, full.status, full.contains = "", http.StatusOK, `"status":"green"`
	const userPath = "/v1/namespaces/" + randomNS + "/users/{user}"
	const zadd = "/ZADD/presence:" + webdisNS + "/{ms}/{user}"
	return []request{
		noOp("bare", bareServer),
		noOp("no-op", coalescing),
		noOp("no-op, embedded", embedded),
		ping("ping, minimal", coalescing, randomNS),
		full,
		ping("ping, minimal, one command per request", direct, randomNS),
		ping("ping, minimal, embedded", embedded, randomNS),
		{"webdis ZADD", webdisServer, webdisNS, http.MethodGet, zadd, "", 0, http.StatusOK, `{"ZADD":0}`},
		{"lookup of one", coalescing, randomNS, http.MethodGet, userPath, "", 0, http.StatusOK, present},
		lookup("lookup of 100", coalescing, randomNS, 100),
		lookup("lookup of 100, embedded", embedded, randomNS, 100),
		lookup("lookup of 10", coalescing, randomNS, 10),
		lookup("lookup of 1,000", coalescing, randomNS, 1000),
		ping("ping, few users", coalescing, fewNS),
		ping("ping, many users", coalescing, manyNS),
		ping("ping, 1,000 namespaces", coalescing, spreadNS),
		ping("ping, few users, embedded", lists, fewNS),
		ping("ping, many users, embedded", lists, manyNS),
		ping("ping, 1,000 namespaces, embedded", lists, spreadNS),
		ping("ping, changes off", feeds, feedOffNS),
		ping("ping, changes auto", feeds, feedAutoNS),
		ping("ping, changes on", feeds, feedOnNS),
		ping("ping of grey, changes off", feeds, greyFeedOffNS),
		ping("ping of grey, changes on", feeds, greyFeedOnNS),
	}
}

// workloads returns how to set up each workload, by name.
func (f *fixture) workloads() map[string]setup {
	all := map[string]setup{
		"redis-benchmark ZMSCORE of 100": func() (measureFunc, error) {
			return f.redisBenchmark(4000, func(int64) []string {
				return append([]string{"ZMSCORE", "presence:" + numberedNS}, members()...)
			})
		},
		"redis-benchmark ZADD GT of 100": func() (measureFunc, error) {
			commands := max(500, f.users/20/redisMembers) // few, so that few users are pinged twice with one score
			return f.redisBenchmark(commands, func(score int64) []string {
				return append([]string{"ZADD", "presence:" + numberedNS, "GT"}, members(fmt.Sprint(score))...)
			})
		},
		"NDJSON, one request":           func() (measureFunc, error) { return f.bulkPing(1) },
		"NDJSON, four requests at once": func() (measureFunc, error) { return f.bulkPing(4) },
		"ping, open loop":               func() (measureFunc, error) { return f.openAtHalf(openPing()) },
		"no-op, open loop":              func() (measureFunc, error) { return f.openAtHalf(noOp("", coalescing)) },
		"allocations of a ping":         func() (measureFunc, error) { return allocations, nil },
		"memory a user":                 f.alone("memory", f.path("memory.db"), f.memoryPerUser),
		"disk a ping":                   f.alone("disk", f.path("disk.db"), f.diskPerPing),
		"idle, embedded":                f.alone("idle", f.path("idle.db"), f.idle),
		"idle, Redis":                   f.alone("idle", redisServer, f.idle),
		"soak":                          f.alone("soak", redisServer, f.soak),
	}
	maps.Copy(all, f.feedWorkloads())
	maps.Copy(all, f.connectionWorkloads())
	maps.Copy(all, f.callWorkloads())
	for _, r := range slices.Concat(requests(), versionRequests(), sayingRequests()) {
		for _, conns := range []int{64, 256} {
			all[at(r.name, conns)] = func() (measureFunc, error) { return f.request(r, conns) }
		}
	}
	for _, server := range []string{coalescing, lists} {
		for _, namespace := range []string{fewNS, manyNS, randomNS, tiedNS} {
			all[pageOf(server, namespace, false)] = func() (measureFunc, error) { return f.list(server, namespace, 1) }
			all[pageOf(server, namespace, true)] = func() (measureFunc, error) {
				return f.list(server, namespace, f.deepPage())
			}
		}
	}
	return all
}

// alone returns the setup of a workload for which lastseen is started, with its default settings, and stopped again. It
// ignores the duration.
func (f *fixture) alone(name, store string, measure func(context.Context, *server) (measurement, error)) setup {
	return func() (measureFunc, error) {
		return func(ctx context.Context, _ time.Duration) (measurement, error) {
			s, err := f.launchBinary(name, store)
			if err != nil {
				return measurement{}, err
			}
			defer s.stop()
			return measure(ctx, s)
		}, nil
	}
}

// storeOf names the store of a server in the rows about lists.
func storeOf(server string) string {
	return map[string]string{coalescing: "Redis store", lists: "embedded"}[server]
}

// pageOf names the workload that lists one page: the first one or a deep one.
func pageOf(server, namespace string, deep bool) string {
	of := map[string]string{
		fewNS: "few users", manyNS: "many users", randomNS: "users", tiedNS: "users of one millisecond",
	}[namespace]
	page := map[bool]string{false: "first page", true: "deep page"}[deep]
	return fmt.Sprintf("%s of %s, %s", page, of, storeOf(server))
}

// request sets up a workload that wrk sends. It fills the namespace directly, or for webdis through lastseen on the
// same Redis.
func (f *fixture) request(r request, conns int) (measureFunc, error) {
	s, err := f.server(r.server)
	if err != nil {
		return nil, err
	}
	filler := s
	if r.server == webdisServer {
		if filler, err = f.server(coalescing); err != nil {
			return nil, err
		}
	}
	if r.server != bareServer {
		if err := f.fill(filler, r.namespace); err != nil {
			return nil, err
		}
	}
	return f.wrk(s, conns, r)
}

// listTime is how long one page is requested in a round: thousands of times.
const listTime = 500 * time.Millisecond

func (f *fixture) list(server, namespace string, number int) (measureFunc, error) {
	s, err := f.filled(server, namespace)
	if err != nil {
		return nil, err
	}
	path, err := f.page(s, namespace, number)
	if err != nil {
		return nil, err
	}
	measure := serial(s, path)
	return func(ctx context.Context, _ time.Duration) (measurement, error) { return measure(ctx, listTime) }, nil
}

// filled returns a server with the users of a namespace loaded.
func (f *fixture) filled(name, namespace string) (*server, error) {
	s, err := f.server(name)
	if err != nil {
		return nil, err
	}
	return s, f.fill(s, namespace)
}

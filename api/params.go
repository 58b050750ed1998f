package api

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
)

const (
	defaultLimit = 50
	maxLimit     = 1000 // users of a page, also with the offset
)

// query holds the parameters of a request that its endpoint knows. Each has one value, except repeatable ones.
type query map[string][]string

// repeatable reports whether a parameter may be given more than once.
func repeatable(name string) bool { return name == "user" || name == "status" }

// parseQuery reads a query string. Unknown and repeated parameters are errors, since a typo must not change a response.
// It ignores _ and utm_*, which caches and campaigns add.
func parseQuery(raw string, known []string) (query, error) {
	if raw == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, problem.New(problem.InvalidParameter,
			"Malformed query: percent-encode values and separate parameters with &.")
	}
	q := query{}
	for name, given := range values {
		switch {
		case name == "_" || strings.HasPrefix(name, "utm_"):
		case !slices.Contains(known, name):
			return nil, unknownParameter(name, known)
		case len(given) > 1 && !repeatable(name):
			return nil, problem.Errorf(problem.InvalidParameter,
				"The parameter %s appears %d times: send it once.", name, len(given))
		default:
			q[name] = given
		}
	}
	return q, nil
}

func unknownParameter(name string, known []string) error {
	if len(known) == 0 {
		return problem.Errorf(problem.UnknownParameter,
			"Unknown parameter %.40q. This endpoint has no parameters.", name)
	}
	return problem.Errorf(problem.UnknownParameter,
		"Unknown parameter %.40q. Allowed: %s.", name, strings.Join(known, ", "))
}

// get returns the value of a parameter that is not repeatable, and whether it is given.
func (q query) get(name string) (string, bool) {
	if values := q[name]; len(values) > 0 {
		return values[0], true
	}
	return "", false
}

// paramReader reads parameters one after the other. It keeps the first error, and the canonical form of what it read.
type paramReader struct {
	query     query
	canonical string // with each value read that is not the fallback, in its one form; not kept if empty
	err       error
}

// readParam returns a parameter, or the fallback if it is omitted.
func readParam[T comparable](r *paramReader, name string, fallback T, parse func(string) (T, error)) T {
	value := fallback
	if text, given := r.query.get(name); given && r.err == nil {
		value, r.err = parse(text)
	}
	if r.canonical != "" && value != fallback {
		r.canonical += fmt.Sprintf("&%s=%v", name, value)
	}
	return value
}

// time returns a parameter that is a time.
func (r *paramReader) time(name string, fallback lastseen.Instant) lastseen.Instant {
	return readParam(r, name, fallback, func(text string) (lastseen.Instant, error) {
		t, err := lastseen.ParseTime(text)
		switch {
		case err != nil:
			return 0, problem.Errorf(problem.InvalidTime, "%s: %v.", name, err)
		case name == "as_of" && t < lastseen.MinInstant:
			return 0, problem.New(problem.InvalidTime, "as_of must be later than the start of 1970.")
		}
		return t, nil
	})
}

// number returns a parameter that is a whole number within bounds.
func (r *paramReader) number(name string, low, high, fallback int) int {
	return readParam(r, name, fallback, func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high {
			return 0, problem.Errorf(problem.InvalidParameter,
				"Invalid %s %.40q: use a whole number from %d to %d.", name, text, low, high)
		}
		return n, nil
	})
}

// choice returns a parameter that has one of two values. The first is the default.
func (r *paramReader) choice(name, first, second string) string {
	return readParam(r, name, first, func(text string) (string, error) {
		if text != first && text != second {
			return "", problem.Errorf(problem.InvalidParameter,
				"Invalid %s %.40q: use %s or %s.", name, text, first, second)
		}
		return text, nil
	})
}

// bool returns a parameter that is "true" or "false"; "" if it is omitted.
func (r *paramReader) bool(name string) string {
	return readParam(r, name, "", func(text string) (string, error) {
		if text != "true" && text != "false" {
			return "", problem.Errorf(problem.InvalidParameter, "Invalid %s %.40q: use true or false.", name, text)
		}
		return text, nil
	})
}

// thresholds returns the parameters green and yellow.
func (r *paramReader) thresholds(fallback lastseen.Thresholds) lastseen.Thresholds {
	t := lastseen.Thresholds{Green: r.duration("green", fallback.Green), Yellow: r.duration("yellow", fallback.Yellow)}
	if err := t.Validate(); err != nil && r.err == nil {
		r.err = problem.From(problem.InvalidThresholds, err)
	}
	return t
}

func (r *paramReader) duration(name string, fallback time.Duration) time.Duration {
	return readParam(r, name, fallback, func(text string) (time.Duration, error) {
		d, err := lastseen.ParseDuration(text)
		if err != nil {
			return 0, problem.Errorf(problem.InvalidDuration, "%s: %v.", name, err)
		}
		return d, nil
	})
}

// statuses returns the parameter status: sorted, each status once. None means all.
func (r *paramReader) statuses() (statuses []lastseen.Status) {
	for _, text := range r.query["status"] {
		status, err := lastseen.ParseStatus(text)
		if err != nil && r.err == nil {
			r.err = problem.From(problem.InvalidParameter, err)
		}
		statuses = append(statuses, status)
	}
	slices.Sort(statuses)
	statuses = slices.Compact(statuses)
	if r.canonical != "" {
		for _, status := range statuses {
			r.canonical += "&status=" + string(status)
		}
	}
	return statuses
}

// limit returns the parameter limit of a page.
func (q query) limit() (int, error) {
	r := paramReader{query: q}
	limit := r.number("limit", 1, maxLimit, defaultLimit)
	return limit, r.err
}

// pathNamespace returns the namespace in the path.
func pathNamespace(c echo.Context) (string, error) {
	return pathName(c, "namespace", lastseen.CheckNamespace, problem.InvalidNamespace)
}

// pathNames returns the namespace and the user in the path.
func pathNames(c echo.Context) (namespace, user string, err error) {
	if namespace, err = pathNamespace(c); err != nil {
		return "", "", err
	}
	user, err = pathName(c, "user", lastseen.CheckUser, problem.InvalidUser)
	return namespace, user, err
}

func pathName(c echo.Context, param string, check func(string) error, invalid problem.Code) (string, error) {
	name, err := pathParam(c, param)
	if err == nil {
		err = check(name)
	}
	if err != nil {
		return "", problem.From(invalid, err)
	}
	return name, nil
}

// pathParam returns a segment of the path, percent-decoded exactly once: the router works on the encoded path, see
// checkPath.
func pathParam(c echo.Context, name string) (string, error) {
	decoded, err := url.PathUnescape(c.Param(name))
	if err != nil {
		return "", fmt.Errorf("the path is not well encoded: %w", err)
	}
	return decoded, nil
}

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
)

// query holds the parameters of a request that its endpoint knows; each has one value, but for those
// of repeatable.
type query map[string][]string

// anyName in a route's parameters lets all of them pass, unread: probes add what they like.
const anyName = "*"

func anyQuery() []string { return []string{anyName} }

// repeatable reports whether a parameter may be given more than once.
func repeatable(name string) bool { return name == "user" || name == "status" }

// parseQuery reads a query string. Unknown and repeated parameters are errors, since a typo must not
// change an answer; only _ and utm_*, which caches and campaigns add, are passed over.
func parseQuery(raw string, known []string) (query, error) {
	if raw == "" || slices.Contains(known, anyName) {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, newError(codeInvalidParameter, "Malformed query: percent-encode values and separate parameters with &.")
	}
	q := query{}
	for name, given := range values {
		switch {
		case name == "_" || strings.HasPrefix(name, "utm_"):
		case !slices.Contains(known, name):
			return nil, unknownParameter(name, known)
		case len(given) > 1 && !repeatable(name):
			return nil, errorf(codeInvalidParameter, "The parameter %s appears %d times: send it once.", name, len(given))
		default:
			q[name] = given
		}
	}
	return q, nil
}

func unknownParameter(name string, known []string) error {
	if len(known) == 0 {
		return errorf(codeUnknownParameter, "Unknown parameter %.40q. This endpoint has no parameters.", name)
	}
	return errorf(codeUnknownParameter, "Unknown parameter %.40q. Allowed: %s.", name, strings.Join(known, ", "))
}

// get returns the value of a parameter that takes one, and whether it is given.
func (q query) get(name string) (string, bool) {
	if values := q[name]; len(values) > 0 {
		return values[0], true
	}
	return "", false
}

// time returns a parameter that is a time, or the fallback if it is not given.
func (q query) time(name string, fallback lastseen.Instant) (lastseen.Instant, error) {
	value, given := q.get(name)
	if !given {
		return fallback, nil
	}
	t, err := lastseen.ParseTime(value)
	if err != nil {
		return 0, errorf(codeInvalidTime, "%s: %v.", name, err)
	}
	if name == "as_of" && t < lastseen.MinInstant {
		return 0, newError(codeInvalidTime, "as_of must be later than the start of 1970.")
	}
	return t, nil
}

// number returns a parameter that is a whole number within bounds, or the fallback if it is not given.
func (q query) number(name string, low, high, fallback int) (int, error) {
	value, given := q.get(name)
	if !given {
		return fallback, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < low || n > high {
		return 0, errorf(codeInvalidParameter, "Invalid %s %.40q: use a whole number from %d to %d.", name, value, low, high)
	}
	return n, nil
}

// duration returns a parameter that is a duration, or the fallback if it is not given.
func (q query) duration(name string, fallback time.Duration) (time.Duration, error) {
	value, given := q.get(name)
	if !given {
		return fallback, nil
	}
	d, err := lastseen.ParseDuration(value)
	if err != nil {
		return 0, errorf(codeInvalidDuration, "%s: %v.", name, err)
	}
	return d, nil
}

// thresholds returns the thresholds, with those that the query asks for in their place.
func (q query) thresholds(t lastseen.Thresholds) (lastseen.Thresholds, error) {
	var err error
	if t.Green, err = q.duration("green", t.Green); err != nil {
		return t, err
	}
	if t.Yellow, err = q.duration("yellow", t.Yellow); err != nil {
		return t, err
	}
	if err := t.Validate(); err != nil {
		return t, newError(codeInvalidThresholds, sentence(err))
	}
	return t, nil
}

// namespaceOf returns the namespace in the path.
func namespaceOf(c echo.Context) (string, error) {
	name, err := segment(c, "namespace")
	if err == nil {
		err = lastseen.CheckNamespace(name)
	}
	if err != nil {
		return "", newError(codeInvalidNamespace, sentence(err))
	}
	return name, nil
}

// namesOf returns the namespace and the user in the path.
func namesOf(c echo.Context) (namespace, user string, err error) {
	namespace, err = namespaceOf(c)
	if err != nil {
		return "", "", err
	}
	user, err = segment(c, "user")
	if err == nil {
		err = lastseen.CheckUser(user)
	}
	if err != nil {
		return "", "", newError(codeInvalidUser, sentence(err))
	}
	return namespace, user, nil
}

// segment returns a segment of the path, percent-decoded exactly once: checkPath has the router
// work on the encoded path.
func segment(c echo.Context, name string) (string, error) {
	raw := c.Param(name)
	if !strings.Contains(raw, "%") {
		return raw, nil
	}
	decoded, err := url.PathUnescape(raw)
	if err != nil {
		return "", fmt.Errorf("the path is not well encoded: %w", err)
	}
	return decoded, nil
}

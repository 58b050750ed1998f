package request

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

// Numbers of users of a page. The maximum is also that of the sum with the offset.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// Query holds the parameters of a request that its endpoint knows. Each has one value, except repeatable ones.
type Query map[string][]string

// repeatable reports whether a parameter may be given more than once.
func repeatable(name string) bool { return name == "user" || name == "status" }

// ParseQuery reads a query string. Unknown and repeated parameters are errors, since a typo must not change a response.
// It ignores _ and utm_*, which caches and campaigns add.
func ParseQuery(raw string, known []string) (Query, error) {
	if raw == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, problem.New(problem.InvalidParameter,
			"Malformed query: percent-encode values and separate parameters with &.")
	}
	q := Query{}
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

// Get returns the value of a parameter that is not repeatable, and whether it is given.
func (q Query) Get(name string) (string, bool) {
	if values := q[name]; len(values) > 0 {
		return values[0], true
	}
	return "", false
}

// Params reads the parameters of a query one after the other. It keeps the first error, and the canonical form of what
// it read.
type Params struct {
	Query     Query
	Canonical string // with each value read that is not the fallback, in its one form; not kept if empty
	Err       error
}

// readParam returns a parameter, or the fallback if it is omitted.
func readParam[T comparable](r *Params, name string, fallback T, parse func(string) (T, error)) T {
	value := fallback
	if text, given := r.Query.Get(name); given && r.Err == nil {
		value, r.Err = parse(text)
	}
	if r.Canonical != "" && value != fallback {
		r.Canonical += fmt.Sprintf("&%s=%v", name, value)
	}
	return value
}

// Time returns a parameter that is a time.
func (r *Params) Time(name string, fallback lastseen.Instant) lastseen.Instant {
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

// Number returns a parameter that is a whole number within bounds.
func (r *Params) Number(name string, low, high, fallback int) int {
	return readParam(r, name, fallback, func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high {
			return 0, problem.Errorf(problem.InvalidParameter,
				"Invalid %s %.40q: use a whole number from %d to %d.", name, text, low, high)
		}
		return n, nil
	})
}

// Choice returns a parameter that has one of two values. The first is the default.
func (r *Params) Choice(name, first, second string) string {
	return r.choice(name, first, first, second)
}

// Bool returns a parameter that is "true" or "false"; "" if it is omitted.
func (r *Params) Bool(name string) string { return r.choice(name, "", "true", "false") }

func (r *Params) choice(name, fallback, first, second string) string {
	return readParam(r, name, fallback, func(text string) (string, error) {
		if text != first && text != second {
			return "", problem.Errorf(problem.InvalidParameter,
				"Invalid %s %.40q: use %s or %s.", name, text, first, second)
		}
		return text, nil
	})
}

// Thresholds returns the parameters green and yellow.
func (r *Params) Thresholds(fallback lastseen.Thresholds) lastseen.Thresholds {
	t := lastseen.Thresholds{Green: r.duration("green", fallback.Green), Yellow: r.duration("yellow", fallback.Yellow)}
	if err := t.Validate(); err != nil && r.Err == nil {
		r.Err = problem.From(problem.InvalidThresholds, err)
	}
	return t
}

func (r *Params) duration(name string, fallback time.Duration) time.Duration {
	return readParam(r, name, fallback, func(text string) (time.Duration, error) {
		d, err := lastseen.ParseDuration(text)
		if err != nil {
			return 0, problem.Errorf(problem.InvalidDuration, "%s: %v.", name, err)
		}
		return d, nil
	})
}

// Wait returns the parameter wait, of at most a time: 0 for none.
func (r *Params) Wait(longest time.Duration) time.Duration {
	text, _ := r.Query.Get("wait")
	if text == "0" || text == "0s" {
		return 0
	}
	d := r.duration("wait", 0)
	if d > longest && r.Err == nil {
		r.Err = problem.Errorf(problem.InvalidDuration, "Invalid wait %.40q: use at most %s.", text, longest)
	}
	return d
}

// Statuses returns the parameter status: sorted, each status once. None means all.
func (r *Params) Statuses() (statuses []lastseen.Status) {
	for _, text := range r.Query["status"] {
		status, err := lastseen.ParseStatus(text)
		if err != nil && r.Err == nil {
			r.Err = problem.From(problem.InvalidParameter, err)
		}
		statuses = append(statuses, status)
	}
	slices.Sort(statuses)
	statuses = slices.Compact(statuses)
	if r.Canonical != "" {
		for _, status := range statuses {
			r.Canonical += "&status=" + string(status)
		}
	}
	return statuses
}

// Limit returns the parameter limit of a page.
func (q Query) Limit() (int, error) {
	r := Params{Query: q}
	limit := r.Number("limit", 1, MaxLimit, DefaultLimit)
	return limit, r.Err
}

// Namespace returns the namespace in the path.
func Namespace(c echo.Context) (string, error) {
	return pathName(c, "namespace", lastseen.CheckNamespace, problem.InvalidNamespace)
}

// Names returns the namespace and the user in the path. The function checks the user.
func Names(c echo.Context, checkUser func(string) error) (namespace, user string, err error) {
	if namespace, err = Namespace(c); err != nil {
		return "", "", err
	}
	user, err = pathName(c, "user", checkUser, problem.InvalidUser)
	return namespace, user, err
}

func pathName(c echo.Context, param string, check func(string) error, invalid problem.Code) (string, error) {
	name, err := PathParam(c, param)
	if err == nil {
		err = check(name)
	}
	if err != nil {
		return "", problem.From(invalid, err)
	}
	return name, nil
}

// PathParam returns a segment of the path, percent-decoded exactly once: the router works on the encoded path, see
// the middleware of api.
func PathParam(c echo.Context, name string) (string, error) {
	decoded, err := url.PathUnescape(c.Param(name))
	if err != nil {
		return "", fmt.Errorf("the path is not well encoded: %w", err)
	}
	return decoded, nil
}

// IsCall reports whether a call can have an ID.
func IsCall(id string) bool {
	return id != "" && len(id) <= lastseen.MaxCallIDLen && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}

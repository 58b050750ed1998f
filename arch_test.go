package lastseen_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

const module = "github.com/lastseen/lastseen"

// arrows lists, for each package, the packages of this project that it may import. The folders'
// names are relative to the root.
func arrows() map[string][]string {
	return map[string][]string{
		"":            {},
		"store":       {""},
		"client":      {""},
		"store/clock": {""},
		"store/redisstore": {
			"", "store", "store/redisstore/redisclient",
			"store/redisstore/replica", "store/redisstore/scripts",
		},
		"store/redisstore/scripts":     {"", "store"},
		"store/redisstore/redisclient": {"", "store", "store/clock", "store/redisstore/scripts"},
		"store/redisstore/replica":     {"", "store", "store/redisstore/redisclient"},
		"store/filestore":              {"", "store", "store/memstore", "store/memstore/packed"},
		"store/memstore":               {"", "store", "store/clock", "store/memstore/packed"},
		"store/memstore/packed":        {""},
		"store/coalesce":               {"", "store"},
		"store/feed":                   {"", "store"},
		"store/jobs":                   {"", "store", "store/feed"},
		"store/connections":            {"", "store"},
		"store/calls":                  {"", "store"},
		"store/storetest": {
			"", "store", "store/storetest/availability", "store/storetest/calls", "store/storetest/changes",
			"store/storetest/contacts", "store/storetest/devices", "store/storetest/kit", "store/storetest/presence",
			"store/storetest/servers",
		},
		"store/storetest/kit":          {"", "store"},
		"store/storetest/presence":     {"", "store", "internal/testenv", "store/storetest/kit"},
		"store/storetest/servers":      {"", "store", "store/storetest/kit"},
		"store/storetest/devices":      {"", "store", "store/storetest/kit"},
		"store/storetest/availability": {"", "store", "store/storetest/devices", "store/storetest/kit"},
		"store/storetest/contacts": {
			"", "store", "store/storetest/availability", "store/storetest/changes", "store/storetest/devices",
			"store/storetest/kit",
		},
		"store/storetest/calls": {
			"", "store", "store/storetest/availability", "store/storetest/changes", "store/storetest/devices",
			"store/storetest/kit",
		},
		"store/storetest/changes": {
			"", "store", "store/storetest/availability", "store/storetest/calls",
			"store/storetest/devices", "store/storetest/kit",
		},
		"store/storetest/redistest": {"internal/testenv"},
		"store/storetest/redistest/stores": {
			"", "store", "internal/testenv", "store/redisstore", "store/storetest", "store/storetest/devices",
			"store/storetest/kit", "store/storetest/redistest",
		},
		"store/redisstore/keys": {}, "store/redisstore/topologies": {}, // of tests alone
		"internal/testenv":     {},
		"internal/testserver":  {"internal/testenv", "store/storetest/redistest", "api/auth"},
		"internal/testbrowser": {"internal/testenv"},
		"internal/testguide":   {},
		"api": {
			"", "store", "store/observe", "store/feed", "store/connections", "store/calls", "api/auth", "api/limit",
			"api/guard", "api/live/audience", "api/live/session", "api/live/subscription", "api/live/transport",
			"api/operations", "api/problem", "api/request", "api/telemetry", "api/web",
		},
		"api/operations": {"api/live/webhooks", "api/problem", "api/request"},
		"api/apitest": {
			"", "store", "store/connections", "store/feed", "store/filestore", "store/jobs",
			"store/storetest/redistest", "api", "api/apitest/kit", "api/auth", "api/guard", "api/limit",
			"api/live/transport", "api/live/webhooks", "api/problem",
		},
		"api/apitest/kit": { // not api, whose own tests import it
			"", "internal/testenv", "store", "store/filestore", "store/redisstore", "store/storetest",
			"store/storetest/redistest", "store/storetest/redistest/stores", "api/auth", "api/live/transport", "api/problem",
			"api/web",
		},
		// of tests alone
		"api/changestests": {}, "api/presencetests": {}, "api/servertests": {}, "api/sockettests": {},
		"api/problem":        {},
		"api/guard":          {"api/auth", "api/limit", "api/problem", "api/request", "api/telemetry"},
		"api/request":        {"", "api/problem"},
		"api/live/transport": {},
		"api/live/audience":  {"", "store", "store/feed"},
		"api/live/session": {
			"", "store", "store/calls", "store/connections", "store/feed", "api/auth", "api/guard", "api/limit",
			"api/live/audience", "api/live/subscription", "api/live/transport", "api/problem", "api/request",
			"api/telemetry",
		},
		"api/live/webhooks": {"", "store", "store/feed"},
		"api/live/subscription": {
			"", "store", "store/feed", "api/auth", "api/guard", "api/limit", "api/live/audience", "api/problem",
			"api/request",
		},
		"api/telemetry": {"api/limit", "api/problem"},
		"api/auth":      {""},
		"api/limit":     {},
		"api/web":       {"docs"},
		"docs":          {}, // the guides, embedded
		"deploy":        {},
		"docs/generate": {},
		// The examples use lastseen as others do: over HTTP.
		"examples/chat":          {"examples/internal/demo"},
		"examples/webrtc":        {"examples/internal/demo"},
		"examples/internal/demo": {}, "examples/hooks": {},
		"examples/avatars": {"client"},
		"cmd/lastseen": {
			"", "store", "store/redisstore", "store/filestore", "store/memstore", "store/coalesce", "store/clock",
			"store/jobs",
			"store/observe", "store/feed", "store/connections", "store/calls", "api", "api/auth", "api/guard",
			"api/live/webhooks", "cmd/lastseen/internal/cli", "cmd/lastseen/internal/config",
			"cmd/lastseen/internal/admin", "cmd/lastseen/internal/tracing",
		},
		"cmd/lastseen/internal/cli": {"", "client"}, // as others use lastseen: over HTTP
		"cmd/lastseen/internal/config": {
			"", "api", "api/auth", "api/guard", "api/live/webhooks", "store/connections", "store/feed",
			"store/redisstore",
		},
		"cmd/lastseen/internal/admin":   {"store"},
		"cmd/lastseen/internal/tracing": {},
		"store/observe":                 {"", "store"},
		// Tests of the whole product use it as others do: its program, over HTTP.
		"e2e/browser": {}, "e2e/faults": {}, "e2e/guides": {}, "e2e/privacy": {}, "e2e/scenarios": {},
	}
}

// dependencies lists the modules that are required directly, each with its reason. Those for tests
// and tools must not get into the binary. See docs/decisions/dependencies.md.
func dependencies() map[string]string {
	return map[string]string{
		"github.com/labstack/echo/v4":                              "HTTP routing; given",
		"github.com/redis/go-redis/v9":                             "Redis; given",
		"github.com/go-json-experiment/json":                       "strict JSON",
		"github.com/alecthomas/kong":                               "the command line",
		"github.com/jotaen/kong-completion":                        "completion of command lines in shells",
		"charm.land/bubbletea/v2":                                  "a table on a terminal",
		"github.com/charmbracelet/x/ansi":                          "the width of text on a terminal",
		"github.com/charmbracelet/x/term":                          "whether the output is a terminal",
		"github.com/charmbracelet/colorprofile":                    "colours for terminals alone",
		"github.com/golang-jwt/jwt/v5":                             "tokens of users",
		"github.com/MicahParks/jwkset":                             "the public keys that an issuer of tokens publishes",
		"github.com/tidwall/btree":                                 "order in memory, with ranks and cheap copies",
		"golang.org/x/time":                                        "limits: token buckets",
		"golang.org/x/sys":                                         "a monotonic clock that counts suspends",
		"golang.org/x/sync":                                        "probes at the same time share one answer; calls at the same time, but not too many",
		"github.com/hashicorp/golang-lru/v2":                       "limits: a bounded number of them; tokens that were verified",
		"github.com/swaggo/swag":                                   "tool: the OpenAPI document from annotations; given",
		"github.com/evanw/esbuild":                                 "tool: lastseen.js in the fewest bytes",
		"github.com/getkin/kin-openapi":                            "tool: OpenAPI 3 of Swagger 2, and tests that the server keeps to it",
		"go.yaml.in/yaml/v3":                                       "the configuration file, with line numbers; the OpenAPI document as JSON",
		"github.com/stretchr/testify":                              "test: assertions",
		"github.com/swaggest/swgui":                                "the files of Swagger UI",
		"github.com/yuin/goldmark":                                 "the guides as HTML",
		"github.com/standard-webhooks/standard-webhooks/libraries": "signatures of webhooks",
		"pgregory.net/rapid":                                       "test: properties and the model test",
		"go.uber.org/goleak":                                       "test: goroutines left behind",
		"github.com/chromedp/chromedp":                             "test: the pages in a real browser",
		"github.com/chromedp/cdproto":                              "test: the names of what a browser reports",
		"github.com/ory/dockertest/v3":                             "test: Redis in a container; given",

		"github.com/prometheus/client_golang":                             "metrics",
		"github.com/gorilla/websocket":                                    "WebSocket",
		"github.com/coder/websocket":                                      "test: a WebSocket client of another make",
		"github.com/sony/gobreaker/v2":                                    "a circuit breaker for each Redis primary",
		"github.com/redis/go-redis/extra/redisotel/v9":                    "traces: commands to Redis",
		"go.opentelemetry.io/otel":                                        "traces",
		"go.opentelemetry.io/otel/trace":                                  "traces",
		"go.opentelemetry.io/otel/sdk":                                    "traces",
		"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp": "traces: sent by OTLP",
		"github.com/Shopify/toxiproxy/v2":                                 "test: slow, cut and silent connections to Redis",
		"github.com/prometheus/common":                                    "metrics: their text form, in tests",
		"go.opentelemetry.io/proto/otlp":                                  "traces: their form in OTLP",
		"google.golang.org/protobuf":                                      "traces: their form in OTLP, in tests",
		"github.com/santhosh-tekuri/jsonschema/v6":                        "test: the AsyncAPI document against the schema of AsyncAPI",
	}
}

type source struct {
	dir, name string
	file      *ast.File
	lines     int
}

func (s source) isTest() bool {
	if strings.HasSuffix(s.name, "_test.go") {
		return true
	}
	for _, dir := range []string{"store/storetest", "internal/test", "api/apitest", "e2e/"} {
		if strings.HasPrefix(s.dir, dir) {
			return true
		}
	}
	return false
}

func (s source) imports() (paths []string) {
	for _, i := range s.file.Imports {
		paths = append(paths, strings.Trim(i.Path.Value, `"`))
	}
	return paths
}

func sources(t *testing.T) (all []source) {
	t.Helper()
	set := token.NewFileSet()
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || otherModule(name)) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(set, name, content, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := strings.TrimPrefix(path.Dir(filepath.ToSlash(name)), ".")
		all = append(all, source{dir, path.Base(name), file, bytes.Count(content, []byte("\n"))})
		return nil
	}))
	require.NotEmpty(t, all)
	return all
}

// otherModule reports whether a folder is its own module: the benchmark and the tools.
func otherModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, s := range sources(t) {
		allowed, known := arrows()[s.dir]
		require.True(t, known, "the package %q is not in the list of arrows", s.dir)
		for _, imported := range s.imports() {
			target, ours := strings.CutPrefix(imported, module)
			target = strings.TrimPrefix(target, "/")
			inMemory := strings.HasPrefix(s.dir, "store/memstore") && !s.isTest()
			require.False(t, inMemory && (imported == "os" || imported == "io"), "%s/%s: %s", s.dir, s.name, imported)
			switch {
			case ours && !strings.HasSuffix(s.name, "_test.go"):
				require.Contains(t, allowed, target, "%s/%s", s.dir, s.name)
			case strings.HasPrefix(s.dir, "api/live") || s.dir == "api/problem":
				require.NotContains(t, imported, "labstack/echo", "%s/%s", s.dir, s.name)
			case s.dir == "" && !s.isTest():
				require.NotContains(t, imported, ".", "the vocabulary uses the standard library only: %s", s.name)
			case s.dir == "store" && !s.isTest() && !ours:
				require.NotContains(t, imported, ".", "the contract uses the standard library only: %s", s.name)
			}
		}
	}
}

// TestWholeProductIsTestedFromOutside: the tests in e2e use the program as users do. Only those of two rooms also set
// clocks, break the store, or write to it, and so serve it themselves.
func TestWholeProductIsTestedFromOutside(t *testing.T) {
	for _, s := range sources(t) {
		if !strings.HasPrefix(s.dir, "e2e/") || s.dir == "e2e/browser" || s.dir == "e2e/privacy" {
			continue
		}
		for _, imported := range s.imports() {
			within := strings.HasPrefix(imported, module+"/api") || strings.HasPrefix(imported, module+"/store")
			allowed := !within || strings.HasPrefix(imported, module+"/store/storetest/")
			require.True(t, allowed, "%s/%s imports %s", s.dir, s.name, imported)
		}
	}
}

// TestProcessesEndWithTests: tests start processes with testenv.Command. Those of exec.Command go on if the tests are
// killed.
func TestProcessesEndWithTests(t *testing.T) {
	for _, s := range sources(t) {
		if !s.isTest() || s.dir == "internal/testenv" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if selected, ok := n.(*ast.SelectorExpr); ok {
				x, _ := selected.X.(*ast.Ident)
				starts := strings.HasPrefix(selected.Sel.Name, "Command")
				require.False(t, x != nil && x.Name == "exec" && starts, "%s/%s: use testenv.Command", s.dir, s.name)
			}
			return true
		})
	}
}

func TestDependenciesAreListed(t *testing.T) {
	content, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	required := map[string]bool{}
	direct := regexp.MustCompile(`(?m)^(?:require )?\s*(\S+\.\S+/\S+|\S+\.\S+) v\S+$`)
	for _, line := range direct.FindAllStringSubmatch(string(content), -1) {
		required[line[1]] = true
	}
	for name := range required {
		require.Contains(t, dependencies(), name, "a direct dependency without a reason")
	}
	for name := range dependencies() {
		require.True(t, required[name], "%s is listed but not required", name)
	}
}

// TestBinaryLinksNoTools: what tests and tools need is not linked into the server.
func TestBinaryLinksNoTools(t *testing.T) {
	list := testenv.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}} {{.ImportPath}}", "./cmd/...")
	linked, err := list.Output()
	require.NoError(t, err)
	require.NotContains(t, string(linked), "/storetest")
	require.NotContains(t, string(linked), "/internal/test")
	require.NotContains(t, string(linked), "/apitest")
	require.NotContains(t, string(linked), module+"/docs/generate")
	for name, reason := range dependencies() {
		tool := strings.HasPrefix(reason, "test:") || strings.HasPrefix(reason, "tool:")
		require.Equal(t, tool, !strings.Contains(string(linked), name+" "), "%s is there for %s", name, reason)
	}
}

func TestPackagesHaveComments(t *testing.T) {
	explained := map[string]int{}
	for _, s := range sources(t) {
		if strings.HasSuffix(s.name, "_test.go") {
			continue
		}
		explained[s.dir] += 0
		if doc := s.file.Doc.Text(); doc != "" {
			explained[s.dir]++
			require.Regexp(t, `^(Package `+s.file.Name.Name+`|Command (lastseen|generate|avatars|chat|hooks|webrtc)) `, doc, s.dir)
		}
	}
	for dir, comments := range explained {
		require.Equal(t, 1, comments, "package comments of %q", dir)
	}
}

// TestNoInitAndNoExit: packages do nothing on import, and only main ends the process.
func TestNoInitAndNoExit(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				require.False(t, n.Name.Name == "init" && n.Recv == nil, "%s/%s has an init", s.dir, s.name)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok {
					call := x.Name + "." + n.Sel.Name
					exits := call == "os.Exit" && s.name != "main.go" || strings.HasPrefix(call, "log.Fatal")
					require.False(t, exits, "%s/%s: %s", s.dir, s.name, call)
				}
			}
			return true
		})
	}
}

package api

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/live/audience"
	"github.com/lastseen/lastseen/store"
)

// notOfOthers are the methods of stores that show no caller what is known of other users, each with the reason. All
// others read users, and callers get what they return through a audience.Users alone.
func notOfOthers() map[string]string {
	const (
		writes  = "it writes, and handlers check for whom"
		feeds   = "subscriptions filter feeds"
		own     = "it is of a user for whom the caller may write"
		service = "it is of no user"
		calls   = "handlers show a call to its parties and to API keys alone"
		keeps   = "package store/calls calls it, and shows callers nothing"
	)
	return map[string]string{
		"Ping": writes, "Leave": writes, "RecordDevices": writes, "SetAvailability": writes, "SetContacts": writes,
		"ChangeContacts": writes, "Forget": writes, "Trim": writes, "TrimContacts": writes, "CloseConnections": writes,
		"DeleteNamespace": writes, "RemoveEmpty": writes, "Register": writes,
		"RecordChanges": feeds, "ReadChanges": feeds, "SnapshotChanges": feeds, "AdvanceChanges": feeds,
		"ScanUsers":        feeds,
		"ReadAvailability": own, "ListContacts": own,
		"AreContacts": "it decides who is seen",
		"Exist":       service,
		"Namespaces":  "listNamespaces hides the newest time",
		"Signal":      service, "Listen": service, "Lease": service,
		"Note": service, "Notes": service, "SetNote": service, "Now": service, "Load": service, "Ready": service,
		"Close": service, "Secret": service, "Disconnects": service,
		"StartCall": calls, "StepCall": calls, "ReadCalls": calls,
		"KeepCallsAlive": keeps, "ExpireCalls": keeps, "CallNamespaces": keeps,
	}
}

// TestUsersAreFiltered: a new method of stores has to be put in one of both lists.
func TestUsersAreFiltered(t *testing.T) {
	t.Parallel()
	all, users := reflect.TypeFor[store.Store](), reflect.TypeFor[audience.Users]()
	harmless := notOfOthers()
	for i := range all.NumMethod() {
		name := all.Method(i).Name
		_, filtered := users.MethodByName(name)
		_, listed := harmless[name]
		require.NotEqual(t, filtered, listed, "store.Store.%s: does it show users? Then audience.Users has to have it, so "+
			"that UsersFor filters it. Otherwise add it to notOfOthers.", name)
		delete(harmless, name)
	}
	require.Empty(t, harmless, "stores have no such methods")
	seen := reflect.TypeOf(audience.UsersFor(nil, audience.Viewer{Restricted: true}, nil)).Elem()
	for i := range seen.NumField() {
		require.False(t, seen.Field(i).Anonymous, "what it embeds would not be filtered")
	}
}

// unfiltered are the uses of the whole store by which code could show users: calls of the methods that audience.Users
// filters, and passing it on. Each has a reason.
func unfiltered() map[string]string {
	return map[string]string{
		"New passes on":                "it makes the server",
		"storeFor passes on":           "callers who see everyone",
		"readerFor passes on":          "API keys, which see everyone",
		"sessions passes on":           "who follows is shown what the caller sees",
		"countNow passes on":           "counts on connections, for callers who see everyone",
		"checkCallee passes on":        "whether the caller sees the callee",
		"thoseWhoSee passes on":        "whether receivers of a frame see its sender",
		"checkCallee calls Describe":   "it checks before whether the caller sees the callee",
		"checkLater calls ReadDevices": "whether the namespace can have devices",
	}
}

// TestHandlersReadThroughStoreFor looks for code that reads users past [server.storeFor].
func TestHandlersReadThroughStoreFor(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	live, err := filepath.Glob("live/s*/*.go")
	require.NoError(t, err)
	require.Contains(t, live, "live/session/typing.go")
	files = append(files, live...)
	require.Contains(t, files, "api.go")
	var found []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		found = append(found, usesOfStore(file)...)
	}
	slices.Sort(found)
	allowed := unfiltered()
	for _, use := range slices.Compact(found) {
		require.Contains(t, allowed, use, "read users with storeFor, or say why not")
		delete(allowed, use)
	}
	require.Empty(t, allowed, "these are in no file")
}

// usesOfStore returns what the functions of a file do with a field that has a store that could show users.
func usesOfStore(file *ast.File) (uses []string) {
	users := reflect.TypeFor[audience.Users]()
	for _, decl := range file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		harmless := map[ast.Expr]bool{} // what is called, or has a method called
		ast.Inspect(function, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if method, ok := n.Fun.(*ast.SelectorExpr); ok {
					harmless[method] = true                                   // of an atomic value
					if isPackage(method.X) && method.Sel.Name == "ReadCall" { // as ReadCalls: see notOfOthers
						harmless[n.Args[1]] = true
					}
				}
			case *ast.SelectorExpr:
				inner, ok := n.X.(*ast.SelectorExpr)
				if ok && isStore(inner) {
					harmless[inner] = true
					if _, reads := users.MethodByName(n.Sel.Name); reads {
						uses = append(uses, function.Name.Name+" calls "+n.Sel.Name)
					}
				}
				if isStore(n) && !harmless[n] && !isPackage(n.X) {
					uses = append(uses, function.Name.Name+" passes on")
				}
			}
			return true
		})
	}
	return uses
}

// isStore reports whether an expression is a field of a server that has a store.
func isStore(e *ast.SelectorExpr) bool { return e.Sel.Name == "Store" || e.Sel.Name == "uncounted" }

// isPackage reports whether an expression is the package store.
func isPackage(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "store"
}

package browser

import (
	_ "embed"
	"os"
	"regexp"
	"testing"

	esbuild "github.com/evanw/esbuild/pkg/api"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testbrowser"
)

// standInReact replaces React, which the tests could only get by a download.
//
//go:embed testdata/react.js
var standInReact string

// reactExample returns the code of examples/react as one script, with React's stand-in.
func reactExample(t *testing.T) string {
	t.Helper()
	all := standInReact
	for _, name := range []string{"usePresence.js", "PresenceDot.jsx"} {
		code, err := os.ReadFile("../../examples/react/" + name)
		require.NoError(t, err)
		all += regexp.MustCompile(`(?m)^import .*$`).ReplaceAllString(string(code), "")
	}
	compiled := esbuild.Transform(all, esbuild.TransformOptions{Loader: esbuild.LoaderJSX, JSXFactory: "createElement"})
	require.Empty(t, compiled.Errors)
	return string(compiled.Code)
}

// TestReactExample runs the hook and the component: the dot follows the status, and another user, and ends with its
// component.
func TestReactExample(t *testing.T) {
	s := newScripted(t, scriptOptions{})
	s.pingedAgo(t, "alice", 0)
	b := s.open(t, `<div id="root"></div>`, reactExample(t)+`
		const client = connect({ url, namespace })
		let watching = 0
		const { watch } = client
		client.watch = (...args) => {
			const end = watch.apply(client, args)
			watching++
			return () => { watching--; end() }
		}
		render(PresenceDot, { client, user: "alice" })
		const shown = () => document.querySelector("#root span").getAttribute("aria-label")
		const first = document.querySelector("#root span").className
		const begun = () => renders, count = () => watching
		Object.assign(window, { first, shown, count, begun, unmount,
			other: () => (render(PresenceDot, { client, user: "bob", label: "Bob" }), true) })`)
	b.Do(t, until(`shown() == "alice, online" && document.querySelector("#root span").className == "dot green"`))
	require.Equal(t, "dot unknown", testbrowser.Evaluate[string](t, b, "first"))
	s.leaves(t, "alice")
	b.Do(t, until(`shown().startsWith("alice, offline, last seen ")`))
	require.Equal(t, "img", testbrowser.Evaluate[string](t, b, `document.querySelector("#root span").getAttribute("role")`))
	renders := testbrowser.Evaluate[int](t, b, "begun()")
	require.LessOrEqual(t, renders, 4, "unknown, green, grey, and one more at most")
	b.Do(t, until("other()"), until(`shown() == "Bob, offline"`))
	require.Equal(t, 1, testbrowser.Evaluate[int](t, b, "count()"))
	b.Do(t, until("(unmount(), true)"))
	require.Zero(t, testbrowser.Evaluate[int](t, b, "count()"))
	require.Empty(t, s.complaints(b))
}

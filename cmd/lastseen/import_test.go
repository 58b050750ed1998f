package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// TestImport: each form of a file says the same, and what export prints is one of them. What is wrong with a line is
// said, and the others are imported.
func TestImport(t *testing.T) {
	const want = `{"user":"al \"ice\"","last_seen":"2026-11-28T10:00:00.120Z"}
{"user":"bob","last_seen":"2023-11-14T22:13:20.500Z","left":true}
`
	files := map[string]string{
		want: "",
		`{"user":"al \"ice\"","last_seen":1795860000.12,"status":"grey"}` + "\n" +
			`{"user":"bob","left":true,"last_seen":1700000000.5}`: "",
		"\"al \"\"ice\"\"\",2026-11-28T11:00:00.12+01:00\nbob,1700000000.5,true\n":         "",
		"left,x,last_seen,user\n,,1795860000.12,\"al \"\"ice\"\"\"\n1,,1700000000.5,bob\n": "",
		strings.ReplaceAll(want, "\n", "\n{\n{\"user\":\"\"}\n") + strings.Repeat("x", 70_000) + "\n": "" +
			"line 2: unexpected end of JSON input\nline 3: the user is missing or empty: use 1 to 256 bytes of UTF-8\n" +
			"line 5: unexpected end of JSON input\nline 6: the user is missing or empty: use 1 to 256 bytes of UTF-8\n" +
			"line 7: is longer than 65536 bytes\nlastseen: 5 lines were left out\n",
		want + `{"user":"eve","last_seen":"2126-11-28T10:00:00Z"}` + "\n" + `{"user":"eve","last_seen":"soon"}`: "" +
			"line 4: last_seen: \"soon\" is not a valid time: times are RFC 3339 (2026-11-20T22:00:00Z) or Unix seconds (1795212000.123)\n" +
			"line 3: at (2126-11-28T10:00:00.000Z) is more than 5 seconds ahead",
		"bob,1700000000.5,maybe\n\"al \"\"ice\"\"\",1795860000.12\nbob,1700000000.5,t\n": "" +
			"line 1: left is \"maybe\": use true or false\nlastseen: 1 lines were left out\n",
	}
	testserver.EachStore(t, func(t *testing.T, args []string) {
		s := testserver.Start(t, args...)
		n := 0
		for content, complaint := range files {
			n++
			namespace := fmt.Sprint("chat-", n)
			file := testserver.WriteFile(t, fmt.Sprint("file-", n), []byte(content))
			for range 2 { // again, which changes nothing
				code, out, log := runInProcess("import", namespace, file, "--server", s.URL)
				require.Equal(t, complaint != "", code == 1, log)
				if code == 0 {
					require.Equal(t, "2 imported\n", out)
				}
				require.Contains(t, log, complaint, content)
			}
			code, out, log := runInProcess("export", namespace, "--server", s.URL)
			require.Zero(t, code, log)
			require.ElementsMatch(t, strings.Split(want, "\n"), strings.Split(out, "\n"), content)
		}
	})
}

// TestImportGoesOn: an import that failed says how to go on, and shows no more than some wrong lines.
func TestImportGoesOn(t *testing.T) {
	var b strings.Builder
	for n := range 2500 {
		fmt.Fprintf(&b, "user-%d,1700000000\n", n)
	}
	file := filepath.Join(t.TempDir(), "users.csv")
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	s := testserver.Start(t)
	imported := func(args ...string) (int, string, string) {
		return runInProcess(append([]string{"import", "chat", file, "--server", s.URL}, args...)...)
	}
	code, out, log := imported("--skip", "2400")
	require.Zero(t, code, log)
	require.Equal(t, "100 imported\n", out)
	code, _, log = runInProcess("import", "chat", file, "--server", "http://127.0.0.1:1", "--skip", "1000")
	require.Equal(t, 1, code)
	require.Contains(t, log, "connection refused; go on with --skip 1000\n")

	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("bob,never\n", 50)+"bob,1700000000\n"), 0o600))
	code, out, log = imported()
	require.Equal(t, 1, code)
	require.Equal(t, "1 imported\n", out)
	require.Equal(t, 20, strings.Count(log, "line "))
	require.Contains(t, log, "more lines like these are counted\nlastseen: 50 lines were left out\n")
	for line, want := range map[string]string{
		"import chat missing": "1 lastseen: open missing: no such file", "import chat - --skip=-1": "2 lastseen: import: --skip: use",
		"export other/name": "2 lastseen: <namespace>: ",
	} {
		code, _, log := runInProcess(append(strings.Fields(line), "--server", s.URL)...)
		require.Contains(t, fmt.Sprint(code, " ", log), want)
	}
}

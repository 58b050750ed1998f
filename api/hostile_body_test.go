package api

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
)

// TestCompressedBombs: nothing is ever unpacked.
func TestCompressedBombs(t *testing.T) {
	w := newLimitedWorld(t)
	bomb := func(packer io.WriteCloser, packed *bytes.Buffer) string {
		_, err := io.Copy(packer, io.LimitReader(spaces{}, 32<<20))
		require.NoError(t, err)
		require.NoError(t, packer.Close())
		require.Less(t, packed.Len(), maxBody, "the bomb itself is small")
		return packed.String()
	}
	var gzipped, deflated bytes.Buffer
	deflater, err := flate.NewWriter(&deflated, flate.BestSpeed)
	require.NoError(t, err)
	for encoding, body := range map[string]string{
		"gzip": bomb(gzip.NewWriter(&gzipped), &gzipped), "deflate": bomb(deflater, &deflated),
		"GZIP": "{}", "x-gzip": "{}", "gzip, gzip": "{}", "identity, gzip": "{}", "br": "{}", "zstd": "{}",
		strings.Repeat("gzip,", 10_000): "{}",
	} {
		for _, path := range []string{
			"/chat/pings", "/chat/leaves", "/chat/lookup", "/chat/users/alice/ping",
			"/chat/users/alice/leave",
		} {
			if strings.Contains(path, "/users/") {
				body = body[:min(len(body), maxOneBody)]
			}
			problem := w.fails(codeUnsupportedMediaType, http.MethodPost, path, body, "Content-Encoding: "+encoding)
			require.Less(t, len(problem["detail"].(string)), 200)
		}
		w.fails(codeUnsupportedMediaType, http.MethodPost, "/chat/pings", body, "Content-Encoding: "+encoding, ndjson)
	}
	unlabelled := gzipped.String()
	w.fails(codeInvalidJSON, http.MethodPost, "/chat/pings", unlabelled)
	w.fails(codeInvalidJSON, http.MethodPost, "/chat/pings", unlabelled[:4000]+"\n", ndjson)
	require.Zero(t, w.total("chat"))
}

// spaces is an endless blank.
type spaces struct{}

// blank is what it reads from: the race detector counts every byte written one by one.
var blank = [32 << 10]byte(bytes.Repeat([]byte{' '}, 32<<10))

func (spaces) Read(p []byte) (int, error) {
	return copy(p, blank[:]), nil
}

// TestDeepJSON: how deep something is nested costs neither stack nor time, wherever it stands.
func TestDeepJSON(t *testing.T) {
	w := newLimitedWorld(t)
	for _, depth := range []int{1_000, 100_000} {
		arrays := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		objects := strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
		for _, deep := range []string{
			arrays, objects, arrays[:depth], objects[:5*depth],
			strings.Repeat(`[{"a":`, depth/2),
		} {
			for path, body := range map[string]string{
				"/chat/users/alice/ping":  `{"at":%s}`,
				"/chat/users/alice/leave": `{"unknown":%s}`,
				"/chat/pings":             `{"pings":%s}`,
				"/chat/leaves":            `{"leaves":[{"user":%s}]}`,
				"/chat/lookup":            `{"users":[%s]}`,
			} {
				for _, whole := range []string{fmt.Sprintf(body, deep), deep} {
					r := w.send(http.MethodPost, path, whole)
					want := http.StatusBadRequest
					if strings.Contains(path, "/users/") && len(whole) > maxOneBody ||
						strings.HasSuffix(path, "/lookup") && len(whole) > maxLookupBody {
						want = http.StatusRequestEntityTooLarge
					}
					require.Equal(t, want, r.status, "%s %.40s: %s", path, whole, r.body)
					require.Less(t, len(r.body), 1<<10)
				}
			}
			r := w.send(http.MethodPost, "/chat/pings", deep[:min(len(deep), maxLine)], ndjson)
			require.Equal(t, http.StatusBadRequest, r.status, r.body)
		}
	}
	require.Zero(t, w.total("chat"))
}

// TestWideJSON: many names and long numbers are read in time that grows with their length, and no more of them is
// shown than helps.
func TestWideJSON(t *testing.T) {
	w := newLimitedWorld(t)
	var names strings.Builder
	for i := range 70_000 {
		fmt.Fprintf(&names, `"%x":%d,`, i, i%10)
	}
	long := strings.Repeat("9", 1_000_000)
	for body, want := range map[string]code{
		`{"at":{` + names.String() + `"x":0}}`:               codeInvalidTime,
		`{` + names.String() + `"x":0}`:                      codeUnknownField,
		`{"` + long + `":1}`:                                 codeUnknownField,
		`{"at":` + long + `}`:                                codeInvalidTime,
		`{"at":"` + long + `"}`:                              codeInvalidTime,
		`{"at":1e` + long + `}`:                              codeInvalidTime,
		`{"at":1e-` + long + `}`:                             codeInvalidTime,
		`{"at":"2026-` + long + `"}`:                         codeInvalidTime,
		`{"at":"` + strings.Repeat(`\u0031`, 150_000) + `"}`: codeInvalidTime,
		`{"at":1e999999999}`:                                 codeInvalidTime,
		`{"at":0x10}`:                                        codeInvalidJSON,
		`{"at":NaN}`:                                         codeInvalidJSON,
		`{"at":-Infinity}`:                                   codeInvalidJSON,
		`{"at":"NaN"}`:                                       codeInvalidTime,
		`{"at":-0}`:                                          codeInvalidTime,
		`{"at":01}`:                                          codeInvalidJSON,
		`{"at":1,"\u0061t":1}`:                               codeInvalidJSON, // the same name
		`{"at":1}` + "\x00":                                  codeInvalidJSON,
		`{"at":1} // a comment`:                              codeInvalidJSON,
		`{"at":1,}`:                                          codeInvalidJSON,
		`{'at':1}`:                                           codeInvalidJSON,
		`)]}'` + "\n" + `{"at":1}`:                           codeInvalidJSON,
		`at=1`:                                               codeInvalidJSON,
		"{\"\xff" + long + "\":1}":                           codeInvalidJSON,
		`{"` + long + `":1,"` + long[:10] + `":`:             codeUnknownField,
	} {
		item := strings.Replace(body, "{", `{"user":"alice",`, 1)
		r := w.send(http.MethodPost, "/chat/pings", `{"pings":[`+item+`]}`)
		require.Equal(t, string(want), r.json(t)["code"], "%.60q: %s", body, r.body)
		require.Less(t, len(r.body), 1<<10, "%.60q", body)
	}
	w.post("/chat/pings", `{"pings":[{"user":"alice","at":0.`+long+`}]}`)
	require.Equal(t, "1970-01-01T00:00:00.999Z", w.get("/chat/users/alice")["last_seen"])
}

// TestEncodings: bodies are UTF-8 without a mark, and a user in JSON is checked like one in a path.
func TestEncodings(t *testing.T) {
	w := newLimitedWorld(t)
	wide := func(order func(uint16) []byte) (encoded string) {
		for _, unit := range utf16.Encode([]rune("\ufeff" + `{"pings":[{"user":"alice"}]}`)) {
			encoded += string(order(unit))
		}
		return encoded
	}
	for body, want := range map[string]code{
		"\ufeff" + `{"pings":[{"user":"alice"}]}`:                            codeInvalidJSON,
		wide(func(u uint16) []byte { return []byte{byte(u), byte(u >> 8)} }): codeInvalidJSON,
		wide(func(u uint16) []byte { return []byte{byte(u >> 8), byte(u)} }): codeInvalidJSON,
		"{\"pings\":[{\"user\":\"\xc0\xaf\"}]}":                              codeInvalidJSON, // overlong
		"{\"pings\":[{\"user\":\"\xe0\x80\xaf\"}]}":                          codeInvalidJSON,
		"{\"pings\":[{\"user\":\"\xf0\x80\x80\xaf\"}]}":                      codeInvalidJSON,
		"{\"pings\":[{\"user\":\"\xed\xa0\xbd\xed\xb8\x80\"}]}":              codeInvalidJSON, // surrogates as UTF-8
		"{\"pings\":[{\"user\":\"\xf4\x90\x80\x80\"}]}":                      codeInvalidJSON, // beyond Unicode
		"{\"pings\":[{\"user\":\"a\x00b\"}]}":                                codeInvalidJSON,
		"{\"pings\":[{\"user\":\"a\nb\"}]}":                                  codeInvalidJSON,
		`{"pings":[{"user":"\ud83d"}]}`:                                      codeInvalidJSON,
		`{"pings":[{"user":"\ude00\ud83d"}]}`:                                codeInvalidJSON,
		`{"pings":[{"user":"\x41"}]}`:                                        codeInvalidJSON,
		`{"pings":[{"user":"a\u0000b"}]}`:                                    codeInvalidUser,
		`{"pings":[{"user":"a\r\nb"}]}`:                                      codeInvalidUser,
		`{"pings":[{"user":"\u007f"}]}`:                                      codeInvalidUser,
		`{"pings":[{"user":"\u0085"}]}`:                                      codeInvalidUser,
		`{"pings":[{"user":"\u002e\u002e"}]}`:                                codeInvalidUser,
		`{"pings":[{"user":"` + strings.Repeat(`\u0041`, 257) + `"}]}`:       codeInvalidUser,
		`{"pings":[` + strings.Repeat(`{"user":"\u0000"},`, 9999) + `{"user":"` + strings.Repeat("é", 500) +
			`"}]}`: codeInvalidUser,
	} {
		problem := w.fails(want, http.MethodPost, "/chat/pings", body)
		require.Less(t, len(fmt.Sprint(problem)), 4<<10, "%.60q", body)
	}
	require.Zero(t, w.total("chat"))
	w.post("/chat/pings",
		`{"pings":[{"user":"\ud83d\ude00"},{"user":"\u003cscript\u003e"},{"user":"\u202e"},{"user":"%2e%2e"}]}`)
	require.ElementsMatch(t, []string{"😀", "<script>", "\u202e", "%2e%2e"}, names(w.get("/chat/users")))
}

// endless sends lines until the server ends it, or limit bytes are sent; it reports whether the server did.
func endless(t *testing.T, w *world, line string, limit int) (answer reply, ended bool) {
	t.Helper()
	conn := w.dial()
	_, err := fmt.Fprintf(conn,
		"POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\n%s\r\nTransfer-Encoding: chunked\r\n\r\n", ndjson)
	require.NoError(t, err)
	block := strings.Repeat(line, max(1, (64<<10)/len(line)))
	for sent := 0; sent < limit; sent += len(block) {
		if _, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", len(block), block); err != nil {
			ended = true
			break
		}
	}
	if !ended {
		return reply{}, false
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, string(body)}, true
}

// TestEndlessLines: a line without an end is refused, and a stream without an end takes no more memory than one
// that has just begun.
func TestEndlessLines(t *testing.T) {
	w := newLimitedWorld(t)
	for _, start := range []string{`{"user":"`, "[", " ", `{"at":1`} {
		answer, ended := endless(t, w, strings.Repeat(start, 10), 1<<30)
		require.True(t, ended, start)
		require.Equal(t, string(codeBodyTooLarge), answer.json(t)["code"], answer.body)
	}
	limit := 16 << 20
	if testing.Short() {
		limit = 4 << 20
	}
	for _, line := range []string{
		"\n", "\r\n", "{\"user\":\"alice\"}\n",
		`{"user":"bob"}` + strings.Repeat(" ", 4000) + "\n",
	} {
		before := heap()
		_, ended := endless(t, w, line, limit)
		require.False(t, ended, "%.20q", line)
		require.Less(t, heap(), before+8<<20, "%.20q", line)
	}
	require.Equal(t, 2, w.total("chat"))
}

// heap returns how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestLargeBodiesOfOne: what is about one user is small, and a leave is read before anybody knows whose it is.
func TestLargeBodiesOfOne(t *testing.T) {
	w := newLimitedWorld(t)
	for _, path := range []string{"/chat/users/alice/ping", "/chat/users/alice/leave"} {
		most := `{"at":1` + strings.Repeat(" ", maxOneBody-len(`{"at":1}`)) + "}"
		require.Equal(t, http.StatusOK, w.send(http.MethodPost, path, most).status, path)
		w.fails(codeBodyTooLarge, http.MethodPost, path, most+" ")
	}
}

// TestAnnouncedBodies: a length that is announced, while nothing comes, takes no memory worth mentioning.
func TestAnnouncedBodies(t *testing.T) {
	const bodies = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range bodies {
		r := httptest.NewRequest(http.MethodPost, "/", iotest.ErrReader(io.ErrUnexpectedEOF))
		r.ContentLength = maxBody
		requireProblem(t,
			(&server{Shared: &Shared{bodies: newBodyMemory(DefaultBodyMemory)}}).body(echo.New().NewContext(r,
				httptest.NewRecorder()), maxBody).read())
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(bodies*maxBody/10))
}

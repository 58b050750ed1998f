package api

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
)

// minGzip is the size in bytes above which a response is compressed. A smaller one fits into one packet.
const minGzip = 1 << 10

// varyByEncoding adds the header that says that a response depends on Accept-Encoding. It belongs to responses without
// compression, too, or a cache would use them for all clients.
func varyByEncoding(header http.Header) { header.Add(echo.HeaderVary, echo.HeaderAcceptEncoding) }

// acceptsGzip reports whether the Accept-Encoding headers of a request accept gzip and do not prefer identity: see RFC
// 9110, section 12.5.3. It ignores malformed items.
func acceptsGzip(headers []string) bool {
	gzip, identity, others := -1, -1, -1 // weights in thousandths; -1 if not named
	for _, header := range headers {
		for coding := range strings.SplitSeq(header, ",") {
			name, parameter, _ := strings.Cut(coding, ";")
			q, ok := weight(parameter)
			if !ok {
				continue
			}
			switch name = strings.TrimSpace(name); {
			case strings.EqualFold(name, "gzip"), strings.EqualFold(name, "x-gzip"):
				gzip = max(gzip, q)
			case strings.EqualFold(name, "identity"):
				identity = max(identity, q)
			case name == "*":
				others = max(others, q)
			}
		}
	}
	if gzip < 0 {
		gzip = others
	}
	return gzip > 0 && gzip >= identity
}

// weight parses a parameter such as q=0.5 and returns the weight in thousandths; 1000 if the parameter is empty.
func weight(parameter string) (int, bool) {
	parameter = strings.TrimSpace(parameter)
	if parameter == "" {
		return 1000, true
	}
	name, value, _ := strings.Cut(parameter, "=")
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if !strings.EqualFold(strings.TrimSpace(name), "q") || err != nil || !(q >= 0 && q <= 1) {
		return 0, false
	}
	return int(q * 1000), true
}

// compressors compress responses, at the lowest level: it takes a fraction of the time of the default, and what
// compresses well does so at any level. A compressor takes 1 MB of memory, so only as many run as there are processors.
// Others wait, for about a millisecond.
//
// Compressing a secret together with text that an attacker chooses would reveal the secret by its length (BREACH).
// Responses contain no secrets: they never repeat credentials.
var (
	compressors = sync.Pool{New: func() any {
		w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails only for unknown levels
		return w
	}}
	running = make(chan struct{}, runtime.GOMAXPROCS(0))
)

// appendGzip appends compressed content to a buffer.
func appendGzip(buffer, content []byte) []byte {
	running <- struct{}{}
	defer func() { <-running }()
	into := bytes.NewBuffer(buffer)
	w := compressors.Get().(*gzip.Writer)
	defer compressors.Put(w)
	w.Reset(into)
	_, _ = w.Write(content) // into memory, which does not fail
	_ = w.Close()
	return into.Bytes()
}

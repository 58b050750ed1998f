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

// minGzip is the size in bytes above which a response is compressed for those who ask. A smaller one fits into one
// packet anyway.
const minGzip = 1 << 10

// encodingGzip is the value of Content-Encoding. It is shared; nobody changes it.
var encodingGzip = []string{"gzip"}

// varyByEncoding says that a response depends on Accept-Encoding. The one without compression says so, too, or a
// cache would go on with it for everybody.
func varyByEncoding(header http.Header) { header.Add(echo.HeaderVary, echo.HeaderAcceptEncoding) }

// acceptsGzip reports whether the Accept-Encoding headers of a request take gzip, and do not like the response better
// as it is: see RFC 9110, section 12.5.3. What cannot be read of them counts as not there.
func acceptsGzip(headers []string) bool {
	gzip, identity, others := -1, -1, -1 // weights in thousandths; -1 for what is not named
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

// weight returns the weight in a parameter such as q=0.5, in thousandths; 1000 if there is none.
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

// compressors compress responses, at the lowest level: it takes a fraction of the time of the usual one, and what
// compresses well does so at any level. One takes a MB of memory, so no more are at work than there are processors;
// others wait for the millisecond or so that one takes.
//
// Compressing what holds both a secret and text of an attacker's choice would give the secret away by its length
// (BREACH). There are no secrets in responses: credentials are never repeated.
var (
	compressors = sync.Pool{New: func() any {
		w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails for unknown levels only
		return w
	}}
	compressing = make(chan struct{}, runtime.GOMAXPROCS(0))
)

// appendGzip appends compressed content to a buffer.
func appendGzip(buffer, content []byte) []byte {
	compressing <- struct{}{}
	defer func() { <-compressing }()
	into := bytes.NewBuffer(buffer)
	w := compressors.Get().(*gzip.Writer)
	defer compressors.Put(w)
	w.Reset(into)
	_, _ = w.Write(content) // into memory, which does not fail
	_ = w.Close()
	return into.Bytes()
}

package cli

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastseen/lastseen"
)

// userReader reads the users of a file.
type userReader interface {
	// next returns the next user. With a badLine only the line counts, and the next call goes on after it. After the
	// last line the error is io.EOF.
	next() (seenUser, error)
}

// badLine says what is wrong with a line.
type badLine struct{ error }

// newUserReader returns a reader of NDJSON, if that is how the file begins, or of CSV.
func newUserReader(file io.Reader) (userReader, error) {
	buffered := bufio.NewReaderSize(file, maxLine)
	first, err := buffered.Peek(1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case bytes.Equal(first, []byte("{")):
		return &jsonReader{lines: buffered}, nil
	}
	r := &csvReader{rows: csv.NewReader(buffered), columns: map[string]int{"user": 0, "last_seen": 1, "left": 2}}
	r.rows.FieldsPerRecord = -1
	r.rows.ReuseRecord = true
	return r, nil
}

// maxLine is the longest line of NDJSON that is read, in bytes.
const maxLine = 64 << 10

type jsonReader struct {
	lines *bufio.Reader
	line  int64
}

func (r *jsonReader) next() (seenUser, error) {
	text, err := r.lines.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(text) > 0 {
		err = nil // the last line needs no end
	}
	switch r.line++; {
	case errors.Is(err, bufio.ErrBufferFull):
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.lines.ReadSlice('\n')
		}
		if err == nil {
			err = badLine{fmt.Errorf("is longer than %d bytes", maxLine)}
		}
		return seenUser{line: r.line}, err
	case err != nil:
		return seenUser{line: r.line}, err
	}
	var u struct {
		User     string          `json:"user"`
		LastSeen json.RawMessage `json:"last_seen"`
		Left     bool            `json:"left"`
	}
	if err := json.Unmarshal(text, &u); err != nil {
		return seenUser{line: r.line}, badLine{err}
	}
	return newSeenUser(r.line, u.User, strings.Trim(string(u.LastSeen), `"`), u.Left)
}

type csvReader struct {
	rows    *csv.Reader
	columns map[string]int
	line    int64
}

func (r *csvReader) next() (seenUser, error) {
	row, err := r.rows.Read()
	if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
		r.line = int64(wrong.Line)
		return seenUser{line: r.line}, badLine{wrong.Err}
	}
	if err != nil {
		return seenUser{line: r.line}, err
	}
	line, _ := r.rows.FieldPos(0)
	if r.line == 0 && slices.Contains(row, "user") && slices.Contains(row, "last_seen") { // a header
		clear(r.columns)
		for i, name := range row {
			r.columns[name] = i
		}
		r.line = int64(line)
		return r.next()
	}
	r.line = int64(line)
	cell := func(name string) string {
		if i, ok := r.columns[name]; ok && i < len(row) {
			return row[i]
		}
		return ""
	}
	left := false
	if text := cell("left"); text != "" {
		if left, err = strconv.ParseBool(text); err != nil {
			return seenUser{line: r.line}, badLine{fmt.Errorf("left is %.20q: use true or false", text)}
		}
	}
	return newSeenUser(r.line, cell("user"), cell("last_seen"), left)
}

// newSeenUser returns a user whom a line names, unless their ID or the time is not valid.
func newSeenUser(line int64, user, lastSeen string, left bool) (seenUser, error) {
	u := seenUser{line: line, user: user, left: left}
	if err := lastseen.CheckUser(user); err != nil {
		return u, badLine{err}
	}
	at, err := lastseen.ParseTime(lastSeen)
	if err != nil {
		return u, badLine{fmt.Errorf("last_seen: %w", err)}
	}
	u.at = time.UnixMilli(int64(at))
	return u, nil
}

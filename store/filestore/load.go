package filestore

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/lastseen/lastseen/store/memstore"
)

// formats are the versions of the format, from version1 to current, that can be read. A file of a version older than
// base is rewritten as one of version base before anything is appended to it. From base to current, each version is the
// one before with more kinds of changes: a file has the lowest version that has the changes in it, so that an older
// lastseen can open it if possible.
type formats struct{ base, current uint32 }

// supported returns the formats of this version of lastseen.
func supported() formats { return formats{base: version1, current: version3} }

// loaded is what was found in a data file, besides the changes.
type loaded struct {
	header header
	end    int64 // offset after the last valid record
	torn   int64 // bytes after that, left by a flush that a crash interrupted
}

// load reads a data file, and adds its changes to a log.
func (k formats) load(f *os.File, log memstore.Log) (loaded, error) {
	version, err := readVersion(f)
	if err != nil {
		return loaded{}, err
	}
	switch {
	case version > k.current:
		return loaded{}, fmt.Errorf("%w: its version is %d, this lastseen reads up to %d", ErrNewer, version, k.current)
	case version < version1:
		return loaded{}, fmt.Errorf("%w: its version is %d", ErrOlder, version)
	}
	return readFile(f, log)
}

// readFile reads a file of version 1, 2 or 3.
func readFile(f *os.File, log memstore.Log) (loaded, error) {
	h, err := readHeader(f)
	if err != nil {
		return loaded{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return loaded{}, err
	}
	if info.Size() < h.sealed {
		return loaded{}, fmt.Errorf("%w: %d of at least %d bytes are there", ErrDamaged, info.Size(), h.sealed)
	}
	l := loaded{header: h}
	r := newRecordReader(f, h, headerSize, info.Size())
	for {
		payload, err := r.next()
		switch {
		case errors.Is(err, io.EOF):
			l.end = r.at
			return l, nil
		case errors.Is(err, errBadRecord):
			l.end, l.torn = r.at, r.size-r.at
			return l, r.checkTorn()
		case err == nil:
			err = replay(payload, log)
		}
		if err != nil {
			return loaded{}, err
		}
	}
}

// errBadRecord means that the reader is not at a valid record.
var errBadRecord = errors.New("invalid record")

type recordReader struct {
	header
	file   io.ReaderAt
	buffer *bufio.Reader
	at     int64 // offset of the next record
	size   int64 // offset at which the records end
	buf    []byte
}

// readBuffer is how much is read from the file at once.
const readBuffer = 256 << 10

func newRecordReader(f io.ReaderAt, h header, from, size int64) *recordReader {
	section := io.NewSectionReader(f, from, size-from)
	return &recordReader{header: h, file: f, buffer: bufio.NewReaderSize(section, readBuffer), at: from, size: size}
}

// next returns the payload of the next record, which is valid until the next call. At the end the error is [io.EOF].
func (r *recordReader) next() ([]byte, error) {
	if r.at == r.size {
		return nil, io.EOF
	}
	if r.size-r.at < headSize {
		return nil, errBadRecord
	}
	var head [headSize]byte
	if _, err := io.ReadFull(r.buffer, head[:]); err != nil {
		return nil, err
	}
	length, sum, ok := r.readHead(r.at, head[:])
	if !ok || int64(length) > r.size-r.at-headSize {
		return nil, errBadRecord
	}
	if cap(r.buf) < length {
		r.buf = make([]byte, length)
	}
	payload := r.buf[:length]
	if _, err := io.ReadFull(r.buffer, payload); err != nil {
		return nil, err
	}
	if checksum(payload) != sum {
		return nil, errBadRecord
	}
	r.at += headSize + int64(length)
	return payload, nil
}

// checkTorn decides what an invalid record is: the rest of a flush that a crash interrupted, which was never
// acknowledged and can be cut off (nil), or damage. See docs/decisions/data-file.md.
func (r *recordReader) checkTorn() error {
	damaged := fmt.Errorf("%w: the record at offset %d is not valid", ErrDamaged, r.at)
	rest := r.size - r.at
	if r.at < r.sealed || rest > headSize+maxPayload {
		return damaged
	}
	tail := make([]byte, rest)
	if _, err := r.file.ReadAt(tail, r.at); err != nil {
		return err
	}
	for i := 1; i+headSize <= len(tail); i++ {
		length, sum, ok := r.readHead(r.at+int64(i), tail[i:i+headSize])
		if payload := tail[i+headSize:]; ok && length <= len(payload) && checksum(payload[:length]) == sum {
			return damaged
		}
	}
	return nil
}

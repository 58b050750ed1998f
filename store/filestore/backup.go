package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// backupBuffer is how many bytes of a backup are in memory at once.
const backupBuffer = 256 << 10

// Backup writes a data file with everything that was written before the call, and perhaps some of what is written
// during it. Reads, writes and compaction continue meanwhile, however slowly w takes the data. The disk space of a file
// that compaction replaces is free again after the call.
//
// It fails with [store.ErrUnavailable] or [store.ErrFull] while flushes fail. After any error, what was written to w is
// not complete, and [Verify] refuses it.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	if err := s.writer.do(ctx, write{durable: true, op: opFunc(func(*transaction) {})}); err != nil {
		return err
	}
	file, h, err := s.writer.log.reopen()
	if err != nil {
		return fmt.Errorf("reading the data file: %w", err)
	}
	defer file.Close()
	if _, err := w.Write(h.bytes()); err != nil {
		return err
	}
	buf := make([]byte, backupBuffer)
	for records := io.NewSectionReader(file, headerSize, h.sealed-headerSize); ; {
		n, err := records.Read(buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			_, err = w.Write(buf[:n])
		}
		if err != nil {
			return err
		}
	}
}

// reopen opens the file in use again, and returns a header for a copy of it. What is before the header's offset sealed
// does not change any more, and a copy that ends before it is refused.
func (l *fileLog) reopen() (*os.File, header, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.Open(l.path)
	if err != nil {
		return nil, header{}, err
	}
	named, err := hasName(l.file, l.path)
	if err == nil && !named {
		err = fmt.Errorf("%s was moved or replaced while it was in use", l.path)
	}
	if err != nil {
		f.Close()
		return nil, header{}, err
	}
	h := l.header
	h.sealed = l.end
	return f, h, nil
}

// Verify returns an error unless a file is a complete backup. It reads all of it and does not change it.
func Verify(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	version, err := readVersion(f)
	if err != nil {
		return err
	}
	if k := supported(); version < k.base || version > k.current {
		return fmt.Errorf("its format has version %d, and this lastseen verifies versions %d to %d",
			version, k.base, k.current)
	}
	h, err := readHeader(f)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != h.sealed {
		err = fmt.Errorf("%w: %d of %d bytes are there", ErrDamaged, info.Size(), h.sealed)
	}
	if err != nil {
		return err
	}
	for r := newRecordReader(f, h, headerSize, h.sealed); ; {
		payload, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, errBadRecord) {
			err = fmt.Errorf("%w: the record at offset %d is not valid", ErrDamaged, r.at)
		}
		if err == nil {
			err = contents{}.replay(payload) // each record can be replayed by itself
		}
		if err != nil {
			return err
		}
	}
}

// InUse reports whether a store has the file open. A file that cannot be opened is not in use.
func InUse(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	locked, err := tryLock(f)
	return err == nil && !locked
}

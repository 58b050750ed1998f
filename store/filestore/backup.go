package filestore

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/lastseen/lastseen/store/memstore"
)

// backupChunk is after how many bytes of a backup the context is looked at.
const backupChunk = 256 << 10

// Backup writes a data file with everything that was written before the call, and perhaps some of what is written
// during it. Reads, writes and compaction continue meanwhile, however slowly w takes the data. The disk space of a file
// that compaction replaces is free again after the call.
//
// It fails with [store.ErrUnavailable] or [store.ErrFull] while flushes fail. After any error, what was written to w is
// not complete, and [Verify] refuses it.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	if err := s.writer.Do(ctx, memstore.Write{Durable: true}); err != nil {
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
	records := io.NewSectionReader(file, headerSize, h.sealed-headerSize)
	for left := records.Size(); left > 0 && err == nil; left -= backupChunk {
		if _, err = io.CopyN(w, records, min(left, backupChunk)); err == nil {
			err = ctx.Err()
		}
	}
	return err
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
	l, err := supported().load(f, memstore.Discard())
	if size := l.end + l.torn; err == nil && size != l.header.sealed {
		err = fmt.Errorf("not a backup, but a data file that was in use: it has %d bytes after the first %d",
			size-l.header.sealed, l.header.sealed)
	}
	return err
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

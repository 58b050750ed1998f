package boltstore

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"
)

// loaded is what is in a data file.
type loaded struct {
	head          head
	data          contents
	snapshotBytes int64
	logBytes      int64
}

// load reads the snapshot and replays the logs. Every record that the head speaks of has to be
// there and whole.
func load(db *bbolt.DB) (loaded, error) {
	l := loaded{data: contents{}}
	err := db.View(func(tx *bbolt.Tx) (err error) {
		if l.head, err = identify(tx); err != nil {
			return err
		}
		return l.replayAll(tx)
	})
	return l, err
}

// identify returns the head of a data file of the format known here, and refuses any other file.
func identify(tx *bbolt.Tx) (head, error) {
	header := tx.Bucket(headerBucket)
	if header == nil {
		return head{}, fmt.Errorf("%w: it is a bbolt file of another program", ErrForeign)
	}
	if version := header.Get(formatKey); string(version) != format {
		return head{}, fmt.Errorf("%w: format %q, this version knows %q", ErrNewer, version, format)
	}
	return readHead(header)
}

// replayAll reads all the records that the head speaks of, and sums up their sizes.
func (l *loaded) replayAll(tx *bbolt.Tx) error {
	h := l.head
	next, size, err := l.data.replayBucket(tx.Bucket(snapshotBucket(h.generation)), 1)
	if err != nil {
		return err
	}
	if next != h.chunks+1 {
		return fmt.Errorf("%w: %d of %d chunks of the snapshot are there", ErrDamaged, next-1, h.chunks)
	}
	l.snapshotBytes = size
	next = h.first
	for g := h.generation; g <= h.newest; g++ {
		if next, size, err = l.data.replayBucket(tx.Bucket(logBucket(g)), next); err != nil {
			return err
		}
		l.logBytes += size
	}
	if next != h.last+1 {
		return fmt.Errorf("%w: its log ends at record %d instead of %d", ErrDamaged, next-1, h.last)
	}
	return nil
}

// replayBucket applies the runs of a bucket, which have to be numbered from next on without a gap.
// It returns the number after the last and the size of all. A bucket that does not exist is empty.
func (c contents) replayBucket(b *bbolt.Bucket, next uint64) (after uint64, size int64, err error) {
	if b == nil {
		return next, 0, nil
	}
	err = b.ForEach(func(key, sealed []byte) error {
		if !bytes.Equal(key, numberKey(next)) {
			return fmt.Errorf("%w: record %d is missing", ErrDamaged, next)
		}
		run, err := unseal(key, sealed)
		if err == nil {
			err = c.replay(run)
		}
		if err != nil {
			return fmt.Errorf("%w: record %d: %w", ErrDamaged, next, err)
		}
		next++
		size += int64(len(run))
		return nil
	})
	return next, size, err
}

// tidy removes what an interrupted fold left behind.
func tidy(db *bbolt.DB, h head) error {
	return db.Update(func(tx *bbolt.Tx) error { return dropStale(tx, h) })
}

// dropStale deletes all buckets that the head does not speak of.
func dropStale(tx *bbolt.Tx, h head) error {
	var stale [][]byte
	err := tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		if !h.covers(string(name)) {
			stale = append(stale, bytes.Clone(name))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range stale {
		if err := tx.DeleteBucket(name); err != nil {
			return err
		}
	}
	return nil
}

// covers reports whether a bucket is part of the data.
func (h head) covers(bucket string) bool {
	if number, ok := strings.CutPrefix(bucket, "log-"); ok {
		g, err := strconv.ParseUint(number, 10, 64)
		return err == nil && g >= h.generation
	}
	return bucket == string(snapshotBucket(h.generation)) || bucket == string(headerBucket)
}

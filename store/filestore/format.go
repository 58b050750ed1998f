package filestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Open refuses a file with one of these errors, and does not change it.
var (
	// ErrLocked means that another process has the file open.
	ErrLocked = errors.New("the data file is in use by another process")
	// ErrDamaged means that part of the data file is lost or altered.
	ErrDamaged = errors.New("the data file is damaged")
	// ErrForeign means that the file is not a data file.
	ErrForeign = errors.New("not a lastseen data file")
	// ErrNewer means that a later version of lastseen wrote the file.
	ErrNewer = errors.New("the data file has a newer format")
	// ErrOlder means that the file has a format so old that this version cannot upgrade it.
	ErrOlder = errors.New("the data file has an older format")
)

// The versions of the format. They differ only in the changes that a file contains: see record.go.
const (
	version1 = 1 // no devices
	version2 = 2 // devices
	version3 = 3 // the availability of users; namespaces that keep it without users
)

// A data file. All numbers are big endian, all checksums CRC-32C.
//
//	file     = header, snapshot records, log records
//	header   = "lastseen", version u32, salt u32, sealed u64, checksum of these u32
//	record   = head, payload
//	head     = length of the payload u32, checksum of the payload u32, checksum of place and head u32
//	place    = salt u32, offset of the record in the file u64
//	payload  = a run of changes, see record.go
//
// The first 12 bytes are the same in every version, so that each version recognises all others.
//
// Everything before the offset sealed was synced to the disk when the header was written, so any defect there is
// damage. It covers the snapshot, and after a clean stop the whole file.
//
// The salt is random, and different in every file: see docs/decisions/data-file.md.
const (
	magic      = "lastseen"
	headerSize = 28
	headSize   = 12

	// maxPayload is the largest payload of a record. Longer runs are split, so that reading a file takes little memory
	// whatever it contains.
	maxPayload = 16 << 20
)

// header is the beginning of a file.
type header struct {
	version uint32
	salt    uint32
	sealed  int64
}

func (h header) bytes() []byte {
	b := append(make([]byte, 0, headerSize), magic...)
	b = binary.BigEndian.AppendUint32(b, h.version)
	b = binary.BigEndian.AppendUint32(b, h.salt)
	b = binary.BigEndian.AppendUint64(b, uint64(h.sealed))
	return binary.BigEndian.AppendUint32(b, checksum(b))
}

// boltMagic is at offset 16 of a bbolt file, in the byte order of most machines.
const boltMagic = "\xed\xda\x0c\xed"

// readVersion returns the format version of a file, or ErrForeign.
func readVersion(f io.ReaderAt) (uint32, error) {
	b := make([]byte, headerSize)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	switch b = b[:n]; {
	case n == 0:
		return 0, fmt.Errorf("%w: it is empty; remove it to start without data", ErrForeign)
	case n >= 20 && bytes.Equal(b[16:20], []byte(boltMagic)):
		return 0, fmt.Errorf("%w: it is a bbolt file, as development versions of lastseen wrote; "+
			"remove it to start without data", ErrForeign)
	case !bytes.HasPrefix(b, []byte(magic)[:min(n, len(magic))]):
		return 0, ErrForeign
	case n < headerSize:
		return 0, fmt.Errorf("%w: it ends within its header", ErrDamaged)
	}
	return binary.BigEndian.Uint32(b[len(magic):]), nil
}

func readHeader(f io.ReaderAt) (header, error) {
	b := make([]byte, headerSize)
	if _, err := f.ReadAt(b, 0); err != nil {
		return header{}, err
	}
	if checksum(b[:headerSize-4]) != binary.BigEndian.Uint32(b[headerSize-4:]) {
		return header{}, fmt.Errorf("%w: its header does not match its checksum", ErrDamaged)
	}
	h := header{
		version: binary.BigEndian.Uint32(b[8:]),
		salt:    binary.BigEndian.Uint32(b[12:]),
		sealed:  int64(binary.BigEndian.Uint64(b[16:])),
	}
	if h.sealed < headerSize {
		return header{}, fmt.Errorf("%w: its header is not valid", ErrDamaged)
	}
	return h, nil
}

// head returns the head of a record with the given payload at an offset.
func (h header) head(offset int64, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, headSize), uint32(len(payload)))
	b = binary.BigEndian.AppendUint32(b, checksum(payload))
	return binary.BigEndian.AppendUint32(b, h.headSum(offset, b))
}

// readHead returns the length and checksum of a payload from the head at an offset; false if it is not a head.
func (h header) readHead(offset int64, b []byte) (length int, sum uint32, ok bool) {
	n, sum := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	ok = n <= maxPayload && h.headSum(offset, b[:8]) == binary.BigEndian.Uint32(b[8:])
	return int(n), sum, ok
}

func (h header) headSum(offset int64, head []byte) uint32 {
	var b [20]byte
	binary.BigEndian.PutUint32(b[:], h.salt)
	binary.BigEndian.PutUint64(b[4:], uint64(offset))
	copy(b[12:], head)
	return checksum(b[:])
}

// checksum returns the CRC-32C of b, which processors compute in hardware.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

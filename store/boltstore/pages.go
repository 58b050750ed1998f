package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// bbolt trusts its file: a damaged page can make it follow a pointer out of the file, or round in a
// circle until the stack ends, which no recover catches. Its pages carry no checksums but for the
// two meta pages, and it silently takes the older one when the newer is damaged, which loses the
// last transaction. checkPages therefore looks at a file before bbolt does.
//
// The layout is that of bbolt's file format, version 2: see internal/common/{meta,page,inode}.go of
// go.etcd.io/bbolt v1.5.0. Numbers are in the machine's byte order.
const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageHeaderSize = 16 // id u64, flags u16, count u16, overflow u32
	metaSize       = 64 // magic, version, page size, flags u32; root, sequence, free list, pages, transaction, sum u64
	elementSize    = 16 // leaf: flags, pos, key size, value size u32; branch: pos, key size u32, page u64
	bucketSize     = 16 // root, sequence u64; the page itself follows when root is 0

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketLeaf   = 0x01
	noFreelist   = ^uint64(0)

	minPageSize, maxPageSize = 512, 1 << 16
)

// errNotBolt is the error of a file that was never one of bbolt's.
var errNotBolt = errors.New("not a bbolt file")

// meta is what is needed of a meta page.
type meta struct {
	pageSize                     int64
	root, freelist, pages, txnID uint64
}

// checkPages returns an error unless both meta pages of a file are whole, and every page that can
// be reached lies within the file, is reached once, is what it says, and keeps its elements inside.
func checkPages(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	newest, err := readMetas(f)
	if err != nil {
		return err
	}
	if limit := uint64(info.Size() / newest.pageSize); newest.pages > limit {
		return fmt.Errorf("the file is cut short: %d of %d pages are there", limit, newest.pages)
	}
	c := &pageChecker{file: f, meta: newest, reached: map[uint64]bool{0: true, 1: true}}
	if newest.freelist != noFreelist {
		if err := c.checkFreelist(newest.freelist); err != nil {
			return err
		}
	}
	return c.checkTree(newest.root)
}

// readMetas reads both meta pages and returns the newer one.
func readMetas(f io.ReaderAt) (meta, error) {
	first, err := readMeta(f, 0)
	if err != nil {
		return meta{}, err
	}
	second, err := readMeta(f, first.pageSize)
	if err != nil {
		return meta{}, fmt.Errorf("second meta page: %w", err)
	}
	if second.pageSize != first.pageSize {
		return meta{}, errors.New("the meta pages disagree")
	}
	if second.txnID > first.txnID {
		return second, nil
	}
	return first, nil
}

func readMeta(f io.ReaderAt, offset int64) (meta, error) {
	b := make([]byte, metaSize)
	if _, err := f.ReadAt(b, offset+pageHeaderSize); err != nil {
		return meta{}, errNotBolt
	}
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	u64 := func(at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaSize-8]) // never fails: see hash.Hash
	switch {
	case u32(0) != boltMagic:
		return meta{}, errNotBolt
	case sum.Sum64() != u64(56):
		return meta{}, errors.New("a meta page does not match its checksum")
	case u32(4) != boltVersion:
		return meta{}, fmt.Errorf("bbolt format %d, %d is known", u32(4), boltVersion)
	}
	m := meta{pageSize: int64(u32(8)), root: u64(16), freelist: u64(32), pages: u64(40), txnID: u64(48)}
	if m.pageSize < minPageSize || m.pageSize > maxPageSize {
		return meta{}, fmt.Errorf("pages of %d bytes", m.pageSize)
	}
	return m, nil
}

// pageChecker walks the pages of a file without recursion.
type pageChecker struct {
	file    io.ReaderAt
	meta    meta
	reached map[uint64]bool
	todo    []uint64
}

// page is one page with its header read; data begins behind the header and includes what overflows.
type page struct {
	id       uint64
	flags    uint16
	count    int
	data     []byte // the first page's share only
	dataSize int64
}

// read returns a page and marks it, and those it overflows into, as reached.
func (c *pageChecker) read(id uint64) (page, error) {
	if id < 2 || id >= c.meta.pages {
		return page{}, fmt.Errorf("page %d lies outside the file", id)
	}
	b := make([]byte, c.meta.pageSize)
	if _, err := c.file.ReadAt(b, int64(id)*c.meta.pageSize); err != nil {
		return page{}, err
	}
	p := page{
		id:    binary.NativeEndian.Uint64(b),
		flags: binary.NativeEndian.Uint16(b[8:]),
		count: int(binary.NativeEndian.Uint16(b[10:])),
		data:  b[pageHeaderSize:],
	}
	overflow := uint64(binary.NativeEndian.Uint32(b[12:]))
	if p.id != id || overflow >= c.meta.pages-id {
		return page{}, fmt.Errorf("page %d has a damaged header", id)
	}
	for i := id; i <= id+overflow; i++ {
		if c.reached[i] {
			return page{}, fmt.Errorf("page %d is used twice", i)
		}
		c.reached[i] = true
	}
	p.dataSize = int64(overflow+1)*c.meta.pageSize - pageHeaderSize
	return p, nil
}

func (c *pageChecker) checkFreelist(id uint64) error {
	p, err := c.read(id)
	if err != nil {
		return err
	}
	size := int64(p.count) * 8
	if p.count == 0xFFFF { // then the count is the first number
		size = int64(min(binary.NativeEndian.Uint64(p.data), uint64(p.dataSize)))*8 + 8
	}
	if p.flags != freelistPage || size > p.dataSize {
		return fmt.Errorf("page %d is no sound free list", id)
	}
	return nil
}

func (c *pageChecker) checkTree(root uint64) error {
	c.todo = append(c.todo, root)
	for len(c.todo) > 0 {
		id := c.todo[len(c.todo)-1]
		c.todo = c.todo[:len(c.todo)-1]
		p, err := c.read(id)
		if err != nil {
			return err
		}
		if err := c.checkElements(p, int64(id)*c.meta.pageSize+pageHeaderSize); err != nil {
			return fmt.Errorf("page %d: %w", id, err)
		}
	}
	return nil
}

// checkElements checks what is in a branch or leaf page whose data begins at the given offset of the
// file, and notes the pages that it points to.
func (c *pageChecker) checkElements(p page, offset int64) error {
	if p.flags != branchPage && p.flags != leafPage {
		return fmt.Errorf("unknown kind %#x", p.flags)
	}
	if p.count*elementSize > len(p.data) || p.flags == branchPage && p.count == 0 {
		return fmt.Errorf("%d elements do not fit", p.count)
	}
	for i := range p.count {
		e := p.data[i*elementSize : (i+1)*elementSize]
		u32 := func(at int) int64 { return int64(binary.NativeEndian.Uint32(e[at:])) }
		if p.flags == branchPage {
			if int64(i*elementSize)+u32(0)+u32(4) > p.dataSize {
				return fmt.Errorf("element %d lies outside", i)
			}
			c.todo = append(c.todo, binary.NativeEndian.Uint64(e[8:]))
			continue
		}
		value := int64(i*elementSize) + u32(4) + u32(8)
		if value+u32(12) > p.dataSize {
			return fmt.Errorf("element %d lies outside", i)
		}
		if u32(0)&bucketLeaf != 0 {
			if err := c.checkBucket(offset+value, u32(12)); err != nil {
				return fmt.Errorf("bucket %d: %w", i, err)
			}
		}
	}
	return nil
}

// checkBucket checks a bucket's header, and its page when that is stored right behind it.
func (c *pageChecker) checkBucket(offset, size int64) error {
	if size < bucketSize || size > maxPageSize {
		return fmt.Errorf("header of %d bytes", size)
	}
	b := make([]byte, size)
	if _, err := c.file.ReadAt(b, offset); err != nil {
		return err
	}
	if root := binary.NativeEndian.Uint64(b); root != 0 {
		c.todo = append(c.todo, root)
		return nil
	}
	if size < bucketSize+pageHeaderSize {
		return fmt.Errorf("inline page of %d bytes", size-bucketSize)
	}
	inline := b[bucketSize:]
	p := page{
		flags:    binary.NativeEndian.Uint16(inline[8:]),
		count:    int(binary.NativeEndian.Uint16(inline[10:])),
		data:     inline[pageHeaderSize:],
		dataSize: int64(len(inline) - pageHeaderSize),
	}
	if p.flags != leafPage {
		return errors.New("inline page is no leaf")
	}
	return c.checkElements(p, offset+bucketSize+pageHeaderSize)
}

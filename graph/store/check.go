package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// CheckOptions say what Check does.
type CheckOptions struct {
	WithoutEdgeFeatures bool // nobody reads them
	WithoutNodeFeatures bool // whoever reads them checks them meanwhile (Store.CheckedReader)
	Keep                bool // what is read stays in the page cache, since it is read again at once
}

// Check compares the bytes of the store's files with the checksums that were
// taken when they were written. It reads what those who mapped the files see,
// the page cache, also of files that were replaced since, through one buffer of 1 MiB, and gives pages back that were not
// in memory before. Files that a Check or Verify of this process has read, and
// that have not changed since, are not read again. The error names file and
// offsets of the first damage and wraps graph.ErrFormat; when ctx ends it is its cause.
// Check may run while the data is in use, but not beyond Close.
func (s *Store) Check(ctx context.Context, o CheckOptions) error {
	for i := range s.m.Arrays {
		a := &s.m.Arrays[i]
		edges := a.Name == arrays.EdgeFeatures || a.Name == arrays.EdgeRowScale || a.Name == arrays.EdgeColScale
		if away(a.Name, s.parts) || edges && o.WithoutEdgeFeatures || a.Name == arrays.NodeFeatures && o.WithoutNodeFeatures {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.checkArray(ctx, a, false, o.Keep); err != nil {
			return err
		}
	}
	return nil
}

// Lacks says what the store does not have because an older version wrote it, and
// how to get it; "": it has everything.
func (s *Store) Lacks() string {
	if s.old == nil {
		return ""
	}
	return fmt.Sprintf("%d files of %s have no block checksums (format version 1): damage to them is found, but not located or repaired block by block, and a check takes longer; import the data again, or run 'gnnactor import %s NEW'",
		len(s.old), s.dir, s.dir)
}

// checkArray reads an array's file. whole says to read it even if it is known to
// be sound, and to compare the checksum over all of it, too.
func (s *Store) checkArray(ctx context.Context, a *arrays.Info, whole, keep bool) error {
	c, err := s.newArrayCheck(a, whole, keep)
	if err != nil {
		return err
	}
	defer c.r.close()
	if !whole && knownSound(c.path, c.state) {
		return nil
	}
	for err == nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		_, err = c.next()
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// arrayCheck reads an array's file block by block, and compares each with its checksum.
type arrayCheck struct {
	a     *arrays.Info
	path  string
	f     *os.File
	state os.FileInfo // before the first block
	sums  []uint32    // nil: the file has none
	all   hash.Hash   // nil: blocks have checksums
	r     *blockReader
	i     int64  // next block
	rest  []byte // of the block before, for Read
}

func (s *Store) newArrayCheck(a *arrays.Info, whole, keep bool) (*arrayCheck, error) {
	c := &arrayCheck{a: a, path: s.path(a.Name), f: s.files[a.Name].File}
	h, err := checkFile(a, c.f)
	if err != nil {
		return nil, dataerr.Bad("%s: %w; import the data again", c.path, err)
	}
	if c.state, err = c.f.Stat(); err != nil {
		return nil, fmt.Errorf("graph: check: %w", err)
	}
	if c.sums, err = readBlockSums(c.f, h); err != nil {
		return nil, dataerr.Bad("%s: %w; restore the file, or import the data again", c.path, err)
	}
	if whole || c.sums == nil {
		c.all = sha256.New()
	}
	c.r = newBlockReader(c.f, headerSize+a.Bytes, keep)
	return c, nil
}

// next returns the values in the next block, until it is called again. Behind the last there is io.EOF, and the
// file is known to be sound.
func (c *arrayCheck) next() ([]byte, error) {
	if c.i == numBlocks(c.a.Bytes) {
		if c.all != nil {
			if sum := hex.EncodeToString(c.all.Sum(nil)); sum != c.a.SHA256 {
				return nil, dataerr.Bad("%s: damaged: the bytes at offsets [%d, %d) have the SHA-256 %s, want %s; restore the file, or import the data again",
					c.path, headerSize, headerSize+c.a.Bytes, sum, c.a.SHA256)
			}
		}
		rememberSound(c.path, c.f, c.state)
		return nil, io.EOF
	}
	p, from, err := c.r.block(c.i)
	if err != nil {
		return nil, fmt.Errorf("graph: check: %w; check the disk, and restore the file or import the data again", err)
	}
	if c.sums != nil {
		if got := crc32.Checksum(p, castagnoli); got != c.sums[c.i] {
			return nil, dataerr.Bad("%s: damaged: the bytes at offsets [%d, %d) have the CRC-32C %08x, want %08x; restore the file, or import the data again",
				c.path, from, from+int64(len(p)), got, c.sums[c.i])
		}
	}
	if c.all != nil {
		c.all.Write(p)
	}
	c.i++
	return p, nil
}

// CheckedReader returns a reader of an array's values, from the first to the last, which compares each block with its
// checksum before any of it is read, as Check does; of an array without checksums of blocks the error comes behind the
// last value. It is closed when it is no longer used, before the store is.
func (s *Store) CheckedReader(array string) (io.ReadCloser, error) {
	a := s.m.array(array)
	if a == nil || away(array, s.parts) {
		return nil, fmt.Errorf("graph: %s has no array %s", s.dir, array)
	}
	return s.newArrayCheck(a, false, false)
}

// Read implements io.Reader.
func (c *arrayCheck) Read(p []byte) (n int, err error) {
	for len(c.rest) == 0 && err == nil {
		c.rest, err = c.next()
	}
	n = copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, err
}

// Close implements io.Closer.
func (c *arrayCheck) Close() error {
	c.r.close()
	return nil
}

// blockReader reads a file block by block, and leaves the page cache as it was.
type blockReader struct {
	f     *os.File
	size  int64 // of the header and the payload
	buf   []byte
	cache *pageCache
}

func newBlockReader(f *os.File, size int64, keep bool) *blockReader {
	known := size // of whose pages it is asked whether they are in memory; the others stay there
	if keep {
		known = 0
	}
	return &blockReader{f, size, make([]byte, min(size, blockBytes)), newPageCache(f, known)}
}

// block returns the part of block i that has a checksum, until the next call, and
// the file's offset of it.
func (r *blockReader) block(i int64) (p []byte, from int64, err error) {
	at := i * blockBytes
	p = r.buf[:min(blockBytes, r.size-at)]
	r.cache.reading(at + int64(len(p)))
	n, err := r.f.ReadAt(p, at)
	r.cache.read(at + int64(len(p)))
	if n < len(p) {
		if errors.Is(err, io.EOF) {
			err = dataerr.Bad("%s: the file was shortened to %d bytes", r.f.Name(), at+int64(n))
		}
		return nil, at, err
	}
	if i == 0 {
		return p[headerSize:], headerSize, nil
	}
	return p, at, nil
}

func (r *blockReader) close() { r.cache.close() }

// sound has the state, by absolute path, of files that were read in this process
// and had the right checksums.
var sound sync.Map // string → os.FileInfo

func knownSound(path string, now os.FileInfo) bool {
	abs, err := filepath.Abs(path)
	then, ok := sound.Load(abs)
	return err == nil && ok && sameState(then.(os.FileInfo), now)
}

func sameState(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// settled is how long ago a file must have been written for its time to tell a
// later change.
const settled = 2 * time.Second

// rememberSound notes that f, whose state was before when it began to be read,
// is sound.
func rememberSound(path string, f *os.File, before os.FileInfo) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return
	}
	now, err := f.Stat()
	if err == nil && sameState(before, now) && time.Since(now.ModTime()) > settled {
		sound.Store(abs, now)
	}
}

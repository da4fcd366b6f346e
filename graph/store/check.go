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
		if away(a.Name, s.parts) || edges && o.WithoutEdgeFeatures {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.checkArray(ctx, a, false); err != nil {
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
func (s *Store) checkArray(ctx context.Context, a *arrays.Info, whole bool) error {
	f, path := s.files[a.Name].File, s.path(a.Name)
	h, err := checkFile(a, f)
	if err != nil {
		return dataerr.Bad("%s: %w; import the data again", path, err)
	}
	state, err := f.Stat()
	if err != nil {
		return fmt.Errorf("graph: check: %w", err)
	}
	if !whole && knownSound(path, state) {
		return nil
	}
	sums, err := readBlockSums(f, h)
	if err != nil {
		return dataerr.Bad("%s: %w; restore the file, or import the data again", path, err)
	}
	var all hash.Hash
	if whole || sums == nil {
		all = sha256.New()
	}
	r := newBlockReader(f, headerSize+a.Bytes)
	defer r.close()
	for i := range numBlocks(a.Bytes) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p, from, err := r.block(i)
		if err != nil {
			return fmt.Errorf("graph: check: %w; check the disk, and restore the file or import the data again", err)
		}
		if sums != nil {
			if got := crc32.Checksum(p, castagnoli); got != sums[i] {
				return dataerr.Bad("%s: damaged: the bytes at offsets [%d, %d) have the CRC-32C %08x, want %08x; restore the file, or import the data again",
					path, from, from+int64(len(p)), got, sums[i])
			}
		}
		if all != nil {
			all.Write(p)
		}
	}
	if all != nil {
		if sum := hex.EncodeToString(all.Sum(nil)); sum != a.SHA256 {
			return dataerr.Bad("%s: damaged: the bytes at offsets [%d, %d) have the SHA-256 %s, want %s; restore the file, or import the data again",
				path, headerSize, headerSize+a.Bytes, sum, a.SHA256)
		}
	}
	rememberSound(path, f, state)
	return nil
}

// blockReader reads a file block by block, and leaves the page cache as it was.
type blockReader struct {
	f     *os.File
	size  int64 // of the header and the payload
	buf   []byte
	cache *pageCache
}

func newBlockReader(f *os.File, size int64) *blockReader {
	return &blockReader{f, size, make([]byte, min(size, blockBytes)), newPageCache(f, size)}
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

package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// ArrayWriter writes an array of a store from its first value to the last, little-endian
// and row by row. It is closed when it is finished, or with Close.
type ArrayWriter struct {
	w     *Writer
	name  string
	dtype graph.DType
	cols  int64
	path  string
	f     *os.File
	h     hash.Hash
	sums  blockSums
	buf   []byte // of the file from at
	at    int64
	most  int   // bytes of buf before they are written
	n     int64 // bytes of values handed over
	sent  int64 // bytes of the file that the system was asked to write

	direct bool // what is written does not go through the page cache
}

// Array begins an array of so many columns. How many rows it has is known when it is
// finished.
func (w *Writer) Array(name string, t graph.DType, cols int) (*ArrayWriter, error) {
	if !slices.Contains(arrays.Names, name) {
		return nil, fmt.Errorf("graph: a store has no array %q; choose one of %q", name, arrays.Names)
	}
	return w.arrayAt(filepath.Join(w.tmp, name+arrayFileSuffix), name, t, cols)
}

// ScratchArray begins an array that is no part of the store: it is read with Reader or
// Map, and removed with Drop or, at the latest, with Commit or Abort. It is not
// finished.
func (w *Writer) ScratchArray(name string, t graph.DType, cols int) (*ArrayWriter, error) {
	return w.arrayAt(filepath.Join(w.Scratch(), name), name, t, cols)
}

func (w *Writer) arrayAt(path, name string, t graph.DType, cols int) (*ArrayWriter, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return nil, dataerr.Writing(w.Shown(path), err)
	}
	a := &ArrayWriter{w: w, name: name, dtype: t, cols: int64(cols), path: path, f: f, h: sha256.New(), most: cmp.Or(w.buffer, 1<<20)}
	if w.direct && a.most >= directPage && setDirect(f, true) {
		a.direct, a.most = true, a.most-a.most%directPage
		a.buf = aligned(a.most)
	}
	a.buf = append(a.buf, make([]byte, headerSize)...)
	return a, nil
}

// DType returns the type of the values.
func (a *ArrayWriter) DType() graph.DType { return a.dtype }

// Cols returns the number of columns.
func (a *ArrayWriter) Cols() int { return int(a.cols) }

// RowBytes returns the bytes of a row.
func (a *ArrayWriter) RowBytes() int64 { return a.cols * int64(a.dtype.Size()) }

// Bytes returns the bytes that were written so far.
func (a *ArrayWriter) Bytes() int64 { return a.n }

// Write implements io.Writer with values.
func (a *ArrayWriter) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		k := min(len(p), a.most-len(a.buf))
		a.buf = append(a.buf, p[:k]...)
		p = p[k:]
		if len(a.buf) == a.most {
			if err := a.flush(); err != nil {
				return 0, err
			}
		}
	}
	a.n += int64(total)
	return total, nil
}

func (a *ArrayWriter) flush() error {
	values := a.buf
	if a.at == 0 {
		values = values[headerSize:]
	}
	a.h.Write(values)
	a.sums.write(values)
	if a.direct && len(a.buf)%directPage != 0 { // the last bytes
		a.through()
	}
	n, err := a.f.Write(a.buf)
	if a.direct && err != nil { // not every file system does so, or the disk is full
		a.through()
		_, err = a.f.Write(a.buf[n:])
	}
	a.at += int64(len(a.buf))
	a.buf = a.buf[:0]
	if more := a.at - a.sent; more >= sentAhead && !a.direct {
		startWriting(a.f, a.sent, more)
		a.sent = a.at
	}
	if err != nil {
		return dataerr.Writing(a.w.Shown(a.path), err)
	}
	return nil
}

// through makes what is written from now on go through the page cache.
func (a *ArrayWriter) through() {
	a.direct = false
	setDirect(a.f, false)
}

// directPage is what offsets, sizes and addresses are multiples of where the page cache is passed by.
const directPage = 4096

// aligned returns room for so many bytes, which begins at a multiple of directPage.
func aligned(bytes int) []byte {
	b := make([]byte, bytes+directPage)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % directPage)
	return b[skip : skip : skip+bytes]
}

// sentAhead is after how many bytes the system is asked to begin to write them: left to itself it collects them
// in memory, in gigabytes, and the disk is idle until Finish waits for it.
const sentAhead = 8 << 20

// Finish makes the array a part of the store. It must have whole rows.
func (a *ArrayWriter) Finish() error {
	if err := a.flush(); err != nil {
		a.Close()
		return err
	}
	if a.direct {
		a.through()
	}
	h := arrayHeader{version: storeVersion, dtype: a.dtype, cols: a.cols}
	if row := a.RowBytes(); row > 0 {
		h.rows = a.n / row
		if a.n%row != 0 {
			a.Close()
			return fmt.Errorf("graph: %s: %d bytes are not whole rows of %d", a.name, a.n, row)
		}
	}
	a.h.Sum(h.sum[:0])
	sums := a.sums.encode()
	h.sums = crc32.Checksum(sums, castagnoli)
	f := a.f
	a.f = nil
	return a.w.seal(f, a.path, a.name, &h, sums)
}

// seal writes what surrounds the payload, makes the file durable, closes it and
// lists it.
func (w *Writer) seal(f *os.File, path, name string, h *arrayHeader, sums []byte) error {
	_, err := f.WriteAt(sums, headerSize+h.bytes())
	if err == nil {
		_, err = f.WriteAt(h.encode(), 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return dataerr.Writing(w.Shown(path), err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[name] = arrays.Info{
		Name: name, Type: h.dtype.String(), Rows: h.rows, Cols: h.cols, Bytes: h.bytes(), SHA256: hex.EncodeToString(h.sum[:]),
	}
	return nil
}

// Close gives the file up. It may be called after Finish.
func (a *ArrayWriter) Close() {
	if a.f != nil {
		a.f.Close()
		a.f = nil
	}
}

// Reader returns a reader of the values that were written.
func (a *ArrayWriter) Reader() (io.Reader, error) {
	if err := a.flush(); err != nil {
		return nil, err
	}
	return io.NewSectionReader(a.f, headerSize, a.n), nil
}

// Map calls f under graph.Guard with the values that were written, mapped for as long
// as it runs.
func (a *ArrayWriter) Map(f func(values []byte) error) error {
	if err := a.flush(); err != nil {
		return err
	}
	return withMapped(a.f, headerSize+a.n, func(mem []byte) error { return f(mem[headerSize:]) })
}

// Drop removes a scratch array.
func (a *ArrayWriter) Drop() error {
	a.Close()
	if err := os.Remove(a.path); err != nil {
		return dataerr.Writing(a.w.Shown(a.path), err)
	}
	return nil
}

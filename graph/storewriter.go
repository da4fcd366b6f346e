package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// storeWriter writes a store into a temporary directory beside its
// destination. commit makes it appear, whole; abort removes all of it.
type storeWriter struct {
	dst, tmp  string
	overwrite bool
	arrays    map[string]manifestArray
	m         manifest
	release   func() // of the hold on tmp, which says that its writer lives; or nil
}

func newStoreWriter(dst string, overwrite bool) (*storeWriter, error) {
	dst = filepath.Clean(dst)
	if err := checkDestination(dst, overwrite); err != nil {
		return nil, err
	}
	parent := filepath.Dir(dst)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return nil, writeError(parent, err)
	}
	w := &storeWriter{dst: dst, overwrite: overwrite, arrays: map[string]manifestArray{}}
	if err := w.makeTemporary(parent); err != nil {
		return nil, writeError(dst, err)
	}
	tmp := w.tmp
	if err := os.Mkdir(w.scratchDir(), 0o777); err != nil {
		w.abort()
		return nil, writeError(w.scratchDir(), err)
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		w.abort()
		return nil, writeError(tmp, err)
	}
	return w, nil
}

// makeTemporary makes the temporary directory and removes those that writers of
// the same store have left behind, killed before they could.
func (w *storeWriter) makeTemporary(parent string) error {
	hidden := "." + filepath.Base(w.dst)
	list, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range list {
		// What ends in .old is the store that was to be overwritten.
		if !strings.HasPrefix(e.Name(), hidden+".tmp-") || filepath.Ext(e.Name()) == ".old" {
			continue
		}
		left := filepath.Join(parent, e.Name())
		if release, held := holdDir(left); held {
			_ = os.RemoveAll(left) // another user's; in nobody's way
			release()
		}
	}
	made, err := os.MkdirTemp(parent, hidden+".new-")
	if err != nil {
		return err
	}
	// It takes its name when it is held: others may not think it left behind.
	if release, held := holdDir(made); held {
		w.release = release
	}
	w.tmp = filepath.Join(parent, strings.Replace(filepath.Base(made), hidden+".new-", hidden+".tmp-", 1))
	return os.Rename(made, w.tmp)
}

// checkDestination refuses to replace anything but an empty directory or, when
// asked to, a store.
func checkDestination(dst string, overwrite bool) error {
	st, err := os.Lstat(dst)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("graph: %w", err)
	}
	if !st.IsDir() {
		return fmt.Errorf("graph: %s is there already and is not a directory; choose another name", dst)
	}
	list, err := os.ReadDir(dst)
	if err != nil {
		return fmt.Errorf("graph: %w", err)
	}
	if len(list) == 0 {
		return nil
	}
	if !overwrite {
		return fmt.Errorf("graph: %s is there already: %w; choose another name, or ask to overwrite it (the option Overwrite, --overwrite)", dst, os.ErrExist)
	}
	if _, err := os.Stat(filepath.Join(dst, manifestFile)); err != nil {
		return fmt.Errorf("graph: %s is there already and is not a store, so it is not overwritten; choose another name", dst)
	}
	return nil
}

func (w *storeWriter) scratchDir() string { return filepath.Join(w.tmp, "scratch") }

// shown returns the name of a file as the user will know it.
func (w *storeWriter) shown(path string) string {
	if rel, err := filepath.Rel(w.tmp, path); err == nil {
		return filepath.Join(w.dst, rel)
	}
	return path
}

func (w *storeWriter) abort() {
	// Whatever made the write fail is the error to report; that the
	// directory cannot be removed either adds nothing that can be acted on.
	_ = os.RemoveAll(w.tmp)
	w.letGo()
}

func (w *storeWriter) letGo() {
	if w.release != nil {
		w.release()
	}
}

// commit writes the manifest and moves the directory to its name.
func (w *storeWriter) commit() error {
	if err := os.RemoveAll(w.scratchDir()); err != nil {
		return writeError(w.dst, err)
	}
	w.m.Version, w.m.Arrays = storeVersion, nil
	for _, name := range arrayNames {
		if a, ok := w.arrays[name]; ok {
			w.m.Arrays = append(w.m.Arrays, a)
		}
	}
	for _, p := range w.m.Partitions {
		w.m.Arrays = append(w.m.Arrays, w.arrays[p.Array])
	}
	if err := w.m.check(); err != nil {
		return badData("%w", err)
	}
	path := filepath.Join(w.tmp, manifestFile)
	f, err := os.Create(path)
	if err == nil {
		_, err = f.Write(w.m.encode())
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return writeError(w.shown(path), err)
	}
	if err := syncDir(w.tmp); err != nil {
		return writeError(w.dst, err)
	}
	if err := w.moveIntoPlace(); err != nil {
		return writeError(w.dst, err)
	}
	if err := syncDir(filepath.Dir(w.dst)); err != nil {
		return writeError(w.dst, err)
	}
	w.letGo()
	return nil
}

func (w *storeWriter) moveIntoPlace() error {
	if err := checkDestination(w.dst, w.overwrite); err != nil {
		return err
	}
	old := w.tmp + ".old"
	err := os.Rename(w.dst, old)
	if errors.Is(err, os.ErrNotExist) {
		return os.Rename(w.tmp, w.dst)
	}
	if err != nil {
		return err
	}
	if err := os.Rename(w.tmp, w.dst); err != nil {
		return errors.Join(err, os.Rename(old, w.dst))
	}
	return os.RemoveAll(old)
}

// arrayWriter writes one array from first to last.
type arrayWriter struct {
	w    *storeWriter
	name string
	elem element
	cols int64
	path string
	f    *os.File
	h    hash.Hash
	sums blockSums
	buf  []byte
	n    int64 // payload bytes handed over
}

func (w *storeWriter) array(name string, elem element, cols int64) (*arrayWriter, error) {
	return w.arrayAt(filepath.Join(w.tmp, name+arrayFileSuffix), name, elem, cols)
}

func (w *storeWriter) arrayAt(path, name string, elem element, cols int64) (*arrayWriter, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return nil, writeError(w.shown(path), err)
	}
	a := &arrayWriter{w: w, name: name, elem: elem, cols: cols, path: path, f: f, h: sha256.New(), buf: make([]byte, 0, 1<<20)}
	if _, err := f.Write(make([]byte, headerSize)); err != nil {
		f.Close()
		return nil, writeError(w.shown(path), err)
	}
	return a, nil
}

// Write adds payload bytes.
func (a *arrayWriter) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		k := copy(a.buf[len(a.buf):cap(a.buf)], p)
		a.buf = a.buf[:len(a.buf)+k]
		p = p[k:]
		if len(a.buf) == cap(a.buf) {
			if err := a.flush(); err != nil {
				return 0, err
			}
		}
	}
	a.n += int64(total)
	return total, nil
}

func (a *arrayWriter) flush() error {
	a.h.Write(a.buf)
	a.sums.write(a.buf)
	_, err := a.f.Write(a.buf)
	a.buf = a.buf[:0]
	if err != nil {
		return writeError(a.w.shown(a.path), err)
	}
	return nil
}

// finish writes the blocks' checksums and the header, and lists the array in the manifest. The payload
// must be whole rows.
func (a *arrayWriter) finish() error {
	if err := a.flush(); err != nil {
		a.close()
		return err
	}
	h := arrayHeader{version: storeVersion, elem: a.elem, cols: a.cols}
	if row := a.cols * a.elem.size(); row > 0 {
		h.rows = a.n / row
		if a.n%row != 0 {
			a.close()
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
func (w *storeWriter) seal(f *os.File, path, name string, h *arrayHeader, sums []byte) error {
	_, err := f.WriteAt(sums, headerSize+h.bytes())
	if err == nil {
		_, err = f.WriteAt(h.encode(), 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return writeError(w.shown(path), err)
	}
	w.arrays[name] = manifestArray{
		Name: name, Type: h.elem.String(), Rows: h.rows, Cols: h.cols, Bytes: h.bytes(), SHA256: hex.EncodeToString(h.sum[:]),
	}
	return nil
}

// close gives the file up. It may be called after finish.
func (a *arrayWriter) close() {
	if a.f != nil {
		a.f.Close()
		a.f = nil
	}
}

// put writes a whole array.
func (w *storeWriter) put(name string, elem element, cols int64, payload []byte) error {
	a, err := w.array(name, elem, cols)
	if err != nil {
		return err
	}
	defer a.close()
	if _, err := a.Write(payload); err != nil {
		return err
	}
	return a.finish()
}

// syncDir makes a directory's entries durable, where the platform can.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); cerr != nil && err == nil {
		err = cerr
	}
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrInvalid) || errors.Is(err, os.ErrPermission) {
		return nil // the file system or platform does not sync directories
	}
	return err
}

var _ io.Writer = (*arrayWriter)(nil)

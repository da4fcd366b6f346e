package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/internal/atomicfile"
)

// Writer writes a store array by array, for data that does not fit into memory at
// once; Create writes a Dataset. Commit makes the store appear, whole and on disk, or
// Abort removes what was written: one of them must be called. A Writer is for one
// goroutine, but several may begin arrays and write one each.
//
// The arrays are those of Dataset.Arrays; "indptr" and "indices" must be there. What
// they hold is not checked, apart from types and shapes, which Commit checks.
type Writer struct {
	dst, tmp  string
	overwrite bool
	mu        sync.Mutex // of written
	written   map[string]arrays.Info
	m         manifest
	buffer    int    // bytes that each array is written by; 0: 1 MiB
	direct    bool   // arrays do not go through the page cache
	release   func() // of the hold on tmp, which says that its writer lives; or nil
}

// NewWriter begins a store in the new directory dir.
func NewWriter(dir string, opts ...CreateOption) (*Writer, error) {
	var o createOptions
	for _, f := range opts {
		f(&o)
	}
	dir = filepath.Clean(dir)
	if err := sweep(dir); err != nil {
		return nil, dataerr.Writing(dir, err)
	}
	if err := checkDestination(dir, o.overwrite); err != nil {
		return nil, err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return nil, dataerr.Writing(parent, err)
	}
	w := &Writer{dst: dir, overwrite: o.overwrite, written: map[string]arrays.Info{}}
	if err := w.makeTemporary(parent); err != nil {
		return nil, dataerr.Writing(dir, err)
	}
	tmp := w.tmp
	if err := os.Mkdir(w.Scratch(), 0o777); err != nil {
		w.Abort()
		return nil, dataerr.Writing(w.Scratch(), err)
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		w.Abort()
		return nil, dataerr.Writing(tmp, err)
	}
	return w, nil
}

// SetBuffer says by how many bytes each array that is begun from now on is written; 1 MiB if
// nothing is said.
func (w *Writer) SetBuffer(bytes int) { w.buffer = bytes }

// SetDirect makes arrays that are begun from now on pass the page cache by, where the system can: nobody reads
// them soon, and other files stay in memory.
func (w *Writer) SetDirect() { w.direct = true }

// SetName says what the dataset is called.
func (w *Writer) SetName(name string) { w.m.Name = name }

// Suffixes of what a writer of DIR/NAME makes: DIR/.NAME.tmp-NUMBER is written, and the store
// that it replaces is called as that and suffixOld meanwhile.
const (
	infixNew  = ".new-" // until it is held
	infixTemp = ".tmp-"
	suffixOld = ".old"
)

// sweep removes what writers of the store dst have left behind, killed before they could. One
// that was killed between its two renames has the store that was there put back.
func sweep(dst string) error {
	parent, hidden := filepath.Dir(dst), "."+filepath.Base(dst)
	list, err := os.ReadDir(parent)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range list {
		if !strings.HasPrefix(e.Name(), hidden+infixTemp) {
			continue
		}
		left := filepath.Join(parent, e.Name())
		if filepath.Ext(left) == suffixOld {
			// While its writer lives, or where dst is not there, it is not known to be replaced.
			if there(dst) && !there(strings.TrimSuffix(left, suffixOld)) {
				_ = os.RemoveAll(left) // another user's; in nobody's way
			}
			continue
		}
		release, held := holdDir(left)
		if !held {
			continue
		}
		if !there(dst) {
			if err := os.Rename(left+suffixOld, dst); err != nil && !errors.Is(err, os.ErrNotExist) {
				release()
				return err
			}
		}
		_ = os.RemoveAll(left)
		release()
	}
	return nil
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// makeTemporary makes the directory that is written.
func (w *Writer) makeTemporary(parent string) error {
	hidden := "." + filepath.Base(w.dst)
	made, err := os.MkdirTemp(parent, hidden+infixNew)
	if err != nil {
		return err
	}
	// It takes its name when it is held: others may not think it left behind.
	if release, held := holdDir(made); held {
		w.release = release
	}
	w.tmp = filepath.Join(parent, strings.Replace(filepath.Base(made), hidden+infixNew, hidden+infixTemp, 1))
	return os.Rename(made, w.tmp)
}

// checkDestination refuses to replace anything but an empty directory or, when
// asked to, a store, in which there are no directories.
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
	if _, err := os.Stat(filepath.Join(dst, Manifest)); err != nil {
		return fmt.Errorf("graph: %s is there already and is not a store, so it is not overwritten; choose another name", dst)
	}
	for _, e := range list {
		if e.IsDir() { // checkpoints, say; the store would take them with it
			return fmt.Errorf("graph: %s is not overwritten: %s in it is no part of the store; move that away before", dst, e.Name())
		}
	}
	return nil
}

// Scratch returns a directory for files that Commit and Abort remove.
func (w *Writer) Scratch() string { return filepath.Join(w.tmp, "scratch") }

// Shown returns the name of a file below Scratch, or of the store, as the user will
// know it.
func (w *Writer) Shown(path string) string {
	if rel, err := filepath.Rel(w.tmp, path); err == nil {
		return filepath.Join(w.dst, rel)
	}
	return path
}

// Abort removes what was written. After Commit it does nothing.
func (w *Writer) Abort() {
	// Whatever made the write fail is the error to report; that the
	// directory cannot be removed either adds nothing that can be acted on.
	if w.tmp != "" {
		_ = os.RemoveAll(w.tmp)
		w.done()
	}
}

func (w *Writer) done() {
	if w.release != nil {
		w.release()
	}
	w.tmp = ""
}

// Commit writes the manifest and moves the directory to its name. When it fails,
// Abort must be called. That ctx has ended, which it asks before the store has its name,
// is such a failure, too.
func (w *Writer) Commit(ctx context.Context) error {
	if err := os.RemoveAll(w.Scratch()); err != nil {
		return dataerr.Writing(w.dst, err)
	}
	var list []arrays.Info
	for _, name := range arrays.Names {
		if a, ok := w.written[name]; ok {
			list = append(list, a)
		}
	}
	for _, p := range w.m.Partitions {
		list = append(list, w.written[p.Array])
	}
	w.m.setArrays(list)
	if a := w.m.array(arrays.Indptr); a != nil && w.m.Piece == nil {
		w.m.NumNodes = a.Rows - 1
	}
	if a := w.m.array(arrays.Indices); a != nil {
		w.m.NumEdges = a.Rows
	}
	if err := w.m.check(); err != nil {
		return dataerr.Bad("%w", err)
	}
	path := filepath.Join(w.tmp, Manifest)
	f, err := os.Create(path)
	if err == nil {
		_, err = f.Write(w.m.encode())
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return dataerr.Writing(w.Shown(path), err)
	}
	if err := atomicfile.SyncDir(w.tmp); err != nil {
		return dataerr.Writing(w.dst, err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := w.moveIntoPlace(); err != nil {
		return dataerr.Writing(w.dst, err)
	}
	if err := atomicfile.SyncDir(filepath.Dir(w.dst)); err != nil {
		return dataerr.Writing(w.dst, err)
	}
	w.done()
	return nil
}

func (w *Writer) moveIntoPlace() error {
	if err := checkDestination(w.dst, w.overwrite); err != nil {
		return err
	}
	old := w.tmp + suffixOld
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

// Put writes a whole array.
func (w *Writer) Put(name string, t graph.DType, cols int, values []byte) error {
	a, err := w.Array(name, t, cols)
	if err != nil {
		return err
	}
	defer a.Close()
	if _, err := a.Write(values); err != nil {
		return err
	}
	return a.Finish()
}

// PutLabels checks and writes the labels of so many nodes, unless they are nil, and
// the splits. It must be called once, with no labels and no splits, too.
func (w *Writer) PutLabels(nodes int, l *graph.Labels, train, valid, test []uint32) error {
	if err := l.Validate(nodes); err != nil {
		return err
	}
	ds := graph.Dataset{Labels: l, Train: train, Valid: valid, Test: test}
	if err := ds.ValidateSplits(nodes); err != nil {
		return err
	}
	w.describeLabels(nodes, &ds)
	for i, name := range []string{arrays.Train, arrays.Valid, arrays.Test} {
		ids := [][]uint32{train, valid, test}[i]
		if err := w.Put(name, graph.Uint32, 1, arrays.Bytes(ids)); err != nil {
			return err
		}
	}
	switch {
	case l == nil:
		return nil
	case l.IsMulti():
		return w.Put(arrays.Labels, graph.Uint8, l.NumClasses, l.Multi)
	case l.Values != nil:
		return w.Put(arrays.Labels, graph.Float32, 1, arrays.Bytes(l.Values))
	}
	return w.Put(arrays.Labels, graph.Int32, 1, arrays.Bytes(l.Class))
}

// describeLabels fills in what the manifest says of labels, beside their array.
func (w *Writer) describeLabels(nodes int, ds *graph.Dataset) {
	if ds.Labels != nil {
		w.m.NumClasses = int64(ds.Labels.NumClasses)
	}
	w.m.SplitLabels = splitLabels(nodes, ds)
}

func splitLabels(nodes int, ds *graph.Dataset) string {
	l := ds.Labels
	if l == nil {
		return ""
	}
	class := l.Class
	if l.Values != nil {
		class = arrays.View[int32](arrays.Bytes(l.Values))
	}
	return arrays.SplitLabels(nodes, l.NumClasses, class, l.Multi, ds.Train, ds.Valid, ds.Test)
}

// PutPartition writes a partition, which is not checked.
func (w *Writer) PutPartition(p *graph.Partition) error {
	sum := sha256.Sum256(arrays.Bytes(p.Cluster))
	m := manifestPartition{Method: p.Method, Parts: int64(p.Parts), Seed: p.Seed}
	m.Array = partitionArray(&m, hex.EncodeToString(sum[:]))
	path := filepath.Join(w.tmp, m.Array+arrayFileSuffix)
	temp := filepath.Join(w.tmp, "."+m.Array+".tmp")
	err := func() error {
		a, err := w.arrayAt(temp, m.Array, graph.Uint32, 1)
		if err != nil {
			return err
		}
		defer a.Close()
		if _, err := a.Write(arrays.Bytes(p.Cluster)); err != nil {
			return err
		}
		if err := a.Finish(); err != nil {
			return err
		}
		return dataerr.Writing(w.Shown(path), os.Rename(temp, path))
	}()
	if err != nil {
		return errors.Join(err, removeIfThere(temp))
	}
	w.m.Partitions = append(w.m.Partitions, m)
	return nil
}

// EncodeFeatures writes the node features that were written before again, in
// another encoding. When ctx ends first, the error wraps its cause.
func (w *Writer) EncodeFeatures(ctx context.Context, e graph.Encoding) error {
	a, ok := w.written[arrays.NodeFeatures]
	if !ok {
		return dataerr.Bad("there are no node features to store as %v", e)
	}
	t, _ := graph.DTypeNamed(a.Type)
	if t == e.DType {
		return nil
	}
	path := filepath.Join(w.tmp, arrays.NodeFeatures+arrayFileSuffix)
	before := filepath.Join(w.Scratch(), "before"+arrayFileSuffix)
	if err := os.Rename(path, before); err != nil {
		return dataerr.Writing(w.Shown(path), err)
	}
	h, err := os.Open(before)
	if err != nil {
		return dataerr.Writing(w.Shown(path), err)
	}
	err = withMapped(h, headerSize+a.Bytes, func(mem []byte) error {
		return w.putEncoded(ctx, &graph.Features{Rows: int(a.Rows), Cols: int(a.Cols), DType: t, Data: mem[headerSize:], Stride: int(a.Cols) * t.Size()}, e)
	})
	return errors.Join(err, h.Close(), os.Remove(before))
}

func (w *Writer) putEncoded(ctx context.Context, f *graph.Features, e graph.Encoding) error {
	out, err := w.Array(arrays.NodeFeatures, e.DType, f.Cols)
	if err != nil {
		return err
	}
	defer out.Close()
	rowScale, colScale, err := f.EncodeTo(ctx, e, func(row []byte) error {
		_, err := out.Write(row)
		return err
	})
	if err != nil {
		return err
	}
	if err := out.Finish(); err != nil {
		return err
	}
	switch {
	case colScale != nil:
		return w.Put(arrays.NodeColScale, graph.Float32, 1, arrays.Bytes(colScale))
	case rowScale != nil:
		return w.Put(arrays.NodeRowScale, graph.Float32, 1, arrays.Bytes(rowScale))
	}
	return nil
}

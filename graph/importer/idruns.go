package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/hugepages"
)

// Where edges alone say which nodes there are, and these are more than the map of their ids may hold, the map
// becomes a run on the disk, sorted, and begins anew: the edges up to then are spooled with
// the numbers that their nodes have in the run. In the end the runs are merged, which gives the nodes' numbers, and
// each run's edges get them. So memory does not grow with the nodes.
const (
	runIDs   = 12 << 20  // ids in a map
	runBytes = 256 << 20 // of their texts

	// merged is of how many parts of a map's texts there are more where a map alone becomes a run, too.
	merged = 8
)

// idRun is a map of ids that was written.
type idRun struct {
	ids, rank, global string // files: the ids in order; the place there of each local number; the node of each place
	count             int
	texts             bool
	edges             int64 // the run is of the edges before this one, from the end of the run before it
}

// most returns how many ids a map may hold, and how many bytes of their texts.
func (im *importer) most() (ids, text int) {
	if im.o.runIDs > 0 { // by tests
		return im.o.runIDs, 16 * im.o.runIDs
	}
	return runIDs, runBytes
}

// full tells whether the map ends a run before more ids are added.
func (im *importer) full() bool {
	ids, text := im.most()
	return im.ids.count >= ids || len(im.ids.text) >= text
}

// merges tells whether names come from the disk, so that texts do not lie in memory twice.
func (im *importer) merges() bool {
	_, text := im.most()
	return im.runs != nil || len(im.ids.text) > text/merged
}

// endRun writes the map, which is of the edges before edge number end, or the rows of nodes, and empties it.
func (im *importer) endRun(end int64) error {
	m, n := im.ids, im.ids.count
	base := filepath.Join(im.w.Scratch(), fmt.Sprintf("ids%d", len(im.runs)))
	r := idRun{ids: base, rank: base + "rank", global: base + "node", count: n, texts: m.texts, edges: end}
	rank := make([]uint32, n)
	var err error
	if m.texts {
		order := make([]uint32, n)
		m.sortTexts(order)
		for place, v := range order {
			rank[v] = uint32(place)
		}
		err = im.writeScratch(r.ids, func(w *bufio.Writer) {
			for _, v := range order {
				writeText(w, m.kept(v))
			}
		})
	} else {
		var sorted []int64
		sorted, rank = m.sortNumbers()
		err = im.writeScratch(r.ids, func(w *bufio.Writer) { w.Write(arrays.Bytes(sorted)) })
	}
	if err == nil {
		err = im.writeScratch(r.rank, func(w *bufio.Writer) { w.Write(arrays.Bytes(rank)) })
	}
	im.runs = append(im.runs, r)
	m.clear()
	runtime.GC() // what is left behind, before as much is made again beside it: a small part of the time that a run takes
	return err
}

// writeScratch writes a file of what is needed until the end of the import alone.
func (im *importer) writeScratch(path string, write func(w *bufio.Writer)) error {
	f, err := os.Create(path)
	if err != nil {
		return dataerr.Writing(im.w.Shown(path), err)
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<18)
	write(w)
	if err := w.Flush(); err != nil {
		return dataerr.Writing(im.w.Shown(path), err)
	}
	return nil
}

func writeText(w *bufio.Writer, text []byte) {
	var n [binary.MaxVarintLen64]byte
	w.Write(n[:binary.PutUvarint(n[:], uint64(len(text)))])
	w.Write(text)
}

// idReader reads a run's ids in order, and takes their nodes.
type idReader struct {
	in     *bufio.Reader
	f      *os.File
	out    *bufio.Writer // nil: they are known
	global *os.File
	at     int // which of the runs
	texts  bool
	number int64  // the id
	text   []byte // as it is kept
}

func (im *importer) openRun(at int, run *idRun, texts bool) (*idReader, error) {
	f, err := os.Open(run.ids)
	if err != nil {
		return nil, fmt.Errorf("graph: read back the ids: %w", err)
	}
	r := &idReader{in: bufio.NewReaderSize(f, 1<<18), f: f, at: at, texts: texts}
	if run.global == "" {
		return r, nil
	}
	if r.global, err = os.Create(run.global); err != nil {
		f.Close()
		return nil, dataerr.Writing(im.w.Shown(run.global), err)
	}
	r.out = bufio.NewWriterSize(r.global, 1<<16)
	return r, nil
}

func (r *idReader) close() {
	r.f.Close()
	if r.global != nil {
		r.global.Close()
	}
}

// next reads the next id; io.EOF: there is none.
func (r *idReader) next() (err error) {
	if !r.texts {
		var b [8]byte
		if _, err = io.ReadFull(r.in, b[:]); err == nil {
			r.number = int64(binary.NativeEndian.Uint64(b[:]))
		}
	} else {
		var n uint64
		if n, err = binary.ReadUvarint(r.in); err == nil {
			r.text = resized(r.text, int(n))
			_, err = io.ReadFull(r.in, r.text)
		}
	}
	if err != nil && err != io.EOF {
		err = fmt.Errorf("graph: read back the ids: %w", err)
	}
	return err
}

func (r *idReader) compare(o *idReader) int {
	if r.texts {
		return compareIDs(r.text, o.text)
	}
	return cmp.Compare(r.number, o.number)
}

// set takes o's id.
func (r *idReader) set(o *idReader) {
	r.texts, r.number, r.text = o.texts, o.number, append(r.text[:0], o.text...)
}

// nobody is the node of an id that no node has, and of one that a node before has.
const nobody = math.MaxUint32

// mergeRuns gives each run's places their nodes: where known is nil, the ids of all runs are the nodes, numbered as their names rise, and each has
// one is told of, and with once an id that comes again is nobody's there; else the nodes' ids are those of known. It returns how many nodes there
// are.
func (im *importer) mergeRuns(known *idRun, once bool, one func(id *idReader) error) (nodes int64, err error) {
	texts := im.ids.texts
	var heap []*idReader // of the runs by their next id
	var readers []*idReader
	defer func() {
		for _, r := range readers {
			r.close()
		}
	}()
	all := make([]*idRun, 0, len(im.runs)+1)
	if known != nil {
		all = append(all, known)
	}
	for i := range im.runs {
		all = append(all, &im.runs[i])
	}
	for i, run := range all {
		if texts && !run.texts {
			if err := im.retext(run); err != nil {
				return 0, err
			}
		}
		r, err := im.openRun(i, run, texts)
		if err != nil {
			return 0, err
		}
		readers = append(readers, r)
		if err := r.next(); err == nil {
			heap = append(heap, r)
		} else if err != io.EOF {
			return 0, err
		}
	}
	before := func(a, b *idReader) bool { // of the same id the first run's
		c := a.compare(b)
		return c < 0 || c == 0 && a.at < b.at
	}
	down := func(i int) {
		for {
			least := i
			for _, c := range []int{2*i + 1, 2*i + 2} {
				if c < len(heap) && before(heap[c], heap[least]) {
					least = c
				}
			}
			if least == i {
				return
			}
			heap[i], heap[least] = heap[least], heap[i]
			i = least
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		down(i)
	}
	var last idReader // the last node's
	for steps := 0; len(heap) > 0; steps++ {
		if steps&0xffff == 0 && im.ctx.Err() != nil {
			return 0, im.ctx.Err()
		}
		r := heap[0]
		node := uint32(nodes - 1)
		switch same := nodes > 0 && r.compare(&last) == 0; {
		case same:
			if once {
				node = nobody
			}
		case known == nil || r.at == 0:
			if nodes == graph.MaxNodes {
				return 0, errTooMany
			}
			if one != nil {
				if err := one(r); err != nil {
					return 0, err
				}
			}
			last.set(r)
			node = uint32(nodes)
			nodes++
		default:
			node = nobody
		}
		if r.out != nil {
			var b [4]byte
			binary.NativeEndian.PutUint32(b[:], node)
			r.out.Write(b[:])
		}
		if err := r.next(); err == io.EOF {
			heap[0] = heap[len(heap)-1]
			heap = heap[:len(heap)-1]
		} else if err != nil {
			return 0, err
		}
		down(0)
	}
	for i, r := range readers {
		if r.out != nil {
			if err := r.out.Flush(); err != nil {
				return 0, dataerr.Writing(im.w.Shown(all[i].global), err)
			}
		}
	}
	return nodes, nil
}

// nameWriter writes names as they rise.
type nameWriter struct {
	from        string // whose they are
	texts       bool
	ids, bounds *store.ArrayWriter // numbers or texts; of texts
	text, whole []byte             // the last, and the last that is a whole number
	n           int64              // bytes of texts
}

func (im *importer) startNames(from string, texts bool) (*nameWriter, error) {
	w := &nameWriter{from: from, texts: texts}
	var err error
	if !texts {
		w.ids, err = im.w.Array(arrays.NodeIDs, graph.Int64, 1)
		return w, err
	}
	if w.ids, err = im.w.Array(arrays.NodeNames, graph.Uint8, 1); err != nil {
		return nil, err
	}
	if w.bounds, err = im.w.Array(arrays.NameBounds, graph.Int64, 1); err == nil {
		err = w.bound()
	}
	if err != nil {
		w.close()
	}
	return w, err
}

func (w *nameWriter) bound() error {
	_, err := w.bounds.Write(arrays.Bytes([]int64{w.n}))
	return err
}

func (w *nameWriter) add(id *idReader) error {
	if !w.texts {
		_, err := w.ids.Write(arrays.Bytes([]int64{id.number}))
		return err
	}
	w.text = appendID(w.text[:0], id.text)
	if _, whole := parseNumber(w.text); whole {
		w.whole = append(w.whole[:0], w.text...)
	} else if name := wholeOf(w.text); name != nil && bytes.Equal(name, w.whole) { // nothing that is whole is between them
		return dataerr.Bad("%s: %w", w.from, errTwice(name, w.text))
	}
	w.n += int64(len(w.text))
	if _, err := w.ids.Write(w.text); err != nil {
		return err
	}
	return w.bound()
}

func (w *nameWriter) finish() error {
	if w.bounds != nil {
		if err := w.bounds.Finish(); err != nil {
			return err
		}
	}
	return w.ids.Finish()
}

func (w *nameWriter) close() {
	w.ids.Close()
	if w.bounds != nil {
		w.bounds.Close()
	}
}

// retext turns a run of numbers into one of texts.
func (im *importer) retext(run *idRun) error {
	b, err := os.ReadFile(run.ids)
	if err != nil {
		return fmt.Errorf("graph: read back the ids: %w", err)
	}
	m := &idMap{texts: true}
	var digits []byte
	for i := 0; i < len(b); i += 8 {
		digits = strconv.AppendInt(digits[:0], int64(binary.NativeEndian.Uint64(b[i:])), 10)
		m.append(digits)
	}
	order := make([]uint32, run.count)
	m.sortTexts(order)
	place := make([]uint32, run.count) // of the text of what was at a place
	for i, v := range order {
		place[v] = uint32(i)
	}
	rank, err := im.readRun(run.rank, run.count)
	if err != nil {
		return err
	}
	for i, v := range rank {
		rank[i] = place[v]
	}
	run.texts = true
	err = im.writeScratch(run.ids, func(w *bufio.Writer) {
		for _, v := range order {
			writeText(w, m.kept(v))
		}
	})
	if err != nil {
		return err
	}
	return im.writeScratch(run.rank, func(w *bufio.Writer) { w.Write(arrays.Bytes(rank)) })
}

// readRun reads a number for each of a run's ids.
func (im *importer) readRun(path string, count int) ([]uint32, error) {
	x := hugepages.Make[uint32](count)
	f, err := os.Open(path)
	if err == nil {
		_, err = io.ReadFull(f, arrays.Bytes(x))
		f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("graph: read back the numbers of ids: %w", err)
	}
	return x, nil
}

// nameRuns makes the ids of the runs the nodes, and gives the edges their numbers.
func (im *importer) nameRuns() error {
	if err := im.endRun(im.edges.count); err != nil {
		return err
	}
	im.ids = &idMap{texts: im.ids.texts}
	runtime.GC() // the map
	names, err := im.startNames("the edges", im.ids.texts)
	if err != nil {
		return err
	}
	defer names.close()
	nodes, err := im.mergeRuns(nil, false, names.add)
	if err == nil {
		err = names.finish()
	}
	if err != nil {
		return err
	}
	im.nodesClaimed = true // there is a name for each
	if err := im.setNodes(nodes, "the edges"); err != nil {
		return err
	}
	return im.renumberRuns(nil)
}

// renumberRuns gives the edges of each run the numbers of their nodes. unknown is told of the first that has a node which nobody is.
func (im *importer) renumberRuns(unknown func(edge int64, end int) error) (err error) {
	at, from := -1, int64(0)
	var node []uint32 // of each number in the run
	return im.edges.rewrite(func(first int64, src, dst []uint32) error {
		for len(src) > 0 {
			for at < 0 || first >= im.runs[at].edges {
				at++
				if at > 0 {
					from = im.runs[at-1].edges
				}
				if from == im.runs[at].edges {
					continue
				}
				if node, err = im.nodesOf(&im.runs[at]); err != nil {
					return err
				}
			}
			k := min(int64(len(src)), im.runs[at].edges-first)
			for i, v := range src[:k] {
				src[i], dst[i] = node[v], node[dst[i]]
				if unknown == nil {
					continue
				}
				for end, x := range []uint32{src[i], dst[i]} {
					if x == nobody {
						return unknown(first+int64(i), end)
					}
				}
			}
			src, dst, first = src[k:], dst[k:], first+k
		}
		return nil
	})
}

// nodesOf returns the node of each number in a run, and removes what was kept of it.
func (im *importer) nodesOf(run *idRun) ([]uint32, error) {
	rank, err := im.readRun(run.rank, run.count)
	if err != nil {
		return nil, err
	}
	node, err := im.readRun(run.global, run.count)
	if err != nil {
		return nil, err
	}
	for i, place := range rank {
		rank[i] = node[place]
	}
	for _, path := range []string{run.ids, run.rank, run.global} {
		if err := os.Remove(path); err != nil {
			return nil, dataerr.Writing(im.w.Shown(path), err)
		}
	}
	return rank, nil
}

// sortAll sorts x, whose elements differ, on so many goroutines.
func sortAll[T any](x []T, workers int, compare func(a, b T) int) {
	if workers < 2 || len(x) < 1<<14 {
		slices.SortFunc(x, compare)
		return
	}
	sample := make([]T, 0, 127)
	for i := range cap(sample) {
		sample = append(sample, x[i*(len(x)/cap(sample))])
	}
	slices.SortFunc(sample, compare)
	pivot, low := sample[len(sample)/2], 0
	for i := range x {
		if compare(x[i], pivot) < 0 {
			x[i], x[low] = x[low], x[i]
			low++
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { sortAll(x[:low], workers/2, compare) })
	sortAll(x[low:], workers-workers/2, compare)
	wg.Wait()
}

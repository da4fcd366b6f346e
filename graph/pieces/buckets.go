package pieces

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/graph/store"
)

// buckets sort the edges of a piece by one of their ends, the key, in files. Every bucket has a
// range of keys; edges come into it in the order in which they are read, which each key keeps.
//
// In a file an edge is a byte, the rows that its target is behind that of the edge before it, or 255
// and the row in 4 bytes; then its source, less base, in width bytes; and the 4 bytes of its weight if
// edges have weights. So an edge between two of 250 million takes 3 bytes and little more.
type buckets struct {
	dir, name string
	id        []uint32 // of each row; nil: its number
	byRow     bool     // keys are targets and no sources
	weighted  bool
	width     int
	from      uint32   // first key
	ends      []uint32 // first key behind each bucket
	base      []uint32 // of each bucket
	chunk     []uint32 // the bucket of every Border keys
}

// file returns where the edges of bucket b are that a reader of the graph has found.
func (k *buckets) file(reader, b int) string {
	return filepath.Join(k.dir, fmt.Sprintf("%s-%d-%d", k.name, b, reader))
}

// cut cuts the keys [from, to), of whose chunks about so many edges are expected, into ranges of about
// limit edges. No range crosses one of the borders. from is a multiple of Border, ids are below n.
func (k *buckets) cut(from, to uint32, n int, expected func(chunk int) float64, limit float64, borders ...uint32) *buckets {
	k.from, k.chunk = from, make([]uint32, (int(to-from)+Border-1)/Border)
	sum, keys, begin := 0.0, 0, from
	for c := range k.chunk {
		at := int(from) + c*Border
		e, begins := expected(at/Border), slices.Contains(borders, uint32(at))
		if c > 0 && (begins || sum+e > limit || keys >= maxKeys) {
			k.ends, k.base = append(k.ends, uint32(at)), append(k.base, begin)
			sum, keys, begin = 0, 0, uint32(at)
		}
		sum, keys = sum+e, keys+Border
		k.chunk[c] = uint32(len(k.ends))
	}
	k.ends, k.base, k.width = append(k.ends, to), append(k.base, begin), 2
	if k.byRow { // any node may be a source
		clear(k.base)
		k.width = (bits.Len(uint(n)) + 7) / 8
	}
	return k
}

// maxKeys is how many keys a bucket has at most: each needs a count while it is sorted, and 2 bytes
// tell which it is.
const maxKeys = 1 << 16

// maxEdge is how many bytes an edge takes in a file at most.
const maxEdge = 5 + 4 + 4

// filler fills buckets, of one reader of the graph.
type filler struct {
	k      *buckets
	reader int
	limit  int // bytes that are kept of a bucket
	lanes  []lane
	err    error
}

// lane is what a filler has of a bucket.
type lane struct {
	f    *filler
	b    int
	buf  []byte
	base uint32
	row  uint32 // of the last edge

	width    int // the buckets'
	weighted bool
}

// fillers returns one for each of the buckets.
func fillers(all []*buckets, reader, bufferBytes int) (list []*filler) {
	for _, k := range all {
		f := &filler{k: k, reader: reader, limit: max(bufferBytes, maxEdge), lanes: make([]lane, len(k.ends))}
		for b := range f.lanes {
			f.lanes[b] = lane{f: f, b: b, base: k.base[b], width: k.width, weighted: k.weighted}
		}
		list = append(list, f)
	}
	return list
}

// of returns the lane of a key.
func (f *filler) of(key uint32) *lane { return &f.lanes[f.k.chunk[(key-f.k.from)/Border]] }

// add takes an edge into a row, which is not below the one before.
func (l *lane) add(source, row, weight uint32) {
	at := len(l.buf)
	if cap(l.buf)-at < maxEdge {
		l.room()
		at = 0
	}
	buf := l.buf[at : at+maxEdge]
	n := 1
	if behind := row - l.row; behind < 255 {
		binary.LittleEndian.PutUint64(buf, uint64(source-l.base)<<8|uint64(behind))
	} else {
		buf[0] = 255
		binary.LittleEndian.PutUint32(buf[1:], row)
		binary.LittleEndian.PutUint32(buf[5:], source-l.base)
		n = 5
	}
	l.row = row
	n += l.width
	if l.weighted {
		binary.LittleEndian.PutUint32(buf[n:], weight)
		n += 4
	}
	l.buf = l.buf[:at+n]
}

// room makes room for an edge.
func (l *lane) room() {
	if l.buf == nil {
		l.buf = make([]byte, 0, l.f.limit)
	}
	l.write()
}

func (l *lane) write() {
	f := l.f
	if len(l.buf) > 0 && f.err == nil {
		path := f.k.file(f.reader, l.b)
		h, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
		if err == nil {
			_, err = h.Write(l.buf)
			err = errors.Join(err, h.Close())
		}
		f.err = dataerr.Writing(path, err)
	}
	l.buf = l.buf[:0]
}

// finish writes what is kept.
func (f *filler) finish() error {
	for b := range f.lanes {
		f.lanes[b].write()
	}
	return f.err
}

// bucketEdge is one of a bucket: key is its end by which the bucket sorts, other the other one.
type bucketEdge struct{ key, other, weight uint32 }

// each calls f with the edges of bucket b, in the order in which they were read, in blocks.
func (k *buckets) each(ctx context.Context, b, readers int, f func(block []bucketEdge)) error {
	const size = 1 << 14 // a block stays in a processor's cache
	buf, block := make([]byte, size+maxEdge), make([]bucketEdge, 0, size/3)
	base, mask := k.base[b], uint32(1)<<(8*k.width)-1
	for r := range readers {
		path := k.file(r, b)
		h, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("pieces: %w", err)
		}
		row, have := uint32(0), 0
		for err == nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
				break
			}
			var got, at int
			got, err = io.ReadFull(h, buf[have:size])
			have += got
			safe := have - maxEdge // up to here an edge is whole
			if err != nil {
				safe = have - 1
			}
			for block = block[:0]; at <= safe; {
				x := binary.LittleEndian.Uint64(buf[at:])
				if behind := x & 255; behind < 255 {
					row, x = row+uint32(behind), x>>8
					at++
				} else {
					row, x = uint32(x>>8), uint64(binary.LittleEndian.Uint32(buf[at+5:]))
					at += 5
				}
				e := bucketEdge{key: base + uint32(x)&mask, other: row}
				at += k.width
				if k.weighted {
					e.weight = binary.LittleEndian.Uint32(buf[at:])
					at += 4
				}
				if k.id != nil {
					e.other = k.id[row]
				}
				if k.byRow {
					e.key, e.other = e.other, e.key
				}
				block = append(block, e)
			}
			if at > have {
				err = dataerr.Bad("%s: it ends within an edge; remove %s and divide the graph again", path, filepath.Dir(k.dir))
				break
			}
			f(block)
			have = copy(buf, buf[at:have])
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
		if err = errors.Join(err, h.Close()); err != nil {
			return fmt.Errorf("pieces: %w", err)
		}
	}
	return nil
}

// numbering numbers the nodes of a piece: masters first, then marked others, by their ids.
type numbering struct {
	first, masters uint32
	words          []uint64 // a bit for each id
	before         []uint32 // the number of the first id of each word
}

func newNumbering(first, end uint32, n int) *numbering {
	return &numbering{first: first, masters: end - first, words: make([]uint64, (n+63)/64)}
}

// mark may be called by several goroutines. Masters may be marked, which does nothing.
func (m *numbering) mark(id uint32) {
	if w, bit := &m.words[id/64], uint64(1)<<(id%64); atomic.LoadUint64(w)&bit == 0 {
		atomic.OrUint64(w, bit)
	}
}

// own returns which words are the masters', and no other node's.
func (m *numbering) own() (from, to int) {
	if m.masters == 0 {
		return 0, 0
	}
	return int(m.first / 64), int((m.first + m.masters + 63) / 64)
}

// number numbers what is marked. Masters are marked all, so that theirs are found as others' are.
func (m *numbering) number() {
	m.before = make([]uint32, len(m.words))
	from, to := m.own()
	n := m.masters
	for w, x := range m.words {
		if w >= from && w < to {
			m.words[w], m.before[w] = math.MaxUint64, uint32(w)*64-m.first
			continue
		}
		m.before[w] = n
		n += uint32(bits.OnesCount64(x))
	}
}

// write writes what is marked, of others, to a new array.
func (m *numbering) write(w *store.Writer, name string) error {
	a, err := w.Array(name, graph.Uint32, 1)
	if err != nil {
		return err
	}
	defer a.Close()
	var ids [64]uint32
	from, to := m.own()
	for i, x := range m.words {
		if i >= from && i < to {
			continue
		}
		n := 0
		for ; x != 0; x &= x - 1 {
			ids[n] = uint32(i*64 + bits.TrailingZeros64(x))
			n++
		}
		if _, err := a.Write(arrays.Bytes(ids[:n])); err != nil {
			return err
		}
	}
	return a.Finish()
}

// of returns the number of a master or of what is marked.
func (m *numbering) of(id uint32) uint32 {
	w := id / 64
	return m.before[w] + uint32(bits.OnesCount64(m.words[w]&(1<<(id%64)-1)))
}

// rows are the arrays that sorted edges are written to.
type rows struct {
	indptr, indices, weights *store.ArrayWriter // weights may be nil
	edges                    int64
}

// room is memory for the edges of a bucket: as they are read, and in order.
type room struct {
	read, other, readWeight, weight []uint32
	key                             []uint16
	ends                            []int64
}

// resized returns n values, of s if it has as many, which are not zeros then.
func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// sort writes the rows of the keys: the masters', each, then those of marked keys. limit is how
// many edges it may hold at once; a key with more is copied as it is.
func (k *buckets) sort(ctx context.Context, readers int, keys, others *numbering, limit int, out *rows) error {
	if err := out.end(); err != nil {
		return err
	}
	first, end, r := keys.first, keys.first+keys.masters, &room{}
	order := func(masters bool) error {
		from := k.from
		for b, to := range k.ends {
			if (from >= first && from < end) == masters {
				if err := k.sortBucket(ctx, b, readers, from, to, masters, others, limit, r, out); err != nil {
					return err
				}
			}
			from = to
		}
		return nil
	}
	if err := order(true); err != nil {
		return err
	}
	return order(false)
}

// sortBucket writes the rows of the keys [from, to), of those without edges only if all are to be.
func (k *buckets) sortBucket(ctx context.Context, b, readers int, from, to uint32, all bool, others *numbering, limit int, r *room, out *rows) error {
	most, err := k.atMost(b, readers)
	if err != nil {
		return err
	}
	if most <= int64(limit) {
		return k.sortRows(ctx, b, readers, from, to, most, all, others, r, out)
	}
	count := make([]int64, to-from)
	err = k.each(ctx, b, readers, func(block []bucketEdge) {
		for _, e := range block {
			count[e.key-from]++
		}
	})
	for lo := from; lo < to && err == nil; {
		hi, edges := lo, int64(0)
		for hi < to && (hi == lo || edges+count[hi-from] <= int64(limit)) {
			edges += count[hi-from]
			hi++
		}
		if edges <= int64(limit) {
			err = k.sortRows(ctx, b, readers, lo, hi, edges, all, others, r, out)
		} else if err = k.copyRow(ctx, b, readers, lo, others, out); err == nil {
			out.edges += edges
			err = out.end()
		}
		lo = hi
	}
	return err
}

// atMost returns how many edges a bucket has at most, by the sizes of its files.
func (k *buckets) atMost(b, readers int) (edges int64, err error) {
	least := 1 + int64(k.width) // bytes of an edge
	if k.weighted {
		least += 4
	}
	for r := range readers {
		info, err := os.Stat(k.file(r, b))
		if err == nil {
			edges += info.Size() / least
		} else if !errors.Is(err, os.ErrNotExist) {
			return 0, fmt.Errorf("pieces: %w", err)
		}
	}
	return edges, nil
}

// sortRows writes the rows of the keys [from, to), which have up to so many edges, of those without edges only if all are to be.
func (k *buckets) sortRows(ctx context.Context, b, readers int, from, to uint32, edges int64, all bool, others *numbering, r *room, out *rows) error {
	r.ends, r.read, r.key = resized(r.ends, int(to-from)), resized(r.read, int(edges)), resized(r.key, int(edges))
	if k.weighted {
		r.readWeight = resized(r.readWeight, int(edges))
	}
	ends, n := r.ends, 0 // of each key's edges, when they are counted
	clear(ends)
	err := k.each(ctx, b, readers, func(block []bucketEdge) {
		for _, e := range block {
			row := e.key - from
			if int(row) >= len(ends) || n == len(r.read) {
				continue
			}
			ends[row]++
			r.read[n], r.key[n] = others.of(e.other), uint16(row)
			if k.weighted {
				r.readWeight[n] = e.weight
			}
			n++
		}
	})
	if err != nil {
		return err
	}
	sum := int64(0)
	for i, n := range ends {
		ends[i] = sum // where the key's next edge goes
		sum += n
	}
	r.other = resized(r.other, n)
	if k.weighted {
		r.weight = resized(r.weight, n)
	}
	for i, row := range r.key[:n] {
		p := ends[row]
		ends[row]++
		r.other[p] = r.read[i]
		if k.weighted {
			r.weight[p] = r.readWeight[i]
		}
	}
	if err := out.put(r.other, arrays.Bytes(r.weight)); err != nil {
		return err
	}
	begin, before := int64(0), out.edges
	for _, end := range ends {
		if out.edges = before + end; all || end > begin {
			if err := out.end(); err != nil {
				return err
			}
		}
		begin = end
	}
	return nil
}

// copyRow writes the edges of one key, which are in order.
func (k *buckets) copyRow(ctx context.Context, b, readers int, key uint32, others *numbering, out *rows) (err error) {
	var other, weight []uint32
	return errors.Join(k.each(ctx, b, readers, func(block []bucketEdge) {
		other, weight = other[:0], weight[:0]
		for _, e := range block {
			if e.key == key {
				other = append(other, others.of(e.other))
				if k.weighted {
					weight = append(weight, e.weight)
				}
			}
		}
		err = errors.Join(err, out.put(other, arrays.Bytes(weight)))
	}), err)
}

// begin begins the arrays of those names, and writes the nodes of other pieces that the entries name.
func (r *rows) begin(w *store.Writer, names [4]string, weighted bool, others *numbering) (err error) {
	for a, to := range []**store.ArrayWriter{&r.indptr, &r.indices, &r.weights} {
		if a == 2 && !weighted {
			continue
		}
		if *to, err = w.Array(names[a], []graph.DType{graph.Int64, graph.Uint32, graph.Float32}[a], 1); err != nil {
			return err
		}
	}
	return others.write(w, names[3])
}

// end ends a row, at the beginning none.
func (r *rows) end() error {
	_, err := r.indptr.Write(arrays.Bytes([]int64{r.edges}))
	return err
}

func (r *rows) put(other []uint32, weights []byte) error {
	if _, err := r.indices.Write(arrays.Bytes(other)); err != nil {
		return err
	}
	if r.weights == nil {
		return nil
	}
	_, err := r.weights.Write(weights)
	return err
}

func (r *rows) close() {
	for _, a := range []*store.ArrayWriter{r.indptr, r.indices, r.weights} {
		if a != nil {
			a.Close()
		}
	}
}

func (r *rows) finish() error {
	for _, a := range []*store.ArrayWriter{r.indptr, r.indices, r.weights} {
		if a != nil {
			if err := a.Finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

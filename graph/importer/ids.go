package importer

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"runtime"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/internal/hugepages"
)

// idMap numbers the ids of nodes: whole numbers of 64 bits as long as all are, from then on
// texts, where a number is its digits. First they are numbered as they come, by sorted as their
// names rise, so that numbers do not depend on the order of the input.
//
// Its table is open addressing over 32 bits of a hash and the number + 1; the names lie beside
// it, so that most look-ups read two places. A batch's first reads are made before any is waited
// for.
type idMap struct {
	numbers []int64
	texts   bool
	text    []byte
	ends    []int64 // of each text
	table   []uint64
	frozen  bool // new ids are not taken
	seed    maphash.Seed
	found   []uint64 // scratch: the candidate of each of a batch
	hashes  []uint64 // scratch
	touched byte     // of the texts that a batch compares with: they are read before any is waited for
}

func newIDMap() *idMap { return &idMap{table: make([]uint64, 1<<10), seed: maphash.MakeSeed()} }

// len returns how many ids there are.
func (m *idMap) len() int {
	if m.texts {
		return len(m.ends)
	}
	return len(m.numbers)
}

// errNewID is what becomes of an id that a frozen map does not have.
var errNewID = errors.New("an id that no node has")

func hashNumber(x int64) uint64 {
	h := uint64(x) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}

// candidate returns the first entry that the id of a hash may have; 0: it has none.
func (m *idMap) candidate(h, mask uint64) uint64 {
	for slot := h & mask; ; slot = (slot + 1) & mask {
		if e := m.table[slot]; e == 0 || e>>32 == h>>32 {
			return e
		}
	}
}

// grown is x with room for n more, in huge pages.
func grown[T any](x []T, n int) []T {
	if len(x)+n <= cap(x) {
		return x
	}
	return append(hugepages.Make[T](max(2*cap(x), len(x)+n))[:0], x...)
}

// addNumbers puts the number of each id into out. Where one is not to be had, the error wraps
// errNewID, and at is which.
func (m *idMap) addNumbers(ids []int64, out []uint32) (at int, err error) {
	m.room(len(ids))
	m.numbers = grown(m.numbers, len(ids))
	mask := uint64(len(m.table) - 1)
	m.hashes, m.found = resized(m.hashes, len(ids)), resized(m.found, len(ids))
	for i, id := range ids {
		h := hashNumber(id)
		m.hashes[i], m.found[i] = h, m.candidate(h, mask)
	}
	for i, id := range ids {
		h := m.hashes[i]
		if e := m.found[i]; e != 0 && m.numbers[uint32(e)-1] == id {
			out[i] = uint32(e) - 1
			continue
		}
		for slot := h & mask; ; slot = (slot + 1) & mask {
			e := m.table[slot]
			if e == 0 {
				if m.frozen {
					return i, errNewID
				}
				if int64(len(m.numbers)) == graph.MaxNodes {
					return i, errTooMany
				}
				m.numbers = append(m.numbers, id)
				m.table[slot] = h>>32<<32 | uint64(len(m.numbers))
				out[i] = uint32(len(m.numbers) - 1)
				break
			}
			if e>>32 == h>>32 && m.numbers[uint32(e)-1] == id {
				out[i] = uint32(e) - 1
				break
			}
		}
	}
	return 0, nil
}

var errTooMany = fmt.Errorf("more than %d nodes, which are as many as are supported", graph.MaxNodes)

// addTexts is addNumbers for the fields of some columns: out[i*len(columns)+k] is row i's.
func (m *idMap) addTexts(r *records, columns []int, out []uint32) (at int, err error) {
	m.toTexts()
	n := r.rows * len(columns)
	m.room(n)
	m.text, m.ends = grown(m.text, len(r.buf)), grown(m.ends, n)
	mask := uint64(len(m.table) - 1)
	m.hashes, m.found = resized(m.hashes, n), resized(m.found, n)
	i := 0
	for row := range r.rows {
		for _, k := range columns {
			h := maphash.Bytes(m.seed, r.field(row, k))
			m.hashes[i], m.found[i] = h, m.candidate(h, mask)
			i++
		}
	}
	touched := byte(0)
	for _, e := range m.found {
		if e != 0 {
			if end := m.ends[uint32(e)-1]; end > 0 {
				touched ^= m.text[end-1]
			}
		}
	}
	m.touched = touched
	i = 0
	for row := range r.rows {
		for _, k := range columns {
			h, id := m.hashes[i], r.field(row, k)
			if e := m.found[i]; e != 0 && bytes.Equal(m.textOf(uint32(e)-1), id) {
				out[i] = uint32(e) - 1
			} else if out[i], err = m.slowText(h, id); err != nil {
				return i, err
			}
			i++
		}
	}
	return 0, nil
}

func (m *idMap) slowText(h uint64, id []byte) (uint32, error) {
	mask := uint64(len(m.table) - 1)
	for slot := h & mask; ; slot = (slot + 1) & mask {
		e := m.table[slot]
		switch {
		case e == 0 && m.frozen:
			return 0, errNewID
		case e == 0 && int64(len(m.ends)) == graph.MaxNodes:
			return 0, errTooMany
		case e == 0 && len(id) == 0:
			return 0, errors.New("a node id is missing")
		case e == 0 && !utf8.Valid(id):
			return 0, fmt.Errorf("%q is not UTF-8; convert the file (iconv -f LATIN1 -t UTF-8)", clip(id))
		case e == 0 && id[0] == '{' && id[len(id)-1] == '}':
			return 0, fmt.Errorf("%q is what networkx writes of attributes, and no id; write edges alone (nx.write_edgelist(G, path, data=False)), or say which columns are ids (--src COL --dst COL)", clip(id))
		case e == 0 && len(id) > maxIDBytes:
			return 0, fmt.Errorf("an id of %d bytes (%q); at most %d are supported: is this the right column?", len(id), clip(id), maxIDBytes)
		case e == 0:
			m.text = append(m.text, id...)
			m.ends = append(m.ends, int64(len(m.text)))
			m.table[slot] = h>>32<<32 | uint64(len(m.ends))
			return uint32(len(m.ends) - 1), nil
		case e>>32 == h>>32 && bytes.Equal(m.textOf(uint32(e)-1), id):
			return uint32(e) - 1, nil
		}
	}
}

const maxIDBytes = 4096

func (m *idMap) textOf(v uint32) []byte {
	from := int64(0)
	if v > 0 {
		from = m.ends[v-1]
	}
	return m.text[from:m.ends[v]]
}

// room makes the table large enough for n more.
func (m *idMap) room(n int) {
	if m.frozen {
		n = 0
	}
	need := len(m.table)
	for 3*need < 4*(m.len()+n) {
		need *= 2
	}
	if need != len(m.table) {
		m.table = hugepages.Make[uint64](need)
		m.rehash()
	}
}

func (m *idMap) rehash() {
	mask := uint64(len(m.table) - 1)
	for v := range m.len() {
		var h uint64
		if m.texts {
			h = maphash.Bytes(m.seed, m.textOf(uint32(v)))
		} else {
			h = hashNumber(m.numbers[v])
		}
		slot := h & mask
		for m.table[slot] != 0 {
			slot = (slot + 1) & mask
		}
		m.table[slot] = h>>32<<32 | uint64(v+1)
	}
}

// toTexts turns the numbers so far into texts.
func (m *idMap) toTexts() {
	if m.texts {
		return
	}
	m.texts = true
	for _, x := range m.numbers {
		m.text = strconv.AppendInt(m.text, x, 10)
		m.ends = append(m.ends, int64(len(m.text)))
	}
	m.numbers = nil
	clear(m.table)
	m.rehash()
}

// sorted numbers the ids as their names rise, and returns those names, nil where each is its
// number, and the new number of every old one.
func (m *idMap) sorted() (*graph.Names, []uint32) {
	n := m.len()
	names := new(graph.Names)
	var renumber []uint32
	if m.texts {
		order := make([]uint32, n)
		m.sortTexts(order)
		renumber = hugepages.Make[uint32](n)
		for i, v := range order {
			renumber[v] = uint32(i)
		}
		names.Text, names.Bounds = make([]byte, 0, len(m.text)), make([]int64, 1, n+1)
		for _, v := range order {
			names.Text = append(names.Text, m.textOf(v)...)
			names.Bounds = append(names.Bounds, int64(len(names.Text)))
		}
		m.text = names.Text
		copy(m.ends, names.Bounds[1:])
	} else {
		names.Numbers, renumber = m.sortNumbers()
		m.numbers = slices.Clone(names.Numbers)
	}
	for i, e := range m.table {
		if e != 0 {
			m.table[i] = e>>32<<32 | uint64(renumber[uint32(e)-1]) + 1
		}
	}
	if !m.texts && (n == 0 || names.Numbers[0] == 0 && names.Numbers[n-1] == int64(n-1)) {
		names = nil
	}
	return names, renumber
}

// sortNumbers returns the numbers as they rise, and the place of each there.
func (m *idMap) sortNumbers() (sorted []int64, rank []uint32) {
	sorted = slices.Clone(m.numbers)
	sortAll(sorted, runtime.GOMAXPROCS(0), cmp.Compare[int64])
	rank = hugepages.Make[uint32](len(sorted))
	frozen := m.frozen
	m.frozen = true // all are there
	var local [1 << 12]uint32
	for at := 0; at < len(sorted); at += len(local) {
		part := sorted[at:min(at+len(local), len(sorted))]
		if _, err := m.addNumbers(part, local[:]); err != nil {
			panic(err)
		}
		for i := range part {
			rank[local[i]] = uint32(at + i)
		}
	}
	m.frozen = frozen
	return sorted, rank
}

// sortTexts fills order, one for each id, by the first bytes as a number, and where they are alike by the rest.
func (m *idMap) sortTexts(order []uint32) {
	type key struct {
		first uint64
		v     uint32
	}
	keys := make([]key, len(order))
	for v := range keys {
		var b [8]byte
		copy(b[:], m.textOf(uint32(v)))
		keys[v] = key{binary.BigEndian.Uint64(b[:]), uint32(v)}
	}
	sortAll(keys, runtime.GOMAXPROCS(0), func(a, b key) int {
		if c := cmp.Compare(a.first, b.first); c != 0 {
			return c
		}
		return bytes.Compare(m.textOf(a.v), m.textOf(b.v))
	})
	for i, k := range keys {
		order[i] = k.v
	}
}

// clear takes all ids out.
func (m *idMap) clear() {
	clear(m.table)
	m.numbers, m.text, m.ends = m.numbers[:0], m.text[:0], m.ends[:0]
}

func resized[T any](x []T, n int) []T {
	if cap(x) < n {
		return make([]T, n)
	}
	return x[:n]
}

// parseNumber reads a whole number that is written as strconv writes it, so that an id like 007 is a
// text and stays what it is.
func parseNumber(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	digits := b
	if b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) == 0 || digits[0] == '0' && len(b) > 1 || len(digits) > 19 {
		return 0, false
	}
	x := uint64(0) // of 19 digits all fit
	for _, c := range digits {
		if c -= '0'; c > 9 {
			return 0, false
		}
		x = 10*x + uint64(c)
	}
	if len(digits) != len(b) {
		return -int64(x), x <= 1<<63
	}
	return int64(x), x < 1<<63
}

// takeNames makes the ids that were read so far the nodes, and returns the new number of each.
func (im *importer) takeNames(from string) ([]uint32, error) {
	names, renumber := im.ids.sorted()
	if err := twiceWritten(names); err != nil {
		return nil, dataerr.Bad("%s: %w", from, err)
	}
	im.names = names
	im.nodesClaimed = true // there is a name for each
	return renumber, im.setNodes(int64(len(renumber)), from)
}

// nameNodes ends what the edges alone say of nodes: their numbers become those of the ids that are
// there, without gaps.
func (im *importer) nameNodes() error {
	s := im.edges
	if err := s.flush(); err != nil {
		return err
	}
	if im.ids == nil {
		if s.maxID < max(1<<20, 64*s.count) {
			return im.closeGaps()
		}
		if err := im.mapIDs(); err != nil {
			return err
		}
	}
	if im.runs != nil {
		return im.nameRuns()
	}
	renumber, err := im.takeNames("the edges")
	if err != nil {
		return err
	}
	return s.rewrite(func(_ int64, src, dst []uint32) error {
		for i, v := range src {
			src[i], dst[i] = renumber[v], renumber[dst[i]]
		}
		return nil
	})
}

// closeGaps numbers the nodes that have edges, where their ids are small numbers.
func (im *importer) closeGaps() error {
	s := im.edges
	present := hugepages.Make[uint64](int(s.maxID/64 + 1))
	err := s.each(func(src, dst []uint32) error {
		for _, x := range [][]uint32{src, dst} {
			for _, v := range x {
				if w := &present[v/64]; *w>>(v%64)&1 == 0 {
					*w |= 1 << (v % 64)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	before := hugepages.Make[uint32](len(present)) // how many are present in the words before
	n := uint32(0)
	for i, w := range present {
		before[i] = n
		n += uint32(bits.OnesCount64(w))
	}
	im.nodesClaimed = true
	if err := im.setNodes(int64(n), "the edges"); err != nil || int64(n) == s.maxID+1 {
		return err
	}
	names := make([]int64, 0, n)
	for v := range s.maxID + 1 {
		if present[v/64]>>(v%64)&1 != 0 {
			names = append(names, v)
		}
	}
	im.names = &graph.Names{Numbers: names}
	return s.rewrite(func(_ int64, src, dst []uint32) error {
		for _, x := range [][]uint32{src, dst} {
			for i, v := range x {
				x[i] = before[v/64] + uint32(bits.OnesCount64(present[v/64]&(1<<(v%64)-1)))
			}
		}
		return nil
	})
}

// mapIDs begins to map ids, of which the edges so far have small numbers.
func (im *importer) mapIDs() error {
	im.ids = newIDMap()
	ids := make([]int64, spoolBlock)
	return im.edges.rewrite(func(first int64, src, dst []uint32) error {
		for _, x := range [][]uint32{src, dst} {
			for i, v := range x {
				ids[i] = int64(v)
			}
			if _, err := im.ids.addNumbers(ids[:len(x)], x); err != nil {
				return err
			}
		}
		if im.full() {
			return im.endRun(first + int64(len(src)))
		}
		return nil
	})
}

// writeNames writes what the nodes are called and the recipe, where there are any.
func (im *importer) writeNames() error {
	if im.recipe != nil {
		if err := im.w.Put(arrays.Recipe, graph.Uint8, 1, im.recipe); err != nil {
			return err
		}
	}
	switch n := im.names; {
	case n == nil: // or they were written
		return nil
	case n.Numbers != nil:
		if int64(len(n.Numbers)) != im.nodes {
			return dataerr.Bad("%d names for %d nodes", len(n.Numbers), im.nodes)
		}
		return im.w.Put(arrays.NodeIDs, graph.Int64, 1, arrays.Bytes(n.Numbers))
	default:
		if err := im.w.Put(arrays.NodeNames, graph.Uint8, 1, n.Text); err != nil {
			return err
		}
		return im.w.Put(arrays.NameBounds, graph.Int64, 1, arrays.Bytes(n.Bounds))
	}
}

// twiceWritten refuses ids of which some are written as 1 and others as 1.0, as pandas does with a
// column in which one is missing.
func twiceWritten(n *graph.Names) error {
	if !n.AreTexts() {
		return nil
	}
	for v := range len(n.Bounds) - 1 {
		name, float := bytes.CutSuffix(n.Text[n.Bounds[v]:n.Bounds[v+1]], []byte(".0"))
		if !float {
			continue
		}
		if _, whole := parseNumber(name); !whole {
			continue
		}
		if _, found := n.Find(string(name), 0); found {
			return errTwice(name)
		}
	}
	return nil
}

func errTwice(name []byte) error {
	return fmt.Errorf("the ids %s and %s.0 both occur and are two nodes as texts; write whole numbers as such (pandas: df.astype(\"Int64\"))", name, name)
}

package importer

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"runtime"
	"strconv"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/hugepages"
)

// idMap numbers the ids of nodes: whole numbers of 64 bits as long as all are, from then on
// texts, where a number is its digits. First they are numbered as they come, by sorted as their
// names rise, so that numbers do not depend on the order of the input.
//
// Its tables are open addressing. Of numbers a slot has the id itself, so that most look-ups read one
// place; of texts it has 32 bits of a hash and the number + 1, and the texts lie beside it. A batch's first
// reads are made before any is waited for.
type idMap struct {
	slots   []numberSlot
	count   int // of ids
	texts   bool
	text    []byte  // one after the other, as appendKept has them
	uuids   int     // how many are UUIDs
	width   int     // of each text; 0: they differ, and
	ends    []int64 // says where each ends
	table   []uint64
	frozen  bool      // new ids are not taken
	found   []uint64  // scratch: the candidate of each of a batch
	keys    []textKey // scratch: of the texts that are sorted
	touched byte      // of the texts that a batch compares with: they are read before any is waited for
}

// numberSlot is an id and its number + 1; 0: the slot is free.
type numberSlot struct {
	id     int64
	number uint32
}

func newIDMap() *idMap { return &idMap{slots: make([]numberSlot, 1<<10)} }

// errNewID is what becomes of an id that a frozen map does not have.
var errNewID = errors.New("an id that no node has")

func hashNumber(x int64) uint64 {
	h := uint64(x) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}

// grown is x with room for n more, in huge pages.
func grown[T any](x []T, n int) []T {
	if len(x)+n <= cap(x) {
		return x
	}
	return append(hugepages.Make[T](max(2*cap(x), len(x)+n))[:0], x...)
}

// textRoom is x with room for n more. Past a small part of what a run may have there is room for all of it at once: what is not
// written to takes no memory, and copies that are replaced do.
func textRoom(x []byte, n int) []byte {
	const all = runBytes + runBytes/16
	if need := len(x) + n; need > cap(x) && need > all/8 && need <= all {
		return append(hugepages.Make[byte](all)[:0], x...)
	}
	return grown(x, n)
}

// numberShift is by how much a hash is shifted to be a place in slots: these lie as hashes rise, and a larger
// table is filled from its begin to its end.
func numberShift(slots []numberSlot) int { return 64 - bits.TrailingZeros(uint(len(slots))) }

// addNumbers puts the number of each id into out. Where one is not to be had, the error wraps
// errNewID, and at is which.
func (m *idMap) addNumbers(ids []int64, out []uint32) (at int, err error) {
	if !m.frozen {
		m.roomForNumbers(len(ids))
	}
	slots, shift, mask := m.slots, numberShift(m.slots), uint64(len(m.slots)-1)
	out = out[:len(ids)]
	for i, id := range ids {
		s := &slots[hashNumber(id)>>shift&mask]
		n := s.number
		if s.id != id {
			n = 0
		}
		out[i] = n
	}
	for i, id := range ids {
		if out[i] == 0 {
			at := hashNumber(id) >> shift
			for ; slots[at].number != 0 && slots[at].id != id; at = (at + 1) & mask {
			}
			if slots[at].number == 0 {
				if m.frozen {
					return i, errNewID
				}
				if int64(m.count) == graph.MaxNodes {
					return i, errTooMany
				}
				m.count++
				slots[at] = numberSlot{id, uint32(m.count)}
			}
			out[i] = slots[at].number
		}
		out[i]--
	}
	return 0, nil
}

// roomForNumbers makes the table large enough for n more.
func (m *idMap) roomForNumbers(n int) {
	need := len(m.slots)
	for 3*need < 4*(m.count+n) {
		need *= 2
	}
	if need == len(m.slots) {
		return
	}
	larger := hugepages.Make[numberSlot](need)
	shift, mask := numberShift(larger), uint64(need-1)
	for _, s := range m.slots {
		if s.number == 0 {
			continue
		}
		at := hashNumber(s.id) >> shift
		for ; larger[at].number != 0; at = (at + 1) & mask {
		}
		larger[at] = s
	}
	m.slots = larger
}

var errTooMany = fmt.Errorf("more than %d nodes, which are as many as are supported", graph.MaxNodes)

// candidate returns the first entry that the text of a hash may have; 0: it has none.
func (m *idMap) candidate(h, mask uint64) uint64 {
	for slot := h & mask; ; slot = (slot + 1) & mask {
		if e := m.table[slot]; e == 0 || e>>32 == h>>32 {
			return e
		}
	}
}

// addTexts is addNumbers for texts, the fields of so many columns of r: out[i*columns+k] is row i's.
func (m *idMap) addTexts(r *records, ids *textIDs, columns []int, out []uint32) (at int, err error) {
	m.toTexts()
	n := len(ids.hashes)
	m.roomForTexts(n)
	if !m.frozen {
		m.text = textRoom(m.text, len(ids.kept))
	}
	mask := uint64(len(m.table) - 1)
	m.found = resized(m.found, n)
	for i, h := range ids.hashes {
		m.found[i] = m.candidate(h, mask)
	}
	touched := byte(0)
	for _, e := range m.found {
		if e != 0 {
			touched ^= m.text[m.begin(uint32(e)-1)]
		}
	}
	m.touched = touched
	for i, e := range m.found {
		id := ids.id(i)
		if e != 0 && bytes.Equal(m.kept(uint32(e)-1), id) {
			out[i] = uint32(e) - 1
			continue
		}
		row, k := i/len(columns), columns[i%len(columns)]
		if out[i], err = m.slowText(ids.hashes[i], id, func() error { return r.checkID(row, k) }); err != nil {
			return i, err
		}
	}
	return 0, nil
}

// slowText is addTexts for one id, which its first candidate is not. check tells why a new one is none.
func (m *idMap) slowText(h uint64, id []byte, check func() error) (uint32, error) {
	mask := uint64(len(m.table) - 1)
	for slot := h & mask; ; slot = (slot + 1) & mask {
		e := m.table[slot]
		switch {
		case e == 0 && m.frozen:
			return 0, errNewID
		case e == 0 && int64(m.count) == graph.MaxNodes:
			return 0, errTooMany
		case e == 0:
			if err := check(); err != nil {
				return 0, err
			}
			m.append(id)
			m.table[slot] = h>>32<<32 | uint64(m.count)
			return uint32(m.count - 1), nil
		case e>>32 == h>>32 && bytes.Equal(m.kept(uint32(e)-1), id):
			return uint32(e) - 1, nil
		}
	}
}

// append adds a text, as it is kept.
func (m *idMap) append(id []byte) {
	if m.count == 0 {
		m.width = len(id)
	} else if m.width > 0 && len(id) != m.width {
		m.ends = grown(m.ends, m.count+1)
		for v := range m.count {
			m.ends = append(m.ends, int64((v+1)*m.width))
		}
		m.width = 0
	}
	m.text = append(m.text, id...)
	if m.width == 0 {
		m.ends = append(grown(m.ends, 1), int64(len(m.text)))
	}
	if isUUID(id) {
		m.uuids++
	}
	m.count++
}

// begin returns where text v begins.
func (m *idMap) begin(v uint32) int64 {
	if m.width > 0 {
		return int64(v) * int64(m.width)
	} else if v == 0 {
		return 0
	}
	return m.ends[v-1]
}

// kept returns text v as it is kept.
func (m *idMap) kept(v uint32) []byte {
	from := m.begin(v)
	if m.width > 0 {
		return m.text[from : from+int64(m.width)]
	}
	return m.text[from:m.ends[v]]
}

// roomForTexts makes the table large enough for n more.
func (m *idMap) roomForTexts(n int) {
	if m.frozen {
		n = 0
	}
	need := max(len(m.table), 1<<10)
	for 3*need < 4*(m.count+n) {
		need *= 2
	}
	if need == len(m.table) {
		return
	}
	m.table = hugepages.Make[uint64](need)
	mask := uint64(need - 1)
	for v := range uint32(m.count) {
		h := maphash.Bytes(idSeed, m.kept(v))
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
	numbers := make([]int64, m.count)
	for _, s := range m.slots {
		if s.number > 0 {
			numbers[s.number-1] = s.id
		}
	}
	m.texts, m.slots, m.count = true, nil, 0
	var digits []byte
	for _, x := range numbers {
		digits = strconv.AppendInt(digits[:0], x, 10)
		m.append(digits)
	}
}

// sorted numbers the ids as their names rise, and returns those names, nil where each is its
// number, and the new number of every old one.
func (m *idMap) sorted() (*graph.Names, []uint32) {
	n := m.count
	names := new(graph.Names)
	var renumber []uint32
	if m.texts {
		order := make([]uint32, n)
		m.sortTexts(order)
		renumber = hugepages.Make[uint32](n)
		for i, v := range order {
			renumber[v] = uint32(i)
		}
		names.Text, names.Bounds = make([]byte, 0, len(m.text)+m.uuids*(uuidLength-uuidKept)), make([]int64, 1, n+1)
		for _, v := range order {
			names.Text = appendID(names.Text, m.kept(v))
			names.Bounds = append(names.Bounds, int64(len(names.Text)))
		}
		m.reorder(order, names)
	} else {
		names.Numbers, renumber = m.sortNumbers()
	}
	for i, s := range m.slots {
		if s.number > 0 {
			m.slots[i].number = renumber[s.number-1] + 1
		}
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

// reorder has text i be what was text order[i]. Where none is a UUID, the names are what is kept.
func (m *idMap) reorder(order []uint32, names *graph.Names) {
	if m.uuids == 0 {
		m.text = names.Text
		if m.width == 0 {
			copy(m.ends, names.Bounds[1:])
		}
		return
	}
	text, end := make([]byte, 0, len(m.text)), int64(0)
	var ends []int64
	for _, v := range order {
		text = append(text, m.kept(v)...)
		if end = int64(len(text)); m.width == 0 {
			ends = append(ends, end)
		}
	}
	m.text, m.ends = text, ends
}

// sortNumbers returns the numbers as they rise, and the place of each there.
func (m *idMap) sortNumbers() (sorted []int64, rank []uint32) {
	sorted = make([]int64, 0, m.count)
	for _, s := range m.slots {
		if s.number > 0 {
			sorted = append(sorted, s.id)
		}
	}
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

// textKey is the first bytes of a text, and its number.
type textKey struct {
	first uint64
	v     uint32
}

// sortTexts fills order, one for each id, by the first bytes as a number, and where they are alike by the rest.
func (m *idMap) sortTexts(order []uint32) {
	m.keys = resized(m.keys, len(order))
	keys := m.keys
	for v := range keys {
		var b [8]byte
		if id := m.kept(uint32(v)); isUUID(id) {
			hex.Encode(b[:], id[1:5])
		} else {
			copy(b[:], id)
		}
		keys[v] = textKey{binary.BigEndian.Uint64(b[:]), uint32(v)}
	}
	sortAll(keys, runtime.GOMAXPROCS(0), func(a, b textKey) int {
		if c := cmp.Compare(a.first, b.first); c != 0 {
			return c
		}
		return compareIDs(m.kept(a.v), m.kept(b.v))
	})
	for i, k := range keys {
		order[i] = k.v
	}
}

// clear takes all ids out.
func (m *idMap) clear() {
	clear(m.slots)
	clear(m.table)
	m.count, m.text, m.ends, m.uuids = 0, m.text[:0], m.ends[:0], 0
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
	rest := digits
	for ; len(rest) >= 8; rest = rest[8:] {
		eight, ok := parseEight(binary.LittleEndian.Uint64(rest))
		if !ok {
			return 0, false
		}
		x = 1e8*x + eight
	}
	for _, c := range rest {
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

// parseEight reads eight digits, of which the first is in the lowest byte.
func parseEight(b uint64) (uint64, bool) {
	const zeros, high = 0x3030303030303030, 0xf0f0f0f0f0f0f0f0
	if b&high != zeros || (b+0x0606060606060606)&high != zeros {
		return 0, false
	}
	b -= zeros
	b = b*10 + b>>8 // pairs, in every second byte
	const pairs = 0x000000ff000000ff
	return (b&pairs*(100+1e6<<32) + b>>16&pairs*(1+1e4<<32)) >> 32, true
}

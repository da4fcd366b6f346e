package importer

import (
	"bytes"
	"encoding/hex"
	"hash/maphash"
)

// A UUID as most programs write it, 8-4-4-4-12 digits of base 16 in small letters, is kept as uuidMark and its 16 bytes:
// with less than half the memory a map holds all ids where it else is written, and sorted, many times over.
const (
	uuidMark   = 0xff // no text in UTF-8 begins so
	uuidKept   = 1 + 16
	uuidLength = 36
)

// uuidDigits is where the bytes of a UUID begin in its text.
var uuidDigits = [16]int{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34}

// digit16 is the value of a digit of base 16, 0xff that of what is none.
var digit16 = func() (value [256]byte) {
	for i := range value {
		value[i] = uuidMark
	}
	for v, c := range []byte("0123456789abcdef") {
		value[c] = byte(v)
	}
	return value
}()

// appendKept appends an id to b as it is kept.
func appendKept(b, id []byte) []byte {
	if len(id) != uuidLength || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' {
		return append(b, id...)
	}
	kept, bad := [uuidKept]byte{uuidMark}, byte(0)
	for i, at := range uuidDigits {
		high, low := digit16[id[at]], digit16[id[at+1]]
		bad |= high | low
		kept[1+i] = high<<4 | low
	}
	if bad > 15 {
		return append(b, id...)
	}
	return append(b, kept[:]...)
}

func isUUID(kept []byte) bool { return len(kept) == uuidKept && kept[0] == uuidMark }

// appendID appends the id that is kept as kept.
func appendID(b, kept []byte) []byte {
	if !isUUID(kept) {
		return append(b, kept...)
	}
	from := 1
	for i, n := range [5]int{4, 2, 2, 2, 6} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, kept[from:from+n])
		from += n
	}
	return b
}

// compareIDs compares the texts of two ids.
func compareIDs(a, b []byte) int {
	if isUUID(a) == isUUID(b) { // the bytes of UUIDs rise as their texts do
		return bytes.Compare(a, b)
	}
	var one, other [uuidLength]byte
	if isUUID(a) {
		a = appendID(one[:0], a)
	} else {
		b = appendID(other[:0], b)
	}
	return bytes.Compare(a, b)
}

// textIDs are the fields of some columns of a batch, as they are kept, and their hashes.
type textIDs struct {
	kept   []byte
	ends   []uint32
	hashes []uint64
}

// idSeed is of all hashes of texts.
var idSeed = maphash.MakeSeed()

// take fills t with the fields of columns: number i*len(columns)+k is row i's.
func (t *textIDs) take(r *records, columns ...int) {
	t.kept, t.ends, t.hashes = t.kept[:0], t.ends[:0], t.hashes[:0]
	for i := range r.rows {
		for _, k := range columns {
			from := len(t.kept)
			t.kept = appendKept(t.kept, r.field(i, k))
			t.ends = append(t.ends, uint32(len(t.kept)))
			t.hashes = append(t.hashes, maphash.Bytes(idSeed, t.kept[from:]))
		}
	}
}

// id returns id i, as it is kept.
func (t *textIDs) id(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = t.ends[i-1]
	}
	return t.kept[from:t.ends[i]]
}

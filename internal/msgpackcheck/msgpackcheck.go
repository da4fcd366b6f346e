// Package msgpackcheck checks msgpack that came from elsewhere before it is decoded.
//
// The decoder of vmihailenco/msgpack makes room for as many elements as a slice
// says that it has (in v5.4.1 the limit that it means to keep to is never
// applied), so that 5 bytes end the process for lack of memory. After Check
// they cannot: nothing says that it is longer than what follows.
package msgpackcheck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// ErrMalformed is wrapped by the errors of Check.
var ErrMalformed = errors.New("malformed msgpack")

// maxDepth is how deep values may lie in one another.
const maxDepth = 64

// Check reports whether b is whole values of msgpack, one after the other, no
// more than maxDepth deep: a decoder then makes at most one element per byte.
// Its time is linear in len(b).
func Check(b []byte) error {
	for at := 0; at < len(b); {
		n, err := value(b[at:], 0)
		if err != nil {
			return fmt.Errorf("bounded: %w: %w in the value at byte %d", ErrMalformed, err, at)
		}
		at += n
	}
	return nil
}

var (
	errShort = errors.New("it ends too early")
	errDeep  = errors.New("too deep")
	errCode  = errors.New("an unknown type")
)

// Unmarshal decodes b, which is one value of known fields and nothing else, into
// what v points to. Its memory is a small multiple of len(b).
func Unmarshal(b []byte, v any) error {
	n, err := value(b, 0)
	if err != nil {
		return fmt.Errorf("bounded: %w: %w", ErrMalformed, err)
	}
	if n < len(b) {
		return fmt.Errorf("bounded: %w: %d bytes left over", ErrMalformed, len(b)-n)
	}
	d := msgpack.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields(true)
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("bounded: %w: %w", ErrMalformed, err)
	}
	return nil
}

// value returns how long the value is that b begins with.
func value(b []byte, depth int) (int, error) {
	if len(b) == 0 {
		return 0, errShort
	}
	if depth > maxDepth {
		return 0, errDeep
	}
	c := b[0]
	switch {
	case c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3: // small numbers, nil, false, true
		return 1, nil
	case c <= 0x8f:
		return values(b, 1, 2*uint64(c&0xf), depth)
	case c <= 0x9f:
		return values(b, 1, uint64(c&0xf), depth)
	case c <= 0xbf:
		return whole(b, 1+uint64(c&0x1f))
	}
	switch c {
	case 0xcc, 0xd0:
		return whole(b, 2)
	case 0xcd, 0xd1:
		return whole(b, 3)
	case 0xca, 0xce, 0xd2:
		return whole(b, 5)
	case 0xcb, 0xcf, 0xd3:
		return whole(b, 9)
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8: // fixext 1 to 16
		return whole(b, 2+1<<(c-0xd4))
	case 0xc1:
		return 0, errCode
	}
	// What is left has a length of 1, 2 or 4 bytes.
	width := map[byte]int{
		0xc4: 1, 0xc5: 2, 0xc6: 4, 0xc7: 1, 0xc8: 2, 0xc9: 4, 0xd9: 1, 0xda: 2, 0xdb: 4,
		0xdc: 2, 0xdd: 4, 0xde: 2, 0xdf: 4,
	}[c]
	head := 1 + width
	if len(b) < head {
		return 0, errShort
	}
	var wide [4]byte
	copy(wide[4-width:], b[1:head])
	n := uint64(binary.BigEndian.Uint32(wide[:]))
	switch c {
	case 0xdc, 0xdd:
		return values(b, head, n, depth)
	case 0xde, 0xdf:
		return values(b, head, 2*n, depth)
	case 0xc7, 0xc8, 0xc9: // ext has its type, too
		n++
	}
	return whole(b, uint64(head)+n)
}

// whole returns n if b is as long.
func whole(b []byte, n uint64) (int, error) {
	if n > uint64(len(b)) {
		return 0, errShort
	}
	return int(n), nil
}

// values returns how long a head and n values are.
func values(b []byte, head int, n uint64, depth int) (int, error) {
	if n > uint64(len(b)-head) {
		return 0, errShort
	}
	at := head
	for range n {
		k, err := value(b[at:], depth+1)
		if err != nil {
			return 0, err
		}
		at += k
	}
	return at, nil
}

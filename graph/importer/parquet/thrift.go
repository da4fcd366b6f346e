package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A file's footer and the headers of its pages are structures of Thrift's compact protocol. The library that
// decodes them makes lists and pages as long as they say; so they are looked through first, by what follows.

// structure walks through a structure in b. It calls number with every whole number in it: with
// the number of its field, and that of the field of the outermost structure that it is within, which is 0
// for the outermost's own. It returns how long the structure is. Lists have no more members than bytes are left.
func structure(b []byte, number func(outer, field int, x int64)) (int, error) {
	w := walker{b: b, number: number}
	err := w.structure(0, 0)
	return w.p, err
}

type walker struct {
	b      []byte
	p      int
	number func(outer, field int, x int64)
}

// errShort tells that a structure goes beyond the bytes that there are.
var errShort = errors.New("a structure of Thrift does not end")

const maxDepth = 24 // the deepest in Parquet are about 7

// types of values.
const (
	thriftTrue = iota + 1
	thriftFalse
	thriftInt8
	thriftInt16
	thriftInt32
	thriftInt64
	thriftDouble
	thriftBinary
	thriftList
	thriftSet
	thriftMap
	thriftStruct
	thriftUUID
)

func (w *walker) byte() (byte, error) {
	if w.p >= len(w.b) {
		return 0, errShort
	}
	w.p++
	return w.b[w.p-1], nil
}

func (w *walker) varint() (uint64, error) {
	x, n := binary.Uvarint(w.b[w.p:])
	if n == 0 {
		return 0, errShort
	} else if n < 0 {
		return 0, errors.New("a number of Thrift has more than 64 bits")
	}
	w.p += n
	return x, nil
}

// skip passes over n bytes.
func (w *walker) skip(n uint64) error {
	if n > uint64(len(w.b)-w.p) {
		return errShort
	}
	w.p += int(n)
	return nil
}

func (w *walker) structure(outer, depth int) error {
	if depth == maxDepth {
		return fmt.Errorf("structures of Thrift within each other more than %d times", maxDepth)
	}
	field := 0
	for {
		head, err := w.byte()
		if err != nil || head == 0 {
			return err
		}
		if delta := int(head >> 4); delta > 0 {
			field += delta
		} else {
			id, err := w.varint()
			if err != nil {
				return err
			}
			field = int(int16(id>>1) ^ -int16(id&1))
		}
		within := outer
		if depth == 0 {
			within = field
		}
		if err := w.value(int(head&15), outer, within, field, depth); err != nil {
			return err
		}
	}
}

// value walks through what a field, or a member of a list, holds.
func (w *walker) value(kind, outer, within, field, depth int) error {
	switch kind {
	case thriftTrue, thriftFalse:
		return nil
	case thriftInt8:
		return w.skip(1)
	case thriftInt16, thriftInt32, thriftInt64:
		x, err := w.varint()
		w.number(outer, field, int64(x>>1)^-int64(x&1))
		return err
	case thriftDouble:
		return w.skip(8)
	case thriftUUID:
		return w.skip(16)
	case thriftBinary:
		n, err := w.varint()
		if err != nil {
			return err
		}
		return w.skip(n)
	case thriftStruct:
		return w.structure(within, depth+1)
	case thriftList, thriftSet:
		head, err := w.byte()
		if err != nil {
			return err
		}
		n := uint64(head >> 4)
		if n == 15 {
			if n, err = w.varint(); err != nil {
				return err
			}
		}
		return w.members(n, 1, outer, within, depth, int(head&15))
	case thriftMap:
		n, err := w.varint()
		if err != nil || n == 0 {
			return err
		}
		kinds, err := w.byte()
		if err != nil {
			return err
		}
		return w.members(n, 2, outer, within, depth, int(kinds>>4), int(kinds&15))
	}
	return fmt.Errorf("a value of Thrift is of the unknown type %d", kind)
}

// members walks through n members of a list, or pairs of a map, each of at least least bytes.
func (w *walker) members(n uint64, least, outer, within, depth int, kinds ...int) error {
	if n > uint64((len(w.b)-w.p)/least) {
		return fmt.Errorf("a list of Thrift has %d members in %d bytes", n, len(w.b)-w.p)
	}
	if depth == maxDepth {
		return fmt.Errorf("lists of Thrift within each other more than %d times", maxDepth)
	}
	for range n {
		for _, kind := range kinds {
			var err error
			if kind == thriftTrue || kind == thriftFalse {
				err = w.skip(1) // a truth is a byte here
			} else {
				err = w.value(kind, outer, within, -1, depth+1)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

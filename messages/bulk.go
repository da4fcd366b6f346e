package messages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Uint32s and Float32s are bulk numbers: on the wire one msgpack
// binary of little-endian values, or nil.
type (
	Uint32s  []uint32
	Float32s []float32
)

// Rising are ids none of which is below the one before: on the wire a msgpack binary of
// the differences as varints, or nil.
type Rising []uint32

// EncodeMsgpack implements msgpack.CustomEncoder.
func (x Rising) EncodeMsgpack(e *msgpack.Encoder) error {
	if x == nil {
		return e.EncodeNil()
	}
	b := make([]byte, 0, len(x)+len(x)/2)
	last := uint32(0)
	for _, v := range x {
		if v < last {
			return fmt.Errorf("messages: %d after %d among ids that rise", v, last)
		}
		b = binary.AppendUvarint(b, uint64(v-last))
		last = v
	}
	return e.EncodeBytes(b)
}

// DecodeMsgpack implements msgpack.CustomDecoder.
func (x *Rising) DecodeMsgpack(d *msgpack.Decoder) error {
	b, err := d.DecodeBytes()
	if *x = nil; err != nil || b == nil {
		return err
	}
	ids, last := make([]uint32, 0, len(b)), uint64(0)
	for len(b) > 0 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > math.MaxUint32-last {
			return errors.New("messages: ids that rise beyond what there are")
		}
		last += v
		ids, b = append(ids, uint32(last)), b[n:]
	}
	*x = ids
	return nil
}

var errNegativeLength = errors.New("messages: bulk field of unknown length")

func encodeBulk[T uint32 | float32](e *msgpack.Encoder, x []T) error {
	if x == nil {
		return e.EncodeNil()
	}
	if err := e.EncodeBytesLen(4 * len(x)); err != nil {
		return err
	}
	var buf [8192]byte
	for per := len(buf) / 4; len(x) > 0; {
		n := min(per, len(x))
		w, err := binary.Encode(buf[:], binary.LittleEndian, x[:n])
		if err != nil {
			return err
		}
		if _, err := e.Writer().Write(buf[:w]); err != nil {
			return err
		}
		x = x[n:]
	}
	return nil
}

// decodeBulk never allocates more than the bytes that are really there.
func decodeBulk[T uint32 | float32](d *msgpack.Decoder) ([]T, error) {
	code, err := d.PeekCode()
	if err != nil {
		return nil, err
	}
	if code == msgpcode.Nil {
		return nil, d.DecodeNil()
	}
	raw, err := d.DecodeBytes()
	if err != nil {
		return nil, err
	}
	if raw == nil {
		return nil, errNegativeLength
	}
	if len(raw)%4 != 0 {
		return nil, fmt.Errorf("messages: bulk field of %d bytes is not a multiple of 4", len(raw))
	}
	x := make([]T, len(raw)/4)
	if _, err := binary.Decode(raw, binary.LittleEndian, x); err != nil {
		return nil, err
	}
	return x, nil
}

// EncodeMsgpack implements msgpack.CustomEncoder.
func (x Uint32s) EncodeMsgpack(e *msgpack.Encoder) error { return encodeBulk(e, x) }

// EncodeMsgpack implements msgpack.CustomEncoder.
func (x Float32s) EncodeMsgpack(e *msgpack.Encoder) error { return encodeBulk(e, x) }

// DecodeMsgpack implements msgpack.CustomDecoder.
func (x *Uint32s) DecodeMsgpack(d *msgpack.Decoder) (err error) {
	*x, err = decodeBulk[uint32](d)
	return err
}

// DecodeMsgpack implements msgpack.CustomDecoder.
func (x *Float32s) DecodeMsgpack(d *msgpack.Decoder) (err error) {
	*x, err = decodeBulk[float32](d)
	return err
}

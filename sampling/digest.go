package sampling

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Digest is a hash of all that sampling a micro-batch made: the same on every
// node whose memory is sound. 0 stands for a batch that could not be sampled.
type Digest uint64

// Digest returns that of a batch: of its id, its seeds and what belongs to
// them, and of every array of its blocks.
func (b *Batch) Digest() Digest {
	h := hasher{d: xxhash.New()}
	h.text(b.ID.Phase)
	h.numbers(int64(b.ID.Epoch), int64(b.ID.Batch), int64(b.ID.Micro), int64(b.ID.Of), int64(len(b.Blocks)))
	values(&h, b.Seeds)
	values(&h, b.Targets)
	values(&h, b.LossWeights)
	values(&h, b.Positive)
	for i := range b.Blocks {
		k := &b.Blocks[i]
		h.numbers(int64(k.NumDst), int64(k.NumSrc))
		values(&h, k.Indptr)
		values(&h, k.Indices)
		values(&h, k.Weights)
		values(&h, k.EdgeIDs)
		values(&h, k.SrcIDs)
	}
	return max(Digest(h.d.Sum64()), 1)
}

type hasher struct {
	d   *xxhash.Digest
	buf [8192]byte
}

func (h *hasher) text(s string) {
	h.numbers(int64(len(s)))
	_, _ = h.d.WriteString(s) // it cannot fail
}

func (h *hasher) numbers(x ...int64) { write(h, x) }

// values adds an array. What is absent has length 0, and nothing else in its place
// would mean the same.
func values[T uint32 | int64 | float32 | bool](h *hasher, x []T) {
	h.numbers(int64(len(x)))
	write(h, x)
}

func write[T uint32 | int64 | float32 | bool](h *hasher, x []T) {
	for per := len(h.buf) / 8; len(x) > 0; {
		n := min(per, len(x))
		w, err := binary.Encode(h.buf[:], binary.LittleEndian, x[:n])
		if err != nil {
			panic(err) // the buffer has room
		}
		_, _ = h.d.Write(h.buf[:w]) // it cannot fail
		x = x[n:]
	}
}

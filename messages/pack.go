package messages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/gnnactor/gnnactor/sampling"
)

// A packed batch is what travels beside a Sampled that carries a ticket: the bulk
// of a batch with nothing of its ID, which the message has. Node ids are four
// bytes, local ids as many as the block's sources need, row pointers the rows'
// lengths as varints; weights and edge ids are there where the batch has them.

// maxBlocks bounds what their number alone can make ReadBatch allocate.
const maxBlocks = 1024

// Flags of a packed batch and of its blocks.
const (
	packTargets, packLoss          = 1, 2    // of the batch
	packSeeds                      = 4       // its seeds are not the first nodes
	packPositive                   = 8       // they are ends of links
	packWeights, packIDs, packName = 1, 2, 4 // of a block
)

// AppendBatch appends b, packed, to dst.
func AppendBatch(dst []byte, b *sampling.Batch) []byte {
	var nodes []uint32 // all blocks' are prefixes of it
	for i := range b.Blocks {
		if s := b.Blocks[i].SrcIDs; len(s) > len(nodes) {
			nodes = s
		}
	}
	first := len(b.Seeds) <= len(nodes) && slices.Equal(b.Seeds, nodes[:len(b.Seeds)])
	flags := packTargets*one(b.Targets != nil) | packLoss*one(b.LossWeights != nil) | packSeeds*one(!first) | packPositive*one(b.Positive != nil)
	dst = append(dst, flags, byte(len(b.Blocks)), byte(len(b.Blocks)>>8))
	dst = binary.AppendUvarint(dst, uint64(len(nodes)))
	dst = appendIDs(dst, nodes, 4)
	dst = binary.AppendUvarint(dst, uint64(len(b.Seeds)))
	if flags&packSeeds != 0 {
		dst = appendIDs(dst, b.Seeds, 4)
	}
	if b.Targets != nil {
		dst = appendIDs(dst, b.Targets, 4)
	}
	if b.LossWeights != nil {
		dst = appendFloats(dst, b.LossWeights)
	}
	for i := 0; i < len(b.Positive); i += 2 { // a byte a link
		dst = append(dst, one(b.Positive[i]))
	}
	for i := range b.Blocks {
		k := &b.Blocks[i]
		dst = append(dst, packWeights*one(k.Weights != nil)|packIDs*one(k.EdgeIDs != nil)|packName*one(k.SrcIDs != nil))
		for _, n := range []int{k.NumDst, k.NumSrc, len(k.Indices)} {
			dst = binary.AppendUvarint(dst, uint64(n))
		}
		for r := range k.NumDst {
			dst = binary.AppendUvarint(dst, uint64(k.Indptr[r+1]-k.Indptr[r]))
		}
		dst = appendIDs(dst, k.Indices, width(k.NumSrc))
		if k.Weights != nil {
			dst = appendFloats(dst, k.Weights)
		}
		for _, e := range k.EdgeIDs {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(e))
		}
	}
	return dst
}

func one(x bool) byte {
	if x {
		return 1
	}
	return 0
}

// width returns how many bytes an id below n takes.
func width(n int) int { return max(1, (bits.Len(uint(max(n, 1)-1))+7)/8) }

func appendIDs(dst []byte, ids []uint32, width int) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, len(ids)*width)...)
	p := dst[at:]
	switch width {
	case 4:
		for i, v := range ids {
			binary.LittleEndian.PutUint32(p[4*i:], v)
		}
	case 3:
		for i, v := range ids {
			q := p[3*i : 3*i+3]
			q[0], q[1], q[2] = byte(v), byte(v>>8), byte(v>>16)
		}
	case 2:
		for i, v := range ids {
			binary.LittleEndian.PutUint16(p[2*i:], uint16(v))
		}
	default:
		for i, v := range ids {
			p[i] = byte(v)
		}
	}
	return dst
}

func appendFloats(dst []byte, x []float32) []byte {
	for _, v := range x {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
	}
	return dst
}

var errShort = errors.New("it ends early")

// packed reads what AppendBatch wrote.
type packed struct {
	b   []byte
	err error
}

// take returns the next n things of a size; nil after an error.
func (p *packed) take(n, size int) []byte {
	if p.err == nil && (n < 0 || n > len(p.b)/size) {
		p.err = errShort
	}
	if p.err != nil {
		return nil
	}
	x := p.b[:n*size]
	p.b = p.b[n*size:]
	return x
}

// count reads a number of things of which each takes at least size bytes of what follows,
// or of none, when size is 0.
func (p *packed) count(size int) int {
	v, n := binary.Uvarint(p.b)
	if p.err == nil && (n <= 0 || v > math.MaxUint32 || size > 0 && v > uint64((len(p.b)-n)/size)) {
		p.err = errShort
	}
	if p.err != nil {
		return 0
	}
	p.b = p.b[n:]
	return int(v)
}

func (p *packed) ids(dst []uint32, width int) {
	src := p.take(len(dst), width)
	if src == nil {
		return
	}
	switch width {
	case 4:
		for i := range dst {
			dst[i] = binary.LittleEndian.Uint32(src[4*i:])
		}
	case 3:
		for i := range dst {
			q := src[3*i : 3*i+3]
			dst[i] = uint32(q[0]) | uint32(q[1])<<8 | uint32(q[2])<<16
		}
	case 2:
		for i := range dst {
			dst[i] = uint32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	default:
		for i := range dst {
			dst[i] = uint32(src[i])
		}
	}
}

func (p *packed) floats(dst []float32) {
	src := p.take(len(dst), 4)
	for i := range len(src) / 4 {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// ReadBatch makes b the batch of id that data holds, in the memory that b owns, but for
// targets and loss weights. Bytes from elsewhere are safe to pass: what is wrong
// gives an error that wraps ErrMessage, memory is bounded by a small multiple of
// len(data), and a batch that passes can be computed without bounds errors, save
// that its node ids still have to be checked against the graph.
func ReadBatch(b *sampling.Batch, id sampling.ID, data []byte) error {
	b.Reset()
	b.ID = id
	p := &packed{b: data}
	if err := p.batch(b); err != nil {
		b.Reset()
		return fmt.Errorf("%w: %v: %w", ErrMessage, id, err)
	}
	return nil
}

func (p *packed) batch(b *sampling.Batch) error {
	head := p.take(3, 1)
	if head == nil {
		return p.err
	}
	flags, blocks := head[0], int(head[1])|int(head[2])<<8
	if flags > packTargets|packLoss|packSeeds|packPositive || blocks < 1 || blocks > maxBlocks {
		return fmt.Errorf("%d blocks, flags %#x", blocks, flags)
	}
	nodes := b.Nodes(p.count(4))
	p.ids(nodes, 4)
	switch n := p.count(0); {
	case flags&packSeeds == 0 && n <= len(nodes):
		b.Seeds = nodes[:n:n]
	case flags&packSeeds != 0 && n <= len(p.b)/4:
		b.Seeds = make([]uint32, n)
		p.ids(b.Seeds, 4)
	case p.err == nil:
		return fmt.Errorf("%d seeds of %d nodes", n, len(nodes))
	}
	if flags&packTargets != 0 && len(b.Seeds) <= len(p.b)/4 {
		b.Targets = make([]uint32, len(b.Seeds))
		p.ids(b.Targets, 4)
	}
	if flags&packLoss != 0 && len(b.Seeds) <= len(p.b)/4 {
		b.LossWeights = make([]float32, len(b.Seeds))
		p.floats(b.LossWeights)
	}
	if flags&packPositive != 0 && len(b.Seeds)/2 <= len(p.b) {
		b.Positive = make([]bool, len(b.Seeds))
		for i, x := range p.take(len(b.Seeds)/2, 1) {
			if x > 1 {
				return fmt.Errorf("link %d is joined: %d", i, x)
			}
			b.Positive[2*i], b.Positive[2*i+1] = x == 1, x == 1
		}
	}
	if flags&packPositive != 0 && b.Positive == nil || flags&packTargets != 0 && b.Targets == nil || flags&packLoss != 0 && b.LossWeights == nil {
		return errShort
	}
	for i := range blocks {
		if err := p.block(b, i, nodes); err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
	}
	if len(p.b) > 0 {
		return fmt.Errorf("%d bytes follow it", len(p.b))
	}
	return b.Check()
}

func (p *packed) block(b *sampling.Batch, i int, nodes []uint32) error {
	head := p.take(1, 1)
	dst, src := p.count(0), p.count(0)
	if p.err != nil {
		return p.err
	}
	if head[0] > packWeights|packIDs|packName || dst > len(p.b) || src < dst || head[0]&packName != 0 && src > len(nodes) {
		return fmt.Errorf("%d destinations, %d sources of %d nodes, flags %#x", dst, src, len(nodes), head[0])
	}
	weights, ids := head[0]&packWeights != 0, head[0]&packIDs != 0
	size := width(src)
	if weights {
		size += 4
	}
	if ids {
		size += 8
	}
	k := b.Block(i, dst, src, p.count(size), weights, ids)
	if k.Indptr[0] = 0; p.err == nil {
		for r := range dst {
			k.Indptr[r+1] = k.Indptr[r] + int64(p.count(0))
		}
	}
	p.ids(k.Indices, width(src))
	if weights {
		p.floats(k.Weights)
	}
	if ids {
		raw := p.take(len(k.EdgeIDs), 8)
		for e := range len(raw) / 8 {
			k.EdgeIDs[e] = int64(binary.LittleEndian.Uint64(raw[8*e:]))
		}
	}
	if p.err != nil {
		return p.err
	}
	if head[0]&packName != 0 {
		k.SrcIDs = nodes[:src:src]
	}
	return nil
}

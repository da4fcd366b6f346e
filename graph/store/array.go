package store

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"

	"github.com/gnnactor/gnnactor/graph"
)

// A store's array file is a header of 128 bytes, the values, row-major and
// little-endian, and the checksums of its blocks (see blockBytes). Numbers in the
// header are little-endian too:
//
//	  0  magic, 8 bytes
//	  8  version, uint32
//	 12  element type, uint32
//	 16  rows, uint64
//	 24  columns, uint64
//	 32  payload bytes, uint64
//	 40  SHA-256 of the payload, 32 bytes
//	 72  CRC-32C of the blocks' checksums, uint32; 0 in version 1, which has none
//	 76  zeros
//	124  CRC-32C of the 124 bytes before it, uint32
//
// The values start at a multiple of 64 bytes in a page-aligned mapping.
const (
	headerSize   = 128
	storeVersion = 2
	arrayMagic   = "\x93GNNARR\n"
)

type arrayHeader struct {
	version    uint32
	dtype      graph.DType
	rows, cols int64
	sum        [sha256.Size]byte
	sums       uint32 // CRC-32C of the blocks' checksums
}

// bytes returns the payload's length.
func (h *arrayHeader) bytes() int64 { return h.rows * h.cols * int64(h.dtype.Size()) }

// trailer returns the length of what follows the payload.
func (h *arrayHeader) trailer() int64 {
	if h.version < 2 {
		return 0
	}
	return 4 * numBlocks(h.bytes())
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (h *arrayHeader) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, arrayMagic)
	binary.LittleEndian.PutUint32(b[8:], h.version)
	binary.LittleEndian.PutUint32(b[12:], uint32(h.dtype))
	binary.LittleEndian.PutUint64(b[16:], uint64(h.rows))
	binary.LittleEndian.PutUint64(b[24:], uint64(h.cols))
	binary.LittleEndian.PutUint64(b[32:], uint64(h.bytes()))
	copy(b[40:], h.sum[:])
	binary.LittleEndian.PutUint32(b[72:], h.sums)
	binary.LittleEndian.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	return b
}

// decodeHeader checks b, the first headerSize bytes of a file.
func decodeHeader(b []byte) (h arrayHeader, err error) {
	if len(b) < headerSize {
		return h, fmt.Errorf("the file ends inside its header of %d bytes", headerSize)
	}
	if string(b[:8]) != arrayMagic {
		return h, fmt.Errorf("offset 0: this is not a store file")
	}
	if got, want := crc32.Checksum(b[:124], castagnoli), binary.LittleEndian.Uint32(b[124:]); got != want {
		return h, fmt.Errorf("offset 0: the header is damaged (checksum %08x, want %08x)", got, want)
	}
	h.version = binary.LittleEndian.Uint32(b[8:])
	if h.version < 1 || h.version > storeVersion {
		return h, fmt.Errorf("offset 8: version %d, but this program reads versions 1 to %d", h.version, storeVersion)
	}
	number := binary.LittleEndian.Uint32(b[12:])
	h.dtype = graph.DType(number)
	if _, ok := graph.DTypeNamed(h.dtype.String()); !ok || number > math.MaxUint8 {
		return h, fmt.Errorf("offset 12: unknown element type %d", number)
	}
	rows, cols := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	hi, values := bits.Mul64(rows, cols)
	if hi != 0 || rows >= 1<<56 || cols >= 1<<56 || values >= 1<<56 {
		return h, fmt.Errorf("offset 16: the shape %d×%d is too large", rows, cols)
	}
	h.rows, h.cols = int64(rows), int64(cols)
	if n := binary.LittleEndian.Uint64(b[32:]); n != uint64(h.bytes()) {
		return h, fmt.Errorf("offset 32: %d payload bytes, but the shape %d×%d of %s needs %d", n, rows, cols, h.dtype, h.bytes())
	}
	copy(h.sum[:], b[40:])
	h.sums = binary.LittleEndian.Uint32(b[72:])
	return h, nil
}

package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/gnnactor/gnnactor/graph/internal/arrays"
)

// Since version 2 the values of an array file are followed by a CRC-32C of every
// block of 1 MiB of the file, from its beginning: of the first block, only what
// follows the header. They are little-endian uint32, and their own CRC-32C is in
// the header.
const blockBytes = 1 << 20

// numBlocks returns the number of blocks of a file of so many payload bytes.
func numBlocks(payload int64) int64 { return (headerSize + payload + blockBytes - 1) / blockBytes }

// blockSums takes the checksums of a payload that is handed over from first to
// last.
type blockSums struct {
	done []uint32 // of whole blocks
	last uint32   // of the block in progress
	at   int64    // payload bytes so far
}

func (s *blockSums) write(p []byte) {
	for len(p) > 0 {
		k := min(int64(len(p)), blockBytes-(headerSize+s.at)%blockBytes)
		s.last = crc32.Update(s.last, castagnoli, p[:k])
		s.at += k
		p = p[k:]
		if (headerSize+s.at)%blockBytes == 0 {
			s.done, s.last = append(s.done, s.last), 0
		}
	}
}

// encode returns what follows the payload in the file.
func (s *blockSums) encode() []byte {
	b := make([]byte, 0, 4*(len(s.done)+1))
	for _, sum := range s.done {
		b = binary.LittleEndian.AppendUint32(b, sum)
	}
	if (headerSize+s.at)%blockBytes != 0 {
		b = binary.LittleEndian.AppendUint32(b, s.last)
	}
	return b
}

// readBlockSums reads the checksums of the blocks of a file of header h; nil: it
// has none.
func readBlockSums(f *os.File, h *arrayHeader) ([]uint32, error) {
	if h.version < 2 {
		return nil, nil
	}
	sums := make([]uint32, h.trailer()/4)
	b := arrays.Bytes(sums)
	at := headerSize + h.bytes()
	if _, err := f.ReadAt(b, at); err != nil {
		return nil, err
	}
	if got := crc32.Checksum(b, castagnoli); got != h.sums {
		return nil, fmt.Errorf("damaged: the block checksums at offsets [%d, %d) have the CRC-32C %08x, want %08x", at, at+int64(len(b)), got, h.sums)
	}
	return sums, nil
}

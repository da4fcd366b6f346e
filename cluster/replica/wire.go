package replica

import (
	"encoding/binary"
	"fmt"
)

// chunkBytes travel at once.
const chunkBytes = 4 << 20

// maxListed is how many replicas a listing has at most.
const maxListed = 1024

// A replica as it is written: run, step, size, SHA-256; numbers are little-endian.
const (
	listedBytes = 8 + 8 + 32
	copyBytes   = 32 + listedBytes
)

func (c *Replica) append(b []byte) []byte {
	b = append(b, c.Run[:]...)
	return c.appendListed(b)
}

func (c *Replica) appendListed(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Step))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Size))
	return append(b, c.SHA256[:]...)
}

func (c *Replica) decodeListed(b []byte) error {
	c.Step, c.Size = int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))
	copy(c.SHA256[:], b[16:])
	if c.Step < 0 || c.Size < 1 || c.Size > MaxSize {
		return fmt.Errorf("replica: step %d of %d bytes; at most %d", c.Step, c.Size, int64(MaxSize))
	}
	return nil
}

func decodeCopy(b []byte) (c Replica, err error) {
	copy(c.Run[:], b)
	return c, c.decodeListed(b[32:])
}

// decodePut reads a replica, an offset in it, and the bytes that lie there.
func decodePut(b []byte) (c Replica, at int64, data []byte, err error) {
	if len(b) < copyBytes+8 {
		return c, 0, nil, fmt.Errorf("replica: a chunk of %d bytes", len(b))
	}
	if c, err = decodeCopy(b); err != nil {
		return c, 0, nil, err
	}
	at, data = int64(binary.LittleEndian.Uint64(b[copyBytes:])), b[copyBytes+8:]
	if at < 0 || at > c.Size || int64(len(data)) > c.Size-at {
		return c, 0, nil, fmt.Errorf("replica: %d bytes at %d of %d", len(data), at, c.Size)
	}
	return c, at, data, nil
}

// decodeGet reads a replica, an offset in it, and how many bytes are wanted.
func decodeGet(b []byte) (c Replica, at int64, n int, err error) {
	if len(b) != copyBytes+16 {
		return c, 0, 0, fmt.Errorf("replica: a question of %d bytes", len(b))
	}
	if c, err = decodeCopy(b); err != nil {
		return c, 0, 0, err
	}
	at = int64(binary.LittleEndian.Uint64(b[copyBytes:]))
	want := binary.LittleEndian.Uint64(b[copyBytes+8:])
	if at < 0 || at > c.Size || want > chunkBytes || int64(want) > c.Size-at {
		return c, 0, 0, fmt.Errorf("replica: %d bytes at %d of %d", want, at, c.Size)
	}
	return c, at, int(want), nil
}

func encodeGet(c *Replica, at int64, n int) []byte {
	b := binary.LittleEndian.AppendUint64(c.append(nil), uint64(at))
	return binary.LittleEndian.AppendUint64(b, uint64(n))
}

func encodeHave(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }

func decodeHave(b []byte, size int64) (int64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("replica: an answer of %d bytes", len(b))
	}
	n := int64(binary.LittleEndian.Uint64(b))
	if n < 0 || n > size {
		return 0, fmt.Errorf("replica: a node has %d of %d bytes", n, size)
	}
	return n, nil
}

func encodeList(all []Replica) (b []byte) {
	for i := range all {
		b = all[i].appendListed(b)
	}
	return b
}

// decodeList reads the replicas of a run.
func decodeList(run RunID, b []byte) ([]Replica, error) {
	if len(b)%listedBytes != 0 || len(b) > maxListed*listedBytes {
		return nil, fmt.Errorf("replica: a list of %d bytes", len(b))
	}
	all := make([]Replica, len(b)/listedBytes)
	for i := range all {
		all[i].Run = run
		if err := all[i].decodeListed(b[i*listedBytes:]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

package transfer

import (
	"encoding/binary"
	"fmt"
)

// maxListed is how many replicas a listing has at most.
const maxListed = 1024

// A replica as it is written: run, step, size, SHA-256; numbers are little-endian.
const (
	listedBytes  = 8 + 8 + 32
	replicaBytes = 32 + listedBytes
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
	if c.Step < 0 || c.Size < 1 || c.Size > MaxReplica {
		return fmt.Errorf("transfer: step %d of %d bytes; at most %d", c.Step, c.Size, int64(MaxReplica))
	}
	return nil
}

// decodeReplica reads what a transfer calls a replica.
func decodeReplica(b []byte) (c Replica, err error) {
	if len(b) != replicaBytes {
		return c, fmt.Errorf("transfer: a name of %d bytes", len(b))
	}
	copy(c.Run[:], b)
	return c, c.decodeListed(b[len(c.Run):])
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
		return nil, fmt.Errorf("transfer: a list of %d bytes", len(b))
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

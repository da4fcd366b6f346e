package dataplane

import (
	"encoding/binary"
	"fmt"
)

// maxListed is how many replicas a listing has at most.
const maxListed = 1024

// replicaBytes is how many a Replica has as it is written: its fields one after the other, little-endian.
var replicaBytes = binary.Size(Replica{})

func encodeReplicas(all ...Replica) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, all)
	if err != nil {
		panic(err) // they are of fixed size
	}
	return b
}

// decodeReplicas reads replicas of one run.
func decodeReplicas(b []byte) ([]Replica, error) {
	all := make([]Replica, min(len(b)/replicaBytes, maxListed))
	if len(b) != len(all)*replicaBytes {
		return nil, fmt.Errorf("dataplane: replicas in %d bytes", len(b))
	}
	if _, err := binary.Decode(b, binary.LittleEndian, all); err != nil {
		return nil, fmt.Errorf("dataplane: %w", err)
	}
	for _, c := range all {
		if c.Run != all[0].Run || c.Step < 0 || c.Size < 1 || c.Size > MaxReplica {
			return nil, fmt.Errorf("dataplane: step %d of %d bytes; at most %d, and all of one run", c.Step, c.Size, int64(MaxReplica))
		}
	}
	return all, nil
}

// decodeReplica reads what a transfer calls a replica.
func decodeReplica(b []byte) (c Replica, err error) {
	all, err := decodeReplicas(b)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("dataplane: a name of %d bytes", len(b))
	}
	if err != nil {
		return c, err
	}
	return all[0], nil
}

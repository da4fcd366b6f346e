package dataplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/gnnactor/gnnactor/internal/atomicfile"
)

// DescribeReplica names the replica that the content of r would be.
func DescribeReplica(run RunID, step int64, r io.Reader) (Replica, error) {
	c := Replica{Run: run, Step: step}
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	if err != nil {
		return c, fmt.Errorf("dataplane: %w", err)
	}
	if c.Size = n; n < 1 || n > MaxReplica {
		return c, fmt.Errorf("dataplane: %d bytes; at least 1 and at most %d", n, int64(MaxReplica))
	}
	sum.Sum(c.SHA256[:0])
	return c, nil
}

// SendReplica puts a replica on a node's disk, from where an earlier one of it stopped.
// It returns when the node has all of it on its disk.
func SendReplica(ctx context.Context, p *Plane, node string, c Replica, r io.ReaderAt) error {
	return putAll(ctx, p, node, MethodPutReplica, encodeReplicas(c), c.Size, r)
}

// ListReplicas returns the replicas of a run that a node has, the furthest first.
func ListReplicas(ctx context.Context, p *Plane, node string, run RunID) ([]Replica, error) {
	b, err := p.Ask(ctx, Call{Node: node, Method: MethodListReplicas, Body: [][]byte{run[:]}, Max: maxListed * replicaBytes})
	if err != nil {
		return nil, err
	}
	all, err := decodeReplicas(b)
	if err == nil && len(all) > 0 && all[0].Run != run {
		err = fmt.Errorf("dataplane: replicas of another run than was asked for")
	}
	return all, err
}

// FetchReplica makes path a replica that a node has: whole and compared, or not at all.
func FetchReplica(ctx context.Context, p *Plane, node string, c Replica, path string) error {
	from := Source{Plane: p, Method: MethodGetReplica, Nodes: []string{node}}
	return save(c, path, func(w io.Writer) error {
		return from.All(ctx, encodeReplicas(c), c.Size, ChunkBytes, func(_ int64, b []byte) error {
			_, err := w.Write(b)
			return err
		})
	})
}

// Fetch makes path a replica that lies here.
func (s *ReplicaServer) Fetch(c Replica, path string) error {
	f, err := s.open(&c)
	if err != nil {
		return err
	}
	defer f.Close()
	return save(c, path, func(w io.Writer) error {
		_, err := io.Copy(w, io.LimitReader(f, c.Size+1))
		return err
	})
}

// save writes path if what write writes is c.
func save(c Replica, path string, write func(io.Writer) error) error {
	return atomicfile.Write(path, 0o644, func(w io.Writer) error {
		sum := sha256.New()
		if err := write(io.MultiWriter(w, sum)); err != nil {
			return err
		}
		if !bytes.Equal(sum.Sum(nil), c.SHA256[:]) {
			return fmt.Errorf("%w: step %d", ErrDamaged, c.Step)
		}
		return nil
	})
}

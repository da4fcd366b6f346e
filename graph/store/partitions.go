package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/internal/atomicfile"
)

// manifestPartition is what the manifest says of a partition, beside its array.
type manifestPartition struct {
	Method string `json:"method"`
	Parts  int64  `json:"parts"`
	Seed   uint64 `json:"seed"`
	Array  string `json:"array"`
}

const (
	partitionPrefix = "partition-"
	maxPartitions   = 256
)

// partitionArray names the array after its content, so that a new partition's
// file is never in the place of one that a manifest lists.
func partitionArray(p *manifestPartition, sum string) string {
	return fmt.Sprintf("%s%s-%d-%.12s", partitionPrefix, p.Method, p.Parts, sum)
}

// checkPartitions tells whether the partitions that the manifest lists fit it.
func (m *manifest) checkPartitions() error {
	if len(m.Partitions) > maxPartitions {
		return fmt.Errorf("%d partitions are more than %d", len(m.Partitions), maxPartitions)
	}
	seen, made := map[string]bool{}, map[[2]any]bool{}
	for i := range m.Partitions {
		p := &m.Partitions[i]
		key := [2]any{p.Method, p.Parts}
		if !arrays.MethodName().MatchString(p.Method) || p.Parts < 1 || p.Parts > arrays.MaxParts || made[key] {
			return fmt.Errorf("partition %q of %d parts is listed twice or impossible", p.Method, p.Parts)
		}
		a := m.array(p.Array)
		if a == nil || p.Array != partitionArray(p, a.SHA256) || a.Type != graph.Uint32.String() || a.Rows != m.NumNodes || a.Cols != 1 {
			return fmt.Errorf("partition %s of %d parts needs an array of one uint32 a node, not %q", p.Method, p.Parts, p.Array)
		}
		seen[p.Array], made[key] = true, true
	}
	for i := range m.Arrays {
		if name := m.Arrays[i].Name; isPartitionArray(name) && !seen[name] {
			return fmt.Errorf("array %s belongs to no partition", name)
		}
	}
	return nil
}

func isPartitionArray(name string) bool {
	return len(name) > len(partitionPrefix) && name[:len(partitionPrefix)] == partitionPrefix
}

// partitions wraps the partitions' arrays.
func (m *manifest) partitions(payload map[string][]byte) []graph.Partition {
	var out []graph.Partition
	for _, p := range m.Partitions {
		out = append(out, graph.Partition{
			Method: p.Method, Parts: int(p.Parts), Seed: p.Seed, Cluster: arrays.View[uint32](payload[p.Array]), SHA256: m.array(p.Array).SHA256,
		})
	}
	return out
}

// SavePartition adds a partition to the store in dir, in place of one of the
// same method and number of parts. It appears whole or, when SavePartition
// fails, not at all; the data's fingerprint stays as it is. A Store that is open
// goes on with what it has. Calls for one store wait for each other, in other
// processes too, on Unix and where the file system has locks. What calls that
// were interrupted left behind is removed. When ctx ends first, also while it waits, the
// error wraps its cause.
func SavePartition(ctx context.Context, dir string, p graph.Partition) (err error) {
	unlock, err := lockStore(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	s, err := Open(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := p.Validate(s.ds.Graph.NumNodes()); err != nil {
		return err
	}
	if err := sweepPartitions(dir, s.m); err != nil {
		return err
	}
	w := &Writer{dst: dir, tmp: dir, written: map[string]arrays.Info{}}
	if err := w.PutPartition(&p); err != nil {
		return err
	}
	m := s.m.withPartition(w.m.Partitions[0], w.written)
	if err := m.check(); err != nil {
		return errors.Join(dataerr.Bad("%w", err), sweepPartitions(dir, s.m))
	}
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), sweepPartitions(dir, s.m))
	}
	if replaced, err := replaceManifest(dir, m); err != nil {
		if replaced { // by which of the two, a crash would tell: the files of both stay
			return err
		}
		return errors.Join(err, sweepPartitions(dir, s.m))
	}
	return sweepPartitions(dir, m)
}

// withPartition returns a copy of m in which p takes the place of one of the
// same method and number of parts.
func (m *manifest) withPartition(p manifestPartition, written map[string]arrays.Info) *manifest {
	c, gone := *m, ""
	c.Arrays, c.Partitions = nil, nil
	for _, q := range m.Partitions {
		if q.Method == p.Method && q.Parts == p.Parts {
			gone = q.Array
			continue
		}
		c.Partitions = append(c.Partitions, q)
	}
	for _, a := range m.Arrays {
		if a.Name != gone && a.Name != p.Array {
			c.Arrays = append(c.Arrays, a)
		}
	}
	c.setArrays(append(c.Arrays, written[p.Array]))
	c.Partitions = append(c.Partitions, p)
	return &c
}

// What SavePartition writes: an array, and what is to become one or the manifest.
var (
	partitionFile = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^partition-[a-z0-9][a-z0-9-]{0,31}-[0-9]+-[0-9a-f]{12}\.bin$`)
	})
	partitionTemp = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\.(partition-[a-z0-9][a-z0-9-]{0,31}-[0-9]+-[0-9a-f]{12}|store\.json)\.tmp(-[0-9]+)?$`)
	})
)

// sweepPartitions removes the files of partitions that m does not list. The
// store is locked.
func sweepPartitions(dir string, m *manifest) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("graph: %w", err)
	}
	for _, e := range list {
		name := e.Name()
		array := strings.TrimSuffix(name, arrayFileSuffix)
		if !e.Type().IsRegular() || !partitionTemp().MatchString(name) && (!partitionFile().MatchString(name) || m.array(array) != nil) {
			continue
		}
		err = errors.Join(err, removeIfThere(filepath.Join(dir, name)))
	}
	return err
}

// replaceManifest puts a new manifest in the place of the old one, and reports
// whether it is there, which it can be with an error: that it is not durable.
func replaceManifest(dir string, m *manifest) (replaced bool, err error) {
	path := filepath.Join(dir, Manifest)
	err = atomicfile.Write(path, 0o644, func(w io.Writer) error {
		_, err := w.Write(m.encode())
		return err
	})
	if err != nil {
		return errors.Is(err, atomicfile.ErrNotDurable), dataerr.Writing(path, err)
	}
	return true, nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

package importer

import (
	"math/bits"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/internal/hugepages"
)

// takeNames makes the ids that were read so far the nodes, and returns the new number of each.
func (im *importer) takeNames(from string) ([]uint32, error) {
	if im.o.sorted != nil {
		im.o.sorted(len(im.ids.text))
	}
	names, renumber := im.ids.sorted()
	if err := twiceWritten(names); err != nil {
		return nil, dataerr.Bad("%s: %w", from, err)
	}
	im.names = names
	im.nodesClaimed = true // there is a name for each
	return renumber, im.setNodes(int64(len(renumber)), from)
}

// nameNodes ends what the edges alone say of nodes: their numbers become those of the ids that are
// there, without gaps.
func (im *importer) nameNodes() error {
	s := im.edges
	if err := s.flush(); err != nil {
		return err
	}
	if im.ids == nil {
		if s.maxID < max(1<<20, 64*s.count) {
			return im.closeGaps()
		}
		if err := im.mapIDs(); err != nil {
			return err
		}
	}
	if im.merges() {
		return im.nameRuns()
	}
	renumber, err := im.takeNames("the edges")
	if err != nil {
		return err
	}
	return s.rewrite(func(_ int64, src, dst []uint32) error {
		for i, v := range src {
			src[i], dst[i] = renumber[v], renumber[dst[i]]
		}
		return nil
	})
}

// closeGaps numbers the nodes that have edges, where their ids are small numbers.
func (im *importer) closeGaps() error {
	s := im.edges
	present := hugepages.Make[uint64](int(s.maxID/64 + 1))
	err := s.each(func(src, dst []uint32) error {
		for _, x := range [][]uint32{src, dst} {
			for _, v := range x {
				if w := &present[v/64]; *w>>(v%64)&1 == 0 {
					*w |= 1 << (v % 64)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	before := hugepages.Make[uint32](len(present)) // how many are present in the words before
	n := uint32(0)
	for i, w := range present {
		before[i] = n
		n += uint32(bits.OnesCount64(w))
	}
	im.nodesClaimed = true
	if err := im.setNodes(int64(n), "the edges"); err != nil || int64(n) == s.maxID+1 {
		return err
	}
	names := make([]int64, 0, n)
	for v := range s.maxID + 1 {
		if present[v/64]>>(v%64)&1 != 0 {
			names = append(names, v)
		}
	}
	im.names = &graph.Names{Numbers: names}
	return s.rewrite(func(_ int64, src, dst []uint32) error {
		for _, x := range [][]uint32{src, dst} {
			for i, v := range x {
				x[i] = before[v/64] + uint32(bits.OnesCount64(present[v/64]&(1<<(v%64)-1)))
			}
		}
		return nil
	})
}

// mapIDs begins to map ids, of which the edges so far have small numbers.
func (im *importer) mapIDs() error {
	im.ids = newIDMap()
	ids := make([]int64, min(im.edges.count, spoolBlock))
	return im.edges.rewrite(func(first int64, src, dst []uint32) error {
		for _, x := range [][]uint32{src, dst} {
			for i, v := range x {
				ids[i] = int64(v)
			}
			if _, err := im.ids.addNumbers(ids[:len(x)], x); err != nil {
				return err
			}
		}
		if im.full() {
			return im.endRun(first + int64(len(src)))
		}
		return nil
	})
}

// writeNames writes what the nodes are called and the recipe, where there are any.
func (im *importer) writeNames() error {
	if im.recipe != nil {
		if err := im.w.Put(arrays.Recipe, graph.Uint8, 1, im.recipe); err != nil {
			return err
		}
	}
	switch n := im.names; {
	case n == nil: // or they were written
		return nil
	case n.Numbers != nil:
		if int64(len(n.Numbers)) != im.nodes {
			return dataerr.Bad("%d names for %d nodes", len(n.Numbers), im.nodes)
		}
		return im.w.Put(arrays.NodeIDs, graph.Int64, 1, arrays.Bytes(n.Numbers))
	default:
		if err := im.w.Put(arrays.NodeNames, graph.Uint8, 1, n.Text); err != nil {
			return err
		}
		return im.w.Put(arrays.NameBounds, graph.Int64, 1, arrays.Bytes(n.Bounds))
	}
}

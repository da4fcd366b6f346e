package importer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
	"github.com/gnnactor/gnnactor/graph/store"
)

// importer takes what a format's reader finds, in any order, and writes the
// store. Edges go to scratch files first, since rows are known only when all
// edges are.
type importer struct {
	ctx       context.Context // of the one call that it is for
	w         *store.Writer
	o         Options
	nodes     int64  // -1: not known yet
	nodesFrom string // who said so
	idLimit   int64  // ids are below it: nodes, or as many as may be claimed

	src          *source
	claimed      int64 // bytes, see claim
	nodesClaimed bool

	edges        *edgeSpool
	ids          *idMap             // nil: ids are numbers of nodes
	runs         []idRun            // of ids that the map held before
	known        *idRun             // of the nodes' ids, where the map is too small for them; nil: they are in ids
	weights      *store.TableWriter // in input order, as the next two
	edgeFeatures *store.TableWriter
	edgeTimes    *store.ArrayWriter // one int64 each
	nodeTimes    []int64

	made   Recipe       // of tables
	drawn  bool         // splits are
	names  *graph.Names // nil: nodes are named by their numbers
	recipe []byte       // or nil
	labels graph.Labels
	splits [3][]uint32

	members map[string]string // of an archive: where they were unpacked to
}

// setNodes records the number of nodes; all who say it must agree.
func (im *importer) setNodes(n int64, from string) error {
	if n < 0 || n > graph.MaxNodes {
		return dataerr.Bad("%s: %d nodes is out of range [0, %d]", from, n, graph.MaxNodes)
	}
	if im.nodes >= 0 && im.nodes != n {
		return dataerr.Bad("%s has %d nodes, but %s has %d; they must agree", from, n, im.nodesFrom, im.nodes)
	}
	im.nodes, im.nodesFrom, im.idLimit = n, from, n
	return nil
}

// checkID tells what is wrong with a node id, if anything.
func (im *importer) checkID(v uint32) error {
	if int64(v) < im.idLimit { // inlined
		return nil
	}
	return im.outOfRange(v)
}

func (im *importer) outOfRange(v uint32) error {
	if im.nodes >= 0 {
		return fmt.Errorf("node %d is out of range [0, %d), the nodes that %s has", v, im.nodes, im.nodesFrom)
	}
	return fmt.Errorf("node %d: an input of %d bytes tells of far fewer nodes; if that is right, say how many there are (the option NumNodes, --num-nodes %d)", v, im.src.bytes, int64(v)+1)
}

// finish writes all that had to wait until everything was read.
func (im *importer) finish() error {
	if im.edges == nil {
		return dataerr.Bad("there are no edges to read")
	}
	if im.nodes < 0 {
		if err := im.nameNodes(); err != nil {
			return err
		}
	}
	if err := im.claimNodes(); err != nil {
		return err
	}
	if err := im.buildGraph(); err != nil {
		return err
	}
	if err := im.writeNodeTimes(); err != nil {
		return err
	}
	if err := im.writeNames(); err != nil {
		return err
	}
	return im.writeLabels()
}

func (im *importer) close() {
	if im.edges != nil {
		im.edges.f.Close()
	}
	if im.weights != nil {
		im.weights.Close()
	}
	if im.edgeFeatures != nil {
		im.edgeFeatures.Close()
	}
	if im.edgeTimes != nil {
		im.edgeTimes.Close()
	}
}

// fewClasses is how many classes there may be however few nodes there are: a
// model has a row of parameters for each.
const fewClasses = 1 << 16

// writeLabels writes labels and splits.
func (im *importer) writeLabels() error {
	var l *graph.Labels
	if c := im.labels.NumClasses; int64(c) > max(im.nodes, fewClasses) {
		return dataerr.Bad("the labels have %d classes, for %d nodes; number them from 0, without gaps", c, im.nodes)
	}
	if im.labels.Class != nil || im.labels.Multi != nil || im.labels.Values != nil {
		l = &im.labels
	}
	for i := range im.splits {
		slices.Sort(im.splits[i])
	}
	return im.w.PutLabels(int(im.nodes), l, im.splits[0], im.splits[1], im.splits[2])
}

// edgeSpool is a scratch file of the edges in input order: blocks of
// spoolBlock sources followed by as many destinations, the last one shorter.
type edgeSpool struct {
	im       *importer
	f        *os.File
	path     string
	src, dst []uint32
	count    int64
	maxID    int64
	unsorted bool // destinations decrease somewhere
	last     uint32
	spare    []uint32
}

const spoolBlock = 1 << 17

func (im *importer) startEdges() error {
	path := filepath.Join(im.w.Scratch(), "edges")
	f, err := os.Create(path)
	if err != nil {
		return dataerr.Writing(im.w.Shown(path), err)
	}
	im.edges = &edgeSpool{im: im, f: f, path: path, maxID: -1}
	if im.nodes < 0 {
		im.idLimit = min(im.allowed()/nodeBytes, graph.MaxNodes)
	}
	return nil
}

// add appends an edge whose ids were checked.
func (s *edgeSpool) add(src, dst uint32) error {
	s.src, s.dst = append(s.src, src), append(s.dst, dst)
	s.maxID = max(s.maxID, int64(src), int64(dst))
	s.unsorted = s.unsorted || dst < s.last
	s.last = dst
	s.count++
	if len(s.src) == spoolBlock {
		return s.flush()
	}
	return nil
}

func (s *edgeSpool) flush() error {
	if err := s.im.ctx.Err(); err != nil {
		return err
	}
	for _, x := range [][]uint32{s.src, s.dst} {
		if _, err := s.f.Write(arrays.Bytes(x)); err != nil {
			return dataerr.Writing(s.im.w.Shown(s.path), err)
		}
	}
	s.src, s.dst = s.src[:0], s.dst[:0]
	return nil
}

// addAll is add for many.
func (s *edgeSpool) addAll(src, dst []uint32) error {
	for len(src) > 0 {
		k := min(len(src), spoolBlock-len(s.src))
		s.src, s.dst = append(s.src, src[:k]...), append(s.dst, dst[:k]...)
		last, unsorted, largest := s.last, s.unsorted, uint32(0)
		for i, d := range dst[:k] {
			largest = max(largest, d, src[i])
			unsorted = unsorted || d < last
			last = d
		}
		s.last, s.unsorted, s.maxID = last, unsorted, max(s.maxID, int64(largest))
		s.count += int64(k)
		if len(s.src) == spoolBlock {
			if err := s.flush(); err != nil {
				return err
			}
		}
		src, dst = src[k:], dst[k:]
	}
	return nil
}

// reserve has spare hold as much of a block as there is.
func (s *edgeSpool) reserve() {
	if n := 2 * min(s.count, spoolBlock); int64(len(s.spare)) < n {
		s.spare = make([]uint32, n)
	}
}

// rewrite has change replace the ids of the edges that were added so far, a block of them at a time, whose first is
// edge number first.
func (s *edgeSpool) rewrite(change func(first int64, src, dst []uint32) error) error {
	s.reserve()
	s.maxID, s.unsorted, s.last = -1, false, 0
	for at := int64(0); at < s.count; at += spoolBlock {
		if err := s.im.ctx.Err(); err != nil {
			return err
		}
		k := min(s.count-at, spoolBlock)
		src, dst := s.src, s.dst // not flushed
		flushed := at < s.count-int64(len(s.src))
		if flushed {
			if _, err := s.f.ReadAt(arrays.Bytes(s.spare[:2*k]), 8*at); err != nil {
				return fmt.Errorf("graph: read back %s: %w", s.im.w.Shown(s.path), err)
			}
			src, dst = s.spare[:k], s.spare[k:2*k]
		}
		if err := change(at, src, dst); err != nil {
			return err
		}
		for i, d := range dst {
			s.maxID = max(s.maxID, int64(src[i]), int64(d))
			s.unsorted = s.unsorted || d < s.last
			s.last = d
		}
		if flushed {
			if _, err := s.f.WriteAt(arrays.Bytes(s.spare[:2*k]), 8*at); err != nil {
				return dataerr.Writing(s.im.w.Shown(s.path), err)
			}
		}
	}
	return nil
}

// each is an csc.Edges. The pieces are valid until the next one.
func (s *edgeSpool) each(yield func(src, dst []uint32) error) error { return s.eachFrom(0, yield) }

// eachFrom is each without the edges before number first.
func (s *edgeSpool) eachFrom(first int64, yield func(src, dst []uint32) error) error {
	s.reserve()
	for at := first - first%spoolBlock; at < s.count; at += spoolBlock {
		if err := s.im.ctx.Err(); err != nil {
			return err
		}
		k := min(s.count-at, spoolBlock)
		if _, err := s.f.ReadAt(arrays.Bytes(s.spare[:2*k]), 8*at); err != nil {
			return fmt.Errorf("graph: read back %s: %w", s.im.w.Shown(s.path), err)
		}
		skip := max(first-at, 0)
		if err := yield(s.spare[skip:k], s.spare[k+skip:2*k]); err != nil {
			return err
		}
	}
	return nil
}

// errEnough ends a stream early.
var errEnough = errors.New("enough")

// eachRow streams the edges from number first on into rows below hi, of a spool
// whose destinations do not decrease. It returns the number of the first edge
// that it left.
func (s *edgeSpool) eachRow(first int64, hi int, yield func(src, dst []uint32) error) (int64, error) {
	err := s.eachFrom(first, func(src, dst []uint32) error {
		k := sort.Search(len(dst), func(i int) bool { return int(dst[i]) >= hi })
		first += int64(k)
		if err := yield(src[:k], dst[:k]); err != nil || k == len(dst) {
			return err
		}
		return errEnough
	})
	if err == errEnough {
		err = nil
	}
	return first, err
}

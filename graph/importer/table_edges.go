package importer

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// edgeBatch is what is made of records of edges.
type edgeBatch struct {
	ids      []int64 // source and destination of each, while they are whole numbers
	numbers  bool    // all are
	texts    textIDs // else
	small    bool    // all can be numbers of nodes: src and dst have them
	src, dst []uint32
	weight   []float32
	when     []int64
	out      []uint32
}

// readEdges reads a table of edges.
func (im *importer) readEdges(path string) error {
	t, err := im.openTable(path, knownEdgeColumn)
	if err != nil {
		return err
	}
	c, err := t.edgeColumns()
	if err != nil {
		return err
	}
	fitted := im.made.Edges
	if len(c.features) > 0 && im.o.Recipe == nil {
		if fitted, err = im.fitEdges(t, c.features); err != nil {
			return err
		}
		im.made.Edges = fitted
	}
	t.understood("edges", c.uses(fitted))
	if im.o.dryRun {
		return nil
	}
	if err := im.eachEdge(t, c); err != nil {
		return err
	}
	if im.edges.count == 0 && im.nodes < 0 {
		return dataerr.Bad("%s: there are no edges in it; give at least one line \"source,destination\"", path)
	}
	return nil
}

// edgePairs reads a table of two columns without names: source and destination.
func (im *importer) edgePairs(path string) error {
	o := im.o
	defer func() { im.o = o }()
	im.o.Header, im.o.Separator, im.o.Src, im.o.Dst, im.o.Weight, im.o.Time, im.o.EdgeFeatures = "no", "", "", "", none, none, nil
	t, err := im.openTable(path, func(string) bool { return false })
	if err != nil {
		return err
	}
	if t.cols != 2 {
		return dataerr.Bad("%s line 1: the line has %d columns; want source, destination", path, t.cols)
	}
	return im.eachEdge(t, edgeColumns{src: 0, dst: 1, weight: -1, time: -1})
}

// fitEdges looks at the columns of features of edges.
func (im *importer) fitEdges(t *table, columns []int) ([]FeatureColumn, error) {
	fits := make([]*fit, len(columns))
	for k, c := range columns {
		_, kind := cutKind(im.o.EdgeFeatures[k])
		fits[k] = newFit(t.name(c), kind, true)
	}
	err := eachBatch(t, columns, func(*records, *struct{}) error { return nil }, func(r *records, _ *struct{}) error {
		for i := range r.rows {
			for k, f := range fits {
				f.add(&im.o, r.field(i, k))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var fitted []FeatureColumn
	for _, f := range fits {
		if _, err := f.settle(t.path); err != nil {
			return nil, err
		}
		if f.Kind == kindNumber && f.Missing {
			return nil, dataerr.Bad("%s: the column %q lacks values for some edges; fill them in, or take it as categories (--edge-feature %s:category)", t.path, clip(f.Column), clip(f.Column))
		}
		fitted = append(fitted, f.FeatureColumn)
	}
	return fitted, nil
}

// eachEdge reads the records of a table of edges.
func (im *importer) eachEdge(t *table, c edgeColumns) error {
	if err := im.startEdges(); err != nil {
		return err
	}
	wanted := []int{c.src, c.dst}
	at := func(column int) int {
		if column < 0 {
			return -1
		}
		wanted = append(wanted, column)
		return len(wanted) - 1
	}
	weight, when := at(c.weight), at(c.time)
	features := len(wanted)
	wanted = append(wanted, c.features...)
	if weight >= 0 {
		if _, err := im.startEdgeTable(arrays.Weights, 1, graph.Float32); err != nil {
			return err
		}
	}
	if when >= 0 {
		if err := im.startEdgeTimes(); err != nil {
			return err
		}
	}
	var enc *encoder
	if len(c.features) > 0 {
		enc = newEncoder(&im.o, im.made.Edges)
		if _, err := im.startEdgeTable(arrays.EdgeFeatures, len(enc.x), graph.Float32); err != nil {
			return err
		}
	}
	err := eachBatch(t, wanted, func(r *records, b *edgeBatch) error { return b.parse(&im.o, r, weight, when) }, func(r *records, b *edgeBatch) error {
		if im.known != nil && !im.known.texts && !b.numbers {
			return im.refuseText(c, r, b)
		}
		if err := im.addRecords(r, b); err != nil {
			return err
		}
		for i := range b.weight {
			if err := im.weights.Row(b.weight[i : i+1]); err != nil {
				return err
			}
		}
		if when >= 0 {
			if _, err := im.edgeTimes.Write(arrays.Bytes(b.when)); err != nil {
				return err
			}
		}
		for i := range r.rows {
			if enc == nil {
				break
			}
			x, err := enc.row(func(k int) []byte { return r.field(i, features+k) })
			if err != nil {
				return r.errorf(i, "%w", err)
			}
			if err := im.edgeFeatures.Row(x); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || im.known == nil {
		return err
	}
	return im.joinEdges(t, c)
}

// parse reads ids that are numbers, weights and times.
func (b *edgeBatch) parse(o *Options, r *records, weight, when int) (err error) {
	b.ids, b.src, b.dst, b.weight, b.when = b.ids[:0], b.src[:0], b.dst[:0], b.weight[:0], b.when[:0]
	b.numbers, b.small = true, true
	for i := range r.rows {
		s, ok := parseNumber(r.field(i, 0))
		d, also := parseNumber(r.field(i, 1))
		if !ok || !also {
			b.numbers, b.small = false, false
			break
		}
		b.small = b.small && uint64(s) < math.MaxUint32 && uint64(d) < math.MaxUint32
		b.ids = append(b.ids, s, d)
		b.src, b.dst = append(b.src, uint32(s)), append(b.dst, uint32(d))
	}
	if !b.numbers {
		b.texts.take(r, 0, 1)
	}
	for i := range r.rows {
		if weight < 0 {
			break
		}
		w, err := o.parseValue(r.field(i, weight))
		if err != nil {
			if b := r.field(i, weight); underline(b) {
				err = errUnderline(b, "weight")
			} else if len(b) > 0 && b[0] == '{' {
				err = fmt.Errorf("%q is what networkx writes of attributes; write numbers (nx.write_weighted_edgelist(G, path))", clip(b))
			}
			return r.errorf(i, "weight: %w (--weight none takes no weights)", err)
		}
		b.weight = append(b.weight, w)
	}
	for i := range r.rows {
		if when < 0 {
			break
		}
		x, err := parseTime(r.field(i, when))
		if err != nil {
			return r.errorf(i, "%w", err)
		}
		b.when = append(b.when, x)
	}
	return nil
}

// parseTime reads a whole number, in any unit, or a date, with or without the time of day, as seconds
// since 1970.
func parseTime(b []byte) (int64, error) {
	s := string(b)
	if x, err := strconv.ParseInt(strings.TrimSuffix(s, ".0"), 10, 64); err == nil {
		return x, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04", time.DateOnly} {
		if when, err := time.Parse(layout, s); err == nil {
			return when.Unix(), nil
		}
	}
	return 0, fmt.Errorf("time: %q is neither a whole number nor a date like 2006-01-02 or 2006-01-02T15:04:05Z", clip(b))
}

// addRecords adds the edges of a batch under the numbers of their nodes.
func (im *importer) addRecords(r *records, b *edgeBatch) error {
	if im.ids == nil {
		if b.small && (im.nodes < 0 || belowAll(b.src, b.dst, im.nodes)) {
			return im.edges.addAll(b.src, b.dst)
		}
		if im.nodes >= 0 {
			return im.badID(r)
		}
		if err := im.mapIDs(); err != nil {
			return err
		}
	}
	b.out = resized(b.out, 2*r.rows)
	var at int
	var err error
	if b.numbers && !im.ids.texts {
		at, err = im.ids.addNumbers(b.ids, b.out)
	} else {
		if b.numbers { // only there
			b.texts.take(r, 0, 1)
		}
		at, err = im.ids.addTexts(r, &b.texts, []int{0, 1}, b.out)
	}
	if errors.Is(err, errNewID) {
		return im.errNobody(r, at/2, at%2)
	}
	if err != nil {
		return r.errorf(at/2, "%w", err)
	}
	b.src, b.dst = resized(b.src, r.rows), resized(b.dst, r.rows)
	for i := range b.src {
		b.src[i], b.dst[i] = b.out[2*i], b.out[2*i+1]
	}
	if err := im.edges.addAll(b.src, b.dst); err != nil || im.ids.frozen || !im.full() {
		return err
	}
	return im.endRun(im.edges.count)
}

// errNobody says of the id at one end of the edge in row i that no node has it.
func (im *importer) errNobody(r *records, i, end int) error {
	id := r.field(i, end)
	if err := im.otherwiseWritten(id); err != nil {
		return r.errorf(i, "%w", err)
	}
	return r.errorf(i, "%s has no node %q; add it there, or leave out the edges of such nodes", im.nodesFrom, clip(id))
}

func belowAll(a, b []uint32, limit int64) bool {
	top := uint32(0)
	for i, x := range a {
		top = max(top, x, b[i])
	}
	return len(a) == 0 || int64(top) < limit
}

// badID says which id is no number of a node.
func (im *importer) badID(r *records) error {
	for i := range r.rows {
		for k := range 2 {
			v, err := parseID(r.field(i, k))
			if err == nil {
				err = im.checkID(v)
			}
			if err == nil {
				if _, plain := parseNumber(r.field(i, k)); !plain {
					err = fmt.Errorf("%q begins with 0; write numbers of nodes without", clip(r.field(i, k)))
				}
			}
			if err != nil {
				return r.errorf(i, "%w", err)
			}
		}
	}
	return r.errorf(0, "an id is out of range")
}

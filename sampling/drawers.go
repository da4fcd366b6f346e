package sampling

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/internal/interrupt"
)

// Drawers draw for anybody the entries of rows that lie in this process. Where all do, they are
// the Owners.
type Drawers struct {
	spec    Spec
	seed    uint64
	borders pieces.Borders

	mu      sync.Mutex
	rows    map[int]*drawers
	columns map[string]any // of all nodes: what was gathered
	learnt  chan struct{}  // closed when there is one more

	caches *Caches // of "gns"
	ready  chan struct{}
	ask    func(ctx context.Context, column string) ([][]byte, error) // Gather's, when it is ready
}

// drawers are those of one owner's rows, for any number of goroutines.
type drawers struct {
	*Rows
	sampled, whole *Prepared // sampled is nil where nothing is drawn row by row
	pool           sync.Pool // of *rowDrawer
	caches         generations

	mu        sync.Mutex
	clustered []byte // by "pieces", once it was asked for
}

// rowDrawer is one goroutine's.
type rowDrawer struct {
	sampled, whole *fused
	dated          *temporal // in place of both; its fan-outs are sampled's
	gns            *gns      // sampled's picker, if it is one
	among          inducer
	set            *nodeSet // of numbers
	block          block
}

// NewDrawers readies the sampler of spec to draw from rows, each by its owner. What spec cannot do
// with a divided graph is an error. When ctx ends first, the error wraps its cause.
func NewDrawers(ctx context.Context, spec Spec, seed uint64, borders pieces.Borders, rows map[int]Rows) (*Drawers, error) {
	if err := spec.dividable(); err != nil {
		return nil, err
	}
	d := &Drawers{spec: spec, seed: seed, borders: borders, rows: map[int]*drawers{}, columns: map[string]any{}, learnt: make(chan struct{}), ready: make(chan struct{})}
	if pieces := len(borders) - 1; spec.Name == "cluster" && slices.Contains(spec.needs(), columnClusters) && spec.dividedInto(borders) < pieces {
		return nil, fmt.Errorf("sampling: cluster: %d clusters of %d pieces; give at least as many as pieces, or partition-by contiguous or hash", spec.Clusters, pieces)
	}
	if spec.Name == "gns" {
		d.caches = d.spec.cachesOf(borders.Nodes(), seed)
		d.caches.apart = &apart{nodes: borders.Nodes(), first: borders, ask: d.asked}
		if d.spec.Normalize == "" {
			d.spec.Normalize = "sum"
		}
	}
	for owner, r := range rows {
		if err := d.Add(ctx, owner, r); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Add readies the sampler to draw from an owner's rows, too.
func (d *Drawers) Add(ctx context.Context, owner int, r Rows) (err error) {
	one := &drawers{Rows: &r}
	if d.spec.byRow() {
		if one.sampled, err = one.prepare(ctx, d.spec, d.seed); err != nil {
			return err
		}
	}
	if one.whole, err = one.prepare(ctx, Spec{Name: "khop", Layers: 1, EdgeIDs: d.spec.EdgeIDs}, d.seed); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rows[owner] = one
	return nil
}

// byRow reports whether the sampler draws the entries of each row by itself.
func (s Spec) byRow() bool {
	switch s.Name {
	case "neighbor", "khop", "labor", "gns":
		return true
	}
	return false
}

// asked is ask, once there is one.
func (d *Drawers) asked(ctx context.Context, column string) ([][]byte, error) {
	if err := d.isReady(ctx); err != nil {
		return nil, err
	}
	return d.ask(ctx, column)
}

// isReady waits until Gather is over, or ctx.
func (d *Drawers) isReady(ctx context.Context) error {
	select {
	case <-d.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// of returns an owner's; nil: they are not here.
func (d *Drawers) of(owner int) *drawers {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rows[owner]
}

// Has reports whether an owner's rows are here.
func (d *Drawers) Has(owner int) bool { return d.of(owner) != nil }

func (d *drawers) prepare(ctx context.Context, spec Spec, seed uint64) (*Prepared, error) {
	ds := &graph.Dataset{Graph: d.Graph}
	p := &Prepared{spec: spec, seed: seed, given: ds, data: ds, g: d.Graph, rows: d.Rows}
	return p, p.prepare(interrupt.New(ctx))
}

// Here implements Owners.
func (d *Drawers) Here() *Drawers { return d }

// Borders say which owner has which nodes.
func (d *Drawers) Borders() pieces.Borders { return d.borders }

// Draw implements Owners.
func (d *Drawers) Draw(ctx context.Context, asks []Ask, answers []Answer) error {
	for i := range asks {
		if err := d.answer(ctx, &asks[i], &answers[i]); err != nil {
			return err
		}
	}
	return nil
}

// answer answers q. What it meets in a damaged file is an error, see graph.Guard.
func (d *Drawers) answer(ctx context.Context, q *Ask, a *Answer) error {
	rows := d.of(q.Owner)
	if rows == nil {
		return fmt.Errorf("sampling: the rows of piece %d are not here", q.Owner)
	}
	of, _ := rows.pool.Get().(*rowDrawer)
	if of == nil {
		var err error
		if of, err = d.newRowDrawer(ctx, rows); err != nil {
			return err
		}
	}
	if q.Want == WantDrawn && of.gns != nil {
		// Whoever asks may be ahead of this process, by a generation.
		c, err := d.caches.Drawn(ctx, q.ID.Epoch/d.spec.CachePeriod)
		if err != nil {
			return err
		}
		of.gns.cache = rows.link(c)
	}
	if err := graph.Guard(func() error { return of.draw(rows.Rows, q, a) }); err != nil {
		return err // what may be half done is not used again
	}
	rows.pool.Put(of)
	return nil
}

func (d *Drawers) newRowDrawer(ctx context.Context, rows *drawers) (*rowDrawer, error) {
	r := &rowDrawer{among: inducer{g: rows.Graph}}
	if d.spec.Temporal {
		times, err := gathered[int64](ctx, d, columnTimes)
		if err != nil {
			return nil, err
		}
		r.dated = rows.sampled.factory().(*temporal)
		of := *r.dated.p // one of its own, with the times
		of.times = &Times{Node: times}
		r.dated.p = &of
	} else if rows.sampled != nil {
		r.sampled = rows.sampled.factory().(*fused)
		r.gns, _ = r.sampled.picker.(*gns)
	}
	r.whole = rows.whole.factory().(*fused)
	return r, nil
}

// draw answers q into a.
func (d *rowDrawer) draw(rows *Rows, q *Ask, a *Answer) error {
	n := len(q.Nodes)
	dated := d.dated != nil && len(q.Beside) > 0
	switch {
	case q.Want >= wants:
		return fmt.Errorf("sampling: a question of kind %d; this version knows %d", q.Want, wants)
	case len(q.Beside) != n && (len(q.Beside) > 0 || q.Want == WantOne):
		return fmt.Errorf("sampling: %d values beside %d rows", len(q.Beside), n)
	}
	a.Counts = resize(a.Counts, n)
	local := a.Counts // until they are counted
	for i, v := range q.Nodes {
		if local[i] = v - rows.First; int(local[i]) >= rows.Graph.NumNodes() {
			return fmt.Errorf("sampling: the row of node %d is not with piece %d", v, q.Owner)
		}
	}
	a.Degrees = a.Degrees[:0]
	out := &d.block
	switch {
	case q.Want == WantOne:
		d.one(rows.Graph, local, q.Beside, out)
	case q.Want == WantAmong:
		a.Degrees = resize(a.Degrees, n)
		d.inSet(rows, local, q.Set, a.Degrees, out)
	case dated || q.Want == WantDrawn:
		fanouts := []int(nil)
		if d.dated != nil {
			fanouts = d.dated.fanouts
		} else if d.sampled != nil {
			fanouts = d.sampled.fanouts
		}
		k := -1
		if q.Want == WantDrawn {
			if q.Hop < 0 || q.Hop >= len(fanouts) {
				return fmt.Errorf("sampling: hop %d of %d", q.Hop, len(fanouts))
			}
			k = fanouts[q.Hop]
		}
		if d.dated != nil {
			if !dated {
				return errors.New("sampling: rows of a temporal sampler without their times")
			}
			d.dated.collect(out, local, q, k)
			break
		}
		d.sampled.picker.start(q.ID, q.Key, q.Hop)
		d.sampled.collect(out, local, k)
	default:
		d.whole.picker.start(q.ID, q.Key, q.Hop)
		d.whole.collect(out, local, -1)
	}
	for i := range n {
		a.Counts[i] = uint32(out.indptr[i+1] - out.indptr[i])
	}
	a.Sources = resize(a.Sources, len(out.indices))
	rows.name(a.Sources, out.indices)
	a.EdgeIDs = a.EdgeIDs[:0]
	for _, e := range out.edgeIDs {
		a.EdgeIDs = append(a.EdgeIDs, rows.Edge+e)
	}
	if a.Weights = a.Weights[:0]; q.Want == WantDrawn && d.gns != nil {
		a.Weights = append(a.Weights, out.weights...)
	}
	return nil
}

// one takes of each row the entry that its draw chooses, as rng.Key.Uintn does.
func (d *rowDrawer) one(g *graph.Graph, rows []uint32, draws []uint64, out *block) {
	out.indptr = append(resize(out.indptr, len(rows)+1)[:0], 0)
	out.indices, out.edgeIDs = out.indices[:0], out.edgeIDs[:0]
	for i, v := range rows {
		if row := g.InNeighbors(v); len(row) > 0 {
			at, _ := bits.Mul64(draws[i], uint64(len(row)))
			out.indices = append(out.indices, row[at])
		}
		out.indptr = append(out.indptr, int64(len(out.indices)))
	}
}

// inSet takes of each row the entries whose sources are in a set of ids.
func (d *rowDrawer) inSet(rows *Rows, local, set, degrees []uint32, out *block) {
	n := rows.Graph.NumNodes()
	if d.set == nil {
		d.set = newNodeSet(n+len(rows.Others), bitsLimit)
	}
	d.set.clear()
	others := rows.Others
	for _, u := range set {
		if own := u - rows.First; int(own) < n {
			d.set.add(own)
		} else if at, is := slices.BinarySearch(others, u); is {
			d.set.add(uint32(n + at))
		}
	}
	d.set.index()
	edgeIDs := d.whole.edgeIDs
	out.indptr = append(resize(out.indptr, len(local)+1)[:0], 0)
	out.indices, out.edgeIDs = out.indices[:0], out.edgeIDs[:0]
	for i, v := range local {
		begin, row := rows.Graph.Indptr[v], rows.Graph.InNeighbors(v)
		hits, _ := d.among.scan(d.set, row)
		degrees[i] = uint32(len(row))
		for _, h := range hits {
			out.indices = append(out.indices, row[h])
			if edgeIDs {
				out.edgeIDs = append(out.edgeIDs, begin+int64(h))
			}
		}
		out.indptr = append(out.indptr, int64(len(out.indices)))
	}
}

// Columns that samplers know: a value for each node of the graph.
const (
	columnTimes   = "times"   // int64
	columnDegrees = "degrees" // uint32: how many edges lead to it
	columnNode    = "node"    // float64: what it is drawn in proportion to
	columnFastGCN = "fastgcn" // likewise

	columnClusters = "clusters" // uint32, by "pieces"

	columnWalks = "walks/%d" // float64: P^l of walkDistribution, l from 1
)

// needs lists the columns that the sampler has to know, each of which may be made of those before it.
func (s Spec) needs() (names []string) {
	if s.Temporal {
		names = append(names, columnTimes)
	}
	switch s.Name {
	case "node", "fastgcn":
		names = append(names, columnDegrees, s.Name)
	case "gns":
		if s.CacheBy == "walks" {
			names = append(names, columnDegrees)
			for l := range s.Fanouts {
				names = append(names, fmt.Sprintf(columnWalks, l+1))
			}
		}
	case "cluster":
		if s.PartitionBy == "" || s.PartitionBy == byPieces {
			names = append(names, columnClusters)
		}
	}
	return names
}

// Gather has all owners tell their parts of what the sampler has to know of all nodes. ask returns what Column
// does of each owner, as long as ctx lets it. Who draws, here, waits for it; nobody else calls it.
func (d *Drawers) Gather(ctx context.Context, ask func(ctx context.Context, column string) ([][]byte, error)) error {
	for _, name := range d.spec.needs() {
		all, err := ask(ctx, name)
		if err != nil {
			return err
		}
		var values any
		switch name {
		case columnTimes:
			values, err = joined[int64](d.borders, all)
		case columnDegrees, columnClusters:
			values, err = joined[uint32](d.borders, all)
		default:
			values, err = joined[float64](d.borders, all)
		}
		if err != nil {
			return fmt.Errorf("sampling: %s: %w", name, err)
		}
		d.mu.Lock()
		d.columns[name] = values
		close(d.learnt)
		d.learnt = make(chan struct{})
		d.mu.Unlock()
	}
	if s := &d.spec; s.CacheBy == "walks" {
		all, err := gathered[float64](ctx, d, fmt.Sprintf(columnWalks, len(s.Fanouts)))
		if err != nil {
			return err
		}
		d.caches.p = normalized(slices.Clone(all))
	}
	d.ask = ask
	close(d.ready)
	return nil
}

// GatherHere is Gather where all rows are here.
func (d *Drawers) GatherHere(ctx context.Context) error {
	return d.Gather(ctx, func(ctx context.Context, column string) (all [][]byte, err error) {
		all = make([][]byte, len(d.borders)-1)
		for owner := range all {
			if all[owner], err = d.Column(ctx, owner, column); err != nil {
				return nil, err
			}
		}
		return all, nil
	})
}

// Column returns an owner's part of a column, little-endian. It waits for those that it is made of, until ctx ends.
func (d *Drawers) Column(ctx context.Context, owner int, name string) (b []byte, err error) {
	rows := d.of(owner)
	if rows == nil {
		return nil, fmt.Errorf("sampling: the rows of piece %d are not here", owner)
	}
	err = graph.Guard(func() error {
		switch name {
		case columnTimes:
			if rows.Times == nil && rows.Graph.NumNodes() > 0 {
				return errors.New("sampling: a temporal sampler needs the times of nodes; import them with the data, and divide it again")
			}
			b, err = binary.Append(nil, binary.LittleEndian, rows.Times)
		case columnClusters:
			b, err = rows.clusters(ctx, owner, d)
		case columnDegrees:
			b, err = binary.Append(nil, binary.LittleEndian, rows.degrees())
		case columnNode, columnFastGCN:
			var degrees []uint32
			if degrees, err = gathered[uint32](ctx, d, columnDegrees); err == nil {
				b, err = binary.Append(nil, binary.LittleEndian, rows.layerChances(degrees, name == columnNode))
			}
		default:
			var is bool
			if l := 0; match(name, columnWalks, &l) && l >= 1 && l <= len(d.spec.Fanouts) {
				b, err = d.walks(ctx, rows, l)
				return err
			}
			if d.caches != nil {
				if err = d.isReady(ctx); err != nil {
					return err
				}
				b, is = rows.told(d.caches, name)
			}
			if !is {
				err = fmt.Errorf("sampling: there is no column %.64q", name)
			}
		}
		return err
	})
	return b, err
}

// joined puts a column together.
func joined[T any](b pieces.Borders, parts [][]byte) ([]T, error) {
	all := make([]T, b.Nodes())
	for i, part := range parts {
		to := all[b[i]:b[i+1]]
		if n, err := binary.Decode(part, binary.LittleEndian, to); err != nil || n != len(part) {
			return nil, fmt.Errorf("piece %d of %d nodes tells %d bytes", i, len(to), len(part))
		}
	}
	return all, nil
}

// gathered returns a column when it is there.
func gathered[T any](ctx context.Context, d *Drawers, name string) ([]T, error) {
	for {
		d.mu.Lock()
		values, is := d.columns[name]
		learnt := d.learnt
		d.mu.Unlock()
		if is {
			return values.([]T), nil
		}
		select {
		case <-learnt:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// degrees returns how many edges lead to each of the rows' own nodes.
func (r *Rows) degrees() []uint32 {
	d := make([]uint32, r.Graph.NumNodes())
	for v := range d {
		d[v] = uint32(r.Graph.Degree(uint32(v)))
	}
	return d
}

// layerChances returns what "fastgcn", or "node", draws the rows' own nodes in proportion to, given all nodes' degrees: sums over the nodes that edges
// lead to, by increasing id, as preparation from the whole graph adds them up.
func (r *Rows) layerChances(degrees []uint32, node bool) []float64 {
	q := make([]float64, r.Graph.NumNodes())
	var targets []uint32
	for u := range q {
		targets = r.targets(targets[:0], uint32(u))
		for _, v := range targets {
			if node {
				q[u] += nodeShare(int(degrees[v]))
			} else if v != r.First+uint32(u) {
				q[u] += 1 / float64(degrees[v]+1)
			}
		}
		if !node {
			q[u] /= float64(degrees[r.First+uint32(u)] + 1)
		}
	}
	return q
}

// walks returns P^l of the rows' own nodes, little-endian: what walkDistribution adds to each is added in its order.
func (d *Drawers) walks(ctx context.Context, rows *drawers, l int) ([]byte, error) {
	degrees, err := gathered[uint32](ctx, d, columnDegrees)
	if err != nil {
		return nil, err
	}
	var before []float64
	if l > 1 {
		before, err = gathered[float64](ctx, d, fmt.Sprintf(columnWalks, l-1))
	} else {
		var train []uint32
		if train, err = rows.Train(); err == nil && len(train) == 0 {
			err = errNoTrain
		}
		before = uniformOn(train, d.borders.Nodes())
	}
	if err != nil {
		return nil, err
	}
	p := slices.Clone(before[rows.First : int(rows.First)+rows.Graph.NumNodes()])
	var targets []uint32
	for u := range p {
		targets = rows.targets(targets[:0], uint32(u))
		for _, v := range targets {
			p[u] += walkShare(before[v], int(degrees[v]), d.spec.Fanouts[l-1])
		}
	}
	return binary.Append(nil, binary.LittleEndian, p)
}

// targets appends the ids of the nodes that edges of u, a number, lead to, ascending.
func (r *Rows) targets(to []uint32, u uint32) []uint32 {
	n := uint32(r.Out.NumNodes())
	for _, v := range r.Out.InNeighbors(u) {
		if v < n {
			to = append(to, r.First+v)
		} else {
			to = append(to, r.Targets[v-n])
		}
	}
	if !slices.IsSorted(to) {
		slices.Sort(to)
	}
	return to
}

package sampling

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/interrupt"
	"github.com/gnnactor/gnnactor/rng"
)

// Sampling of a divided graph has two halves, which may be in two processes. Draws are counted, not
// streamed, so whoever owns a row draws its entries for anybody (Drawers); whoever samples asks the
// owners of all rows that it needs next, all at once, and makes a batch of what they answer
// (PrepareDivided). The batches are those of the whole graph, bit for bit. A layer is one round
// of questions, and so is a step of walks, and the edges between the nodes of a subgraph. What a sampler
// has to know of all nodes beforehand it is told in columns (Drawers.Gather).

// Want says what is asked of each row.
type Want byte

const (
	WantDrawn Want = iota // the entries that the sampler draws; of temporal ones, Ask.Beside has the row's time
	WantAll               // all entries; those that are not newer than the time that Ask.Beside has, if any
	WantOne               // the entry that Ask.Beside chooses, 64 bits for all of the row; none of an empty row
	WantAmong             // the entries whose sources are in Ask.Set, and how long the row is
	wants
)

// Ask has an owner tell entries of some rows.
type Ask struct {
	Owner  int // of all Nodes
	ID     ID  // of the micro-batch, with its key
	Key    rng.Key
	Hop    int // of the layer, counted from the seeds outward
	Want   Want
	Nodes  []uint32 // whose rows, by their ids in the whole graph
	Beside []uint64 // of each of Nodes, see Want; empty: there is nothing
	Set    []uint32 // ids, ascending
}

// Answer is what an owner tells, row after row in the order of Ask.Nodes. Its memory belongs to
// whoever asked, and is used again.
type Answer struct {
	Counts  []uint32  // entries of each row
	Sources []uint32  // ids in the whole graph
	EdgeIDs []int64   // positions in the whole graph; empty unless the batches have them
	Weights []float32 // of the entries; empty unless the sampler weights them
	Degrees []uint32  // how long each row is; of WantAmong alone
}

// check reports an answer that is none to q, for a graph of so many nodes and edges.
func (a *Answer) check(q *Ask, edgeIDs, weighted bool, g *graph.Graph) error {
	entries, weights := uint64(0), q.Want == WantDrawn && weighted
	for _, n := range a.Counts {
		entries += uint64(n)
	}
	switch {
	case len(a.Counts) != len(q.Nodes) || entries != uint64(len(a.Sources)):
		return fmt.Errorf("%d rows with %d entries, of which it lists %d, to a question for %d rows", len(a.Counts), entries, len(a.Sources), len(q.Nodes))
	case len(a.Sources) > 0 && int(largest(a.Sources)) >= g.NumNodes():
		return fmt.Errorf("node %d of %d", largest(a.Sources), g.NumNodes())
	case edgeIDs && q.Want != WantOne && len(a.EdgeIDs) != len(a.Sources):
		return fmt.Errorf("%d ids of %d edges", len(a.EdgeIDs), len(a.Sources))
	case len(a.EdgeIDs) > 0 && (slices.Min(a.EdgeIDs) < 0 || slices.Max(a.EdgeIDs) >= g.NumEdges()):
		return fmt.Errorf("edges %d to %d of %d", slices.Min(a.EdgeIDs), slices.Max(a.EdgeIDs), g.NumEdges())
	case weights && len(a.Weights) != len(a.Sources):
		return fmt.Errorf("%d weights of %d entries", len(a.Weights), len(a.Sources))
	case q.Want == WantAmong && len(a.Degrees) != len(q.Nodes):
		return fmt.Errorf("the lengths of %d rows of %d", len(a.Degrees), len(q.Nodes))
	case q.Want == WantOne && len(a.Counts) > 0 && slices.Max(a.Counts) > 1:
		return fmt.Errorf("%d entries of a row, and one was asked for", slices.Max(a.Counts))
	}
	return nil
}

// Owners have the rows of a divided graph.
type Owners interface {
	// Here are those of the rows that lie in this process, which know what was gathered of all.
	Here() *Drawers
	// Draw has the owner of asks[i] fill answers[i], for all i at once: it is one round, in which
	// nobody is asked twice. The asks are of one batch, and want the same. It may be called by any goroutines.
	// When an owner is away it waits, and ends with ctx.
	Draw(ctx context.Context, asks []Ask, answers []Answer) error
}

// Rows are rows of a divided graph that lie together. Sources have numbers there: the rows' own
// nodes first, then others.
type Rows struct {
	Graph  *graph.Graph // rows by target, of numbers
	First  uint32       // id of the first row's node in the whole graph; the others follow
	Others []uint32     // ids of the other sources
	Edge   int64        // id of the first edge, its position in the whole graph
	Edges  int64        // of the whole graph
	Times  []int64      // of the rows' own nodes; nil: they have none

	Out     *graph.Graph // rows by source, of numbers: the rows' own nodes first, then
	Targets []uint32     // the ids of these

	Train func() ([]uint32, error) // the whole graph's training nodes
}

// NotDrawn says why nothing is drawn from set, and what can be done; "": it is.
func NotDrawn(set *pieces.Set) string {
	_, _, edges := set.Method()
	where := map[string]string{pieces.EdgesAtSource: "with their sources", pieces.EdgesOnGrid: "on a grid of pieces"}[edges]
	if where == "" {
		return ""
	}
	return fmt.Sprintf("its edges lie %s (partition --edges %s), so that those into one node are in several pieces, and samplers need them in one; "+
		"train by --sampler full, or khop with --hybrid, which all pieces compute together, or divide the graph with --edges target", where, edges)
}

// PieceRows returns the rows of piece i of a partition set, p, which end with it.
func PieceRows(set *pieces.Set, i int, p *store.Piece) (Rows, error) {
	if why := NotDrawn(set); why != "" {
		return Rows{}, fmt.Errorf("sampling: %s", why)
	}
	r := Rows{Graph: p.In, First: uint32(p.Of.First), Others: p.Sources, Times: p.Dataset().NodeTimes, Out: p.Out, Targets: p.Targets, Train: func() ([]uint32, error) { return set.Split(0) }}
	for j, of := range set.Pieces() {
		if r.Edges += of.Edges; j < i {
			r.Edge += of.Edges
		}
	}
	return r, nil
}

// id returns the id of a number in the whole graph.
func (r *Rows) id(number uint32) uint32 {
	if n := uint32(r.Graph.NumNodes()); number >= n {
		return r.Others[number-n]
	}
	return r.First + number
}

// name sets ids[i] to the id of number[i] in the whole graph; they may be the same memory.
func (r *Rows) name(ids, numbers []uint32) {
	for i, u := range numbers {
		ids[i] = r.id(u)
	}
}

// UndividedOnly says why the sampler cannot draw from a divided graph; "": it can.
func (s Spec) UndividedOnly() string {
	if s.Inductive {
		return "inductive: the graph of the training nodes is made of the whole one"
	}
	switch s.Name {
	case "neighbor", "khop", "labor", "gns", "pinsage", "fastgcn", "node", "walk", "cluster":
		if s.Normalization > 0 {
			return "normalization: how often each edge occurs is counted over the whole graph"
		}
		switch s.PartitionBy {
		case "metis", "louvain", "labels":
			return fmt.Sprintf("partition-by %s: it looks at all edges at once; choose partition-by=pieces, which is what there is without the option, contiguous or hash", s.PartitionBy)
		}
		return ""
	case "full":
		return "full: a batch is the whole graph"
	case "frontier":
		return "frontier: what it draws next depends on each node that it has drawn, a round of questions for each; choose walk, node or cluster"
	case "ladies":
		return "ladies: it draws among all neighbours of a layer's nodes, whose lists would all be sent; choose fastgcn, or labor"
	}
	return s.Name + ": what it prepares of the whole graph is not made of a divided one yet"
}

// Divided returns the names of the samplers that can draw from a divided graph.
func Divided() []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return Spec{Name: name}.UndividedOnly() != "" })
}

func (s Spec) dividable() error {
	if err := s.Validate(); err != nil {
		return err
	}
	if why := s.UndividedOnly(); why != "" {
		return fmt.Errorf("sampling: a divided graph cannot be sampled so: %s; choose one of %s, or give the whole graph", why, strings.Join(Divided(), ", "))
	}
	return nil
}

// PrepareDivided is Prepare for a graph whose rows have owners, which draw by spec or by one that is temporal as spec is. ds is the data, with
// graph.Elsewhere for its graph; weighted says whether its edges have weights, whose positions
// batches then list. It may ask the owners, as long as ctx lets it.
func PrepareDivided(ctx context.Context, spec Spec, ds *graph.Dataset, weighted bool, owners Owners) (*Prepared, error) {
	if err := spec.dividable(); err != nil {
		return nil, err
	}
	here := owners.Here()
	if n := here.borders.Nodes(); n != ds.Graph.NumNodes() {
		return nil, fmt.Errorf("sampling: owners of %d nodes for a graph of %d", n, ds.Graph.NumNodes())
	}
	p := &Prepared{spec: spec, seed: here.seed, given: ds, data: ds, g: ds.Graph, here: here, draw: owners.Draw, table: here.borders.Table(), weighted: weighted}
	if spec.Temporal {
		times, err := gathered[int64](ctx, here, columnTimes)
		if err != nil {
			return nil, err
		}
		p.times = &Times{Node: times}
	}
	return p, p.prepare(interrupt.New(ctx))
}

package runtime

import (
	"context"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/messages"
	"github.com/gnnactor/gnnactor/sampling"
)

// temporalChunk is how many nodes are inferred at once over batches: under a temporal
// constraint what each sees is its own, so that their neighbourhoods add up.
const temporalChunk = 256

// makeBatch makes b what some nodes are computed from.
type makeBatch func(b *sampling.Batch, seeds []uint32) error

// inferBatches is infer over what batches of the nodes have, which begin returns the maker of: where a node may see nothing newer than
// itself all neighbours that are old enough, else some. rows makes the rows of nodes; nil: ds has them.
func (r *Runtime) inferBatches(ctx context.Context, x *cpu.Exec, params []float32, ds *graph.Dataset, nodes []uint32, rows func([]uint32) (*graph.Features, error), begin func(context.Context) (makeBatch, error)) (cpu.Matrix[float32], error) {
	none := cpu.Matrix[float32]{}
	sample, err := begin(ctx)
	if err != nil {
		return none, err
	}
	e := r.model.NewEvaluator(x)
	defer e.Close()
	var b sampling.Batch
	out := cpu.NewMatrix[float32](len(nodes), r.model.Spec().OutDim)
	for at := 0; at < len(nodes); at += temporalChunk {
		if ctx.Err() != nil {
			return none, context.Cause(ctx)
		}
		// Seeds of a batch are distinct; what is asked for need not be.
		part := nodes[at:min(at+temporalChunk, len(nodes))]
		seeds, row := distinct(part)
		if err := sample(&b, seeds); err != nil {
			return none, err
		}
		in := &compute.Input{Blocks: b.Blocks, Features: ds.NodeFeatures, Edges: ds.EdgeFeatures, Rows: b.Inputs()}
		if rows != nil {
			if in.Features, err = rows(in.Rows); err != nil {
				return none, err
			}
			in.Rows = nil
		}
		y, err := e.Output(params, in)
		if err != nil {
			return none, err
		}
		for i := range part {
			copy(out.Row(at+i), y.Row(row[i]))
		}
	}
	return out, nil
}

// newHops returns what makes a batch all that seeds may see, for one goroutine.
func (r *Runtime) newHops(ctx context.Context) (makeBatch, error) {
	if r.cfg.Cluster.Away {
		return func(b *sampling.Batch, seeds []uint32) error {
			return r.askBatch(ctx, b, &messages.Seeds{ID: sampling.ID{Phase: "hops"}, Seeds: seeds, Want: messages.WantHops, Step: int64(r.model.Blocks())}, r.data.ds.Graph)
		}, nil
	}
	spec := sampling.Spec{Name: "khop", Layers: r.model.Blocks(), Temporal: true, EdgeIDs: r.sampler.Spec().EdgeIDs}
	var p *sampling.Prepared
	var err error
	if d := r.data.set; d != nil {
		p, err = sampling.PrepareDivided(ctx, spec, r.data.ds, d.Common().Weighted, d.owners)
	} else {
		p, err = sampling.Prepare(ctx, spec, r.data.ds, r.cfg.Training.Seed)
	}
	if err != nil {
		return nil, err
	}
	s := sampling.Within(ctx, p.NewSampler())
	return func(b *sampling.Batch, seeds []uint32) error { return s.Sample(b, 0, seeds) }, nil
}

// distinct returns the nodes, each once in the order of their first occurrence,
// and for every one given its place there.
func distinct(nodes []uint32) (once []uint32, place []int) {
	at := make(map[uint32]int, len(nodes))
	for _, v := range nodes {
		i, ok := at[v]
		if !ok {
			i = len(once)
			at[v] = i
			once = append(once, v)
		}
		place = append(place, i)
	}
	return once, place
}

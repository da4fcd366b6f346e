package compute

import "github.com/gnnactor/gnnactor/graph"

// variants are specs that between them have every option. InDim, Hidden and
// OutDim are the test's to set.
var variants = map[string]Spec{
	"gcn":                {Model: "gcn"},
	"sage":               {Model: "sage"},
	"sage max":           {Model: "sage", Aggregation: "max"},
	"sage sum":           {Model: "sage", Aggregation: "sum"},
	"sage concat":        {Model: "sage", Combine: "concat"},
	"sage concat max":    {Model: "sage", Combine: "concat", Aggregation: "max", Norm: "layer", Residual: true},
	"sage concat elu":    {Model: "sage", Combine: "concat", Aggregation: "sum", JumpingKnowledge: "cat", Activation: "elu"},
	"gin":                {Model: "gin"},
	"gin learning eps":   {Model: "gin", TrainEps: true},
	"gat":                {Model: "gat", Heads: 1},
	"gat of heads":       {Model: "gat", Heads: 3, AttentionDropout: 0.3},
	"gat with edges":     {Model: "gat", Heads: 3, EdgeDim: 2, JumpingKnowledge: "cat"},
	"gat without loops":  {Model: "gat", Heads: 3, EdgeDim: 2, NoLoops: true},
	"gatv2":              {Model: "gatv2", Heads: 3, AttentionDropout: 0.3},
	"sage scaled sum":    {Model: "sage", Aggregation: "sum", ScaleSums: true},
	"sage with decoder":  {Model: "sage", Decoder: 2},
	"mixhop":             {Model: "mixhop"},
	"mixhop of one hop":  {Model: "mixhop", Hops: 1, Norm: "layer"},
	"gcn jumping":        {Model: "gcn", JumpingKnowledge: "cat", Residual: true},
	"sage jumping max":   {Model: "sage", JumpingKnowledge: "max", Norm: "layer", Residual: true},
	"gcn by the block":   {Model: "gcn", GCNNorm: "block"},
	"mixhop by block":    {Model: "mixhop", GCNNorm: "block", Hops: 3},
	"gat weighted":       {Model: "gat", Heads: 3, EdgeDim: 2, WeightAttention: true},
	"gatv2 weighted":     {Model: "gatv2", Heads: 3, WeightAttention: true, AttentionDropout: 0.3, NoLoops: true},
	"gcn batch normed":   {Model: "gcn", Norm: "batch", Activation: "elu"},
	"gin batch normed":   {Model: "gin", Norm: "batch", Residual: true, Activation: "leaky-relu"},
	"sage elu":           {Model: "sage", Activation: "elu", Decoder: 2},
	"gat residual elu":   {Model: "gat", Heads: 3, Activation: "elu", Residual: true, Norm: "batch"},
	"gin normed to last": {Model: "gin", JumpingKnowledge: "last", Norm: "layer"},
}

// sized returns s with layers and widths; hidden is made even where it must be.
func sized(s Spec, layers, in, hidden, out int) Spec {
	if s.concatenates() {
		hidden += hidden % 2
	}
	s.Layers, s.InDim, s.Hidden, s.OutDim = layers, in, hidden, out
	return s
}

// edgeFeatures returns what m reads per edge, or nil.
func edgeFeatures(m *Model) *graph.Features {
	if m.spec.EdgeDim == 0 {
		return nil
	}
	return graph.NewFeatures(m.edges, m.spec.EdgeDim, randomMatrix[float32](m.edges, m.spec.EdgeDim, 31).Data)
}

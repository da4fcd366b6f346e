package compute

import (
	"context"
	"fmt"
	"io"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/internal/atomicfile"
)

// Model is a Spec bound to a graph. It holds no parameters: those are flat
// vectors of its Layout, which callers own. It is safe for concurrent use.
type Model struct {
	spec         Spec
	graph        *graph.Graph
	nodes, edges int
	layout       *Layout
	blocks       int
	custom       func(i, in, out int) Layer[float32] // nil: spec.Model names the layers
	norm         *gcnNorm                            // nil if no layer needs it
	degrees      []uint32                            // of each node; nil: they are the graph's
	inverse      []float32                           // 1/degree of each master of a piece whose entries are in several; nil: they are not
	rows         RowSource                           // of a graph whose rows lie elsewhere
	statistics   []statistics                        // of the batch norms
	sparse       *cpu.Sparse[float32]
	sparseOf     *graph.Features // the table that sparse is of
}

// NewModel binds spec to g, whose slices must stay valid and unchanged while
// the model is in use. For gcn it reads the whole graph once, for the
// normalisation, which takes 4 bytes per node (8 with edge weights). A graph whose rows lie
// elsewhere takes BindElsewhere, too.
func NewModel(spec Spec, g *graph.Graph) (*Model, error) { return newModel(spec, g, nil) }

// NewCustomModel is NewModel for layers of the caller's own: layer returns layer
// i of spec.Layers, from in to out columns, and is called for every engine, so
// its result need not be safe for concurrent use. spec.Model is the caller's name
// for it. Dropout, norms, residuals, jumping knowledge and decoder are spec's.
func NewCustomModel(spec Spec, g *graph.Graph, layer func(i, in, out int) Layer[float32]) (*Model, error) {
	return newModel(spec, g, layer)
}

func newModel(spec Spec, g *graph.Graph, custom func(i, in, out int) Layer[float32]) (*Model, error) {
	if err := spec.validate(custom != nil); err != nil {
		return nil, err
	}
	m := &Model{spec: spec, graph: g, nodes: g.NumNodes(), edges: int(g.NumEdges()), custom: custom}
	var params []Param
	layers := newLayers[float32](m)
	m.blocks = len(layers)
	for _, l := range layers {
		params = append(params, l.allParams()...)
	}
	params = append(params, headParams(spec)...)
	params = append(params, linkParams(spec)...)
	var err error
	if m.layout, err = NewLayout(params); err != nil {
		return nil, err
	}
	m.statistics = findStatistics(m.layout)
	if _, norm := m.NeedsFacts(); norm && !g.Away() {
		err = graph.Guard(func() error {
			m.norm = newGCNNorm(g)
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// On returns the model bound to g, another graph of the same nodes, with the features
// that m is bound to.
func (m *Model) On(g *graph.Graph) (*Model, error) {
	other, err := newModel(m.spec, g, m.custom)
	if err != nil {
		return nil, err
	}
	other.sparse, other.sparseOf = m.sparse, m.sparseOf
	return other, nil
}

// Spec returns what the model was made from.
func (m *Model) Spec() Spec { return m.spec }

// Blocks returns how many blocks a batch needs: one per layer, for mixhop one
// per layer and hop.
func (m *Model) Blocks() int { return m.blocks }

// Layout returns the order and shapes of the model's parameters.
func (m *Model) Layout() *Layout { return m.layout }

// Init returns freshly initialised parameters, as PyG initialises them.
func (m *Model) Init(seed uint64) []float32 { return m.layout.Init(seed) }

// checkEdges reports edge features that do not fit the model.
func (m *Model) checkEdges(f *graph.Features) error {
	switch {
	case m.spec.EdgeDim == 0:
		return nil
	case f == nil:
		return fmt.Errorf("there are no edge features; the model needs %d per edge", m.spec.EdgeDim)
	case f.Cols != m.spec.EdgeDim:
		return fmt.Errorf("edges have %d features, the model needs %d", f.Cols, m.spec.EdgeDim)
	case f.Rows != m.edges:
		return fmt.Errorf("there are features of %d edges, but the graph has %d", f.Rows, m.edges)
	}
	return nil
}

// Save writes params and metadata (which may be nil) to a safetensors file with
// PyG's names, atomically.
func (m *Model) Save(path string, params []float32, metadata map[string]string) error {
	if len(params) != m.layout.Len() {
		return fmt.Errorf("compute: saving %s: %d parameters given, the model has %d", path, len(params), m.layout.Len())
	}
	err := atomicfile.Write(path, 0o644, func(w io.Writer) error {
		return WriteSafetensors(w, m.layout.Pack("", params), metadata)
	})
	if err != nil {
		return fmt.Errorf("compute: saving %s: %w", path, err)
	}
	return nil
}

// Load reads parameters that Save, or PyG, wrote, and their metadata, which
// lacks ChecksumKey when nothing tells whether the file is what was written.
// Errors are those of OpenSafetensors and Parameters.
func (m *Model) Load(ctx context.Context, path string) ([]float32, map[string]string, error) {
	tensors, metadata, err := OpenSafetensors(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	params, err := m.Parameters(tensors)
	if err != nil {
		return nil, nil, fmt.Errorf("compute: %s: %w", path, err)
	}
	return params, metadata, nil
}

// Parameters returns the parameters that the tensors of a file hold. Names that are
// missing, unknown or of another shape are an error that lists them; so is a value
// that is NaN or infinite.
func (m *Model) Parameters(tensors []RawTensor) ([]float32, error) {
	params, err := m.layout.Unpack("", tensors)
	if err != nil {
		return nil, err
	}
	if err := m.layout.CheckFinite(params); err != nil {
		return nil, fmt.Errorf("%w: the file is damaged, or its training diverged; take an intact copy, or train again with a smaller learning rate or clip-norm", err)
	}
	return params, nil
}

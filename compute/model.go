package compute

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/graph"
)

// Spec says what a model is. It is part of a run's identity.
type Spec struct {
	Model   string  `json:"model"`   // a name out of Models
	Layers  int     `json:"layers"`  // message-passing layers
	Hidden  int     `json:"hidden"`  // width of the layers between
	InDim   int     `json:"in_dim"`  // input features per node
	OutDim  int     `json:"out_dim"` // classes
	Dropout float64 `json:"dropout"` // probability of dropping a hidden value in training
	// InputDropout is the same for input features.
	InputDropout float64 `json:"input_dropout"`
}

// Models returns the names of the models, sorted.
func Models() []string { return []string{"gcn", "sage"} }

// Validate reports every problem of s at once.
func (s *Spec) Validate() error {
	var bad []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	check(slices.Contains(Models(), s.Model), "model %q is not one of %s", s.Model, strings.Join(Models(), ", "))
	check(s.Layers >= 1, "%d layers; there must be at least 1", s.Layers)
	check(s.Hidden >= 1 || s.Layers == 1, "hidden width is %d; it must be at least 1", s.Hidden)
	check(s.InDim >= 1, "nodes have %d input features; there must be at least 1", s.InDim)
	check(s.OutDim >= 1, "there are %d classes; there must be at least 1", s.OutDim)
	check(s.Dropout >= 0 && s.Dropout < 1, "dropout %v is not in [0, 1)", s.Dropout)
	check(s.InputDropout >= 0 && s.InputDropout < 1, "input dropout %v is not in [0, 1)", s.InputDropout)
	if bad != nil {
		return errors.New("compute: " + strings.Join(bad, "; "))
	}
	return nil
}

// Model is a Spec bound to a graph. It holds no parameters: those are flat
// vectors of its Layout, which callers own. It is safe for concurrent use.
type Model struct {
	spec         Spec
	graph        *graph.Graph
	nodes, edges int
	layout       *Layout
	norm         *gcnNorm // nil if no layer needs it
	sparse       *cpu.Sparse[float32]
	sparseOf     *graph.Features // the table that sparse is of
}

// NewModel binds spec to g, whose slices must stay valid and unchanged while
// the model is in use. For gcn it reads the whole graph once, for the
// normalisation, which takes 4 bytes per node (8 with edge weights).
func NewModel(spec Spec, g *graph.Graph) (*Model, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	m := &Model{spec: spec, graph: g, nodes: g.NumNodes(), edges: len(g.Indices)}
	var params []Param
	for i, l := range newLayers[float32](spec) {
		for _, p := range l.Params() {
			p.Name = layerPrefix(i) + p.Name
			params = append(params, p)
		}
	}
	var err error
	if m.layout, err = NewLayout(params); err != nil {
		return nil, err
	}
	if spec.Model == "gcn" {
		m.norm = newGCNNorm(g)
	}
	return m, nil
}

// layerPrefix is what PyG's BasicGNN puts before the names of layer i.
func layerPrefix(i int) string { return fmt.Sprintf("convs.%d.", i) }

// newLayers returns the layers of spec, which must be valid.
func newLayers[T cpu.Float](spec Spec) []Layer[T] {
	layers := make([]Layer[T], spec.Layers)
	for i := range layers {
		in, out := spec.Hidden, spec.Hidden
		if i == 0 {
			in = spec.InDim
		}
		if i == spec.Layers-1 {
			out = spec.OutDim
		}
		switch spec.Model {
		case "gcn":
			layers[i] = &gcnConv[T]{in: in, out: out}
		case "sage":
			layers[i] = &sageConv[T]{in: in, out: out, reduce: cpu.Mean}
		default:
			panic("compute: newLayers: spec was not validated")
		}
	}
	return layers
}

// Spec returns what the model was made from.
func (m *Model) Spec() Spec { return m.spec }

// Layout returns the order and shapes of the model's parameters.
func (m *Model) Layout() *Layout { return m.layout }

// Init returns freshly initialised parameters, as PyG initialises them.
func (m *Model) Init(seed uint64) []float32 { return m.layout.Init(seed) }

// Save writes params and metadata (which may be nil) to a safetensors file with
// PyG's names, atomically.
func (m *Model) Save(path string, params []float32, metadata map[string]string) error {
	if len(params) != m.layout.Len() {
		return fmt.Errorf("compute: saving %s: %d parameters given, the model has %d", path, len(params), m.layout.Len())
	}
	return WriteFileAtomic(path, func(w io.Writer) error {
		return WriteSafetensors(w, m.layout.Pack("", params), metadata)
	})
}

// Load reads parameters that Save, or PyG, wrote, and their metadata. Names
// that are missing, unknown or of another shape are an error that lists them.
func (m *Model) Load(path string) ([]float32, map[string]string, error) {
	tensors, metadata, err := OpenSafetensors(path)
	if err != nil {
		return nil, nil, err
	}
	params, err := m.layout.Unpack("", tensors)
	if err != nil {
		return nil, nil, fmt.Errorf("compute: %s: %w", path, err)
	}
	return params, metadata, nil
}

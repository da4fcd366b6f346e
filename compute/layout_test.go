package compute

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

func TestLayout(t *testing.T) {
	l, err := NewLayout([]Param{
		{Name: "b", Shape: []int{2, 3}, Init: Glorot},
		{Name: "a.2", Shape: []int{2}, Init: Ones},
		{Name: "a.10", Shape: []int{1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range l.Tensors() {
		names = append(names, x.Name)
	}
	if !slices.Equal(names, []string{"a.10", "a.2", "b"}) || l.Len() != 9 {
		t.Errorf("names %v, length %d", names, l.Len())
	}
	if b, ok := l.Lookup("b"); !ok || b.Offset != 3 || b.Len != 6 {
		t.Errorf("b lies at %+v", b)
	}
	if _, ok := l.Lookup("c"); ok {
		t.Error("found what was not declared")
	}
	// The hash is that of the little-endian bytes.
	x := make([]float32, 9)
	x[0], x[8] = 1, -2
	raw := make([]byte, 36)
	raw[2], raw[3], raw[35] = 0x80, 0x3f, 0xc0
	sum := sha256.Sum256(raw)
	if l.SHA256(x) != hex.EncodeToString(sum[:]) {
		t.Error("wrong hash")
	}
	for _, bad := range [][]Param{{{Name: "x", Shape: []int{1}}, {Name: "x", Shape: []int{2}}}, {{Name: "x", Shape: []int{0}}}} {
		if _, err := NewLayout(bad); err == nil {
			t.Errorf("%v is no error", bad)
		}
	}
}

// TestInitialValues checks bounds and moments. The means of 60,000 and more
// values are within 6 standard errors: the chance of a false alarm is 1e-8, and
// the seed is fixed.
func TestInitialValues(t *testing.T) {
	g := &graph.Graph{Indptr: make([]int64, 2)}
	gcn := mustModel(t, Spec{Model: "gcn", Layers: 2, InDim: 300, Hidden: 200, OutDim: 5}, g)
	sage := mustModel(t, Spec{Model: "sage", Layers: 2, InDim: 300, Hidden: 200, OutDim: 5}, g)
	for _, c := range []struct {
		m     *Model
		name  string
		bound float64
	}{
		{gcn, "convs.0.lin.weight", math.Sqrt(6.0 / 500)},
		{gcn, "convs.0.bias", 0},
		{sage, "convs.0.lin_l.weight", 1 / math.Sqrt(300)},
		{sage, "convs.0.lin_r.weight", 1 / math.Sqrt(300)},
		{sage, "convs.0.lin_l.bias", 1 / math.Sqrt(300)},
	} {
		p := c.m.Init(7)
		x, _ := c.m.layout.Lookup(c.name)
		var most, sum, squares float64
		for _, v := range p[x.Offset : x.Offset+x.Len] {
			most = max(most, math.Abs(float64(v)))
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
		n := float64(x.Len)
		if most > c.bound*(1+1e-6) || c.bound > 0 && most < 0.95*c.bound {
			t.Errorf("%s: largest value %v, bound %v", c.name, most, c.bound)
		}
		if math.Abs(sum/n) > 6*c.bound/math.Sqrt(3*n) {
			t.Errorf("%s: mean %v", c.name, sum/n)
		}
		if want := c.bound * c.bound / 3; x.Len > 1000 && math.Abs(squares/n-want) > 0.03*want {
			t.Errorf("%s: variance %v, want %v", c.name, squares/n, want)
		}
	}
	if slices.Equal(gcn.Init(1), gcn.Init(2)) || !slices.Equal(gcn.Init(1), gcn.Init(1)) {
		t.Error("initial values must be a function of the seed")
	}
	// A deeper model has the same first layer.
	deep := mustModel(t, Spec{Model: "gcn", Layers: 3, InDim: 300, Hidden: 200, OutDim: 5}, g)
	x, _ := gcn.layout.Lookup("convs.0.lin.weight")
	y, _ := deep.layout.Lookup("convs.0.lin.weight")
	if !slices.Equal(gcn.Init(1)[x.Offset:x.Offset+x.Len], deep.Init(1)[y.Offset:y.Offset+y.Len]) {
		t.Error("another layer changes the first one's values")
	}
}

func TestSpecErrors(t *testing.T) {
	_, err := NewModel(Spec{Model: "gnc", Dropout: 1, InputDropout: -0.1}, &graph.Graph{Indptr: []int64{0}})
	for _, want := range []string{`model "gnc" is not one of gat, gatv2, gcn, gin, sage, mixhop`, "0 layers", "0 input features", "0 classes", "dropout 1 ", "input dropout -0.1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}

// TestSpecOptions checks that an option that the chosen model does not read is
// refused, with the models that do, and its default and its own models are not.
func TestSpecOptions(t *testing.T) {
	spec := func(model string, set func(*Spec)) error {
		s := Spec{Model: model, Layers: 2, InDim: 3, Hidden: 4, OutDim: 2}
		if set != nil {
			set(&s)
		}
		return s.Validate()
	}
	all := append(Models(), "mixhop")
	for name, o := range map[string]struct {
		set     func(*Spec)
		readers []string
	}{
		"gcn norm":    {func(s *Spec) { s.GCNNorm = "block" }, []string{"gcn", "mixhop"}},
		"attention d": {func(s *Spec) { s.AttentionDropout = 0.1 }, []string{"gat", "gatv2"}},
		"weighting":   {func(s *Spec) { s.WeightAttention = true }, []string{"gat", "gatv2"}},
		"heads":       {func(s *Spec) { s.Heads = 2 }, []string{"gat", "gatv2"}},
		"loops":       {func(s *Spec) { s.NoLoops = true }, []string{"gat", "gatv2"}},
		"epsilon":     {func(s *Spec) { s.TrainEps = true }, []string{"gin"}},
		"scaling":     {func(s *Spec) { s.ScaleSums = true }, []string{"gin"}},
		"aggregation": {func(s *Spec) { s.Aggregation = "max" }, []string{"sage"}},
		"hops":        {func(s *Spec) { s.Hops = 3 }, []string{"mixhop"}},
		"combine":     {func(s *Spec) { s.Combine = "concat" }, []string{"sage"}},
	} {
		for _, model := range all {
			err := spec(model, o.set)
			if reads := slices.Contains(o.readers, model); reads != (err == nil) ||
				!reads && (!strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "leave it out, or choose "+o.readers[0])) {
				t.Errorf("%s for %s: %v", name, model, err)
			}
		}
	}
	for _, model := range all {
		for i, defaults := range []func(*Spec){nil, func(s *Spec) {
			s.GCNNorm, s.Aggregation, s.Combine, s.Heads, s.Hops = "graph", "mean", "add", 1, 2
		}} {
			if err := spec(model, defaults); err != nil {
				t.Errorf("defaults %d for %s: %v", i, model, err)
			}
		}
	}
	if err := spec("sage", func(s *Spec) { s.Aggregation, s.ScaleSums = "sum", true }); err != nil {
		t.Errorf("scaled sums of sage: %v", err)
	}
}

func TestArena(t *testing.T) {
	var a Arena[float32]
	for round := range 4 {
		var all [][]float32
		for i, n := range []int{3, 0, arenaPiece, 17, 2 * arenaPiece, 1} {
			s := a.Alloc(n)
			if len(s) != n || cap(s) != n {
				t.Fatalf("round %d: asked for %d, got %d of capacity %d", round, n, len(s), cap(s))
			}
			for j := range s {
				s[j] = float32(i)
			}
			all = append(all, s)
		}
		for i, s := range all {
			for _, v := range s {
				if v != float32(i) {
					t.Fatalf("round %d: slice %d overlaps another", round, i)
				}
			}
		}
		for _, v := range a.Zeroed(100) {
			if v != 0 {
				t.Fatal("Zeroed is not")
			}
		}
		if a.Reset(); round > 0 && len(a.pieces) != 1 {
			t.Errorf("round %d: %d pieces", round, len(a.pieces))
		}
	}
	held := a.Cap()
	if n := testing.AllocsPerRun(10, func() {
		a.Alloc(2 * arenaPiece)
		a.Alloc(arenaPiece)
		a.Reset()
	}); n != 0 || a.Cap() != held {
		t.Errorf("steady state allocates %v times, holds %d instead of %d", n, a.Cap(), held)
	}
}

// Every choice between names refuses a name that is none of them, and says so.
func TestNamesOfChoices(t *testing.T) {
	for want, change := range map[string]func(s *Spec){
		`model "gnc"`:             func(s *Spec) { s.Model = "gnc" },
		`aggregation "min"`:       func(s *Spec) { s.Aggregation = "min" },
		`combine "mul"`:           func(s *Spec) { s.Combine = "mul" },
		`link decoder "cos"`:      func(s *Spec) { s.LinkDecoder = "cos" },
		`norm "graph"`:            func(s *Spec) { s.Norm = "graph" },
		`activation "gelu"`:       func(s *Spec) { s.Activation = "gelu" },
		`gcn norm "none"`:         func(s *Spec) { s.GCNNorm = "none" },
		`jumping knowledge "all"`: func(s *Spec) { s.JumpingKnowledge = "all" },
	} {
		s := Spec{Model: "sage", Layers: 2, InDim: 3, Hidden: 4, OutDim: 2}
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want+" is not one of ") {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestSmallestWidths(t *testing.T) {
	for _, c := range []struct {
		layers, hidden int
		ok             bool
	}{{2, 1, true}, {2, 0, false}, {1, 0, true}, {1, -1, true}, {0, 4, false}} {
		s := Spec{Model: "sage", Layers: c.layers, InDim: 1, Hidden: c.hidden, OutDim: 1}
		err := s.Validate()
		if (err == nil) != c.ok {
			t.Errorf("%d layers of width %d: %v", c.layers, c.hidden, err)
		}
	}
}

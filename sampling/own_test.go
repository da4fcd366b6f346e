package sampling

import (
	"errors"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/rng"
)

// A program's own sampler is made and samples; one that cannot be made, or is none, is refused.
func TestPrepareOwn(t *testing.T) {
	ds := &graph.Dataset{Graph: skewed(50, 8, 1)}
	broken := errors.New("broken")
	for says, made := range map[string]func(*graph.Dataset, Spec) (Sampler, error){
		"": func(ds *graph.Dataset, s Spec) (Sampler, error) {
			return New(t.Context(), Spec{Name: "neighbor", Fanouts: s.Fanouts}, ds.Graph)
		},
		"mine: nothing was made": func(*graph.Dataset, Spec) (Sampler, error) { return nil, nil },
		"mine: broken":           func(*graph.Dataset, Spec) (Sampler, error) { return nil, broken },
	} {
		p, err := PrepareOwn(t.Context(), Spec{Name: "mine", Fanouts: []int{2}}, ds, 1, made)
		if says != "" {
			if err == nil || !strings.HasSuffix(err.Error(), says) {
				t.Errorf("%v, want %s", err, says)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		b := new(Batch)
		if err := p.NewSampler().Sample(b, rng.New(1), []uint32{3, 7}); err != nil || len(b.Seeds) != 2 {
			t.Errorf("%v, %v", b.Seeds, err)
		}
	}
}

// A column is what pieces tell, each of its own nodes, no more and no less.
func TestJoined(t *testing.T) {
	borders := pieces.Borders{0, 2, 3}
	if got, err := joined[uint32](borders, [][]byte{{1, 0, 0, 0, 2, 0, 0, 0}, {3, 0, 0, 0}}); err != nil || got[0] != 1 || got[1] != 2 || got[2] != 3 {
		t.Errorf("%v, %v", got, err)
	}
	for _, wrong := range [][][]byte{{make([]byte, 8), make([]byte, 5)}, {make([]byte, 8), make([]byte, 3)}} {
		if _, err := joined[uint32](borders, wrong); err == nil || !strings.Contains(err.Error(), "piece 1 of 1 nodes") {
			t.Errorf("%v", err)
		}
	}
}

package scheduler

import (
	"encoding/json"
	"strings"
	"testing"
)

func sizes() Sizes {
	return Sizes{
		Nodes: 1 << 20, Edges: 15 << 20, FeatureBytes: 512 << 20, TrainNodes: 196_615, InDim: 128, OutDim: 47, Hidden: 256, Layers: 3,
		Sampler: "neighbor", Fanouts: []int{15, 10, 5}, BatchSize: 1024, Micro: 1, Parameters: 200_000, Kernels: "avx2", Optimizer: "adamw",
	}
}

func TestPlanFollowsTheRequest(t *testing.T) {
	p := Build(sizes(), Request{Threads: 8, Samplers: 3, Trainers: 1, Credits: 5, EvalChunk: 77})
	if p.Threads != 8 || p.Samplers != 3 || p.Trainers != 1 || p.Credits != 5 || p.EvalChunk != 77 {
		t.Errorf("%+v", p)
	}
	if !strings.Contains(p.String(), "200000 parameters, adamw") {
		t.Errorf("the plan does not name the optimiser:\n%s", p)
	}
	if p.Batches != 193 {
		t.Errorf("%d batches of 1024 out of 196615 nodes", p.Batches)
	}
}

func TestPlanChooses(t *testing.T) {
	p := Build(sizes(), Request{Threads: 8})
	if p.Samplers != 4 || p.Trainers != 1 || p.Credits < 1 || p.EvalChunk < minChunk || p.EvalChunk > maxChunk {
		t.Errorf("%+v", p)
	}
	bare := sizes()
	bare.InDim, bare.FeatureBytes = 0, 0
	if p := Build(bare, Request{Threads: 8}); p.Samplers != 8 {
		t.Errorf("%d samplers on 8 threads where nothing is computed", p.Samplers)
	}
	for rate, says := range map[float64]bool{0: false, 0.5: true, 1.5: false} {
		low := sizes()
		low.BF16Rate = rate
		if s := Build(low, Request{Threads: 8}).String(); strings.Contains(s, "--precision float32 is faster") != says || strings.Contains(s, "bf16") != (rate > 0) {
			t.Errorf("products in bf16 at %v of float32's rate:\n%s", rate, s)
		}
	}
	whole := sizes()
	whole.Sampler, whole.Fanouts = "full", nil
	if p := Build(whole, Request{Threads: 8}); p.Samplers != 1 || p.Credits != 1 || p.Batches != 1 {
		t.Errorf("whole graph: %+v", p)
	}
}

// The peak is the sum of the terms that are printed, mapped pages left out.
func TestPeakIsTheSum(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		s := sizes()
		s.FeaturesMap = mapped
		p := Build(s, Request{Threads: 2})
		var sum int64
		for _, m := range p.Memory {
			if m.Bytes < 0 {
				t.Errorf("%s is %d bytes", m.What, m.Bytes)
			}
			if !m.Mapped && m.When == "" {
				sum += m.Bytes
			}
		}
		if sum != p.PeakBytes {
			t.Errorf("peak %d, sum %d", p.PeakBytes, sum)
		}
		text := p.String()
		for _, m := range p.Memory {
			if !strings.Contains(text, m.What) {
				t.Errorf("the text leaves out %q:\n%s", m.What, text)
			}
		}
		if _, err := json.Marshal(p); err != nil {
			t.Error(err)
		}
	}
}

// What only trains takes nothing where nothing is trained: neither batches nor gradients nor activations, whatever their size.
func TestNoTrainingTakesNothing(t *testing.T) {
	s := sizes()
	s.NoTraining = true
	large := s
	large.BatchSize, large.Fanouts = 64*s.BatchSize, []int{50, 50, 50}
	few, many := Build(s, Request{Threads: 2, Credits: 1}), Build(large, Request{Threads: 2, Credits: 4})
	for _, m := range many.Memory {
		for _, what := range []string{"batches", "gradients", "activations", "samplers work"} {
			if strings.Contains(m.What, what) && m.When == "" && m.Bytes > 0 {
				t.Errorf("%s takes %d bytes", m.What, m.Bytes)
			}
		}
	}
	if trains := Build(sizes(), Request{Threads: 2, Credits: 1}); few.PeakBytes >= trains.PeakBytes || few.PeakBytes != many.PeakBytes {
		t.Errorf("peaks of %d and %d bytes, of training %d", few.PeakBytes, many.PeakBytes, trains.PeakBytes)
	}
}

func TestMoreCreditsCostMore(t *testing.T) {
	few, many := Build(sizes(), Request{Threads: 2, Credits: 1}), Build(sizes(), Request{Threads: 2, Credits: 4})
	if few.PeakBytes >= many.PeakBytes {
		t.Errorf("peak %d with 1 credit, %d with 4", few.PeakBytes, many.PeakBytes)
	}
}

// One sampler gets all threads for a large batch of a node-wise sampler.
func TestLargeBatchesAreSampledTogether(t *testing.T) {
	for _, c := range []struct {
		sampler                   string
		fanouts                   []int
		threads, samplers, micros int
		batch                     int
		parallel, want            bool
	}{
		{"neighbor", []int{5, 5}, 2, 1, 1, togetherFrom, true, true},
		{"neighbor", []int{5, 5}, 2, 1, 1, togetherFrom - 1, true, false},
		{"neighbor", []int{5, 5}, 2, 1, 2, togetherFrom, true, false},
		{"neighbor", []int{5, 5}, 2, 2, 1, togetherFrom, true, false},
		{"neighbor", []int{5, 5}, 2, 0, 1, togetherFrom, true, false}, // it may go up to two
		{"neighbor", []int{5, 5}, 1, 1, 1, togetherFrom, true, false},
		{"lazy", []int{5, 5}, 2, 1, 1, togetherFrom, false, false},
		{"ladies", []int{500, 500}, 2, 1, 1, togetherFrom, false, false},
		{"khop", nil, 2, 1, 1, togetherFrom, true, true},
		{"full", nil, 2, 1, 1, togetherFrom, false, false},
		{"walk", nil, 2, 1, 1, togetherFrom, false, false},
	} {
		s := Sizes{Nodes: 1e6, Edges: 1e7, TrainNodes: 1e5, InDim: 10, OutDim: 10, Hidden: 10, Layers: 2, Micro: c.micros,
			Sampler: c.sampler, Fanouts: c.fanouts, BatchSize: c.batch, Parallel: c.parallel}
		p := Build(s, Request{Threads: c.threads, Samplers: c.samplers})
		if p.Together != c.want {
			t.Errorf("%+v: all threads sample one batch: %v", c, p.Together)
		}
	}
}

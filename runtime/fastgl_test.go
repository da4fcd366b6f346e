//go:build linux && amd64 && !nogpu

package runtime

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/generate"
)

// byMessages is a device whose sums and means over a block are not made by the memory-aware
// kernel: the sources' rows are copied together, then once for every edge, and those copies summed up.
type byMessages struct{ *cuda.Device }

func (d byMessages) Queue() devices.Queue { return &messageQueue{Queue: d.NewQueue()} }

type messageQueue struct {
	*cuda.Queue
	rows, messages []float32
	own            []uint32
}

// room returns n values in memory, which grows.
func (q *messageQueue) room(memory *[]float32, n int) []float32 {
	if len(*memory) < n {
		if *memory != nil {
			q.Free(*memory)
		}
		*memory = q.Alloc(n + n/4)
	}
	return (*memory)[:n]
}

// Aggregate is cpu.Device's.
func (q *messageQueue) Aggregate(dst cpu.Matrix[float32], b *graph.Block, src cpu.Source[float32], o cpu.AggregateOptions[float32]) {
	if o.Reduce == cpu.Max || o.Self != nil || len(b.Indices) == 0 {
		q.Queue.Aggregate(dst, b, src, o)
		return
	}
	rows := cpu.Dense(b.NumSrc, dst.Cols, q.room(&q.rows, b.NumSrc*dst.Cols))
	q.Gather(rows, src)
	messages := cpu.Dense(len(b.Indices), dst.Cols, q.room(&q.messages, len(b.Indices)*dst.Cols))
	q.TakeRows(messages, rows, b.Indices)
	for i := len(q.own); i < len(b.Indices); i++ {
		q.own = append(q.own, uint32(i))
	}
	sums := graph.Block{NumDst: b.NumDst, NumSrc: len(b.Indices), Indptr: b.Indptr, Indices: q.own[:len(b.Indices):len(b.Indices)]}
	q.Queue.Aggregate(dst, &sums, cpu.Source[float32]{Dense: messages}, o)
}

// ablationGraph makes one of the ablation's graphs: rmat20 has 2^20 nodes, sbm20 as many in 47 blocks.
func ablationGraph(b *testing.B, name string, degree, dim int) *graph.Dataset {
	var kind string
	var scale int
	if _, err := fmt.Sscanf(name, "rmat%d", &scale); err == nil {
		kind = "rmat"
	} else if _, err := fmt.Sscanf(name, "sbm%d", &scale); err == nil {
		kind = "sbm"
	} else {
		b.Fatalf("%s is no rmatN or sbmN", name)
	}
	var ds *graph.Dataset
	var err error
	if kind == "rmat" {
		ds, err = generate.RMAT(b.Context(), generate.RMATOptions{Scale: scale, Edges: degree << scale, FeatureDim: dim, Classes: 47, Seed: 1})
	} else {
		ds, err = generate.SBM(b.Context(), generate.SBMOptions{Nodes: 1 << scale, Classes: 47, AvgDegree: float64(degree), Homophily: 0.9, FeatureDim: dim, Signal: 0.1, TrainFraction: 0.6, ValidFraction: 0.2, Seed: 1})
	}
	if err != nil {
		b.Fatal(err)
	}
	return ds
}

// seeded are those of nodes that have neighbours.
func seeded(g *graph.Graph, nodes []uint32) (s []uint32) {
	for _, u := range nodes {
		if g.Indptr[u+1] > g.Indptr[u] {
			s = append(s, u)
		}
	}
	return s
}

// BenchmarkFastGL is the ablation of FastGL: the rows of every batch copied to the device, then
// those alone that the batches before do not have there, then batches put into an order in which
// that is more, then the memory-aware aggregation straight from the slab, then batches sampled and
// numbered on the device; then a cache of a tenth of the nodes, those of the most edges; the whole table
// on the device; and GNS with caches of three sizes. It reports the second epoch's time and, of both,
// the bytes of rows and of everything that went over the bus, how long copies and compute took, and the
// device's peak. Graphs are rmat20, rmat21 and a block model on a device, small in the emulator;
// GNNACTOR_BENCH_GRAPHS names others.
func BenchmarkFastGL(b *testing.B) {
	fakecuda.Use(b)
	c := DefaultConfig()
	degree, dim, graphs := 4, 12, []string{"rmat8", "sbm8"}
	c.Sampling.BatchSize, c.Model.Hidden, c.Sampling.Fanouts = 16, 8, []int{3, 3, 2}
	if fakecuda.Real() {
		degree, dim, graphs = 16, 128, []string{"rmat20", "rmat21", "sbm20"}
		c.Sampling.BatchSize, c.Model.Hidden, c.Sampling.Fanouts = 1024, 256, []int{15, 10, 5}
	}
	if names := os.Getenv("GNNACTOR_BENCH_GRAPHS"); names != "" {
		graphs = strings.Split(names, ",")
	}
	c.Model.Layers, c.Training.Epochs, c.Training.EvalEvery, c.Execution.Device = 3, 3, 0, "cuda"
	for _, name := range graphs {
		ds := ablationGraph(b, name, degree, dim)
		ds.Train = seeded(ds.Graph, ds.Train)
		ds.Train = ds.Train[:min(len(ds.Train), 100*c.Sampling.BatchSize)]
		c.Data.Dataset = ds
		for _, step := range []struct {
			name     string
			match    string
			reorder  int
			messages bool
			on       string
			cache    string
		}{
			{"1-copy-all", "off", 0, true, onProcessor, ""}, {"2-match", "on", 0, true, onProcessor, ""}, {"3-reorder", "on", 16, true, onProcessor, ""},
			{"4-aggregation", "on", 16, false, onProcessor, ""}, {"5-fused-map", "on", 16, false, onDevice, ""},
			{"cache-10%", "on", 0, false, onDevice, "degree:10%"}, {"kept-table", "", 0, false, onDevice, ""},
			{"gns-0.1%", "on", 0, false, onDevice, "gns:0.1%"}, {"gns-1%", "on", 0, false, onDevice, "gns:1%"}, {"gns-5%", "on", 0, false, onDevice, "gns:5%"},
		} {
			b.Run(name+"/"+step.name, func(b *testing.B) {
				devices.Register("cuda", func(number int) (devices.Device, error) {
					d, err := cuda.Open(number)
					if err == nil && step.messages {
						return byMessages{d}, nil
					}
					return d, err
				})
				c := c
				c.Memory.Match, c.Sampling.Reorder, c.Execution.SampleOn, c.Memory.Cache = step.match, step.reorder, step.on, step.cache
				if strings.HasPrefix(step.cache, "gns") {
					c.Sampling.Sampler = "gns"
				}
				for range b.N {
					fastGL(b, c)
				}
			})
		}
	}
}

// fastGL trains two epochs of three and reports what they took.
func fastGL(b *testing.B, c Config) {
	r, err := Start(context.Background(), c)
	if err != nil {
		b.Fatal(err)
	}
	var ends []time.Duration
	var last Event
	for e, err := range r.Train(context.Background()) {
		if err != nil {
			b.Fatal(err)
		}
		if last = e; e.Kind == EventEpoch {
			if ends = append(ends, e.Wall); len(ends) == 2 {
				break // before all nodes are evaluated, whose bytes are not the epochs'
			}
		}
	}
	s := r.Stats()
	b.ReportMetric((ends[1] - ends[0]).Seconds(), "s/epoch")
	b.ReportMetric(float64(r.Plan().Batches)/(ends[1]-ends[0]).Seconds(), "steps/s")
	b.ReportMetric(float64(last.Rows.Bus)/1e6, "MB-rows")
	b.ReportMetric(float64(s.ToDevice)/1e6, "MB-bus")
	b.ReportMetric(last.Stages["copy"].Seconds(), "s-copy")
	b.ReportMetric(last.Stages["compute"].Seconds(), "s-compute")
	b.ReportMetric(float64(s.DevicePeak)/1e6, "MB-peak")
	if err := r.Stop(); err != nil {
		b.Fatal(err)
	}
}

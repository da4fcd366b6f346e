//go:build linux && amd64 && !nogpu

package runtime

import (
	"context"
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

// BenchmarkFastGL is the ablation of FastGL: the rows of every batch copied to the device, then
// those alone that the batches before do not have there, then batches put into an order in which
// that is more, then the memory-aware aggregation straight from the slab; and last the whole
// table on the device. It reports the second epoch's time and, of both, the bytes of rows and of
// everything that went over the bus, and how long copies and compute took.
// GNNACTOR_BENCH_SCALE is the graph's; 20 on a device, small in the emulator.
func BenchmarkFastGL(b *testing.B) {
	fakecuda.Use(b)
	c := DefaultConfig()
	scale, degree := 8, 4
	c.Sampling.BatchSize, c.Model.Hidden, c.Sampling.Fanouts = 16, 8, []int{3, 3, 2}
	dim := 12
	if fakecuda.Real() {
		scale, degree, dim = benchNumber(b, "GNNACTOR_BENCH_SCALE", 20), 16, 128
		c.Sampling.BatchSize, c.Model.Hidden, c.Sampling.Fanouts = 1024, 256, []int{15, 10, 5}
	}
	ds, err := generate.RMAT(generate.RMATOptions{Scale: scale, Edges: degree << scale, FeatureDim: dim, Classes: 47, Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	ds.Train = ds.Train[:min(len(ds.Train), 100*c.Sampling.BatchSize)]
	c.Data.Dataset, c.Model.Layers, c.Training.Epochs, c.Training.EvalEvery, c.Execution.Device = ds, 3, 2, 0, "cuda"
	for _, step := range []struct {
		name     string
		match    string
		reorder  int
		messages bool
	}{
		{"1-copy-all", "off", 0, true}, {"2-match", "on", 0, true}, {"3-reorder", "on", 16, true}, {"4-aggregation", "on", 16, false}, {"5-kept-table", "", 0, false},
	} {
		b.Run(step.name, func(b *testing.B) {
			devices.Register("cuda", func(number int) (devices.Device, error) {
				d, err := cuda.Open(number)
				if err == nil && step.messages {
					return byMessages{d}, nil
				}
				return d, err
			})
			c := c
			c.Memory.Match, c.Sampling.Reorder = step.match, step.reorder
			for range b.N {
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
						ends = append(ends, e.Wall)
					}
				}
				toDevice, _ := r.device.Moved()
				b.ReportMetric((ends[1] - ends[0]).Seconds(), "s/epoch")
				b.ReportMetric(float64(r.Plan().Batches)/(ends[1]-ends[0]).Seconds(), "steps/s")
				b.ReportMetric(float64(last.Rows.Bus)/1e6, "MB-rows")
				b.ReportMetric(float64(toDevice)/1e6, "MB-bus")
				b.ReportMetric(last.Stages["copy"].Seconds(), "s-copy")
				b.ReportMetric(last.Stages["compute"].Seconds(), "s-compute")
				if err := r.Stop(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

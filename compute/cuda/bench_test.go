//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"fmt"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/rng"
)

// benchDevice is an executor on a device. One of little memory, such as the emulated one,
// takes a small share of the work: that the benchmarks run is checked there.
func benchDevice(b *testing.B) (q *cuda.Queue, x *cpu.Exec, share int) {
	q = fakecuda.Queue(b)
	p := pool.New(4)
	b.Cleanup(p.Close)
	x = cpu.NewExec(p, cpu.Go)
	x.UseDevice(q)
	if q.Memory() > 8<<30 {
		return q, x, 1
	}
	return q, x, 256
}

// timed runs f once to have its memory and code, and then b.N times, and reports work
// of each, 1e9 to a unit, per second.
func timed(b *testing.B, q *cuda.Queue, unit string, work float64, f func()) {
	wait := func() {
		if err := q.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	f()
	wait()
	b.ResetTimer()
	for range b.N {
		f()
	}
	wait()
	b.ReportMetric(work*float64(b.N)/b.Elapsed().Seconds()/1e9, unit)
}

func deviceMatrix(q *cuda.Queue, x *cpu.Exec, rows, cols int) cpu.Matrix[float32] {
	m := cpu.Dense(rows, cols, q.Alloc(rows*cols))
	cpu.Fill(x, m, 0.5)
	return m
}

// What the device can do at most.
func BenchmarkLimits(b *testing.B) {
	b.Run("fma", func(b *testing.B) {
		q, _, share := benchDevice(b)
		blocks, rounds := max(1, 4096/share), max(1, 64/share)
		out := q.Alloc(1)
		timed(b, q, "GFLOP/s", 2*8*256*256*float64(rounds*blocks), func() { q.FMALimit(out, blocks, rounds) })
	})
	for p, terms := range map[cpu.Precision]float64{cpu.TF32: 8, cpu.BFloat16: 16} {
		b.Run(p.String(), func(b *testing.B) {
			q, _, share := benchDevice(b)
			blocks, rounds := max(1, 4096/share), max(1, 64/share)
			out := q.Alloc(1)
			timed(b, q, "GFLOP/s", 2*16*8*terms*8*64*8*float64(rounds*blocks), func() { q.TensorLimit(p, out, blocks, rounds) })
		})
	}
	b.Run("copy", func(b *testing.B) {
		q, x, share := benchDevice(b)
		n := (1 << 27) / share
		from, to := deviceMatrix(q, x, 1, n), deviceMatrix(q, x, 1, n)
		timed(b, q, "GB/s", 8*float64(n), func() { cpu.Copy(x, to, from) })
	})
	b.Run("rows", func(b *testing.B) {
		q, x, share := benchDevice(b)
		rows, blocks := (1<<21)/share, max(1, 8192/share)
		table, out := deviceMatrix(q, x, rows, 128), q.Alloc(1)
		timed(b, q, "GB/s", 512*8*64*float64(blocks), func() { q.RowsLimit(out, table, blocks, 64) })
	})
	b.Run("bus", func(b *testing.B) {
		q, _, share := benchDevice(b)
		host := make([]float32, (1<<20)/share)
		to := q.Alloc(len(host))
		q.Upload(to, host)
		timed(b, q, "GB/s", 4*float64(len(host)), func() { q.BusLimit(to) })
	})
	b.Run("upload", func(b *testing.B) {
		q, _, share := benchDevice(b)
		host := make([]float32, (1<<20)/share) // as much as goes through pinned memory at once
		to := q.Alloc(len(host))
		timed(b, q, "GB/s", 4*float64(len(host)), func() { q.Upload(to, host) })
	})
	b.Run("download", func(b *testing.B) {
		q, x, share := benchDevice(b)
		from := deviceMatrix(q, x, 1, (1<<24)/share)
		host := make([]float32, from.Cols)
		timed(b, q, "GB/s", 4*float64(len(host)), func() { q.Download(host, from.Data) })
	})
}

// Products in all orientations: of a large shape, and of those of BenchmarkBatches' step, which has as many destinations in its layers.
func BenchmarkGemm(b *testing.B) {
	for _, s := range [][3]int{{65536, 256, 128}, {38339, 256, 128}, {7110, 256, 256}, {1024, 47, 256}} {
		for form, name := range []string{"AB", "AtB", "ABt"} {
			m, n, k := s[0], s[1], s[2]
			switch form { // the rows of a batch are where they are in such a step
			case 1:
				m, k = k, m
			case 2:
				n, k = k, n
			}
			b.Run(fmt.Sprintf("%s/%dx%dx%d", name, m, n, k), func(b *testing.B) {
				q, x, share := benchDevice(b)
				if share > 1 {
					m, k = min(m, 256), min(k, 256)
				}
				shape := func(rows, cols int, t bool) cpu.Matrix[float32] {
					if t {
						rows, cols = cols, rows
					}
					return deviceMatrix(q, x, rows, cols)
				}
				a, w, dst := shape(m, k, form == 1), shape(k, n, form == 2), deviceMatrix(q, x, m, n)
				timed(b, q, "GFLOP/s", 2*float64(m)*float64(n)*float64(k), func() {
					cpu.Gemm(x, dst, a, form == 1, w, form == 2, cpu.Epilogue[float32]{})
				})
			})
		}
	}
}

// Products of a step's largest shape on tensor cores, in all orientations.
func BenchmarkTensorCores(b *testing.B) {
	for _, p := range []cpu.Precision{cpu.TF32, cpu.BFloat16} {
		for form, name := range []string{"AB", "AtB", "ABt"} {
			b.Run(fmt.Sprint(p, "/", name), func(b *testing.B) {
				q, x, share := benchDevice(b)
				if _, err := q.Device().UseBLAS(devices.OwnBLAS, p); err != nil {
					b.Fatal(err)
				}
				rows := 65536 / share
				shapes := [3][3][2]int{{{rows, 128}, {128, 256}, {rows, 256}}, {{rows, 128}, {rows, 256}, {128, 256}}, {{rows, 256}, {128, 256}, {rows, 128}}}
				var m [3]cpu.Matrix[float32]
				for i, s := range shapes[form] {
					m[i] = deviceMatrix(q, x, s[0], s[1])
				}
				timed(b, q, "GFLOP/s", 2*256*128*float64(rows), func() {
					cpu.Gemm(x, m[2], m[0], form == 1, m[1], form == 2, cpu.Epilogue[float32]{})
				})
			})
		}
	}
}

// randomBlock has entries random sources for each of its destinations.
func randomBlock(dst, src, entries int) graph.Block {
	k := rng.New(1)
	b := graph.Block{NumDst: dst, NumSrc: src, Indptr: make([]int64, dst+1), Indices: make([]uint32, dst*entries)}
	for i := range b.Indices {
		b.Indices[i] = uint32(k.Uintn(uint64(i), uint64(src)))
	}
	for i := range b.Indptr {
		b.Indptr[i] = int64(i * entries)
	}
	return b
}

// Means of 10 random rows of 128 values, and GAT's attention over them with 4 heads of 64.
func BenchmarkSparse(b *testing.B) {
	b.Run("mean", func(b *testing.B) {
		q, x, share := benchDevice(b)
		block := randomBlock((1<<17)/share, (1<<20)/share, 10)
		src, dst := deviceMatrix(q, x, block.NumSrc, 128), deviceMatrix(q, x, block.NumDst, 128)
		timed(b, q, "GB/s", 512*float64(len(block.Indices)), func() {
			cpu.Aggregate(x, dst, &block, cpu.Source[float32]{Dense: src}, cpu.AggregateOptions[float32]{Reduce: cpu.Mean})
		})
	})
	b.Run("attention", func(b *testing.B) {
		q, x, share := benchDevice(b)
		block := randomBlock((1<<16)/share, (1<<18)/share, 10)
		v, dst := deviceMatrix(q, x, block.NumSrc, 256), deviceMatrix(q, x, block.NumDst, 256)
		s, d := deviceMatrix(q, x, block.NumSrc, 4), deviceMatrix(q, x, block.NumDst, 4)
		a := &cpu.Attention[float32]{Block: &block, Heads: 4, Slope: 0.2, Alpha: q.Alloc(4 * len(block.Indices))}
		timed(b, q, "GB/s", 1024*float64(len(block.Indices)), func() {
			a.Additive(x, s, d)
			a.Sum(x, dst, v)
		})
	})
}

// A training step of a 3-layer GraphSAGE 128-256-256-47 on a batch of 1024 seeds with
// fan-outs 15, 10, 5: gradients from blocks that are there, with everything that goes over
// the bus.
func BenchmarkStep(b *testing.B) {
	q, x, share := benchDevice(b)
	nodes := (1 << 20) / share
	seeds := max(8, 1024/share)
	g := randomBlock(nodes, nodes, 16)
	m, err := compute.NewModel(compute.Spec{Model: "sage", Layers: 3, InDim: 128, Hidden: 256, OutDim: 47, Dropout: 0.5}, &graph.Graph{Indptr: g.Indptr, Indices: g.Indices})
	if err != nil {
		b.Fatal(err)
	}
	blocks := make([]graph.Block, 3)
	for l, dst := 2, seeds; l >= 0; l-- {
		entries := []int{5, 10, 15}[l]
		src := min(nodes, dst*(entries+1)*3/4)
		blocks[l] = randomBlock(dst, max(src, dst), entries)
		dst = blocks[l].NumSrc
	}
	in := &compute.Input{Features: graph.NewFeatures(blocks[0].NumSrc, 128, make([]float32, blocks[0].NumSrc*128)), Blocks: blocks, Labels: make([]int32, seeds)}
	params := m.Init(1)
	grad := make([]float32, len(params))
	e := m.NewEngine(x)
	timed(b, q, "steps/s", 1e9, func() {
		if _, err := e.Gradient(grad, params, in); err != nil {
			b.Fatal(err)
		}
	})
	b.ReportMetric(float64(q.Peak())/(1<<20), "MiB")
	e.Close()
}

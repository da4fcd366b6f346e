//go:build linux && amd64 && !nogpu

package compute

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// deviceExec returns an executor whose kernels run on an emulated device.
func deviceExec(t *testing.T) *cpu.Exec {
	x := testExec(t, 1, cpu.Go)
	x.UseDevice(fakecuda.Queue(t))
	return x
}

// Every model with every option has the processor's gradient and outputs on a device,
// with dropout and weights, of the whole graph, sampled blocks and subgraphs; the second
// gradient has the bits of the first.
func TestDeviceGradients(t *testing.T) {
	for _, model := range append(Models(), "mixhop") {
		if !slices.ContainsFunc(slices.Collect(maps.Values(variants)), func(s Spec) bool { return s.Model == model }) {
			t.Errorf("no variant is a %s", model)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(variants)) {
		for i, shape := range []string{"whole", "sampled", "subgraph"} {
			t.Run(name+"/"+shape, func(t *testing.T) {
				ds := testDataset(60, 3, 9-4*(i%2), i == 0)
				spec := sized(variants[name], 2, ds.NodeFeatures.Cols, 6, 4)
				spec.Dropout, spec.InputDropout = 0.3, 0.2
				m := mustModel(t, spec, ds.Graph)
				ds.EdgeFeatures = edgeFeatures(m)
				in := &Input{Key: 3, Features: ds.NodeFeatures, Edges: ds.EdgeFeatures}
				switch shape {
				case "whole":
					in.Blocks = wholeBlocks(ds.Graph, m.Blocks())
				case "sampled":
					m.BindFeatures(ds.NodeFeatures)
					seeds := make([]uint32, 60)
					rng.New(5).Perm(seeds)
					in.Blocks = sampleBlocks(ds.Graph, seeds[:20], m.Blocks(), 2, 6)
					for l := range in.Blocks {
						in.Blocks[l].Weights = randomMatrix[float32](1, len(in.Blocks[l].Indices), uint64(l)).Data
					}
				default:
					in.Blocks = subgraphBlocks(ds.Graph, []uint32{14, 3, 2, 9, 0, 7, 11, 12, 5, 40, 41, 42, 59}, m.Blocks())
				}
				in.Rows = in.Blocks[0].SrcIDs
				targets := in.Blocks[len(in.Blocks)-1].NumDst - 3
				for i := range targets {
					in.Labels = append(in.Labels, int32(i%4))
				}
				in.Weights = randomMatrix[float32](1, targets, 4).Data
				compareDevice(t, m, ds, in)
			})
		}
	}
}

// compareDevice compares gradients of in, and inference, on a device and on the
// processor.
func compareDevice(t *testing.T, m *Model, ds *graph.Dataset, in *Input) {
	t.Helper()
	params := randomParams(m, 5)
	device, host := deviceExec(t), testExec(t, 1, cpu.Go)
	want, got, again := make([]float32, len(params)), make([]float32, len(params)), make([]float32, len(params))
	stats, err := m.NewEngine(host).Gradient(want, params, in)
	if err != nil {
		t.Fatal(err)
	}
	e := m.NewEngine(device)
	for _, g := range [][]float32{got, again} {
		s, err := e.Gradient(g, params, in)
		if err != nil {
			t.Fatal(err)
		}
		closeTo(t, "loss", []float64{s.Loss}, []float64{stats.Loss}, 1e-5)
		if s.Correct != stats.Correct || s.Count != stats.Count || s.Weight != stats.Weight {
			t.Errorf("on the device %+v, on the processor %+v", s, stats)
		}
	}
	if !slices.Equal(got, again) {
		t.Error("the second gradient has other bits")
	}
	// What stays in the device's memory, and never crosses the bus, has the same bits.
	d := cpu.DeviceOf[float32](device)
	there, made := d.Alloc(len(params)), d.Alloc(len(params))
	d.Upload(there, params)
	if _, err := e.Gradient(made, there, in); err != nil {
		t.Fatal(err)
	}
	if d.Download(again, made); !slices.Equal(got, again) {
		t.Error("the gradient in the device's memory has other bits")
	}
	largest := max(slices.Max(want), -slices.Min(want))
	for _, p := range m.layout.Tensors() {
		// Before a batch norm the gradient of a bias is rounding errors alone: beside the
		// largest of all they are nothing.
		tensor := func(g []float32) []float32 { return append([]float32{largest / 100}, g[p.Offset:p.Offset+p.Len]...) }
		closeTo(t, "gradient of "+p.Name, tensor(got), tensor(want), 1e-4)
	}
	outputs := map[*cpu.Exec][]float32{}
	for _, x := range []*cpu.Exec{device, host} {
		y, err := m.Infer(context.Background(), x, params, ds, []uint32{3, 41, 7, 59}, 7)
		if err != nil {
			t.Fatal(err)
		}
		out, err := m.Output(x, params, in)
		if err != nil {
			t.Fatal(err)
		}
		outputs[x] = slices.Concat(y.Data, out.Data)
	}
	closeTo(t, "outputs", outputs[device], outputs[host], 1e-4)
}

// Links, several labels, features that are mostly zeros, and all that a program's own
// layers may call.
func TestDeviceOthers(t *testing.T) {
	ds := testDataset(60, 3, 80, false)
	for i := range ds.NodeFeatures.Rows {
		row := make([]float32, 80)
		row[i%80], row[(7*i+1)%80] = 1, -0.5
		copy(ds.NodeFeatures.Data[i*ds.NodeFeatures.Stride:], graph.NewFeatures(1, 80, row).Data)
	}
	in := &Input{Key: 3, Features: ds.NodeFeatures, Blocks: wholeBlocks(ds.Graph, 2)}
	t.Run("sparse", func(t *testing.T) {
		spec := sized(Spec{Model: "gcn", InputDropout: 0.2}, 2, 80, 6, 4)
		m := mustModel(t, spec, ds.Graph)
		m.BindFeatures(ds.NodeFeatures)
		if !m.SparseInput() {
			t.Fatal("the features do not count as sparse")
		}
		in := *in
		in.Labels = make([]int32, 50)
		compareDevice(t, m, ds, &in)
	})
	t.Run("labels", func(t *testing.T) {
		m := mustModel(t, sized(Spec{Model: "sage"}, 2, 80, 6, 4), ds.Graph)
		in := *in
		for i := range 40 * 4 {
			in.Multi = append(in.Multi, uint8(i*i%3%2))
		}
		compareDevice(t, m, ds, &in)
	})
	t.Run("labels, focal", func(t *testing.T) {
		m := mustModel(t, sized(Spec{Model: "sage"}, 2, 80, 6, 4), ds.Graph)
		in := *in
		in.Multi, in.Loss, in.Weights = make([]uint8, 40*4), &Loss{Gamma: 1.5, ClassWeights: []float64{2, 1, 0.5, 3}}, randomMatrix[float32](1, 40, 4).Data
		for i := range in.Multi {
			in.Multi[i] = uint8(i * i % 3 % 2)
		}
		compareDevice(t, m, ds, &in)
	})
	t.Run("smoothed", func(t *testing.T) {
		m := mustModel(t, sized(Spec{Model: "sage"}, 2, 80, 6, 4), ds.Graph)
		in := *in
		in.Labels, in.Loss = make([]int32, 40), &Loss{Smoothing: 0.2, ClassWeights: []float64{2, 1, 0.5, 3}}
		compareDevice(t, m, ds, &in)
	})
	t.Run("numbers", func(t *testing.T) {
		m := mustModel(t, sized(Spec{Model: "sage"}, 2, 80, 6, 1), ds.Graph)
		in := *in
		in.Values, in.Regression = randomMatrix[float32](1, 40, 4).Data, HuberError
		compareDevice(t, m, ds, &in)
	})
	for _, decoder := range []string{"dot", "mlp"} {
		t.Run("links "+decoder, func(t *testing.T) {
			m := mustModel(t, sized(Spec{Model: "sage", LinkDecoder: decoder}, 2, 80, 6, 5), ds.Graph)
			var links []Link
			for i := range 70 {
				links = append(links, Link{Src: uint32(i % 60), Dst: uint32((i*i + 1) % 60), Positive: i%3 == 0})
			}
			params := randomParams(m, 5)
			grads, scores := make([][]float32, 2), make([][]float32, 2)
			stats := make([]Stats, 2)
			embeddings := randomMatrix[float32](60, 5, 9)
			for i, x := range []*cpu.Exec{testExec(t, 1, cpu.Go), deviceExec(t)} {
				grads[i] = make([]float32, len(params))
				var err error
				if stats[i], err = m.NewEngine(x).LinkGradient(grads[i], params, in, links); err != nil {
					t.Fatal(err)
				}
				scores[i] = m.NewLinkScorer(x).Scores([]float32{1}, params, embeddings, links)
			}
			closeTo(t, "gradient", grads[1], grads[0], 1e-4)
			closeTo(t, "scores", scores[1], scores[0], 1e-5)
			closeTo(t, "loss", []float64{stats[1].Loss}, []float64{stats[0].Loss}, 1e-5)
		})
	}
	for _, reduce := range []cpu.Reduce{cpu.Sum, cpu.Mean} {
		t.Run("entries "+reduce.String(), func(t *testing.T) {
			var grads [2][]float32
			for i, x := range []*cpu.Exec{testExec(t, 1, cpu.Go), deviceExec(t)} {
				tape := NewTape[float32](x, true)
				b := in.Blocks[0]
				c := &Context[float32]{Tape: tape, Block: &b}
				v := tape.Leaf(randomMatrix[float32](60, 7, 3), true, cpu.Matrix[float32]{})
				y := tape.SumEntries(&b, tape.Multiply(c.FromSources(v), c.FromDestinations(v)), reduce)
				tape.SetGrad(y, randomMatrix[float32](60, 7, 4))
				tape.Backward()
				g := cpu.NewMatrix[float32](60, 7)
				tape.fetch(g, v.Grad())
				grads[i] = g.Data
			}
			closeTo(t, "gradient", grads[1], grads[0], 1e-5)
		})
	}
}

// Gradients that two devices make at once have the bits of one that makes both.
func TestTwoDevices(t *testing.T) {
	d := fakecuda.Use(t)
	d.Set("devices", 2)
	ds := testDataset(60, 3, 9, false)
	m := mustModel(t, sized(Spec{Model: "gat", Heads: 2, Dropout: 0.3}, 2, 9, 6, 4), ds.Graph)
	params := randomParams(m, 5)
	gradient := func(x *cpu.Exec, seeds []uint32) []float32 {
		grad := make([]float32, len(params))
		blocks := sampleBlocks(ds.Graph, seeds, 2, 2, 6)
		in := &Input{Key: rng.New(uint64(seeds[0])), Features: ds.NodeFeatures, Rows: blocks[0].SrcIDs, Blocks: blocks, Labels: make([]int32, len(seeds))}
		if _, err := m.NewEngine(x).Gradient(grad, params, in); err != nil {
			t.Error(err)
		}
		return grad
	}
	var execs []*cpu.Exec
	for number := range 2 {
		device, err := cuda.Open(number)
		if err != nil {
			t.Fatal(err)
		}
		q := device.NewQueue()
		defer func() {
			if err := errors.Join(q.Close(), device.Close()); err != nil {
				t.Error(err)
			}
		}()
		x := testExec(t, 1, cpu.Go)
		x.UseDevice(q)
		execs = append(execs, x)
	}
	parts := [][]uint32{{1, 5, 9, 30}, {2, 8, 44}}
	var together [2][]float32
	var all sync.WaitGroup
	for i, x := range execs {
		all.Go(func() { together[i] = gradient(x, parts[i]) })
	}
	all.Wait()
	for i, seeds := range parts {
		if !slices.Equal(together[i], gradient(execs[0], seeds)) {
			t.Errorf("micro-batch %d has other bits on the first device", i)
		}
	}
}

// Nothing is read back from a device before all of a gradient's kernels are queued: where that fails as many
// were launched as where it does not.
func TestDeviceLossIsReadLast(t *testing.T) {
	d := fakecuda.Use(t)
	x := deviceExec(t)
	ds := testDataset(60, 3, 9, false)
	m := mustModel(t, sized(Spec{Model: "sage"}, 2, 9, 6, 4), ds.Graph)
	q := cpu.DeviceOf[float32](x)
	params, grad := q.Alloc(m.Layout().Len()), q.Alloc(m.Layout().Len())
	q.Upload(params, randomParams(m, 5))
	e := m.NewEngine(x)
	defer e.Close()
	one, several := make([]int32, 60), make([]uint8, 60*4)
	var links []Link
	for i := range uint32(40) {
		links = append(links, Link{Src: i, Dst: i + 7, Positive: i%2 == 0})
	}
	in := Input{Features: ds.NodeFeatures, Blocks: wholeBlocks(ds.Graph, 2)}
	for name, gradient := range map[string]func() (Stats, error){
		"one label":      func() (Stats, error) { in := in; in.Labels = one; return e.Gradient(grad, params, &in) },
		"several labels": func() (Stats, error) { in := in; in.Multi = several; return e.Gradient(grad, params, &in) },
		"several labels, focal": func() (Stats, error) {
			in := in
			in.Multi, in.Loss = several, &Loss{Gamma: 2}
			return e.Gradient(grad, params, &in)
		},
		"links": func() (Stats, error) { in := in; return e.LinkGradient(grad, params, &in, links) },
		"numbers": func() (Stats, error) {
			m := mustModel(t, sized(Spec{Model: "sage"}, 2, 9, 6, 1), ds.Graph)
			params, grad := params[:m.Layout().Len()], grad[:m.Layout().Len()]
			e := m.NewEngine(x)
			defer e.Close()
			in := in
			in.Values = make([]float32, 60)
			return e.Gradient(grad, params, &in)
		},
	} {
		launched := func() (n int, err error) {
			before := d.Count("cuLaunchKernel")
			_, err = gradient()
			return d.Count("cuLaunchKernel") - before, err
		}
		want, err := launched()
		if err != nil || want < 10 {
			t.Fatal(name, want, err)
		}
		d.Fail("cuMemcpyDtoHAsync_v2", 0, 2)
		if got, err := launched(); err == nil || got != want {
			t.Errorf("%s: %d of %d kernels are queued before anything is read: %v", name, got, want, err)
		}
	}
}

// What an engine, an inference and an output have of a device's memory is given back when
// they end, and the same the second time.
func TestDeviceMemory(t *testing.T) {
	d := fakecuda.Use(t)
	device, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	q := device.NewQueue()
	x := testExec(t, 1, cpu.Go)
	x.UseDevice(q)
	ds := testDataset(60, 3, 9, false)
	m := mustModel(t, sized(Spec{Model: "gat", Heads: 2}, 2, 9, 6, 4), ds.Graph)
	params := randomParams(m, 5)
	in := &Input{Features: ds.NodeFeatures, Blocks: wholeBlocks(ds.Graph, 2), Labels: make([]int32, 60)}
	var held []int
	for range 3 {
		e := m.NewEngine(x)
		_, gradient := e.Gradient(make([]float32, len(params)), params, in)
		e.Close()
		_, infer := m.Infer(context.Background(), x, params, ds, nil, 25)
		_, output := m.Output(x, params, in)
		if err := errors.Join(gradient, infer, output); err != nil {
			t.Fatal(err)
		}
		held = append(held, d.Count("allocations"))
	}
	// Scratch of kernels, and what holds the host's arrays, stay with the queue.
	if held[0] > 2 || held[1] != held[0] || held[2] != held[0] {
		t.Errorf("%v allocations are held", held)
	}
	if err := errors.Join(q.Close(), device.Close()); err != nil {
		t.Error(err)
	}
}

//go:build linux && amd64 && !nogpu

package runtime

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/sampling"
)

// rowsOf returns a graph of n nodes, of which every fifth has no neighbours, one has all nodes
// and as many of them again as make it entries long, and two are most others' neighbours. A fifth
// of the weights, and all of every seventh row, are 0.
func rowsOf(n, entries int) *graph.Graph {
	r := rand.New(rand.NewPCG(5, uint64(n)))
	g := &graph.Graph{Indptr: make([]int64, n+1)}
	for v := range n {
		d := r.IntN(18)
		switch {
		case v == 3:
			d = entries
		case v%5 == 0:
			d = 0
		}
		for i := range d {
			u := r.IntN(n)
			if v == 3 {
				u = i % n
			} else if r.IntN(4) == 0 {
				u %= 2
			}
			g.Indices = append(g.Indices, uint32(u))
			g.Weights = append(g.Weights, max(0, r.Float32()-0.2)*float32(v%7))
		}
		g.Indptr[v+1] = int64(len(g.Indices))
	}
	return g
}

// sameBatch fails unless a batch is another.
func sameBatch(t *testing.T, got, want *sampling.Batch) {
	t.Helper()
	if len(got.Blocks) != len(want.Blocks) || !slices.Equal(got.Seeds, want.Seeds) || got.ID != want.ID {
		t.Fatalf("%v has %d blocks and seeds %v, not %d and %v", got.ID, len(got.Blocks), got.Seeds, len(want.Blocks), want.Seeds)
	}
	for i := range want.Blocks {
		g, w := &got.Blocks[i], &want.Blocks[i]
		if g.NumDst != w.NumDst || g.NumSrc != w.NumSrc || !slices.Equal(g.Indptr, w.Indptr) || !slices.Equal(g.Indices, w.Indices) || !slices.Equal(g.SrcIDs, w.SrcIDs) ||
			(g.EdgeIDs == nil) != (w.EdgeIDs == nil) || !slices.Equal(g.EdgeIDs, w.EdgeIDs) || !slices.Equal(g.Weights, w.Weights) {
			t.Fatalf("%v: block %d is %+v, not %+v", got.ID, i, g, w)
		}
	}
}

// A device draws the batches of package sampling to the bit, uniformly, by weights and with
// GNS's caches of several generations: whatever the fan-outs, rows without neighbours and of 100,000, and seeds, of which none may be given twice.
func TestDeviceSamplesTheSame(t *testing.T) {
	fakecuda.Use(t)
	d, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	small, long := rowsOf(701, 701), rowsOf(301, 100_000)
	plain := *small
	plain.Weights = nil
	batches := 0
	for _, c := range []struct {
		g       *graph.Graph
		batches int
		spec    sampling.Spec
	}{
		{&plain, 40, sampling.Spec{Name: "neighbor", Fanouts: []int{5, 3}}},
		{&plain, 20, sampling.Spec{Name: "neighbor", Fanouts: []int{1, 7, 2}, EdgeIDs: true}},
		{small, 12, sampling.Spec{Name: "neighbor", Fanouts: []int{17, -1}}},
		{small, 8, sampling.Spec{Name: "neighbor", Fanouts: []int{65}, EdgeIDs: true}},
		{small, 5, sampling.Spec{Name: "khop", Layers: 2}},
		{long, 15, sampling.Spec{Name: "neighbor", Fanouts: []int{33, 2}}},
		{small, 20, sampling.Spec{Name: "neighbor", Fanouts: []int{3, 5}, Weighted: true, EdgeIDs: true}},
		{small, 5, sampling.Spec{Name: "neighbor", Fanouts: []int{40, -1}, Weighted: true}},
		{long, 4, sampling.Spec{Name: "neighbor", Fanouts: []int{35}, Weighted: true, EdgeIDs: true}},
		{small, 20, sampling.Spec{Name: "gns", Fanouts: []int{4, 3}, CacheFraction: 0.1, CachePeriod: 2, EdgeIDs: true}},
		{small, 15, sampling.Spec{Name: "gns", Fanouts: []int{5, 9}, CacheFraction: 0.3, Normalize: "degree", CacheOnly: true}},
		{small, 5, sampling.Spec{Name: "gns", Fanouts: []int{-1, -1}, CacheFraction: 0.05, CacheOnly: true}},
		{long, 5, sampling.Spec{Name: "gns", Fanouts: []int{70}, CacheFraction: 0.2}},
		{long, 2, sampling.Spec{Name: "khop", Layers: 1, EdgeIDs: true}},
	} {
		if fakecuda.Real() {
			c.batches *= 8
		}
		p, err := sampling.Prepare(t.Context(), c.spec, &graph.Dataset{Graph: c.g}, 1)
		if err != nil {
			t.Fatal(err)
		}
		r := &Runtime{device: d, sampler: p}
		on, err := r.newDeviceSampler(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer on.Close()
		s, host := deviceSampler{on, p}, p.NewSampler()
		var got, want sampling.Batch
		order := sampling.Order(allNodes(c.g.NumNodes()), 9, batches)
		for i := range c.batches {
			seeds := order[i%(len(order)-23):][:[]int{6, 1, 0, 11, 23}[i%5]]
			if c.g == long && i%2 == 0 && !slices.Contains(seeds, 3) {
				seeds = append([]uint32{3}, seeds...)
			}
			want.Reset()
			want.ID = sampling.ID{Phase: "train", Epoch: i / 3, Batch: i}
			got.ID = want.ID
			key := want.ID.Key(4)
			if err := errors.Join(host.Sample(&want, key, seeds), s.Sample(&got, key, seeds)); err != nil {
				t.Fatal(err)
			}
			sameBatch(t, &got, &want)
		}
		for _, bad := range [][]uint32{{1, 2, 1}, {0, uint32(c.g.NumNodes())}} {
			if a, b := host.Sample(&want, 1, bad), s.Sample(&got, 1, bad); a == nil || b == nil || a.Error() != b.Error() {
				t.Errorf("seeds %v: %v, not %v", bad, b, a)
			}
		}
		batches += c.batches
	}
	if batches < 150 || fakecuda.Real() && batches < 1000 {
		t.Errorf("%d batches", batches)
	}
}

func allNodes(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i)
	}
	return ids
}

// A run that samples on the device has the bits of one that samples on the processor: on Cora,
// and for links, of a block model.
func TestCoraSampledOnDevice(t *testing.T) {
	data := filepath.Join("..", "..", "shared", "data", "cora")
	if _, err := os.Stat(data); err != nil {
		t.Skip("Cora is not beside this repository")
	}
	d := fakecuda.Use(t)
	var sums []string
	var launches []int
	var sent []int64
	var batches [2]sampling.Batch
	for i, where := range []string{"cpu", "device"} {
		c := DefaultConfig()
		c.Data.Path, c.Model.Hidden, c.Training.Epochs, c.Training.EvalEvery = data, 4, 2, 0
		c.Sampling.Fanouts, c.Sampling.BatchSize, c.Execution.Device, c.Execution.SampleOn = []int{5, 3}, 70, "cuda", where
		c.Execution.Samplers = 1 + i
		r := started(t, c)
		if said := strings.Contains(r.plan.String(), "on cuda:sm_80, as asked for"); said != (where == "device") {
			t.Errorf("the plan says\n%v", r.plan)
		}
		before, moved := d.Count("cuLaunchKernel"), r.Stats().ToDevice
		trained(t, r)
		sums, launches = append(sums, sumOf(t, r)), append(launches, d.Count("cuLaunchKernel")-before)
		if held := int64(d.Count("bytes")); held > r.plan.DevicePeak {
			t.Errorf("%d bytes are held; the plan has %d", held, r.plan.DevicePeak)
		}
		sent = append(sent, r.Stats().ToDevice-moved)
		stopped(t, r)

		c.Data.Path, c.Model.Task = "", "link"
		r = started(t, c)
		if err := r.newSampler().Sample(&batches[i], 5, []uint32{4, 9, 100}); err != nil {
			t.Fatal(err)
		}
		stopped(t, r)
	}
	if sums[0] != sums[1] || launches[0] == launches[1] || sent[1] >= sent[0] {
		t.Errorf("parameters %v after %v launches and %v bytes to the device", sums, launches, sent)
	}
	if batches[1].There != nil {
		t.Error("a batch whose links were hidden is said to be on the device as it is")
	}
	sameBatch(t, &batches[1], &batches[0])
	if !slices.Equal(batches[1].Targets, batches[0].Targets) || batches[0].Targets == nil {
		t.Errorf("targets %v and %v", batches[1].Targets, batches[0].Targets)
	}
}

// The plan says which side samples and why; what a device cannot draw, or not hold, the
// processor does, unless the device was asked for.
func TestPlanSaysWhoSamples(t *testing.T) {
	d := fakecuda.Use(t)
	for _, c := range []struct {
		name, want, refused string
		memory              int
		set                 func(c *Config)
	}{
		{"measured", "ms a batch, the device ", "", 0, func(*Config) {}},
		{"asked for", "on cuda:sm_80, as asked for", "", 0, func(c *Config) { c.Execution.SampleOn = "device" }},
		{"the processor asked for", "on the processor, as asked for", "", 0, func(c *Config) { c.Execution.SampleOn = "cpu" }},
		{"labor", "on the processor: no device draws labor", "no device draws labor", 0, func(c *Config) { c.Sampling.Sampler = "labor" }},
		{"replace", "on the processor: no device draws with sampler-options", "no device draws with", 0, func(c *Config) { c.Sampling.Options = map[string]string{"replace": "true"} }},
		{"no room for a batch", "on the processor, as batches do not fit the device", "", 0, func(*Config) { d.Fail("cuMemAlloc_v2", 5, 2) }},
		{"no room", "on the processor: too little memory on the device: the graph takes", "a quarter of cuda:0's", 40 << 10, func(*Config) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.memory > 0 {
				d.Set("memory", c.memory)
			}
			config := DefaultConfig()
			config.Execution.Device = "cuda"
			c.set(&config)
			r := started(t, config)
			if !strings.Contains(r.plan.String(), c.want) {
				t.Errorf("the plan does not say %q:\n%v", c.want, r.plan)
			}
			stopped(t, r)
			if c.refused == "" {
				return
			}
			config.Execution.SampleOn = "device"
			if r, err := Start(context.Background(), config); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
	c := DefaultConfig()
	c.Execution.SampleOn = "device"
	if r, err := Start(context.Background(), c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "there is no device") {
		t.Errorf("%v, %v", r, err)
	}
	c.Execution.SampleOn = "gpu"
	if err := c.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "sample-on") {
		t.Error(err)
	}
}

// A damaged graph, and a device that fails while it samples, are errors of the batch.
func TestDeviceSamplingFails(t *testing.T) {
	d := fakecuda.Use(t)
	c := DefaultConfig()
	c.Execution.Device, c.Execution.SampleOn, c.Training.Epochs, c.Training.EvalEvery = "cuda", "device", 1, 0
	r := started(t, c)
	d.Fail("cuMemcpyDtoHAsync_v2", 3, 719)
	var last error
	for _, err := range r.Train(context.Background()) {
		last = err
	}
	if last == nil || !strings.Contains(last.Error(), "unspecified launch failure") || !strings.Contains(last.Error(), "train/e0/b0") {
		t.Errorf("%v", last)
	}
	stopped(t, r)

	p, err := sampling.Prepare(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{2}}, &graph.Dataset{Graph: &graph.Graph{Indptr: []int64{0, 1}, Indices: []uint32{7}}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var none devices.Device
	if _, err := (&Runtime{device: none, sampler: p}).newDeviceSampler(t.Context()); err == nil || !strings.Contains(err.Error(), "indices[0] = 7 is out of range") {
		t.Error(err)
	}
}

// What a device sampled stays there: kernels that are given the batch read no array of it from the
// host, and have the processor's result. The memory serves the next batch in the same place, and is
// not another's before.
func TestSampledBatchStaysOnDevice(t *testing.T) {
	driver := fakecuda.Use(t)
	d, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	p, err := sampling.Prepare(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: []int{5, 3}, EdgeIDs: true}, &graph.Dataset{Graph: rowsOf(701, 701)}, 1)
	if err != nil {
		t.Fatal(err)
	}
	on, err := (&Runtime{device: d, sampler: p}).newDeviceSampler(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { on.Close() }()
	q := d.NewQueue()
	defer q.Close()
	workers := pool.New(1)
	defer workers.Close()
	x, host := cpu.NewExec(workers, cpu.Go), cpu.NewExec(workers, cpu.Go)
	x.UseDevice(q)
	// check has the mean of every block's sources, by their ids, on the device and on the processor.
	check := func(b *sampling.Batch, stays bool) {
		t.Helper()
		q.Reset()
		q.Find(b.There)
		for i := range b.Blocks {
			k := &b.Blocks[i]
			src := cpu.NewMatrix[float32](k.NumSrc, 4)
			for j := range src.Data {
				src.Data[j] = float32(k.SrcIDs[j/4]) + float32(j%4)/8
			}
			there, dst, want := src, cpu.NewMatrix[float32](k.NumDst, 4), cpu.NewMatrix[float32](k.NumDst, 4)
			there.Data, dst.Data = q.Alloc(len(src.Data)), q.Alloc(len(dst.Data))
			q.Upload(there.Data, src.Data)
			before, _ := d.Moved()
			cpu.Aggregate(x, dst, k, cpu.Source[float32]{Dense: there}, cpu.AggregateOptions[float32]{Reduce: cpu.Mean})
			if after, _ := d.Moved(); (after == before) != stays {
				t.Errorf("block %d: %d bytes of it go to the device; there is %v", i, after-before, b.There != nil)
			}
			cpu.Aggregate(host, want, k, cpu.Source[float32]{Dense: src}, cpu.AggregateOptions[float32]{Reduce: cpu.Mean})
			got := make([]float32, len(want.Data))
			if q.Download(got, dst.Data); !slices.Equal(got, want.Data) {
				t.Errorf("block %d: the device reads other rows", i)
			}
			q.Free(there.Data)
			q.Free(dst.Data)
		}
	}
	var batches [2]sampling.Batch
	seeds := make([]uint32, 40)
	held := 0
	for i := range 6 {
		for j := range seeds {
			seeds[j] = uint32(j*17+i) % 701
		}
		b := &batches[i%2]
		b.Reset() // as the sampler actor does
		b.ID.Batch = i
		if err := (deviceSampler{on, p}).Sample(b, b.ID.Key(1), seeds); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			check(&batches[(i+1)%2], true) // the one before
		}
		check(b, true)
		if n := driver.Count("allocations"); i == 3 {
			held = n
		} else if i > 3 && n != held {
			t.Errorf("batch %d: %d allocations, before %d", i, n, held)
		}
	}
	batches[0].There = nil
	check(&batches[0], false)
	// The memory of a sampler that is closed is not another's.
	if err := on.Close(); err != nil {
		t.Fatal(err)
	}
	if on, err = (&Runtime{device: d, sampler: p}).newDeviceSampler(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := (deviceSampler{on, p}).Sample(&batches[1], 1, seeds); err != nil {
		t.Fatal(err)
	}
	check(&batches[1], true)
}

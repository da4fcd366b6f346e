//go:build linux && amd64 && !nogpu

package runtime

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/pool"
	"github.com/gnnactor/gnnactor/sampling"
)

// stepBatches are batches that are there, and a model whose steps on them can be compared with other programs': sampling is left out.
type stepBatches struct {
	ds      *graph.Dataset
	model   *compute.Model
	batches []sampling.Batch
	labels  [][]int32 // of each batch's seeds
}

const stepRate = 0.001 // Adam's

// newStepBatches draws n batches of so many seeds that have neighbours.
func newStepBatches(t testing.TB, ds *graph.Dataset, hidden, size, n int, fanouts []int, sampler func(*sampling.Prepared) sampling.Sampler) *stepBatches {
	t.Helper()
	p, err := sampling.Prepare(t.Context(), sampling.Spec{Name: "neighbor", Fanouts: fanouts}, ds, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := &stepBatches{ds: ds, batches: make([]sampling.Batch, n)}
	spec := compute.Spec{Model: "sage", Layers: len(fanouts), InDim: ds.NodeFeatures.Cols, Hidden: hidden, OutDim: ds.Labels.NumClasses}
	if s.model, err = compute.NewModel(spec, ds.Graph); err != nil {
		t.Fatal(err)
	}
	s.model.BindFeatures(ds.NodeFeatures)
	seeds := seeded(ds.Graph, ds.Train)
	order, draw, size := sampling.Order(seeds, 1, 0), sampler(p), min(size, len(seeds))
	for i := range s.batches {
		b := &s.batches[i]
		b.ID = sampling.ID{Phase: "train", Batch: i, Of: 1}
		if err := draw.Sample(b, b.ID.Key(1), sampling.Cut(order, size, 1, i%(len(order)/size), 0)); err != nil {
			t.Fatal(err)
		}
		labels := make([]int32, len(b.Seeds))
		for j, v := range b.Seeds {
			labels[j] = ds.Labels.Class[v]
		}
		s.labels = append(s.labels, labels)
	}
	return s
}

// stepper makes steps on batches, with Adam.
type stepper struct {
	*stepBatches
	x      *cpu.Exec
	e      *compute.Engine
	state  *compute.AdamState
	params []float32
	grad   []float32
}

// newStepper has all that a step changes in the memory of the device of x, if it has one.
func (s *stepBatches) newStepper(x *cpu.Exec) *stepper {
	params := s.model.Init(1)
	n := len(params)
	m := &stepper{s, x, s.model.NewEngine(x), compute.NewAdamState(n), params, make([]float32, n)}
	if d := cpu.DeviceOf[float32](x); d != nil {
		for _, v := range []*[]float32{&m.params, &m.state.M, &m.state.V, &m.grad} {
			there := d.Alloc(n)
			d.Upload(there, *v)
			*v = there
		}
	}
	return m
}

// pass makes a step on each batch and returns their mean losses.
func (m *stepper) pass() (losses []float32, err error) {
	for i := range m.batches {
		b := &m.batches[i]
		in := &compute.Input{Blocks: b.Blocks, Features: m.ds.NodeFeatures, Rows: b.Inputs(), Labels: m.labels[i], There: b.There}
		stats, err := m.e.Gradient(m.grad, m.params, in)
		if err != nil {
			return nil, err
		}
		x := cpu.Dense(1, len(m.grad), m.grad)
		cpu.Scale(m.x, x, float32(1/stats.Weight), x)
		compute.DefaultAdam(stepRate).Step(m.params, m.grad, m.state, m.x)
		losses = append(losses, float32(stats.Loss/stats.Weight))
	}
	return losses, nil
}

// export writes to dir, as arrays of NumPy, what .ci/step.py makes the same steps of: the table of features; of batch b each
// block's indptr and indices, b0-0-indptr.npy the input layer's, the nodes of the input, whose first are every layer's, and the
// seeds' classes; parameters by their names in PyG; and the losses of the first step on each.
func (s *stepBatches) export(dir string, losses []float32) error {
	var all error
	write := func(name string, v any, shape ...int) {
		all = errors.Join(all, writeArray(filepath.Join(dir, name+".npy"), v, shape...))
	}
	f := s.ds.NodeFeatures
	table := make([]float32, f.Rows*f.Cols)
	for v := range f.Rows {
		f.Row(table[v*f.Cols:(v+1)*f.Cols], v)
	}
	write("features", table, f.Rows, f.Cols)
	for i := range s.batches {
		b := &s.batches[i]
		for l, k := range b.Blocks {
			write(fmt.Sprintf("b%d-%d-indptr", i, l), k.Indptr, len(k.Indptr))
			write(fmt.Sprintf("b%d-%d-indices", i, l), k.Indices, len(k.Indices))
		}
		write(fmt.Sprintf("b%d-nodes", i), b.Inputs(), len(b.Inputs()))
		write(fmt.Sprintf("b%d-labels", i), s.labels[i], len(s.labels[i]))
	}
	params := s.model.Init(1)
	for _, t := range s.model.Layout().Tensors() {
		write("parameter-"+t.Name, params[t.Offset:t.Offset+t.Len], t.Shape...)
	}
	write("losses", losses, len(losses))
	return all
}

// writeArray writes v, of float32, int32, uint32 as int32, or int64, as an array of NumPy.
func writeArray(name string, v any, shape ...int) error {
	descr := "<i4"
	switch v.(type) {
	case []float32:
		descr = "<f4"
	case []int64:
		descr = "<i8"
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	sizes := strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ", "), "[]")
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }", descr, sizes)
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	out := bufio.NewWriterSize(file, 1<<20)
	out.Write(binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header))))
	out.WriteString(header)
	return errors.Join(binary.Write(out, binary.LittleEndian, v), out.Flush(), file.Close())
}

// sizes says how many destinations and entries a batch has in each layer, the input layer first, on average.
func (s *stepBatches) sizes() string {
	var text []string
	for l := range s.batches[0].Blocks {
		dst, entries := 0, 0
		for i := range s.batches {
			dst, entries = dst+s.batches[i].Blocks[l].NumDst, entries+len(s.batches[i].Blocks[l].Indices)
		}
		text = append(text, fmt.Sprintf("%d destinations of %d entries", dst/len(s.batches), entries/len(s.batches)))
	}
	return strings.Join(text, ", ")
}

// BenchmarkBatches is the training step of BenchmarkFastGL with sampling left out: on batches that were sampled on the device and
// lie there. With GNNACTOR_EXPORT they are written to that directory, so that .ci/step.py makes the same steps with PyTorch and PyG.
func BenchmarkBatches(b *testing.B) {
	fakecuda.Use(b)
	name, degree, dim, hidden, size, n, fanouts := "rmat8", 4, 12, 8, 16, 2, []int{3, 3, 2}
	if fakecuda.Real() {
		name, degree, dim, hidden, size, n, fanouts = "rmat20", 16, 128, 256, 1024, 16, []int{15, 10, 5}
	}
	if names := os.Getenv("GNNACTOR_BENCH_GRAPHS"); names != "" {
		name, _, _ = strings.Cut(names, ",")
	}
	b.Run(name, func(b *testing.B) {
		ds := ablationGraph(b, name, degree, dim)
		d, err := cuda.Open(0)
		if err != nil {
			b.Fatal(err)
		}
		defer d.Close()
		var closeSampler func() error
		s := newStepBatches(b, ds, hidden, size, n, fanouts, func(p *sampling.Prepared) sampling.Sampler {
			on, err := (&Runtime{device: d, sampler: p}).newDeviceSampler(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			closeSampler = on.Close
			return deviceSampler{on, p}
		})
		defer func() { closeSampler() }()
		q := d.NewQueue()
		defer q.Close()
		workers := pool.New(4)
		defer workers.Close()
		x := cpu.NewExec(workers, cpu.Go)
		x.UseDevice(q)
		m := s.newStepper(x)
		defer m.e.Close()
		losses, err := m.pass()
		if err != nil {
			b.Fatal(err)
		}
		if dir := os.Getenv("GNNACTOR_EXPORT"); dir != "" {
			if err := s.export(dir, losses); err != nil {
				b.Fatal(err)
			}
		}
		b.Log(s.sizes())
		b.ResetTimer()
		for range b.N {
			if _, err := m.pass(); err != nil {
				b.Fatal(err)
			}
		}
		if err := q.Wait(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "steps/s")
	})
}

// What is exported are arrays of the batches' sizes, whose indices are of the layer's nodes, and, where there is PyTorch, a script
// makes the same steps of them, with the same losses.
func TestExportedBatches(t *testing.T) {
	dir := t.TempDir()
	s := newStepBatches(t, small(), 8, 50, 3, []int{4, 3, 2}, func(p *sampling.Prepared) sampling.Sampler { return p.NewSampler() })
	workers := pool.New(1)
	defer workers.Close()
	losses, err := s.newStepper(cpu.NewExec(workers, cpu.Go)).pass()
	if err == nil {
		err = s.export(dir, losses)
	}
	if err != nil {
		t.Fatal(err)
	}
	sources := make([]int, len(s.batches)) // of the layer before
	for i := range s.batches {
		b := &s.batches[i]
		sources[i] = len(arrayOf[int32](t, dir, fmt.Sprintf("b%d-nodes", i), "<i4", len(b.Inputs())))
		for l, k := range b.Blocks {
			indptr := arrayOf[int64](t, dir, fmt.Sprintf("b%d-%d-indptr", i, l), "<i8", k.NumDst+1)
			indices := arrayOf[int32](t, dir, fmt.Sprintf("b%d-%d-indices", i, l), "<i4", len(k.Indices))
			if int(indptr[k.NumDst]) != len(indices) || k.NumSrc != sources[i] || k.NumDst >= k.NumSrc || int(slices.Max(indices)) >= k.NumSrc {
				t.Errorf("batch %d, layer %d: %d of %d sources, %d entries, indptr ends with %d", i, l, slices.Max(indices), sources[i], len(indices), indptr[k.NumDst])
			}
			sources[i] = k.NumDst
		}
		if n := len(arrayOf[int32](t, dir, fmt.Sprintf("b%d-labels", i), "<i4", 50)); n != sources[i] {
			t.Errorf("batch %d: %d labels of %d seeds", i, n, sources[i])
		}
	}
	table := arrayOf[float32](t, dir, "features", "<f4", 600, 12)
	row := make([]float32, 12)
	if s.ds.NodeFeatures.Row(row, 7); !slices.Equal(row, table[7*12:8*12]) {
		t.Errorf("row 7 is %v, not %v", table[7*12:8*12], row)
	}
	weight := arrayOf[float32](t, dir, "parameter-convs.2.lin_l.weight", "<f4", 4, 8)
	if at, _ := s.model.Layout().Lookup("convs.2.lin_l.weight"); !slices.Equal(weight, s.model.Init(1)[at.Offset:at.Offset+at.Len]) {
		t.Error("other parameters are exported")
	}

	script := filepath.Join("..", ".ci", "step.py")
	if err := exec.Command("python3", "-c", "import torch").Run(); err != nil {
		if out, err := exec.Command("python3", script, dir, "cpu").Output(); err == nil && !strings.Contains(string(out), "there is no PyTorch here") {
			t.Errorf("without PyTorch it says %q", out)
		}
		t.Skip("there is no PyTorch to make the same steps")
	}
	out, err := exec.Command("python3", script, dir, "cpu").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	said := regexp.MustCompile(`(?m)^pytorch: (.*): .* steps/s, losses within (\S+) of gnnactor's$`).FindAllStringSubmatch(string(out), -1)
	if len(said) == 0 {
		t.Fatalf("%s", out)
	}
	for _, m := range said {
		if apart, err := strconv.ParseFloat(m[2], 64); err != nil || !(apart < 1e-4) {
			t.Errorf("%s: losses differ by %s", m[1], m[2])
		}
	}
}

// arrayOf returns the values of an array of a type and shape.
func arrayOf[T any](t *testing.T, dir, name, descr string, shape ...int) []T {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name+".npy"))
	if err != nil {
		t.Fatal(err)
	}
	n := int(binary.LittleEndian.Uint16(b[8:]))
	sizes := strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ", "), "[]")
	if want := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }", descr, sizes); (n+10)%64 != 0 || strings.TrimSpace(string(b[10:10+n])) != want {
		t.Fatalf("%s: header %q of %d bytes, want %s", name, b[10:10+n], n, want)
	}
	count := 1
	for _, k := range shape {
		count *= k
	}
	v := make([]T, count)
	in := bytes.NewReader(b[10+n:])
	if err := binary.Read(in, binary.LittleEndian, v); err != nil || in.Len() != 0 {
		t.Fatalf("%s: %v, and %d bytes more", name, err, in.Len())
	}
	return v
}

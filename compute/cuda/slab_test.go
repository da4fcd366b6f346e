//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/compute/devices"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
)

func (b *bench) rowBytes(f *graph.Features) int {
	l := features.LayoutOf(f)
	return l.RowBytes()
}

// slab returns f's rows in the device's memory, brought there in an order that is not
// theirs, by pieces of several rows, and how many bytes of them the device counted.
func (b *bench) slab(f *graph.Features) (s devices.Rows, moved int64) {
	b.t.Helper()
	const pieces = 3
	row := b.rowBytes(f) + 4
	s, err := b.q.Device().Rows(features.InMemory(f), devices.RowsOptions{Rows: f.Rows, Pinned: 2 * (f.Rows/pieces*row + 40)})
	if err != nil {
		b.t.Fatal(err)
	}
	ids := make([]uint32, f.Rows)
	for i, u := range b.r.Perm(f.Rows) {
		ids[i] = uint32(u)
	}
	before, _ := b.q.Device().Moved()
	if err := features.Read(context.Background(), s, features.Request{IDs: ids, Slots: ids, Dst: s.Table()}); err != nil {
		b.t.Fatal(err)
	}
	after, _ := b.q.Device().Moved()
	moved = after - before - 4*int64(f.Rows) // the slots
	all, _ := s.Moved()
	if padding := moved - all; padding < 0 || padding >= 16*2*pieces {
		b.t.Errorf("%d bytes of rows went over, and %d are counted", moved, all)
	}
	moved = all
	return s, moved
}

// waiting is a store whose reads wait until they are let go on.
type waiting struct {
	features.Store
	begun chan struct{}
	let   chan error
}

func (s waiting) Read(ctx context.Context, r features.Request, done func(error)) {
	s.begun <- struct{}{}
	go func() {
		if err := <-s.let; err != nil {
			done(err)
			return
		}
		s.Store.Read(ctx, r, done)
	}()
}

// table is n rows whose values say where they are.
func table(n, cols int) *graph.Features {
	x := make([]float32, n*cols)
	for i := range x {
		x[i] = float32(i)
	}
	return graph.NewFeatures(n, cols, x)
}

// Two reads at once, of several pieces each, leave their rows where they belong; every copy is told.
func TestSlabReadsTogether(t *testing.T) {
	b := newBench(t)
	f := table(200, 5)
	var mu sync.Mutex
	var rows int
	start := time.Now()
	s, err := b.q.Device().Rows(features.InMemory(f), devices.RowsOptions{Rows: 150, Pinned: 1000, Copied: func(n int, begin, end time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if rows += n; begin.Before(start) || end.Before(begin) || end.After(time.Now()) {
			t.Error(n, begin, end)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	slots, want := make([]uint32, 140), cpu.NewMatrix[float32](140, 5)
	for part := range 2 {
		var ids, to []uint32
		for i := part; i < 140; i += 2 {
			slots[i] = uint32(149 - i)
			ids, to = append(ids, uint32(i*10%191)), append(to, slots[i])
			for j := range 5 {
				want.Row(i)[j] = float32(i*10%191*5 + j)
			}
		}
		s.Read(context.Background(), features.Request{IDs: ids, Slots: to, Dst: s.Table()}, func(err error) { done <- err })
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	d := b.device(cpu.NewMatrix[float32](140, 5))
	cpu.Gather(b.x, d, cpu.Source[float32]{Table: s.Table(), IDs: slots})
	b.same("rows", d, want, 0)
	for name, r := range map[string]features.Request{
		"is out of range [0, 150)": {IDs: []uint32{1}, Slots: []uint32{150}, Dst: s.Table()},
		"row 200 is out of range":  {IDs: []uint32{200}, Slots: []uint32{0}, Dst: s.Table()},
		"is not this slab's":       {IDs: []uint32{1}, Slots: []uint32{0}, Dst: f},
		"1 rows for 0 slots":       {IDs: []uint32{1}, Dst: s.Table()},
	} {
		if err := features.Read(context.Background(), s, r); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := b.q.Device().Tables(); n != 1 {
		t.Errorf("the device knows %d tables", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := b.q.Device().Tables(); n != 0 {
		t.Error("the device knows a slab that is closed: other memory may have its address")
	}
	if all, _ := s.Moved(); rows != 140 || all != 140*20 {
		t.Errorf("%d rows were told of, %d bytes counted", rows, all)
	}
}

// While a copy is under way the next piece is read, and compute goes on; a read that fails, or is
// not wanted any more, leaves what others need.
func TestSlabOverlaps(t *testing.T) {
	b := newBench(t)
	f := table(64, 4)
	from := waiting{features.InMemory(f), make(chan struct{}), make(chan error)}
	s, err := b.q.Device().Rows(from, devices.RowsOptions{Rows: 64, Pinned: 2 * (8*20 + 16)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	done := make(chan error)
	ids := make([]uint32, 24) // three pieces
	for i := range ids {
		ids[i] = uint32(i)
	}
	read := func(ctx context.Context) {
		s.Read(ctx, features.Request{IDs: ids, Slots: ids, Dst: s.Table()}, func(err error) { done <- err })
		<-from.begun
	}
	read(context.Background())
	// Kernels run, though a read is under way.
	m := b.device(b.random(3, 3, 0))
	cpu.Scale(b.x, m, 2, m)
	if err := b.q.Wait(); err != nil {
		t.Fatal(err)
	}
	from.let <- nil
	<-from.begun // the second piece is read before anybody has waited for the first one's copy
	if all, _ := s.Moved(); all != 8*16 {
		t.Errorf("%d bytes are under way, not a piece's", all)
	}
	from.let <- nil
	<-from.begun
	from.let <- errors.New("the disk is gone")
	if err := <-done; err == nil || !strings.Contains(err.Error(), "the disk is gone") {
		t.Error(err)
	}
	d := b.device(cpu.NewMatrix[float32](16, 4)) // what was under way has ended
	cpu.Gather(b.x, d, cpu.Source[float32]{Table: s.Table(), IDs: ids[:16]})
	want, _, _ := table(16, 4).Float32s()
	b.same("the first pieces", d, cpu.Dense(16, 4, want), 0)
	ctx, cancel := context.WithCancelCause(context.Background())
	read(ctx)
	cancel(errors.New("not wanted"))
	from.let <- nil
	if err := <-done; err == nil || !strings.Contains(err.Error(), "not wanted") {
		t.Error(err)
	}
	read(context.Background())
	for range 2 {
		from.let <- nil
		<-from.begun
	}
	from.let <- nil
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What there is no memory for, or not enough that is pinned, is an error, and nothing is left.
func TestSlabWithoutRoom(t *testing.T) {
	for _, c := range []struct {
		memory, pinned int
		want           string
	}{
		{4 << 10, 1 << 10, "out of memory"},
		{1 << 20, 800, "800 bytes of pinned memory are 2 pieces of 400, and a row with its slot takes 404: allow more"},
	} {
		d := fakecuda.Use(t)
		d.Set("memory", c.memory)
		device, err := cuda.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := device.Rows(features.InMemory(table(30, 100)), devices.RowsOptions{Rows: 30, Pinned: c.pinned}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Error(err)
		}
		if err := device.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Rows that the device gathers from the host's memory are those that the host does, to the bit: of every type,
// with gaps between them; either way is counted, and told with its reason; what is out of range is no access.
func TestSlabGathers(t *testing.T) {
	b := newBench(t)
	for name, f := range map[string]*graph.Features{
		"float32": table(300, 12), "with gaps": b.tableOf(graph.Uint8, 300, 12, 4), "int8, with scales": b.tableOf(graph.Int8, 300, 7, 4), "float16": b.tableOf(graph.Float16, 300, 3, 0),
	} {
		var got [3][]uint32
		for _, gather := range []devices.Gather{devices.Measured, devices.ByHost, devices.ByDevice} {
			s, err := b.q.Device().Rows(features.InMemory(f), devices.RowsOptions{Rows: 200, Pinned: 4000, Host: f, Gather: gather})
			if err != nil {
				t.Fatal(err)
			}
			var ids, slots []uint32
			for i := range 180 {
				ids, slots = append(ids, uint32(i*7%300)), append(slots, uint32(199-i))
			}
			if err := features.Read(context.Background(), s, features.Request{IDs: ids, Slots: slots, Dst: s.Table()}); err != nil {
				t.Fatal(err)
			}
			d := b.device(cpu.NewMatrix[float32](len(slots), f.Cols))
			cpu.Gather(b.x, d, cpu.Source[float32]{Table: s.Table(), IDs: slots})
			got[gather] = make([]uint32, len(d.Data)) // the values' bits
			cuda.Download(b.q, got[gather], unsafe.Slice((*uint32)(unsafe.Pointer(&d.Data[0])), len(d.Data)))
			all, mapped := s.Moved()
			want := map[bool]int64{true: all}[strings.HasPrefix(s.Way(), "gathered by the device")]
			if all != int64(len(ids)*b.rowBytes(f)) || mapped != want || gather == devices.Measured != strings.Contains(s.Way(), " rows take the host ") {
				t.Errorf("%s: %d bytes, %d of them gathered by the device: %s", name, all, mapped, s.Way())
			}
			if err := features.Read(context.Background(), s, features.Request{IDs: []uint32{300}, Slots: []uint32{0}, Dst: s.Table()}); err == nil || !strings.Contains(err.Error(), "row 300 is out of range") {
				t.Errorf("%s: %v", name, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(got[0], got[1]) || !slices.Equal(got[1], got[2]) || slices.Max(got[0]) == 0 {
			t.Errorf("%s: the rows that the device gathered are others", name)
		}
	}
}

// A table that cannot be registered is gathered by the host, which says why; without the flag for
// memory that is not written to, where the driver has no such.
func TestSlabNotRegistered(t *testing.T) {
	d := fakecuda.Use(t)
	for function, c := range map[string]struct {
		code int
		way  string
	}{
		"cuMemHostRegister_v2":         {2, "gathered by the host, as the table cannot be registered: cuda: cuda:0: 4000 bytes of features"},
		"cuMemHostGetDevicePointer_v2": {1, "gathered by the host, as the table cannot be registered: "},
		"":                             {801, " rows take the host "},
	} {
		device, err := cuda.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		d.Fail(cmp.Or(function, "cuMemHostRegister_v2"), 0, c.code)
		f := table(100, 10)
		s, err := device.Rows(features.InMemory(f), devices.RowsOptions{Rows: 30, Pinned: 4000, Host: f})
		if err != nil || !strings.Contains(s.Way(), c.way) {
			t.Fatalf("%v: %s", err, s.Way())
		}
		if err := errors.Join(s.Close(), device.Close()); err != nil {
			t.Error(err)
		}
	}
}

// The short kernels of sampling and of rows that come go before a step's long ones: their queues alone are urgent.
func TestSamplingGoesFirst(t *testing.T) {
	driver := fakecuda.Use(t)
	d, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	q := d.NewQueue()
	defer q.Close()
	q.Alloc(1)
	f := graph.NewFeatures(2, 4, make([]float32, 8))
	rows, err := d.Rows(features.InMemory(f), devices.RowsOptions{Rows: 2, Pinned: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if n := driver.Count("urgent streams"); n != 1 {
		t.Errorf("with rows %d streams are urgent, not 1", n)
	}
	sampler, err := d.Sampler(&graph.Graph{Indptr: []int64{0, 1, 1}, Indices: []uint32{1}}, devices.Sampling{Fanouts: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	defer sampler.Close()
	if n, all := driver.Count("urgent streams"), driver.Count("streams"); n != 2 || all != 3 {
		t.Errorf("with a sampler %d of %d streams are urgent, not 2 of 3", n, all)
	}
}

package features

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/fault"
	"github.com/gnnactor/gnnactor/rng"
)

// randomTable returns n rows of random bytes of the type, with row scales if
// scaled.
func randomTable(n, cols int, d graph.DType, scaled bool) *graph.Features {
	f := &graph.Features{Rows: n, Cols: cols, DType: d, Stride: cols * d.Size(), Data: make([]byte, n*cols*d.Size())}
	k := rng.New(1, uint64(n), uint64(cols))
	for i := range f.Data {
		f.Data[i] = byte(k.Uint64(uint64(i)))
	}
	if d == graph.Float16 || d == graph.BFloat16 {
		for i := 1; i < len(f.Data); i += 2 {
			f.Data[i] &= 0xbf // finite
		}
	}
	if d == graph.Float32 { // numbers that a dataset may have
		x, _, _ := f.Float32s()
		for i := range x {
			x[i] = float32(k.Float64(uint64(i)))
		}
	}
	if scaled {
		f.RowScale = make([]float32, n)
		for i := range f.RowScale {
			f.RowScale[i] = float32(k.Float64(uint64(i)))
		}
	}
	return f
}

// storeOf writes f as the node features of a store and returns it mapped.
func storeOf(t testing.TB, f *graph.Features) (*graph.Features, File) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	g := &graph.Graph{Indptr: make([]int64, f.Rows+1)}
	if err := store.Create(t.Context(), dir, &graph.Dataset{Name: "t", Graph: g, NodeFeatures: f}); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	path, offset, _ := s.NodeFeaturesFile()
	return s.Dataset().NodeFeatures, File{path, offset}
}

// everyStore calls f with each kind of store over a table in a file.
func everyStore(t *testing.T, table *graph.Features, file File, f func(t *testing.T, s Store)) {
	for _, c := range []struct {
		spec    string
		noRings bool
	}{{"ram", false}, {"mmap", false}, {"disk", false}, {"disk", true}, {"throttled:100GB/s", false}, {"throttled:100GB/s,1us,disk", false}} {
		t.Run(fmt.Sprintf("%s,noRings=%v", c.spec, c.noRings), func(t *testing.T) {
			spec, err := ParseSpec(c.spec)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Open(t.Context(), spec, table, file, Options{Readers: 3, noRings: c.noRings})
			if err != nil {
				t.Fatal(err)
			}
			f(t, s)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// rowBits returns the stored bytes and the scale of a row.
func rowBits(f *graph.Features, i int) ([]byte, uint32) {
	scale := uint32(0)
	if f.RowScale != nil {
		scale = math.Float32bits(f.RowScale[i])
	}
	return f.Data[i*f.Stride:][:f.Cols*f.DType.Size()], scale
}

// Every store gives the same bits, for every type, odd sizes, rows that are
// adjacent, near, far, repeated or none, into slots or in order; several reads
// at once.
func TestStoresReadTheRows(t *testing.T) {
	const n = 3001
	for _, c := range []struct {
		d      graph.DType
		cols   int
		scaled bool
	}{
		{graph.Float32, 1, false}, {graph.Float32, 33, false}, {graph.Float32, 1100, false}, {graph.Float16, 7, false},
		{graph.BFloat16, 128, false}, {graph.Int8, 100, true}, {graph.Int8, 13, false}, {graph.Uint8, 3, false}, {graph.Int8, 1, true}, {graph.Uint8, 1, false},
	} {
		t.Run(fmt.Sprintf("%dx%v,scaled=%v", c.cols, c.d, c.scaled), func(t *testing.T) {
			src := randomTable(n, c.cols, c.d, c.scaled)
			table, file := storeOf(t, src)
			everyStore(t, table, file, func(t *testing.T, s Store) {
				l := s.Layout()
				var wg sync.WaitGroup
				for try := range uint64(8) {
					wg.Go(func() {
						k := rng.New(5, try)
						size := []int{0, 1, 2, 77, 1000, n, 128, 500}[try]
						slots := make([]uint32, n)
						k.Perm(slots)
						ids := make([]uint32, size)
						for i := range ids {
							ids[i] = uint32(k.Uintn(uint64(i), n))
							if try == 4 {
								ids[i] = uint32(i + 7) // adjacent
							}
						}
						r := Request{IDs: ids, Slots: slots[:size], Dst: l.NewTable(n)}
						if try%2 == 0 {
							r.Slots = nil
						}
						if err := Read(context.Background(), s, r); err != nil {
							t.Error(err)
							return
						}
						for i, id := range ids {
							want, wantScale := rowBits(src, int(id))
							if got, scale := rowBits(r.Dst, r.slot(i)); !bytes.Equal(got, want) || scale != wantScale {
								t.Errorf("try %d: row %d of %d, id %d: %.16x…, want %.16x…", try, i, size, id, got, want)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		})
	}
}

func TestStoresRefuseWhatDoesNotFit(t *testing.T) {
	table, file := storeOf(t, randomTable(10, 4, graph.Float32, false))
	everyStore(t, table, file, func(t *testing.T, s Store) {
		l := s.Layout()
		other := l
		other.Cols++
		for name, r := range map[string]Request{
			"an id out of range":   {IDs: []uint32{10}, Dst: l.NewTable(3)},
			"a slot out of range":  {IDs: []uint32{1}, Slots: []uint32{3}, Dst: l.NewTable(3)},
			"too few slots":        {IDs: []uint32{1, 2}, Slots: []uint32{1}, Dst: l.NewTable(3)},
			"a table too short":    {IDs: []uint32{1, 2}, Dst: l.NewTable(1)},
			"a table of other row": {IDs: []uint32{1}, Dst: other.NewTable(3)},
		} {
			if err := Read(context.Background(), s, r); err == nil {
				t.Errorf("%s was taken", name)
			}
		}
	})
	if _, err := Open(t.Context(), Spec{Kind: Disk}, table, File{}, Options{}); err == nil || !strings.Contains(err.Error(), "not in a file") {
		t.Errorf("a disk store of what is in memory: %v", err)
	}
	if _, err := Open(t.Context(), Spec{}, nil, File{}, Options{}); err == nil {
		t.Error("a store of nothing was made")
	}
}

// A file that is shortened under a store makes reads of the lost rows fail with
// its name and an offset, and leaves the others as they are.
func TestShortenedFile(t *testing.T) {
	const n, cols = 4096, 64
	for _, c := range []struct {
		spec    string
		noRings bool
	}{{"mmap", false}, {"disk", false}, {"disk", true}, {"throttled:100GB/s,disk", false}} {
		src := randomTable(n, cols, graph.Float32, false)
		table, file := storeOf(t, src)
		spec, err := ParseSpec(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), spec, table, file, Options{noRings: c.noRings})
		if err != nil {
			t.Fatal(err)
		}
		end := int64(8 * os.Getpagesize())
		if err := os.Truncate(file.Path, end); err != nil {
			t.Fatal(err)
		}
		l := s.Layout()
		dst := l.NewTable(n)
		lost := uint32((end-file.Offset)/int64(table.Stride)) + 1
		for _, ids := range [][]uint32{{1, lost + 100}, {lost - 2, lost - 1, lost, lost + 1}} {
			err := Read(context.Background(), s, Request{IDs: ids, Dst: dst})
			var f *fault.Error
			if err == nil || !strings.Contains(err.Error(), file.Path) || !strings.Contains(err.Error(), "offset") {
				t.Errorf("%s: rows %v of a shortened file: %v", c.spec, ids, err)
			} else if !errors.Is(err, io.ErrUnexpectedEOF) && (!errors.As(err, &f) || f.Offset < end) {
				t.Errorf("%s: rows %v: the error %v does not give the offset", c.spec, ids, err)
			}
		}
		if err := Read(context.Background(), s, Request{IDs: []uint32{1, 0}, Dst: dst}); err != nil {
			t.Errorf("%s: rows that are still there: %v", c.spec, err)
		}
		if got, _ := rowBits(dst, 1); !bytes.Equal(got, src.Data[:src.Stride]) {
			t.Errorf("%s: a row that is still there was read wrong", c.spec)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Canceling reads that are under way ends them with the cause; nothing is
// leaked (goleak), and the store goes on.
func TestCancel(t *testing.T) {
	const n = 20000
	table, file := storeOf(t, randomTable(n, 8, graph.Float32, false))
	everyStore(t, table, file, func(t *testing.T, s Store) {
		l := s.Layout()
		var ids []uint32
		for i := uint32(0); i < n; i += 3 {
			ids = append(ids, (i*7919)%n)
		}
		cause := errors.New("enough")
		var wg sync.WaitGroup
		for try := range 6 {
			ctx, cancel := context.WithCancelCause(context.Background())
			if try == 0 {
				cancel(cause)
			}
			wg.Add(1)
			s.Read(ctx, Request{IDs: ids, Dst: l.NewTable(n)}, func(err error) {
				defer wg.Done()
				if err != nil && !errors.Is(err, cause) || err == nil && try == 0 {
					t.Errorf("try %d: a canceled read: %v", try, err)
				}
			})
			cancel(cause)
		}
		wg.Wait()
		if err := Read(context.Background(), s, Request{IDs: ids, Dst: l.NewTable(n)}); err != nil {
			t.Errorf("after the cancellations: %v", err)
		}
	})
}

// Transfers follow one another at the bandwidth, and each arrives a latency
// later. Time is the bubble's.
func TestThrottledTiming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := testTable(1000, 250) // rows of 1000 bytes
		s := Throttled(InMemory(f), Throttle{Bandwidth: 1e6, Latency: 20 * time.Millisecond})
		l := s.Layout()
		began := time.Now()
		arrived := make([]time.Duration, 4)
		var wg sync.WaitGroup
		send := func(i, rows int) {
			wg.Add(1)
			s.Read(context.Background(), Request{IDs: make([]uint32, rows), Dst: l.NewTable(rows)}, func(err error) {
				if err != nil {
					t.Error(err)
				}
				arrived[i] = time.Since(began)
				wg.Done()
			})
		}
		send(0, 100) // 100 ms on the link
		send(1, 50)
		send(2, 0)
		wg.Wait()
		time.Sleep(time.Second) // the link is idle meanwhile
		began = time.Now()
		send(3, 10)
		wg.Wait()
		if want := []time.Duration{120e6, 170e6, 170e6, 30e6}; !slices.Equal(arrived, want) {
			t.Errorf("arrivals after %v, want %v", arrived, want)
		}

		ctx, cancel := context.WithCancel(context.Background())
		began = time.Now()
		time.AfterFunc(time.Millisecond, cancel)
		if err := Read(ctx, s, Request{IDs: make([]uint32, 500), Dst: l.NewTable(500)}); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled read: %v", err)
		}
		if d := time.Since(began); d != time.Millisecond {
			t.Errorf("the cancellation took %v", d)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Features stay where they lie unless said otherwise: in the file, or in memory.
func TestOpenByDefault(t *testing.T) {
	f := randomTable(10, 4, graph.Float32, false)
	table, file := storeOf(t, f)
	for _, c := range []struct {
		table  *graph.Features
		file   File
		kind   Kind
		copied bool
	}{{f, File{}, "", false}, {f, File{}, RAM, false}, {table, file, "", false}, {table, file, Mapped, false}, {table, file, RAM, true}} {
		s, err := Open(t.Context(), Spec{Kind: c.kind}, c.table, c.file, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m := s.(*inMemory); (m.table != c.table) != c.copied || (m.free != nil) != c.copied {
			t.Errorf("%q of file %q: copied %v", c.kind, c.file.Path, m.table != c.table)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A store in memory gives its copy back when it is closed, after the reads that are
// under way, and says what that failed with; so it does behind a link.
func TestMemoryCloses(t *testing.T) {
	for _, slow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			failed, freed := errors.New("failed"), false
			m := &inMemory{free: func() error { freed = true; return failed }}
			var s Store = m
			start := m.start
			if slow {
				s = Throttled(m, Throttle{Latency: time.Second})
				start = s.(*throttled).start
			}
			going, closed := make(chan struct{}), make(chan error, 1)
			start(func() error { <-going; return nil }, func(error) {})
			go func() { closed <- s.Close() }()
			synctest.Wait()
			if freed {
				t.Errorf("throttled %v: the copy was given back during a read", slow)
			}
			close(going)
			if err := <-closed; !freed || err != failed {
				t.Errorf("throttled %v: given back %v, error %v", slow, freed, err)
			}
		})
	}
}

// A read on the readers that is canceled ends when none of them writes to its table
// any more: not while one has a run of it.
func TestCancelWaitsForReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &disk{work: make(chan job)} // the test is the reader
		ctx, cancel := context.WithCancel(context.Background())
		var err error
		var ended atomic.Bool
		go func() {
			err = s.readByPool(ctx, &plan{runs: []run{{0, 1}, {1, 2}}}, nil)
			ended.Store(true)
		}()
		j := <-s.work
		cancel()
		synctest.Wait()
		if ended.Load() {
			t.Error("the read ended while a reader had a run of it")
		}
		j.left.Done()
		synctest.Wait()
		if !ended.Load() || !errors.Is(err, context.Canceled) {
			t.Errorf("ended %v with error %v after the reader was done", ended.Load(), err)
		}
	})
}

func TestDiskPlan(t *testing.T) {
	k := rng.New(8)
	var p plan
	for try := range uint64(200) {
		rowBytes := []int64{1000, 1024, 4096, 1 << 15}[try%4] // gaps and runs of just the most, too
		n := int(k.Uintn(try, 600))
		r := Request{IDs: make([]uint32, n), Slots: make([]uint32, n)}
		var want []uint64
		for i := range r.IDs {
			r.IDs[i] = uint32(k.With(try).Uintn(uint64(i), 1<<(1+try/4%32)))
			if try%3 == 0 { // one after the other, nearly
				r.IDs[i] = uint32(i + i/97)
			}
			r.Slots[i] = uint32(i)
			want = append(want, uint64(r.IDs[i])<<32|uint64(i))
		}
		slices.Sort(want) // equal ids keep their order
		p.make(&r, int(rowBytes))
		if !slices.Equal(p.keys, want) {
			t.Fatalf("try %d: the keys are not sorted", try)
		}
		at := int32(0)
		for i, run := range p.runs {
			id := func(j int32) int64 { return int64(p.keys[j] >> 32) }
			if run.first != at || run.last <= run.first || run.last-run.first > runRows || (id(run.last-1)+1-id(run.first))*rowBytes > max(runBytes, rowBytes) {
				t.Fatalf("try %d: run %d is %+v after %d", try, i, run, at)
			}
			for j := run.first + 1; j < run.last; j++ {
				if id(j) == id(j-1) || (id(j)-id(j-1)-1)*rowBytes > gapBytes {
					t.Fatalf("try %d: run %d reads a gap of %d rows", try, i, id(j)-id(j-1)-1)
				}
			}
			if i > 0 && id(run.first) != id(run.first-1) && run.first-p.runs[i-1].first < runRows && (id(run.first)-id(run.first-1)-1)*rowBytes <= gapBytes && (id(run.first)+1-id(p.runs[i-1].first))*rowBytes <= runBytes {
				t.Fatalf("try %d: runs %d and %d could be one", try, i-1, i)
			}
			at = run.last
		}
		if int(at) != n {
			t.Fatalf("try %d: runs end at %d of %d", try, at, n)
		}
	}
}

func TestParseSpec(t *testing.T) {
	for text, want := range map[string]Spec{
		"":                          {},
		"ram":                       {Kind: RAM},
		"mmap":                      {Kind: Mapped},
		"disk":                      {Kind: Disk},
		"throttled:1GB/s":           {Throttle: Throttle{1e9, 0}},
		"throttled:1.5MiB/s,2ms":    {Throttle: Throttle{1.5 * (1 << 20), 2 * time.Millisecond}},
		"throttled:200MB/s,1s,disk": {Kind: Disk, Throttle: Throttle{2e8, time.Second}},
		"throttled:4096/s,ram":      {Kind: RAM, Throttle: Throttle{4096, 0}},
	} {
		got, err := ParseSpec(text)
		if err != nil || got != want {
			t.Errorf("ParseSpec(%q) = %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := ParseSpec(got.String()); err != nil || again != want {
			t.Errorf("%q became %q, which is %+v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"tape", "ram:", "ram,disk", "throttled", "throttled:", "throttled:1GB", "throttled:fast/s", "throttled:0B/s", "throttled:1GB/s,2", "throttled:1GB/s,-2ms", "throttled:1GB/s,2ms,tape", "throttled:1GB/s,ram,2ms", "throttled:1GB/s,1ms,ram,ram", "throttled:-1GB/s", "throttled:NaN/s", "throttled:Inf/s"} {
		if s, err := ParseSpec(text); err == nil {
			t.Errorf("ParseSpec(%q) = %+v", text, s)
		} else if !strings.Contains(err.Error(), text) {
			t.Errorf("ParseSpec(%q): the error %q does not quote it", text, err)
		}
	}
}

// Sizes are read in every unit, and written in the largest in which they are
// whole, else in bytes.
func TestBytes(t *testing.T) {
	for text, want := range map[string]float64{
		"1TiB": 1099511627776, "1TB": 1e12, "1GiB": 1073741824, "1GB": 1e9, "1MiB": 1048576, "1MB": 1e6, "1KiB": 1024, "1kB": 1000, "1KB": 1000, "1B": 1,
		"7": 7, "1.5GB": 1.5e9, "0": 0, "4EiB": -1, "4194304TiB": 1 << 62, "4194305TiB": -1, "-1": -1, "NaN": -1, "GB": -1, "": -1, "1 GB": -1,
	} {
		if got, err := ParseBytes(text); err == nil && got != want || (err != nil) != (want < 0) {
			t.Errorf("ParseBytes(%q) = %v, %v, want %v", text, got, err, want)
		} else if err != nil && !strings.Contains(err.Error(), strconv.Quote(text)) {
			t.Errorf("ParseBytes(%q): the error %q does not quote it", text, err)
		}
	}
	for b, want := range map[float64]string{
		1099511627776: "1TiB", 3e12: "3TB", 1073741824: "1GiB", 1e9: "1GB", 1536 * 1048576: "1536MiB", 1e6: "1MB", 1024: "1KiB", 1000: "1kB", 1023: "1023B",
		1: "1B", 1234567.25: "1.23456725e+06B",
	} {
		if got := formatBytes(b); got != want {
			t.Errorf("%v bytes are %s, want %s", b, got, want)
		}
	}
}

// A copy has the rows of a table whose rows lie apart, and is none with it.
func TestCopyOfRowsThatLieApart(t *testing.T) {
	for _, scaled := range []bool{false, true} {
		f := randomTable(9, 5, graph.Int8, scaled)
		wide := &graph.Features{Rows: 9, Cols: 5, DType: graph.Int8, Stride: 8, Data: make([]byte, 9*8), RowScale: f.RowScale}
		for i := range 9 {
			copy(wide.Data[8*i:], f.Data[5*i:5*i+5])
		}
		for _, from := range []*graph.Features{f, wide} {
			got, free, err := Copy(t.Context(), from)
			if err != nil {
				t.Fatal(err)
			}
			if got.Rows != 9 || got.Cols != 5 || len(got.Data) != 9*5 || !bytes.Equal(got.Data, f.Data) || !slices.Equal(got.RowScale, f.RowScale) {
				t.Errorf("stride %d, scaled %v: %d×%d, %v %v, want %v %v", from.Stride, scaled, got.Rows, got.Cols, got.Data, got.RowScale, f.Data, f.RowScale)
			}
			got.Data[3]++
			if f.Data[3] == got.Data[3] || wide.Data[3] == got.Data[3] {
				t.Error("the copy is the table")
			}
			if err := free(); err != nil {
				t.Error(err)
			}
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{"ram", "throttled:1GB/s,2ms,disk", "throttled:1e3MiB/s", "throttled:/s,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSpec(text)
		if err != nil {
			return
		}
		if again, err := ParseSpec(s.String()); err != nil || again != s {
			t.Errorf("%q is %+v, its name %q is %+v (%v)", text, s, s, again, err)
		}
	})
}

//go:build linux

package features

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// benchIDs returns distinct random nodes.
func benchIDs(n, size int, seed uint64) []uint32 {
	k := rng.New(seed)
	seen := make([]bool, n)
	ids := make([]uint32, 0, size)
	for i := uint64(0); len(ids) < size; i++ {
		if u := uint32(k.Uintn(i, uint64(n))); !seen[u] {
			seen[u] = true
			ids = append(ids, u)
		}
	}
	return ids
}

// BenchmarkStore reads 10⁵ random rows of 128 float32 of 2 M into a slab, by one
// read and by two at once. cold: the page cache is emptied before each.
//
// The file is kept in the directory GNNACTOR_BENCH_DIR, if that is set.
func BenchmarkStore(b *testing.B) {
	const n, cols, rows = 2 << 20, 128, 100000
	dir := os.Getenv("GNNACTOR_BENCH_DIR")
	if dir == "" {
		b.Skip("GNNACTOR_BENCH_DIR is not set: no place for 1 GiB of features")
	}
	path := filepath.Join(dir, "features-bench.bin")
	if st, err := os.Stat(path); err != nil || st.Size() != n*cols*4 {
		f, err := os.Create(path)
		if err != nil {
			b.Fatal(err)
		}
		chunk := make([]byte, 1<<20)
		for i := range chunk {
			chunk[i] = byte(i * i >> 8)
		}
		for range n * cols * 4 / len(chunk) {
			if _, err := f.Write(chunk); err != nil {
				b.Fatal(err)
			}
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, n*cols*4, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Munmap(mem)
	table := &graph.Features{Rows: n, Cols: cols, DType: graph.Float32, Data: mem, Stride: cols * 4}
	ids := [2][]uint32{benchIDs(n, rows, 1), benchIDs(n, rows, 2)}
	for _, c := range []struct {
		name, spec string
		o          Options
		cold       bool
	}{
		{"ram", "ram", Options{}, false},
		{"mmap", "mmap", Options{}, false},
		{"mmap/cold", "mmap", Options{}, true},
		{"disk", "disk", Options{}, false},
		{"disk/cold", "disk", Options{}, true},
		{"preads", "disk", Options{noRings: true}, false},
		{"preads/cold", "disk", Options{noRings: true}, true},
	} {
		for reads := 1; reads <= 2; reads++ {
			b.Run(fmt.Sprintf("%s/reads=%d", c.name, reads), func(b *testing.B) {
				spec, _ := ParseSpec(c.spec)
				s, err := Open(b.Context(), spec, table, File{path, 0}, c.o)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				slab, err := NewSlab(s.Layout(), SlabOptions{Slots: 2 * rows})
				if err != nil {
					b.Fatal(err)
				}
				defer slab.Close()
				var leases [2]*Lease
				for i := range leases {
					if leases[i], err = slab.Match(ids[i]); err != nil {
						b.Fatal(err)
					}
				}
				read := func() {
					var wg sync.WaitGroup
					for i := range reads {
						wg.Add(1)
						s.Read(context.Background(), leases[i].Request(), func(err error) {
							if err != nil {
								b.Error(err)
							}
							wg.Done()
						})
					}
					wg.Wait()
				}
				if !c.cold {
					read()
				}
				before := cpuTime()
				for b.Loop() {
					if c.cold {
						b.StopTimer()
						if err := unix.Madvise(mem, unix.MADV_DONTNEED); err != nil {
							b.Fatal(err)
						}
						if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
							b.Fatal(err)
						}
						b.StartTimer()
					}
					read()
				}
				total := float64(b.N * reads * rows)
				b.ReportMetric(total*cols*4/b.Elapsed().Seconds()/1e9, "GB/s")
				b.ReportMetric(total/b.Elapsed().Seconds()/1e3, "krows/s")
				b.ReportMetric(float64(cpuTime()-before)/total, "cpu-ns/row")
			})
		}
	}
}

// cpuTime returns the process's CPU time in nanoseconds.
func cpuTime() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkSlab matches and releases batches of skewed random inputs of a graph
// of 2 M nodes, three in flight. Nothing is read.
func BenchmarkSlab(b *testing.B) {
	const n = 2 << 20
	for _, size := range []int{100000, 600000} {
		for _, o := range []SlabOptions{{}, {Keep: 1}, {Keep: 3}, {Cache: 100000}, {Keep: 3, Cache: 100000}} {
			b.Run(fmt.Sprintf("inputs=%d/keep=%d,cache=%d", size, o.Keep, o.Cache), func(b *testing.B) {
				batches := make([][]uint32, 8)
				for i := range batches {
					k := rng.New(3, uint64(i))
					seen := make([]bool, n)
					for j := uint64(0); len(batches[i]) < size; j++ {
						f := k.Float64(j)
						if u := uint32(f * f * n); !seen[u] {
							seen[u] = true
							batches[i] = append(batches[i], u)
						}
					}
				}
				o.Slots = 4*size + o.Cache
				s, err := NewSlab(Layout{Rows: n, Cols: 1, DType: graph.Uint8}, o)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				var flying []*Lease
				step := 0
				one := func() {
					if len(flying) == 3 {
						s.Release(flying[0])
						flying = append(flying[:0], flying[1:]...)
					}
					l, err := s.Match(batches[step%len(batches)])
					if err != nil {
						b.Fatal(err)
					}
					flying = append(flying, l)
					step++
				}
				for range 12 {
					one()
				}
				b.ReportAllocs()
				for b.Loop() {
					one()
				}
				st := s.Stats()
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/row")
				b.ReportMetric(float64(st.Loaded)/float64(st.Rows), "loaded")
			})
		}
	}
}

// Package machinelimits measures what a machine can do, to divide a kernel's figure
// by: multiply-adds in registers, and reads of a table that no cache holds.
//
// Machines are shared and drift: measure a limit in the same minute as what is
// divided by it, on as many threads.
package machinelimits

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gnnactor/gnnactor/rng"
)

// Limit names what is measured.
type Limit string

// The limits.
const (
	FMA32     Limit = "fma32"     // float32 multiply-adds in registers, two FLOP each
	Read      Limit = "read"      // sequential read of the table
	Gather512 Limit = "gather512" // random rows of 512 bytes (128 float32), prefetched, summed
	Copy512   Limit = "copy512"   // the same rows copied to a dense buffer (bytes read)
	Random8   Limit = "random8"   // independent random loads of 8 bytes
)

// All returns every limit.
func All() []Limit { return []Limit{FMA32, Read, Gather512, Copy512, Random8} }

// Unit returns the unit of l's rate, and how many FLOP, bytes or loads a second
// are one.
func (l Limit) Unit() (name string, size float64) {
	switch l {
	case FMA32:
		return "GFLOP/s", 1e9
	case Random8:
		return "M/s", 1e6
	}
	return "GB/s", 1e9
}

const (
	// RowLen is the number of float32 values in a row of the table.
	RowLen = 128
	ahead  = 16      // rows that are fetched before their use
	ring   = 4096    // rows of a thread's dense buffer
	gather = 1 << 19 // rows a thread reads in a run
	loads  = 1 << 22 // random loads of a thread in a run
	steps  = 1 << 23 // of the multiply-add loop

	// Assembly is not preempted: a call of it takes microseconds.
	callSteps, callBytes, callRows = 1 << 13, 1 << 16, 1 << 7
)

// Machine holds what measuring needs. One goroutine may use it at a time.
type Machine struct {
	table   []float32
	ids     [][]uint32 // per thread
	dense   [][]float32
	release func() error
}

// New returns a Machine for up to threads threads, with a table of at least
// bytes bytes (a power of two, for honest figures 1 GiB) in huge pages where
// the system has them. Close gives the memory back.
func New(bytes, threads int) (*Machine, error) {
	if bytes < 1<<16 || bytes&(bytes-1) != 0 {
		return nil, fmt.Errorf("limits: a table of %d bytes: must be a power of two, at least 65536", bytes)
	}
	if threads < 1 {
		return nil, fmt.Errorf("limits: %d threads: must be 1 or more", threads)
	}
	table, release, err := allocate(bytes / 4)
	if err != nil {
		return nil, fmt.Errorf("limits: a table of %d bytes: %w", bytes, err)
	}
	m := &Machine{table: table, release: release}
	for i := range m.table {
		m.table[i] = float32(i&1023) / 1024
	}
	for t := range threads {
		key, ids := rng.New(uint64(t)), make([]uint32, gather+ahead)
		for i := range ids {
			ids[i] = uint32(key.Uintn(uint64(i), uint64(len(table)/RowLen)))
		}
		m.ids = append(m.ids, ids)
		m.dense = append(m.dense, make([]float32, ring*RowLen))
	}
	return m, nil
}

// Table returns the table, which no cache holds: rows of RowLen values in
// [0, 1). It lies in m and must not be used after Close.
func (m *Machine) Table() []float32 { return m.table }

// Close releases the table.
func (m *Machine) Close() error {
	m.table = nil
	return m.release()
}

// Measure runs l's loop once on the given number of threads, at most as many as
// New was told, and returns its rate in l's unit. It takes some ten
// milliseconds; the best of several runs is the limit.
func (m *Machine) Measure(l Limit, threads int) float64 {
	if threads < 1 || threads > len(m.ids) {
		panic("limits: Measure: more threads than the machine was made for")
	}
	var (
		ready, done sync.WaitGroup
		gate        = make(chan struct{})
		began       = make([]time.Time, threads)
		ended       = make([]time.Time, threads)
		work        = make([]float64, threads)
	)
	for t := range threads {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-gate
			began[t] = time.Now()
			work[t] = m.run(l, t, threads)
			ended[t] = time.Now()
		})
	}
	ready.Wait()
	close(gate)
	done.Wait()
	total := 0.0
	for _, w := range work {
		total += w
	}
	took := slices.MaxFunc(ended, time.Time.Compare).Sub(slices.MinFunc(began, time.Time.Compare))
	_, size := l.Unit()
	return total / took.Seconds() / size
}

// run does one thread's part and returns it in FLOP, bytes or loads.
func (m *Machine) run(l Limit, thread, threads int) float64 {
	var sink [16]float32
	switch l {
	case FMA32:
		return multiplyAdds(&sink)
	case Read:
		n := len(m.table) / threads / RowLen * RowLen
		part := m.table[thread*n:][:n]
		for i := 0; i < n; i += callBytes / 4 {
			readSum(&sink, part[i:min(n, i+callBytes/4)])
		}
		return 4 * float64(n)
	case Gather512:
		for i := 0; i < gather; i += callRows {
			gatherSum(&sink, m.table, m.ids[thread][i:i+callRows+ahead])
		}
		return 4 * RowLen * gather
	case Copy512:
		for i := 0; i < gather; i += callRows {
			copyDense(m.dense[thread][i%ring*RowLen:][:callRows*RowLen], m.table, m.ids[thread][i:i+callRows+ahead])
		}
		return 4 * RowLen * gather
	case Random8:
		return m.randomLoads(thread)
	}
	panic("limits: there is no limit " + string(l))
}

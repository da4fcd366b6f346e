package compute

import (
	"context"
	"fmt"
	"sync"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// MemoryExchange is an Exchange between pieces of one process, and Activations, both in memory.
type MemoryExchange struct {
	mu       sync.Mutex
	rows     map[message][]float32
	waiting  map[message]chan struct{}
	matrices map[activation]cpu.Matrix[float32]
}

type message struct {
	round    string
	from, to int
}

type activation struct {
	name  string
	piece int
}

// NewMemoryExchange returns an empty MemoryExchange.
func NewMemoryExchange() *MemoryExchange {
	return &MemoryExchange{rows: map[message][]float32{}, waiting: map[message]chan struct{}{}, matrices: map[activation]cpu.Matrix[float32]{}}
}

// Send is Exchange's.
func (m *MemoryExchange) Send(_ context.Context, round string, from, to int, rows []float32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := message{round, from, to}
	m.rows[key] = rows
	if c := m.waiting[key]; c != nil {
		close(c)
		delete(m.waiting, key)
	}
	return nil
}

// Receive is Exchange's. What was received is let go of.
func (m *MemoryExchange) Receive(ctx context.Context, round string, from, to int, rows []float32) error {
	key := message{round, from, to}
	for {
		m.mu.Lock()
		got, there := m.rows[key]
		delete(m.rows, key)
		c := m.waiting[key]
		if !there && c == nil {
			c = make(chan struct{})
			m.waiting[key] = c
		}
		m.mu.Unlock()
		if there {
			copy(rows, got)
			return fits(len(rows), len(got), key)
		}
		select {
		case <-c:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// fits reports that a message has not as many values as are expected.
func fits(want, got int, key message) error {
	if got != want {
		return fmt.Errorf("piece %d sent %d values to piece %d in round %s, which expects %d", key.from, got, key.to, key.round, want)
	}
	return nil
}

// Put is that of Activations.
func (m *MemoryExchange) Put(name string, piece int, x cpu.Matrix[float32]) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.matrices[activation{name, piece}] = x
	return nil
}

// Has is that of Activations.
func (m *MemoryExchange) Has(name string, piece int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, there := m.matrices[activation{name, piece}]
	return there
}

// Get is that of Activations.
func (m *MemoryExchange) Get(name string, piece int) (cpu.Matrix[float32], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x, there := m.matrices[activation{name, piece}]
	if !there {
		return x, fmt.Errorf("nothing was kept of piece %d as %s", piece, name)
	}
	return x, nil
}

// Drop is that of Activations.
func (m *MemoryExchange) Drop(name string, piece int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.matrices, activation{name, piece})
	return nil
}

// Counted is an Exchange that counts the bytes that are sent through it.
type Counted struct {
	Exchange
	mu    sync.Mutex
	bytes map[string]int64
}

// NewCounted returns ex with counters.
func NewCounted(ex Exchange) *Counted { return &Counted{Exchange: ex, bytes: map[string]int64{}} }

// Send is Exchange's.
func (c *Counted) Send(ctx context.Context, round string, from, to int, rows []float32) error {
	c.mu.Lock()
	c.bytes[round] += 4 * int64(len(rows))
	c.mu.Unlock()
	return c.Exchange.Send(ctx, round, from, to, rows)
}

// Bytes returns how many bytes were sent in the round, of values alone.
func (c *Counted) Bytes(round string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes[round]
}

// Total returns how many bytes were sent in all rounds.
func (c *Counted) Total() (bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.bytes {
		bytes += n
	}
	return bytes
}

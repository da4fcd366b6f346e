package shard

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/dataplane"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const rows, shards = 1000, 6

type node struct {
	plane  *dataplane.Plane
	server *Server
	store  *Store
}

// table makes rows that tell which they are.
func table(dtype graph.DType, cols int) *graph.Features {
	f := &graph.Features{Rows: rows, Cols: cols, DType: dtype, Stride: cols * dtype.Size()}
	f.Data = make([]byte, rows*f.Stride)
	for i := range f.Data {
		f.Data[i] = byte(i*7 + i/f.Stride)
	}
	if dtype == graph.Int8 {
		for i := range rows {
			f.RowScale = append(f.RowScale, float32(i))
		}
	}
	return f
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// start makes n nodes; each shard is held by replicas of them.
func start(t testing.TB, f *graph.Features, n, replicas int) (*Map, []*node) {
	t.Helper()
	part := make([]uint32, rows)
	r := rand.New(rand.NewPCG(1, 1))
	for v := range part {
		part[v] = uint32(r.IntN(shards))
	}
	m, err := NewMap(part, shards)
	if err != nil {
		t.Fatal(err)
	}
	whole := features.InMemory(f)
	var all []*node
	for i := range n {
		p, err := dataplane.Listen(dataplane.Options{Cluster: "test", Node: fmt.Sprint("n", i), Listen: "127.0.0.1:0", DialTimeout: time.Minute, PingTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		s := NewServer(p, m, whole.Layout(), nil)
		all = append(all, &node{p, s, NewStore(p, s)})
		t.Cleanup(p.Close)
	}
	for _, a := range all {
		for _, b := range all {
			if a != b {
				a.plane.SetPeer(b.plane.Node(), b.plane.Address())
			}
		}
	}
	holders := make([][]string, shards)
	for s := range shards {
		rows, err := m.Cut(within(t), whole, s)
		if err != nil {
			t.Fatal(err)
		}
		for k := range replicas {
			x := all[(s+k)%n]
			holders[s] = append(holders[s], x.plane.Node())
			if err := x.server.Hold(s, rows); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, x := range all {
		if err := x.store.SetHolders(holders); err != nil {
			t.Fatal(err)
		}
	}
	return m, all
}

func check(t testing.TB, f *graph.Features, s features.Store, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	l := s.Layout()
	dst := l.NewTable(2 * rows)
	var req features.Request
	req.Dst = dst
	for _, v := range r.Perm(rows)[:300] {
		req.IDs = append(req.IDs, uint32(v))
	}
	for _, slot := range r.Perm(2 * rows)[:300] {
		req.Slots = append(req.Slots, uint32(slot))
	}
	if err := features.Read(within(t), s, req); err != nil {
		t.Error(err)
		return
	}
	n := f.Cols * f.DType.Size()
	for i, v := range req.IDs {
		got, want := dst.Data[int(req.Slots[i])*dst.Stride:][:n], f.Data[int(v)*f.Stride:][:n]
		if !bytes.Equal(got, want) || f.RowScale != nil && dst.RowScale[req.Slots[i]] != f.RowScale[v] {
			t.Errorf("row %d is wrong", v)
			return
		}
	}
}

// Rows of every type come from wherever they are, in one round of exchange, and
// with hardly more bytes than they have.
func TestRead(t *testing.T) {
	for _, dtype := range []graph.DType{graph.Float32, graph.Float16, graph.Int8} {
		f := table(dtype, 96)
		_, all := start(t, f, 3, 1)
		check(t, f, all[0].store, 1)
		rounds, remote := all[0].store.Stats()
		if rounds != 1 || remote == 0 {
			t.Errorf("%v: %d rounds, %d rows", dtype, rounds, remote)
		}
		l := all[0].store.Layout()
		moved := all[0].plane.Stats()
		if got, want := moved.Received, remote*int64(l.RowBytes()); float64(got) > 1.05*float64(want) {
			t.Errorf("%v: %d bytes came for rows of %d", dtype, got, want)
		}
		for i, x := range all {
			check(t, f, x.store, uint64(i))
		}
		if err := all[0].store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// lines are what is logged, line by line.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// When a holder goes, the replica is asked; without one, the read waits for the
// table to change, and ends with its context.
func TestHolderGoes(t *testing.T) {
	f := table(graph.Float32, 8)
	_, all := start(t, f, 3, 2)
	all[1].plane.Close()
	check(t, f, all[0].store, 3)

	_, all = start(t, f, 3, 1)
	all[1].plane.Close()
	said := make(lines, 1)
	all[0].store.log = slog.New(slog.NewTextHandler(said, nil))
	holders := slices.Clone(all[0].store.holders)
	for i := range holders {
		if holders[i][0] == "n1" {
			holders[i] = nil
		}
	}
	if err := all[0].store.SetHolders(holders); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := all[0].store.Layout()
	req := features.Request{Dst: l.NewTable(rows)}
	for v := range rows {
		req.IDs = append(req.IDs, uint32(v))
	}
	done := make(chan error, 1)
	all[0].store.Read(ctx, req, func(err error) { done <- err })
	select {
	case s := <-said:
		if !strings.Contains(s, "waiting for rows that no node holds") || !strings.Contains(s, `shards="[1 4]"`) {
			t.Errorf("said %q", s)
		}
	case <-within(t).Done():
		t.Error("the read waits and nothing is said of it")
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// The only holder does not answer at first, as while its connection breaks: the
// table does not change, and the read asks again.
func TestHolderAnswersLater(t *testing.T) {
	f := table(graph.Float32, 8)
	_, all := start(t, f, 2, 1)
	var failures atomic.Int64
	all[1].plane.Handle(dataplane.MethodRows, func(ctx context.Context, r *dataplane.Request) (dataplane.Reply, error) {
		if failures.Add(1) <= 2 {
			return dataplane.Reply{}, errors.New("not now")
		}
		return all[1].server.rows(ctx, r)
	})
	check(t, f, all[0].store, 4)
	if n := failures.Load(); n != 3 {
		t.Errorf("the holder was asked %d times; it answers the third", n)
	}
}

// Shards move from node to node while rows are read: no read fails, every row
// is right.
func TestMoves(t *testing.T) {
	f := table(graph.Float32, 16)
	m, all := start(t, f, 3, 1)
	ctx := within(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i, x := range all {
		wg.Go(func() {
			for seed := uint64(i); ; seed += 3 {
				check(t, f, x.store, seed)
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	at := make([]int, shards) // who holds it
	for s := range at {
		at[s] = s % 3
	}
	for move := range 50 {
		s := move % shards
		from, to := at[s], (at[s]+1)%3
		got, err := Copy(ctx, all[to].plane, m, all[to].server.layout, s, []string{"n9", all[from].plane.Node()})
		if err != nil {
			t.Fatal(err)
		}
		if err := all[to].server.Hold(s, got); err != nil {
			t.Fatal(err)
		}
		at[s] = to
		all[from].server.Drop(s) // before anyone hears of it
		holders := make([][]string, shards)
		for i, k := range at {
			holders[i] = []string{all[k].plane.Node()}
		}
		for _, x := range all {
			if err := x.store.SetHolders(holders); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	wg.Wait()
}

// Whatever a peer asks for, nothing panics and no more than the rows is sent.
func FuzzServer(f *testing.F) {
	tab := table(graph.Float32, 4)
	_, all := start(f, tab, 1, 1)
	f.Add(binary.LittleEndian.AppendUint32(nil, 5))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255})
	f.Add([]byte{0, 0, 0, 0, 0xea, 0, 0, 0}) // before the first row
	f.Fuzz(func(t *testing.T, b []byte) {
		req := &dataplane.Request{Peer: "x", Body: b}
		if r, err := all[0].server.rows(t.Context(), req); err == nil && len(r.Data[0]) != len(b)*4 {
			t.Fatal("rows that were not asked for")
		}
		if len(b) < 8 {
			return
		}
		at, n := int64(int8(b[4]))<<8|int64(b[5]), int(b[6])<<8|int(b[7])
		read, err := all[0].server.find(t.Context(), b[:4], at, n)
		if err != nil {
			return
		}
		if err := read(make([]byte, n)); err != nil || at < 0 || at+int64(n) > rows*16 {
			t.Fatalf("more than a shard, or not what was found: %v", err)
		}
	})
}

// A map whose file was shortened cuts no shard, however often it is asked.
func TestCutByShortenedMap(t *testing.T) {
	const n = 1 << 14 // more than a page, whatever its size
	g, err := graph.FromEdges(n, []uint32{0}, []uint32{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "store")
	if err := store.Create(t.Context(), dir, &graph.Dataset{Name: "x", Graph: g, Partitions: []graph.Partition{{Method: "hash", Parts: 2, Cluster: make([]uint32, n)}}}); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m, err := NewMap(s.Dataset().Partition("hash", 2).Cluster, 2)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "partition-*.bin"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.Truncate(files[0], 0); err != nil {
		t.Fatal(err)
	}
	all := features.InMemory(table(graph.Uint8, 4))
	defer all.Close()
	for range 2 {
		if _, err := m.Cut(within(t), all, 0); err == nil || !strings.Contains(err.Error(), "shortened") {
			t.Errorf("the error is %v", err)
		}
	}
}

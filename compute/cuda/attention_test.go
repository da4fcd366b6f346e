//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/rng"
)

// attentionCase says which of attention's options a test has.
type attentionCase struct {
	heads, cols                         int
	dynamic, loops, edge, weights, drop bool
	nan                                 bool
}

// close fails unless got is want within tolerance of the value itself.
func (b *bench) close(what string, device, want []float32, tolerance float64) []float32 {
	b.t.Helper()
	got := make([]float32, len(want))
	cuda.Download(b.q, got, device)
	for i, w := range want {
		g := got[i]
		if g != w && (g == g || w == w) && !(math.Abs(float64(g)-float64(w)) <= tolerance*math.Abs(float64(w))+1e-30) {
			b.t.Fatalf("%s: value %d of %d is %v, not %v", what, i, len(want), g, w)
		}
	}
	return got
}

func (b *bench) zeros(n int) []float32 { return b.device(row(make([]float32, max(n, 1)))).Data[:n] }

// attention runs every pass on the device, and on the processor with what the device
// made in the passes before: so each is compared on its own, to the bit where it adds in
// the same order.
func (b *bench) attention(what string, g *graph.Block, c attentionCase) {
	b.t.Helper()
	h, wide := c.heads, c.heads*c.cols
	var t cpu.Transpose
	t.Build(b.host, g)
	v, dy := b.random(g.NumSrc, wide, 1), b.random(g.NumDst, wide, 4-wide%4)
	src, dst := b.random(g.NumSrc, h, 3), b.random(g.NumDst, h, 0)
	if c.dynamic {
		src, dst = v, b.random(g.NumDst, wide, 2)
	}
	if c.nan {
		src.Row(g.NumSrc - 1)[0] = float32(math.NaN())
		dst.Row(0)[0] = float32(math.Inf(1))
	}
	att := b.floats(wide)
	host := cpu.Attention[float32]{Block: g, Heads: h, Slope: 0.2, Loops: c.loops, Alpha: make([]float32, len(g.Indices)*h)}
	if c.edge && !c.dynamic {
		host.Edge = b.floats(len(host.Alpha))
	}
	if c.weights {
		host.Weights = b.floats(len(g.Indices))
		for i := range host.Weights {
			host.Weights[i] = max(0, host.Weights[i])
		}
	}
	if c.drop {
		host.Drop = &cpu.Dropped{Key: rng.New(3, uint64(h)), P: 0.4, IDs: make([]uint32, g.NumSrc)}
		for i := range host.Drop.IDs {
			host.Drop.IDs[i] = b.r.Uint32()
		}
	}
	device := host
	device.Alpha = b.zeros(len(host.Alpha))
	if c.loops {
		host.Self = make([]float32, g.NumDst*h)
		device.Self = b.zeros(len(host.Self))
	}
	dv, dsrc, ddst := b.device(v), b.device(src), b.device(dst)
	if c.dynamic {
		device.Dynamic(b.x, dv, ddst, att)
		host.Dynamic(b.host, v, dst, att)
	} else {
		device.Additive(b.x, dsrc, ddst)
		host.Additive(b.host, src, dst)
	}
	tolerance := 3e-6
	if c.dynamic {
		tolerance = 3e-5 // of scores that are sums
	}
	host.Alpha = b.close(what+", weights", device.Alpha, host.Alpha, tolerance)
	host.Self = b.close(what+", weights of loops", device.Self, host.Self, tolerance)

	exact := func(indptr []int64) float32 {
		if longest(indptr) > 256 {
			return 1e-4
		}
		return 0
	}
	y := b.random(g.NumDst, wide, 0)
	d := b.device(y)
	device.Sum(b.x, d, dv)
	host.Sum(b.host, y, v)
	b.same(what+", sums", d, y, exact(g.Indptr))

	ds, dself := make([]float32, len(host.Alpha)), make([]float32, len(host.Self))
	dds, ddself := b.zeros(len(ds)), b.zeros(len(dself))
	gv := b.random(g.NumSrc, wide, 3)
	d = b.device(gv)
	device.Backward(b.x, &t, d, b.device(dy), dv, dds, ddself)
	host.Backward(b.host, &t, gv, dy, v, ds, dself)
	b.same(what+", gradient of values", d, gv, exact(t.Indptr))
	b.same(what+", gradient of scores", cpu.Dense(1, len(ds), dds), row(ds), 2e-5)
	b.same(what+", gradient of loops' scores", cpu.Dense(1, len(dself), ddself), row(dself), 2e-5)
	device.Backward(b.x, &t, f32{}, b.device(dy), dv, dds, ddself) // without that of values
	b.same(what+", gradient of scores alone", cpu.Dense(1, len(ds), dds), row(ds), 2e-5)
	cuda.Download(b.q, ds, dds)
	cuda.Download(b.q, dself, ddself)

	gsrc, gdst := b.random(src.Rows, src.Cols, 1), b.random(dst.Rows, dst.Cols, 2)
	dgsrc, dgdst := b.device(gsrc), b.device(gdst)
	if c.dynamic {
		datt := make([]float32, wide)
		ddatt := b.zeros(wide)
		device.DynamicBackward(b.x, &t, dds, ddself, dv, ddst, att, dgsrc, dgdst, ddatt)
		host.DynamicBackward(b.host, &t, ds, dself, v, dst, att, gsrc, gdst, datt)
		b.same(what+", gradient of the right", dgdst, gdst, exact(g.Indptr))
		b.same(what+", gradient of the left", dgsrc, gsrc, exact(t.Indptr))
		b.same(what+", gradient of att", cpu.Dense(1, wide, ddatt), row(datt), 1e-4)
		return
	}
	var dedge, ddedge []float32
	if c.edge {
		dedge, ddedge = make([]float32, len(ds)), b.zeros(len(ds))
	}
	device.AdditiveBackward(b.x, &t, dds, ddself, dsrc, ddst, dgsrc, dgdst, ddedge)
	host.AdditiveBackward(b.host, &t, ds, dself, src, dst, gsrc, gdst, dedge)
	b.same(what+", gradient of destinations", dgdst, gdst, 2e-5)
	b.same(what+", gradient of sources", dgsrc, gsrc, exact(t.Indptr))
	b.same(what+", gradient of edges", cpu.Dense(1, len(dedge), ddedge), row(dedge), 1e-6)
}

func TestAttention(t *testing.T) {
	b := newBench(t)
	blocks := b.blocks()
	for name, g := range blocks { // with entries of destinations to themselves
		for e := range g.Indices {
			if b.r.IntN(6) == 0 {
				g.Indices[e] = uint32(b.r.IntN(g.NumDst))
			}
		}
		for _, heads := range []int{1, 3, 4, 40} {
			for _, dynamic := range []bool{false, true} {
				b.renew()
				yes := func() bool { return b.r.IntN(2) > 0 }
				c := attentionCase{heads: heads, cols: []int{1, 4, 9, 32}[b.r.IntN(4)], dynamic: dynamic, loops: yes(), edge: yes(), weights: yes(), drop: yes(), nan: b.r.IntN(4) == 0}
				if heads == 40 {
					c.cols = 2
				}
				b.attention(fmt.Sprintf("%s, %+v", name, c), g, c)
			}
		}
	}
	b.renew()
	b.attention("as many heads as there may be", blocks["empty rows"], attentionCase{heads: 128, cols: 1, loops: true, drop: true})
	defer func() {
		if recover() == nil {
			t.Error("129 heads were taken")
		}
	}()
	b.attention("one head more", blocks["one row"], attentionCase{heads: 129, cols: 1})
}

// No pass has memory for each column of each entry.
func TestAttentionMemory(t *testing.T) {
	const entries, cols = 10_000, 160
	for _, dynamic := range []bool{false, true} {
		t.Run(fmt.Sprint("dynamic ", dynamic), func(t *testing.T) {
			b := newBench(t)
			b.attention("wide", b.block(20, entries), attentionCase{heads: 1, cols: cols, dynamic: dynamic, loops: true, weights: true})
			if most := 4 * entries * cols; b.q.Peak() >= most/2 {
				t.Errorf("%d bytes were taken; a value for each column of each entry takes %d", b.q.Peak(), most)
			}
		})
	}
}

// A destination of 100,000 entries.
func TestAttentionLongRow(t *testing.T) {
	b := newBench(t)
	g := b.block(30_000, 3, 100_000, 0)
	b.attention("GAT", g, attentionCase{heads: 1, cols: 3, loops: true, edge: true})
	b.renew()
	b.attention("GATv2", g, attentionCase{heads: 1, cols: 3, dynamic: true})
}

package cpu

import (
	"math"

	"github.com/gnnactor/gnnactor/rng"
)

// Dropped decides which values dropout drops. The decision for column j of the
// row with global id r is a pure function of (Key, r, j): 16 bits, namely bits
// 16·(j mod 4) and up of draw ⌊j/4⌋ of the stream Key.With(r), compared with
// the threshold round(P·65536). It is never stored: the backward pass makes it
// again. It is the same in every kernel set.
type Dropped struct {
	Key rng.Key
	P   float64  // probability of dropping, in [0, 1)
	IDs []uint32 // global id of each row; nil: row i has id i
}

// Threshold returns how many of the 65536 outcomes drop a value.
func (d *Dropped) Threshold() uint32 {
	if !(d.P >= 0 && d.P < 1) {
		panic(badRate)
	}
	return min(uint32(math.Round(d.P*65536)), 65535)
}

// Scale returns what kept values are multiplied by: one over the probability
// of being kept, as the threshold realises it, so that the mean is unbiased.
func (d *Dropped) Scale() float64 { return 65536 / float64(65536-d.Threshold()) }

// At reports whether the value in column j of row i is dropped.
func (d *Dropped) At(i, j int) bool {
	return uint32(d.row(i).Uint64(uint64(j)/4)>>(16*(uint(j)%4)))&0xffff < d.Threshold()
}

func (d *Dropped) row(i int) rng.Key {
	if d.IDs != nil {
		return d.Key.With(uint64(d.IDs[i]))
	}
	return d.Key.With(uint64(i))
}

// Dropout computes dst = src·scale where the value is kept, else 0: the
// forward pass with src = x, the backward pass with src = dy. In place if dst
// and src are the same matrix. With P = 0 it copies.
func Dropout[T Float](x *Exec, dst, src Matrix[T], p Dropped) {
	dst.check()
	src.check()
	if dst.Rows != src.Rows || dst.Cols != src.Cols || p.IDs != nil && len(p.IDs) < src.Rows {
		panic(badShapes)
	}
	if dst.Rows == 0 || dst.Cols == 0 {
		return
	}
	defer x.end(x.begin(), "dropout", dst.Rows, dst.Cols, 0)
	if p.Threshold() == 0 {
		Copy(x, dst, src)
		return
	}
	s := tasksOf[T](x)
	if s.device != nil {
		s.device.Dropout(dst, src, p)
		return
	}
	s.dropout = dropoutTask[T]{set: x.set, dst: dst, src: src, p: p, rows: max(1, elementsPerChunk/dst.Cols)}
	x.each(ceilDiv(dst.Rows, s.dropout.rows), &s.dropout)
	s.dropout = dropoutTask[T]{}
}

type dropoutTask[T Float] struct {
	set      Set
	dst, src Matrix[T]
	p        Dropped
	rows     int
}

func (t *dropoutTask[T]) chunk(_ *scratch, c int) {
	threshold, scale := t.p.Threshold(), T(t.p.Scale())
	for i := c * t.rows; i < min(t.dst.Rows, (c+1)*t.rows); i++ {
		key := t.p.row(i)
		d, s := t.dst.Row(i), t.src.Row(i)
		if t.fast(d, s, uint64(key), threshold, scale) {
			continue
		}
		for g := 0; g*4 < len(d); g++ {
			bits := key.Uint64(uint64(g))
			for j := g * 4; j < min(len(d), g*4+4); j++ {
				v := s[j] * scale
				if uint32(bits)&0xffff < threshold {
					v = 0
				}
				d[j] = v
				bits >>= 16
			}
		}
	}
}

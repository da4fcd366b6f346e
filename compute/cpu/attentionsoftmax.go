package cpu

import (
	"math"
)

// skipped reports whether entry e of destination i is left out.
func (a *Attention[T]) skipped(i int, e int64) bool {
	return a.Loops && int(a.Block.Indices[e]) == i
}

// loopEdge returns the mean of a.Edge over the entries of destination i that
// are not left out, for head h, and how many those are.
func (a *Attention[T]) loopEdge(i, h int) (mean T, n int) {
	if a.Edge == nil {
		return 0, 0
	}
	for e := a.Block.Indptr[i]; e < a.Block.Indptr[i+1]; e++ {
		if !a.skipped(i, e) {
			mean += a.Edge[int(e)*a.Heads+h]
			n++
		}
	}
	if n > 0 {
		mean /= T(n)
	}
	return mean, n
}

func leaky[T Float](v, slope T) T {
	if v < 0 {
		return v * slope
	}
	return v
}

// softmax turns the scores in Alpha and Self of destination i into weights.
func (t *attentionTask[T]) softmax(i int) {
	t.softmaxOfScores(i)
	if t.a.Weights != nil {
		t.a.reweigh(i)
	}
}

// reweigh turns the softmax weights of destination i into those of scores whose
// exponentials are multiplied by Weights. Its derivative is the same function of
// the result as the softmax's.
func (a *Attention[T]) reweigh(i int) {
	begin, end, heads := a.Block.Indptr[i], a.Block.Indptr[i+1], a.Heads
	for h := range heads {
		sum := T(0)
		if a.Loops {
			sum = a.Self[i*heads+h]
		}
		for e := begin; e < end; e++ {
			v := &a.Alpha[int(e)*heads+h]
			if w := a.Weights[e]; w == 0 {
				*v = 0
			} else {
				*v *= w
			}
			sum += *v
		}
		if sum == 0 {
			continue
		}
		if a.Loops {
			a.Self[i*heads+h] /= sum
		}
		for e := begin; e < end; e++ {
			a.Alpha[int(e)*heads+h] /= sum
		}
	}
}

// softmaxOfScores is softmax without Weights, over the entries that take part.
func (t *attentionTask[T]) softmaxOfScores(i int) {
	a := t.a
	begin, end := a.Block.Indptr[i], a.Block.Indptr[i+1]
	if a.Loops || a.Weights != nil {
		for e := begin; e < end; e++ {
			if a.skipped(i, e) || a.Weights != nil && a.Weights[e] == 0 {
				for h := range a.Heads {
					a.Alpha[int(e)*a.Heads+h] = T(math.Inf(-1)) // of weight 0
				}
			}
		}
	}
	if a.LogSum == nil {
		t.normalize(i)
		return
	}
	sums := a.LogSum[i*a.Heads:][:a.Heads]
	for h := range sums {
		sums[h] = a.largest(i, h)
	}
	t.normalize(i)
	for h, most := range sums {
		if !math.IsInf(float64(most), -1) { // the largest weight is the largest score's share of the sum
			sums[h] = most - T(math.Log(float64(a.largest(i, h))))
		}
	}
}

// largest returns the largest of what Alpha and Self hold of head h of destination i; of nothing -∞.
func (a *Attention[T]) largest(i, h int) T {
	most := T(math.Inf(-1))
	if a.Loops {
		most = a.Self[i*a.Heads+h]
	}
	for e := a.Block.Indptr[i]; e < a.Block.Indptr[i+1]; e++ {
		if v := a.Alpha[int(e)*a.Heads+h]; v > most || v != v {
			most = v
		}
	}
	return most
}

// normalize turns the scores in Alpha and Self of destination i, of which those of -∞ are left out, into weights.
func (t *attentionTask[T]) normalize(i int) {
	a := t.a
	begin, end := a.Block.Indptr[i], a.Block.Indptr[i+1]
	if t.fastSoftmax(i) {
		return
	}
	for h := range a.Heads {
		most := T(math.Inf(-1))
		if a.Loops {
			most = a.Self[i*a.Heads+h]
		}
		for e := begin; e < end; e++ {
			if v := a.Alpha[int(e)*a.Heads+h]; v > most || v != v {
				most = v
			}
		}
		sum := 0.0
		for e := begin; e < end; e++ {
			p := &a.Alpha[int(e)*a.Heads+h]
			*p = exp(*p - most)
			sum += float64(*p)
		}
		if a.Loops {
			p := &a.Self[i*a.Heads+h]
			*p = exp(*p - most)
			sum += float64(*p)
		}
		inv := T(1 / sum)
		for e := begin; e < end; e++ {
			a.Alpha[int(e)*a.Heads+h] *= inv
		}
		if a.Loops {
			a.Self[i*a.Heads+h] *= inv
		}
	}
}

package cpu

import "math"

// SoftmaxCrossEntropy computes, for row i with class c = labels[i] and weight
// w_i (weights nil: 1),
//
//	loss = Σ_i -w_i·log softmax(logits[i])[c]
//	dlogits[i] = w_i·(softmax(logits[i]) - onehot(c))
//
// and counts the rows whose largest logit (the first of equals) is column c.
// Rows with a negative label are skipped: no loss, zero gradient, not counted.
// dlogits may be logits itself, or have no Data when no gradient is wanted. The
// loss is summed in float64: within chunks of rows, then over the chunks in
// order. Exponentials are taken of differences to the row's maximum; a NaN in
// a row makes its loss and gradient NaN.
func SoftmaxCrossEntropy[T Float](x *Exec, logits Matrix[T], labels []int32, weights []T, dlogits Matrix[T]) (loss float64, correct int) {
	logits.check()
	if len(labels) != logits.Rows || weights != nil && len(weights) != logits.Rows || logits.Cols == 0 && logits.Rows > 0 {
		panic(badShapes)
	}
	if dlogits.Data != nil {
		dlogits.check()
		if dlogits.Rows != logits.Rows || dlogits.Cols != logits.Cols {
			panic(badShapes)
		}
	}
	defer x.end(x.begin(), "loss", logits.Rows, logits.Cols, 0)
	n := ceilDiv(logits.Rows, lossRows)
	s := tasksOf[T](x)
	if s.device != nil {
		return s.device.SoftmaxCrossEntropy(logits, labels, weights, dlogits)
	}
	s.losses, s.correct = grow(s.losses, n), grow(s.correct, n)
	s.loss = lossTask[T]{logits: logits, labels: labels, weights: weights, dlogits: dlogits, losses: s.losses, correct: s.correct}
	x.each(n, &s.loss)
	s.loss = lossTask[T]{}
	for c := range n {
		loss += s.losses[c]
		correct += s.correct[c]
	}
	return loss, correct
}

// lossRows is the number of rows whose losses one chunk adds.
const lossRows = 64

type lossTask[T Float] struct {
	logits, dlogits Matrix[T]
	labels          []int32
	weights         []T
	losses          []float64
	correct         []int
}

func (t *lossTask[T]) chunk(w *scratch, c int) {
	t.losses[c], t.correct[c] = 0, 0
	for i := c * lossRows; i < min(t.logits.Rows, (c+1)*lossRows); i++ {
		class := int(t.labels[i])
		if class < 0 {
			if t.dlogits.Data != nil {
				clear(t.dlogits.Row(i))
			}
			continue
		}
		z := t.logits.Row(i)
		if class >= len(z) {
			panic(badLabel)
		}
		f := T(1)
		if t.weights != nil {
			f = t.weights[i]
		}
		best, at := z[0], 0
		for j, v := range z {
			if v > best || v != v && best == best {
				best, at = v, j
			}
		}
		if at == class && best == best {
			t.correct[c]++
		}
		w.exp = grow(w.exp, len(z))
		sum := 0.0
		for j, v := range z {
			e := math.Exp(float64(v - best))
			w.exp[j] = e
			sum += e
		}
		t.losses[c] += float64(f) * (math.Log(sum) - float64(z[class]-best))
		if t.dlogits.Data == nil {
			continue
		}
		d := t.dlogits.Row(i)
		inv := 1 / sum
		for j, e := range w.exp {
			p := T(float64(e * inv))
			if j == class {
				p--
			}
			d[j] = f * p
		}
	}
}

package cpu

import "math"

// LossOptions say what a class costs where that is not the cross-entropy alone. Of a probability p of what is
// right, as softmax or the sigmoid say it:
//
//	focal    Gamma > 0: -(1-p)^Gamma·log p (Lin et al., Focal Loss for Dense Object Detection, 2017)
//	smoothed Smoothing > 0: the target 1 becomes 1-Smoothing+Smoothing/c, the others Smoothing/c, c = 2 for a
//	         sigmoid; it does not go with Gamma
//
// ClassWeights are as PyTorch has them: what the target of a class is multiplied by (weight of CrossEntropyLoss,
// pos_weight of BCEWithLogitsLoss); nil: all 1.
type LossOptions struct {
	ClassWeights     []float64
	Smoothing, Gamma float64
}

// Plain reports whether o says nothing.
func (o *LossOptions) Plain() bool { return o.ClassWeights == nil && o.Smoothing == 0 && o.Gamma == 0 }

// check panics if o is not of so many classes.
func (o *LossOptions) check(classes int) {
	if o.ClassWeights != nil && len(o.ClassWeights) != classes || o.Smoothing > 0 && o.Gamma > 0 {
		panic(badShapes)
	}
}

// weight is that of a class.
func (o *LossOptions) weight(class int) float64 {
	if o.ClassWeights == nil {
		return 1
	}
	return o.ClassWeights[class]
}

// focus returns what a probability p = e^lp of what is right costs, q = 1-p, and q times the derivative by lp.
func (o *LossOptions) focus(lp, q float64) (cost, slope float64) {
	power := math.Pow(q, o.Gamma)
	return -float64(power * lp), float64(o.Gamma*power*math.Exp(lp)*lp) - float64(power*q)
}

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
	return SoftmaxLoss(x, logits, labels, weights, dlogits, LossOptions{})
}

// SoftmaxLoss is SoftmaxCrossEntropy with options: of row i, with the target t_j = W_j·((1-s)·[j = c] + s/n) of n classes,
//
//	w_i·Σ_j -t_j·log softmax(logits[i])[j], its gradient w_i·(Σ_k t_k·softmax(logits[i])[j] - t_j)
//
// or, focal, w_i·W_c·-(1-p)^γ·log p of p = softmax(logits[i])[c].
func SoftmaxLoss[T Float](x *Exec, logits Matrix[T], labels []int32, weights []T, dlogits Matrix[T], o LossOptions) (loss float64, correct int) {
	if DeviceOf[T](x) != nil {
		return SoftmaxLossLater(x, logits, labels, weights, dlogits, o)()
	}
	checkLoss(logits, labels, weights, dlogits, o)
	defer x.end(x.begin(), "loss", logits.Rows, logits.Cols, 0)
	n := ceilDiv(logits.Rows, lossRows)
	s := tasksOf[T](x)
	s.losses, s.correct = grow(s.losses, n), grow(s.correct, n)
	s.loss = lossTask[T]{logits: logits, labels: labels, weights: weights, dlogits: dlogits, losses: s.losses, correct: s.correct, o: o}
	x.each(n, &s.loss)
	s.loss = lossTask[T]{}
	for c := range n {
		loss += s.losses[c]
		correct += s.correct[c]
	}
	return loss, correct
}

// SoftmaxLossLater is SoftmaxLoss for what follows on a device: the function that it returns waits for loss and
// count there. It is called at most once, before the device's Reset.
func SoftmaxLossLater[T Float](x *Exec, logits Matrix[T], labels []int32, weights []T, dlogits Matrix[T], o LossOptions) func() (loss float64, correct int) {
	if d := DeviceOf[T](x); d != nil {
		checkLoss(logits, labels, weights, dlogits, o)
		defer x.end(x.begin(), "loss", logits.Rows, logits.Cols, 0)
		return d.SoftmaxLoss(logits, labels, weights, dlogits, o)
	}
	loss, correct := SoftmaxLoss(x, logits, labels, weights, dlogits, o)
	return func() (float64, int) { return loss, correct }
}

// checkLoss panics unless all are of a loss of logits' rows.
func checkLoss[T Float](logits Matrix[T], rows []int32, weights []T, dlogits Matrix[T], o LossOptions) {
	logits.check()
	o.check(logits.Cols)
	if len(rows) != logits.Rows || weights != nil && len(weights) != logits.Rows || logits.Cols == 0 && logits.Rows > 0 {
		panic(badShapes)
	}
	if dlogits.Data != nil {
		dlogits.check()
		if dlogits.Rows != logits.Rows || dlogits.Cols != logits.Cols {
			panic(badShapes)
		}
	}
}

// lossRows is the number of rows whose losses one chunk adds.
const lossRows = 64

type lossTask[T Float] struct {
	logits, dlogits Matrix[T]
	labels          []int32
	weights         []T
	losses          []float64
	correct         []int
	o               LossOptions
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
		if !t.o.Plain() {
			var d []T
			if t.dlogits.Data != nil {
				d = t.dlogits.Row(i)
			}
			t.losses[c] += softmax(&t.o, z, d, class, best, w.exp, sum, float64(f))
			continue
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

// softmax returns the loss of a row z of logits, of weight f, from its largest, best, and the exponentials of the differences to that, and
// writes its gradient to d, which may be z or nil.
func softmax[T Float](o *LossOptions, z, d []T, class int, best T, exp []float64, sum, f float64) (loss float64) {
	log, inverse := math.Log(sum), 1/sum
	if o.Gamma > 0 {
		f *= o.weight(class)
		lp := float64(z[class]-best) - log
		q := -math.Expm1(lp)
		cost, slope := o.focus(lp, q)
		if d == nil {
			return float64(f * cost)
		}
		by := 0.0 // of lp
		if q > 0 {
			by = slope / q
		}
		for j, e := range exp {
			p := float64(e * inverse)
			if j == class {
				p = -q
			}
			d[j] = T(-float64(f * by * p))
		}
		return float64(f * cost)
	}
	even, total, dot := o.Smoothing/float64(len(z)), 0.0, 0.0
	target := func(j int) float64 {
		t := even
		if j == class {
			t += 1 - o.Smoothing
		}
		return float64(t * o.weight(j))
	}
	for j, v := range z {
		t := target(j)
		total += t
		dot += float64(t * float64(v-best))
	}
	for j, e := range exp {
		if d == nil {
			break
		}
		d[j] = T(f * (float64(total*float64(e*inverse)) - target(j)))
	}
	return f * (float64(total*log) - dot)
}

package cpu

// SGDOptions are the settings of one step of gradient descent.
type SGDOptions struct {
	LearningRate float64
	Momentum     float64
	Nesterov     bool
	WeightDecay  float64
	First        bool // no step was taken before: the velocity is not read
}

// SGDStep updates p and its velocity v (nil without momentum) from the gradient
// g, as PyTorch does, with g' = g + WeightDecay·p:
//
//	v = Momentum·v + g' (First: v = g')
//	p -= LearningRate·v (Nesterov: ·(g' + Momentum·v); no momentum: ·g')
func SGDStep[T Float](x *Exec, p, v, g []T, o SGDOptions) {
	if len(g) != len(p) || o.Momentum != 0 && len(v) != len(p) {
		panic(badShapes)
	}
	if d := tasksOf[T](x).device; d != nil {
		d.SGDStep(p, v, g, o)
		return
	}
	rate, momentum, decay := T(o.LearningRate), T(o.Momentum), T(o.WeightDecay)
	x.For(ceilDiv(len(p), elementsPerChunk), func(_, c int) {
		for i := c * elementsPerChunk; i < min(len(p), (c+1)*elementsPerChunk); i++ {
			d := g[i] + T(decay*p[i])
			if momentum != 0 {
				if o.First {
					v[i] = d
				} else {
					v[i] = T(momentum*v[i]) + d
				}
				if o.Nesterov {
					d += T(momentum * v[i])
				} else {
					d = v[i]
				}
			}
			p[i] -= T(rate * d)
		}
	})
}

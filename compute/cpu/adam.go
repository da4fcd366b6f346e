package cpu

import "math"

// AdamOptions are the settings of one Adam step.
type AdamOptions struct {
	LearningRate float64
	Beta1, Beta2 float64 // decay of the moments, usually 0.9 and 0.999
	Epsilon      float64 // usually 1e-8
	WeightDecay  float64
	Decoupled    bool    // AdamW: decay the parameter itself, not through the gradient
	Step         int     // 1 for the first step
	GradScale    float64 // multiplies every gradient first (one over the batch's size); 0 is taken as 1
}

// AdamStep updates p and its moments m and v from the gradient g, all of one
// length (Kingma and Ba, 2015; Loshchilov and Hutter, 2019, if Decoupled), with
// g' = GradScale·g + WeightDecay·p:
//
//	m = β1·m + (1-β1)·g'    v = β2·v + (1-β2)·g'²
//	p -= lr·(m/(1-β1^t)) / (√(v/(1-β2^t)) + ε)
//
// Decoupled instead leaves g' = GradScale·g and first multiplies p by
// 1 - lr·WeightDecay. The arithmetic is PyTorch's.
func AdamStep[T Float](x *Exec, p, m, v, g []T, o AdamOptions) {
	if len(m) != len(p) || len(v) != len(p) || len(g) != len(p) || o.Step < 1 {
		panic(badShapes)
	}
	defer x.end(x.begin(), "adam", len(p), 1, 0)
	if o.GradScale == 0 {
		o.GradScale = 1
	}
	c1 := 1 - math.Pow(o.Beta1, float64(o.Step))
	c2 := 1 - math.Pow(o.Beta2, float64(o.Step))
	s := tasksOf[T](x)
	f := AdamFactors[T]{
		Beta1: T(o.Beta1), Rest1: T(1 - o.Beta1), Beta2: T(o.Beta2), Rest2: T(1 - o.Beta2),
		Step: T(o.LearningRate / c1), Root: T(1 / math.Sqrt(c2)), Epsilon: T(o.Epsilon), Scale: T(o.GradScale), Keep: 1,
	}
	if o.Decoupled {
		f.Keep = T(1 - o.LearningRate*o.WeightDecay)
	} else {
		f.Decay = T(o.WeightDecay)
	}
	if s.device != nil {
		s.device.AdamStep(p, m, v, g, f)
		return
	}
	s.adam = adamTask[T]{set: x.set, p: p, m: m, v: v, g: g, f: f}
	x.each(ceilDiv(len(p), elementsPerChunk), &s.adam)
	s.adam = adamTask[T]{}
}

// AdamFactors are what a step of Adam multiplies with, in the order in which kernels take them.
type AdamFactors[T Float] struct {
	Beta1, Rest1, Beta2, Rest2              T
	Step, Root, Epsilon, Scale, Decay, Keep T
}

type adamTask[T Float] struct {
	set        Set
	p, m, v, g []T
	f          AdamFactors[T]
}

func (t *adamTask[T]) chunk(_ *scratch, c int) {
	o, e := c*elementsPerChunk, min(len(t.p), (c+1)*elementsPerChunk)
	p, m, v, g := t.p[o:e], t.m[o:e], t.v[o:e], t.g[o:e]
	if t.fast(p, m, v, g) {
		return
	}
	f := &t.f
	for i := range p {
		q := T(p[i] * f.Keep)
		d := T(g[i]*f.Scale) + T(f.Decay*q)
		m[i] = T(f.Beta1*m[i]) + T(f.Rest1*d)
		v[i] = T(f.Beta2*v[i]) + T(f.Rest2*T(d*d))
		p[i] = q - T(f.Step*m[i])/(T(T(math.Sqrt(float64(v[i])))*f.Root)+f.Epsilon)
	}
}

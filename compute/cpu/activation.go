package cpu

// Activation is a function applied to every element.
type Activation uint8

// The activations. A NaN stays NaN.
const (
	Linear    Activation = iota // y = x
	ReLU                        // y = max(x, 0)
	LeakyReLU                   // y = x if x > 0, else LeakySlope·x
	ELU                         // y = x if x > 0, else eˣ-1 (Clevert, Unterthiner and Hochreiter, 2016; α = 1)
)

// LeakySlope is the slope of LeakyReLU below 0, PyTorch's default.
const LeakySlope = 0.01

func (f Activation) String() string {
	switch f {
	case Linear:
		return "linear"
	case ReLU:
		return "relu"
	case LeakyReLU:
		return "leaky relu"
	case ELU:
		return "elu"
	}
	return "unknown"
}

// Activate computes dst = f(a), in place if they are the same matrix.
func Activate[T Float](x *Exec, f Activation, dst, a Matrix[T]) {
	switch f {
	case ReLU:
		elementwise(x, OpReLU, dst, a, a, 0)
	case LeakyReLU:
		elementwise(x, OpLeaky, dst, a, a, LeakySlope)
	case ELU:
		elementwise(x, OpELU, dst, a, a, 0)
	default:
		elementwise(x, OpCopy, dst, a, a, 0)
	}
}

// ActivateBackward computes the gradient dx of f's argument from dy, that of
// its result y; dx may be dy. Where y is NaN, dx = dy. ReLU and LeakyReLU ask
// only whether y > 0, so y may be their argument, or y scaled by a positive
// number; ELU's slope below 0 is y+1, so y must be the result itself.
func ActivateBackward[T Float](x *Exec, f Activation, dx, dy, y Matrix[T]) {
	elementwise(x, backwardOp(f), dx, dy, y, LeakySlope)
}

func backwardOp(f Activation) ElementOp {
	switch f {
	case ReLU:
		return OpReLUBackward
	case LeakyReLU:
		return OpLeakyBackward
	case ELU:
		return OpELUBackward
	}
	return OpCopy
}

// ActivateBackwardSums is ActivateBackward and then ColumnSums of dx, in one way
// through memory. len(dst) is dx.Cols.
func ActivateBackwardSums[T Float](x *Exec, f Activation, dx, dy, y Matrix[T], dst []T, accumulate bool) {
	dx.check()
	dy.check()
	y.check()
	if dy.Rows != dx.Rows || dy.Cols != dx.Cols || y.Rows != dx.Rows || y.Cols != dx.Cols {
		panic(badShapes)
	}
	defer x.end(x.begin(), "activate-backward-sums", dx.Rows, dx.Cols, 0)
	columnSums(x, dst, dx, accumulate, &elementTask[T]{set: x.set, op: backwardOp(f), dst: dx, a: dy, b: y, f: LeakySlope})
}

// activate applies f to d in place.
func activate[T Float](set Set, d []T, f Activation) {
	t := elementTask[T]{set: set, f: LeakySlope}
	switch f {
	case ReLU:
		t.op = OpReLU
	case LeakyReLU:
		t.op = OpLeaky
	case ELU:
		t.op = OpELU
	default:
		return
	}
	t.apply(d, d, d)
}

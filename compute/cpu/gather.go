package cpu

// Gather copies the rows of src to dst, converting them to T: dst[i] = src[i]
// (the assembly sets turn -0 into +0).
// dst is at most src.Rows() rows of src.Cols() columns.
func Gather[T Float](x *Exec, dst Matrix[T], src Source[T]) {
	dst.check()
	if dst.Cols != src.Cols() || dst.Rows > src.Rows() {
		panic(badGather)
	}
	defer x.end(x.begin(), "gather", dst.Rows, dst.Cols, 0)
	s := tasksOf[T](x)
	if s.device != nil {
		s.device.Gather(dst, src)
		return
	}
	s.gather = gatherTask[T]{set: x.set, dst: dst, src: src}
	x.each(ceilDiv(dst.Rows, gatherRows), &s.gather)
	s.gather = gatherTask[T]{}
}

// gatherRows is how many rows one chunk of Gather copies.
const gatherRows = 512

type gatherTask[T Float] struct {
	set Set
	dst Matrix[T]
	src Source[T]
}

func (t *gatherTask[T]) chunk(w *scratch, c int) {
	i0, i1 := c*gatherRows, min(t.dst.Rows, (c+1)*gatherRows)
	if t.fast(w, i0, i1) {
		return
	}
	for i := i0; i < i1; i++ {
		copy(t.dst.Row(i), t.src.row(w, i))
	}
}

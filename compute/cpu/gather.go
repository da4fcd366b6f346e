package cpu

// Gather copies the rows of src to dst, converting them to T: dst[i] = src[i].
// dst is at most src.Rows() rows of src.Cols() columns.
func Gather[T Float](x *Exec, dst Matrix[T], src Source[T]) {
	dst.check()
	if dst.Cols != src.Cols() || dst.Rows > src.Rows() {
		panic(badGather)
	}
	s := tasksOf[T](x)
	s.gather = gatherTask[T]{set: x.set, dst: dst, src: src}
	x.each(ceilDiv(dst.Rows, rowsPerChunk), &s.gather)
	s.gather = gatherTask[T]{}
}

type gatherTask[T Float] struct {
	set Set
	dst Matrix[T]
	src Source[T]
}

func (t *gatherTask[T]) chunk(w *scratch, c int) {
	for i := c * rowsPerChunk; i < min(t.dst.Rows, (c+1)*rowsPerChunk); i++ {
		copy(t.dst.Row(i), t.src.row(w, i))
	}
}

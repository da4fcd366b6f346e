package cpu

import "time"

// Call is one call of a kernel. A product is M×N over K terms; of aggregations K
// is the number of entries that are read, of N columns, for M rows; of what goes
// over matrices or vectors element by element M×N is their shape, and K is 0.
type Call struct {
	Kernel  string
	M, N, K int
}

// Observe has f told of every call of a kernel that training a model is made of
// when it ends, and of how long it took; nil ends that. Of a kernel that calls
// others it is told once. f is called by whoever calls the kernel.
func (x *Exec) Observe(f func(c Call, took time.Duration)) { x.observe = f }

// begin is told that a kernel begins; its result is for end.
func (x *Exec) begin() (began time.Time) {
	if x.observe == nil {
		return began
	}
	x.depth++
	return time.Now()
}

// end is told that a kernel ends, by defer.
func (x *Exec) end(began time.Time, kernel string, m, n, k int) {
	if x.observe == nil || began.IsZero() {
		return
	}
	if x.depth--; x.depth == 0 {
		x.observe(Call{kernel, m, n, k}, time.Since(began))
	}
}

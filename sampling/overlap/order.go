package overlap

import "fmt"

// Orderer orders the windows of an epoch, one after the other. It is not safe
// for concurrent use; its memory is reused from window to window.
type Orderer struct {
	nodes  int
	method Method
	last   *set   // of the batch that ran last; nil: none did
	member member // its bitmap; Exact
	spare  []*set
	window []*set
}

// NewOrderer returns an Orderer of batches over a graph of the given number of
// nodes, by a method other than Auto (see Method.For).
func NewOrderer(nodes int, method Method) (*Orderer, error) {
	if method != Exact && method != Sketch {
		return nil, fmt.Errorf("overlap: an orderer needs exact or sketch, not %v", method)
	}
	o := &Orderer{nodes: nodes, method: method}
	if method == Exact {
		o.member = make(member, (nodes+63)/64)
	}
	return o, nil
}

// Reset starts an epoch: the first window begins with its first batch.
func (o *Orderer) Reset() {
	o.ran(nil)
}

// ran makes s the batch that ran last.
func (o *Orderer) ran(s *set) {
	if o.last != nil {
		if o.method == Exact {
			o.member.remove(o.last.nodes)
		}
		o.spare = append(o.spare, o.last)
	}
	if o.last = s; s != nil && o.method == Exact {
		o.member.add(s.nodes)
	}
}

// match returns the match degree of s and the batch that ran last.
func (o *Orderer) match(s *set) share {
	of := uint64(min(s.size, o.last.size))
	switch {
	case of == 0:
		return share{}
	case o.method == Sketch:
		return share{estimate(o.last, s), of}
	}
	return share{o.member.common(s), of}
}

// Resume tells which input nodes the batch that ran last has, when the epoch
// goes on after a restart.
func (o *Orderer) Resume(inputs []uint32) error {
	if err := o.check(inputs); err != nil {
		return err
	}
	o.ran(o.set(inputs))
	return nil
}

// Order appends to dst the order in which the window's batches, whose distinct
// input nodes are given in the order of their indices, run, as positions in
// inputs. It begins with the batch closest to the one that ran last, and goes on
// with the one closest to that; ties go to the lower index. Nothing of inputs is
// kept.
func (o *Orderer) Order(dst []int, inputs [][]uint32) ([]int, error) {
	for _, in := range inputs {
		if err := o.check(in); err != nil {
			return dst, err
		}
	}
	o.window = o.window[:0]
	for _, in := range inputs {
		o.window = append(o.window, o.set(in))
	}
	for range inputs {
		best, most := -1, share{}
		for i, s := range o.window {
			if s == nil {
				continue
			}
			if o.last == nil {
				best = i
				break
			}
			if m := o.match(s); best < 0 || m.above(most) {
				best, most = i, m
			}
		}
		o.ran(o.window[best])
		o.window[best] = nil
		dst = append(dst, best)
	}
	return dst, nil
}

func (o *Orderer) check(inputs []uint32) error {
	for _, u := range inputs {
		if int(u) >= o.nodes {
			return fmt.Errorf("overlap: node %d is out of range [0, %d)", u, o.nodes)
		}
	}
	return nil
}

// set returns a reusable representation of a batch's nodes.
func (o *Orderer) set(inputs []uint32) *set {
	var s *set
	if n := len(o.spare); n > 0 {
		s, o.spare = o.spare[n-1], o.spare[:n-1]
	} else {
		s = new(set)
	}
	s.fill(inputs, o.nodes, o.method == Sketch)
	return s
}

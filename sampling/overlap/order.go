package overlap

import (
	"fmt"
	"slices"
)

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
func (o *Orderer) Resume(parts []Part) error {
	if err := o.check(parts); err != nil {
		return err
	}
	o.ran(o.set(parts))
	return nil
}

// Order appends to dst the order in which the window's batches, whose parts
// are given in the order of their indices, run, as positions in
// batches. It begins with the batch closest to the one that ran last, and goes on
// with the one closest to that; ties go to the lower index. Nothing of batches is
// kept.
func (o *Orderer) Order(dst []int, batches [][]Part) ([]int, error) {
	for _, parts := range batches {
		if err := o.check(parts); err != nil {
			return dst, err
		}
	}
	o.window = o.window[:0]
	for _, parts := range batches {
		o.window = append(o.window, o.set(parts))
	}
	for range batches {
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

func (o *Orderer) check(parts []Part) error {
	for _, p := range parts {
		for _, u := range p.Nodes {
			if int(u) >= o.nodes {
				return fmt.Errorf("overlap: node %d is out of range [0, %d)", u, o.nodes)
			}
		}
		least := p.Size
		if o.method == Sketch {
			least = min(least, SketchSize)
		}
		if len(p.Nodes) < least || len(p.Nodes) > p.Size {
			return fmt.Errorf("overlap: %d of the %d nodes of a part; its order needs %d", len(p.Nodes), p.Size, least)
		}
	}
	return nil
}

// Part returns what other processes need of a part of a batch with these distinct input nodes to order
// batches as this one does: all of them, or those of a sketch, in rising order.
func (o *Orderer) Part(inputs []uint32) Part {
	p := Part{len(inputs), slices.Clone(inputs)}
	if o.method == Sketch && len(inputs) > SketchSize {
		var s set
		s.makeSketch([]Part{p})
		last := s.sketch[SketchSize-1]
		p.Nodes = slices.DeleteFunc(p.Nodes, func(u uint32) bool { return sketchKey.Uint64(uint64(u)) > last })
	}
	slices.Sort(p.Nodes)
	return p
}

// set returns a reusable representation of a batch's nodes.
func (o *Orderer) set(parts []Part) *set {
	var s *set
	if n := len(o.spare); n > 0 {
		s, o.spare = o.spare[n-1], o.spare[:n-1]
	} else {
		s = new(set)
	}
	s.fill(parts, o.nodes, o.method == Sketch)
	return s
}

package dataplane

import "errors"

// load is what a peer makes this node do and hold, over all the connections
// that it ever had: a handler may go on for a while after its request was taken
// back, or its connection ended.
type load struct {
	handlers int
	bytes    uint64 // of requests
}

// errBusy is what a peer hears that takes its requests back faster than their
// handlers return.
var errBusy = errors.New("too many requests of this node are being handled, those that it took back included")

// takeOn books a request of a peer; false: there are too many.
func (p *Plane) takeOn(peer string, bytes int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.loads[peer]
	if l.handlers >= 2*p.o.MaxAsks || l.bytes+uint64(bytes) > 2*uint64(p.o.Window) {
		return false
	}
	l.handlers++
	l.bytes += uint64(bytes)
	p.loads[peer] = l
	return true
}

// putDown books that a request's handler has returned.
func (p *Plane) putDown(peer string, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.loads[peer]
	l.handlers--
	l.bytes -= uint64(bytes)
	if p.loads[peer] = l; l == (load{}) {
		delete(p.loads, peer)
	}
}

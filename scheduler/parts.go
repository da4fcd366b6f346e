package scheduler

import (
	"fmt"
	"strings"
	"time"
)

// Part is a piece of a divided graph, by its sizes.
type Part struct {
	Masters, Others, Entries, Train int64
	Mapped                          int64     // bytes of its files that every step reads: edges and features
	Once                            int64     // bytes of the others, which are read when it is opened and verified
	Reads                           []int64   // of each piece the masters that it reads
	Active                          [][]int64 // of each layer, those of them that training needs; nil: all
}

// PartCost is what a part of a step takes for each of something.
type PartCost struct {
	Bytes             float64 // of memory, from one step to the next
	Forward, Backward float64 // seconds of one core
}

// PartRound is an exchange between the pieces in a step: of each pair of a master and a piece that reads it in the layer, Width values.
type PartRound struct {
	Layer int  `json:"layer"`
	Back  bool `json:"backward"` // from who reads to the master
	Width int  `json:"width"`
}

// Parts are what global batches over a divided graph are planned from.
type Parts struct {
	Parts                []Part
	Fixed                PartCost // of a piece, and of each
	Master, Other, Entry PartCost
	Rounds               []PartRound
	Inputs               int   // values of a row of features, which crosses as others do, but once, before the first step
	Told                 int64 // values that a piece tells each other one in a step besides
	Parameters           int64
	Nodes                int     // of the cluster
	Cores                float64 // of a node
	Bandwidth            float64 // of its link, bytes a second each way; 0: it bounds nothing
	Memory               int64   // of a node; 0: it bounds nothing
}

// Transport is what sending and receiving takes of processors under TLS, in seconds a byte: by what nodes take more than one process does (docs/benchmarks.md).
const transport = 5.5e-9

// framing is what the wire carries beside values, at most.
const framing = 0.02

// What a node's process has beside its pieces, in bytes; measured by mappings and by Go's profile of its heap (docs/benchmarks.md).
const (
	program  = 46 << 20 // code that it has touched, actors, and what Go's collector keeps books in
	perPeer  = 3 << 20  // gRPC's buffers for each other node
	answer   = 4 << 20  // the largest answer of rows, which is kept for the next one of each other node
	keptSent = 64 << 20 // of messages a piece keeps for the next step at most
	keptRead = 64 << 20 // of messages from other nodes a node keeps so at most
	heapSpan = 0.1      // how much Go's heap grows before it is collected (PiecesGCPercent)
)

// PiecesGCPercent is GOGC where pieces are trained: steps take their messages' memory from the step before, so what is to be collected comes slowly.
const PiecesGCPercent = 10

// RanOn is the largest number of nodes that a plan was compared with runs of (docs/benchmarks.md).
const RanOn = 8

// PartsNode is what a step takes of a node.
type PartsNode struct {
	Pieces       [2]int `json:"pieces"`       // from, and up to but without
	Activations  int64  `json:"activations"`  // bytes, with gradients and transposed edges
	Messages     int64  `json:"messages"`     // of rows that are sent and received in a step, the first one receiving most, whose memory is the next one's
	Process      int64  `json:"process"`      // the program, what it keeps for each other node, and what Go's collector leaves
	Parameters   int64  `json:"parameters"`   // with moments and gradients
	Halo         int64  `json:"halo"`         // which rows are sent
	Mapped       int64  `json:"mapped"`       // pages of files that every step reads, at random
	Once         int64  `json:"once"`         // pages of files that are read once, and given back where memory is short
	Sent         int64  `json:"sent"`         // bytes to other nodes in a step, of values
	Received     int64  `json:"received"`     //
	ForwardNanos int64  `json:"forward_ns"`   // of all its cores
	BackNanos    int64  `json:"backward_ns"`  //
	CarryNanos   int64  `json:"transport_ns"` // what exchanging takes of its cores
}

// Bytes is what the node needs: what is mapped, too, as pages that do not fit are read again and again. Where there is more memory, Once is resident besides.
func (n *PartsNode) Bytes() int64 {
	return n.Activations + n.Messages + n.Process + n.Parameters + n.Halo + n.Mapped
}

// PartsPhase is a part of a step, which all nodes end before the next begins.
type PartsPhase struct {
	Name  string        `json:"name"`
	Bytes int64         `json:"bytes"` // between all nodes, of values
	Time  time.Duration `json:"time_ns"`
}

// PartsPlan says what global batches take over so many nodes, each epoch being one step.
type PartsPlan struct {
	Nodes     []PartsNode  `json:"nodes"`
	Phases    []PartsPhase `json:"phases"`
	Step      int64        `json:"step_ns"`
	Sent      int64        `json:"sent"`       // bytes between nodes in a step, of values
	Wire      int64        `json:"wire"`       // the same with framing, at most
	Before    int64        `json:"before"`     // bytes of features between nodes, which cross once, before the first step, and are then let go of
	Largest   int          `json:"largest"`    // the node that needs most memory
	Fewest    int          `json:"fewest"`     // nodes that fit the memory; 0: not as many as there are pieces do
	Limit     int64        `json:"memory"`     // of a node; 0: none was given
	RanOn     int          `json:"ran_on"`     // nodes of the largest run that plans were compared with
	Beyond    bool         `json:"beyond_run"` // more nodes than that: an extrapolation
	PairsRead int64        `json:"pairs"`      // of masters and pieces that read them
}

// Plan says what training takes. There are as many pieces as nodes, or more: node i has the pieces from i·P/N up to (i+1)·P/N.
func (s Parts) Plan() (*PartsPlan, error) {
	pieces := len(s.Parts)
	if s.Nodes < 1 || s.Nodes > pieces {
		return nil, fmt.Errorf("scheduler: %d nodes for %d pieces: each needs one at least; divide the graph into more ('gnnactor partition --parts %d')", s.Nodes, pieces, max(s.Nodes, 1))
	}
	p := &PartsPlan{Limit: s.Memory, RanOn: RanOn, Beyond: s.Nodes > RanOn}
	of := make([]int, pieces)
	p.Nodes = make([]PartsNode, s.Nodes)
	for i := range p.Nodes {
		from, to := i*pieces/s.Nodes, (i+1)*pieces/s.Nodes
		p.Nodes[i].Pieces = [2]int{from, to}
		for k := from; k < to; k++ {
			of[k] = i
		}
	}
	cores := max(s.Cores, 1e-9)
	seconds := func(x float64) int64 { return int64(x / cores * 1e9) }
	for k, part := range s.Parts {
		if part.Masters == 0 {
			continue
		}
		n := &p.Nodes[of[k]]
		sum := func(get func(c PartCost) float64) float64 {
			return get(s.Fixed) + get(s.Master)*float64(part.Masters) + get(s.Other)*float64(part.Others) + get(s.Entry)*float64(part.Entries)
		}
		n.Activations += int64(sum(func(c PartCost) float64 { return c.Bytes }))
		n.ForwardNanos += seconds(sum(func(c PartCost) float64 { return c.Forward }))
		n.BackNanos += seconds(sum(func(c PartCost) float64 { return c.Backward }))
		n.Mapped, n.Once = n.Mapped+part.Mapped, n.Once+part.Once
		n.Parameters += 4 * s.Parameters // its gradient
		for q, pairs := range part.Reads {
			p.PairsRead += pairs
			p.Nodes[of[q]].Halo += 4 * pairs
			if of[q] != of[k] {
				p.Before += 4 * int64(s.Inputs) * pairs
			}
		}
		for _, reads := range part.Active { // beside the former, and where they are read
			for q, pairs := range reads {
				if pairs < part.Reads[q] {
					p.Nodes[of[q]].Halo += 4 * pairs
					n.Halo += 4 * pairs
				}
			}
		}
	}
	kept := make([]int64, pieces) // bytes of what a piece sends in a step, to pieces of its own node, too
	// crossing returns pairs between nodes, by who sends and who receives a layer's rows, and of each piece how many of its masters' rows others read, and
	// how many it reads.
	crossing := func(layer int) (sends, receives, read, reading []int64) {
		sends, receives, read, reading = make([]int64, s.Nodes), make([]int64, s.Nodes), make([]int64, pieces), make([]int64, pieces)
		for k, part := range s.Parts {
			reads := part.Reads
			if layer < len(part.Active) {
				reads = part.Active[layer]
			}
			for q, pairs := range reads {
				read[q] += pairs
				reading[k] += pairs
				if of[q] != of[k] {
					sends[of[q]] += pairs
					receives[of[k]] += pairs
				}
			}
		}
		return sends, receives, read, reading
	}
	slowest := func(name string, get func(n *PartsNode) int64) {
		most := int64(0)
		for i := range p.Nodes {
			most = max(most, get(&p.Nodes[i]))
		}
		p.Phases = append(p.Phases, PartsPhase{Name: name, Time: time.Duration(most)})
	}
	round := func(name string, sent, received func(node int) int64) {
		phase, most := PartsPhase{Name: name}, 0.0
		for i := range p.Nodes {
			n, out, in := &p.Nodes[i], sent(i), received(i)
			n.Sent, n.Received, phase.Bytes = n.Sent+out, n.Received+in, phase.Bytes+out
			carry := float64(out+in) * transport / cores
			n.CarryNanos += int64(carry * 1e9)
			if s.Bandwidth > 0 {
				carry = max(carry, float64(max(out, in))*(1+framing)/s.Bandwidth)
			}
			most = max(most, carry)
		}
		phase.Time = time.Duration(most * 1e9)
		p.Phases, p.Sent = append(p.Phases, phase), p.Sent+phase.Bytes
	}
	slowest("forward", func(n *PartsNode) int64 { return n.ForwardNanos })
	exchange := func(back bool) {
		for _, r := range s.Rounds {
			if r.Back != back {
				continue
			}
			sends, receives, read, reading := crossing(r.Layer)
			if back {
				read = reading
			}
			for k := range kept {
				kept[k] += 4 * int64(r.Width) * read[k]
			}
			by := func(pairs []int64) func(int) int64 {
				return func(i int) int64 { return 4 * int64(r.Width) * pairs[i] }
			}
			if back {
				round(fmt.Sprintf("gradients of rows of layer %d", r.Layer), by(receives), by(sends))
			} else {
				round(fmt.Sprintf("rows of layer %d", r.Layer), by(sends), by(receives))
			}
		}
	}
	exchange(false)
	slowest("backward", func(n *PartsNode) int64 { return n.BackNanos })
	exchange(true)
	if s.Nodes > 1 {
		others := func(i int) int64 {
			here := int64(p.Nodes[i].Pieces[1] - p.Nodes[i].Pieces[0])
			return 4*s.Told*here*(int64(pieces)-here) + 2*4*s.Parameters*int64(s.Nodes-1)/int64(s.Nodes)
		}
		round("gradients of parameters, and sums over nodes", others, others)
	}
	for k, bytes := range kept {
		p.Nodes[of[k]].Messages += min(bytes, keptSent)
	}
	for i := range p.Nodes {
		n, others := &p.Nodes[i], int64(s.Nodes-1)
		n.Parameters += 4 * s.Parameters * 4 // with two moments and the sum
		n.Messages += min(n.Received, keptRead)
		n.Process = program + others*perPeer
		if others > 0 {
			n.Process += others * min(answer, n.Received/others)
		}
		n.Process += int64(heapSpan * float64(n.Messages+n.Process-program))
		if p.Nodes[i].Bytes() > p.Nodes[p.Largest].Bytes() {
			p.Largest = i
		}
	}
	for _, phase := range p.Phases {
		p.Step += int64(phase.Time)
	}
	p.Wire = p.Sent + int64(framing*float64(p.Sent))
	return p, nil
}

// PlanFitting is Plan that also finds how many nodes fit the memory.
func (s Parts) PlanFitting() (*PartsPlan, error) {
	p, err := s.Plan()
	if err != nil || s.Memory == 0 {
		return p, err
	}
	for n := 1; n <= len(s.Parts); n++ {
		s.Nodes = n
		other, err := s.Plan()
		if err != nil {
			return nil, err
		}
		if other.fits() {
			p.Fewest = n
			break
		}
	}
	return p, nil
}

func (p *PartsPlan) fits() bool { return p.Limit == 0 || p.Nodes[p.Largest].Bytes() <= p.Limit }

// Check reports, wrapping ErrMemory, that a node would need more memory than it has.
func (p *PartsPlan) Check() error {
	if p.fits() {
		return nil
	}
	n := &p.Nodes[p.Largest]
	remedy := fmt.Sprintf("%d nodes or more fit", p.Fewest)
	if p.Fewest == 0 {
		remedy = "one node for each piece would not fit either: divide the graph into more pieces, or take a smaller --hidden"
	}
	return fmt.Errorf("%w: of %d nodes, node %d needs %s (%s of it mapped files, which every step reads) and has %s; %s", ErrMemory,
		len(p.Nodes), p.Largest, mebibytes(n.Bytes()), mebibytes(n.Mapped), mebibytes(p.Limit), remedy)
}

// String returns the plan as `gnnactor plan` prints it.
func (p *PartsPlan) String() string {
	var b strings.Builder
	n := &p.Nodes[p.Largest]
	fmt.Fprintf(&b, "global batches over %d nodes\n\na step, which is an epoch\n", len(p.Nodes))
	for _, phase := range p.Phases {
		fmt.Fprintf(&b, "  %10s  %10s  %s\n", phase.Time.Round(phase.Time/1000+1), mebibytes(phase.Bytes), phase.Name)
	}
	fmt.Fprintf(&b, "  %10s  %10s  sum; at most %s on the wire\n", time.Duration(p.Step).Round(time.Duration(p.Step)/1000+1), mebibytes(p.Sent), mebibytes(p.Wire))
	if p.Before > 0 {
		fmt.Fprintf(&b, "  %10s  %10s  features of others, once, before the first step\n", "", mebibytes(p.Before))
	}
	fmt.Fprintf(&b, "\nmemory of node %d, which needs most: pieces %d to %d\n", p.Largest, n.Pieces[0], n.Pieces[1]-1)
	for _, m := range []Memory{
		{What: "activations, their gradients, and transposed edges", Bytes: n.Activations}, {What: "rows that are sent and received in a step", Bytes: n.Messages},
		{What: "the program, what it keeps for other nodes, and what is not collected yet", Bytes: n.Process},
		{What: "parameters, moments and gradients", Bytes: n.Parameters}, {What: "which rows are sent", Bytes: n.Halo},
		{What: "mapped files that every step reads", Bytes: n.Mapped},
	} {
		fmt.Fprintf(&b, "  %10s  %s\n", mebibytes(m.Bytes), m.What)
	}
	fmt.Fprintf(&b, "  %10s  sum\n", mebibytes(n.Bytes()))
	fmt.Fprintf(&b, "  %10s  resident besides where there is room: files that are read once\n", mebibytes(n.Once))
	if p.Limit > 0 {
		fmt.Fprintf(&b, "  %10s  the limit\n", mebibytes(p.Limit))
	}
	if p.Beyond {
		fmt.Fprintf(&b, "\nThis is an extrapolation: plans were compared with runs of up to %d nodes; times are of this machine's processor.\n", p.RanOn)
	}
	return b.String()
}

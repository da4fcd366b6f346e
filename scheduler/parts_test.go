package scheduler

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// fourParts are four pieces of 100 nodes each, of which piece i reads 10·(i+1) masters of each other one.
func fourParts() Parts {
	s := Parts{
		Fixed: PartCost{Bytes: 1000}, Master: PartCost{Bytes: 100, Forward: 1e-6, Backward: 2e-6}, Other: PartCost{Bytes: 50}, Entry: PartCost{Bytes: 8, Forward: 1e-8},
		Rounds: []PartRound{{0, false, 16}, {1, false, 4}, {1, true, 4}}, Parameters: 1000, Cores: 2, Bandwidth: 1e6,
	}
	for i := range 4 {
		part := Part{Masters: 100, Others: 30 * int64(i+1), Entries: 1000, Mapped: 5000, Once: 700, Reads: make([]int64, 4)}
		for q := range part.Reads {
			if q != i {
				part.Reads[q] = 10 * int64(i+1)
			}
		}
		s.Parts = append(s.Parts, part)
	}
	return s
}

// Between nodes go, of each layer and direction, the pairs of masters and pieces that read them whose ends are on two nodes, once each.
func TestPartsBytes(t *testing.T) {
	for nodes, pairs := range map[int]int64{1: 0, 2: 2 * 10 * (1 + 2 + 3 + 4), 4: 3 * 10 * (1 + 2 + 3 + 4)} {
		s := fourParts()
		s.Nodes = nodes
		p, err := s.Plan()
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int64{"rows of layer 0": 4 * 16 * pairs, "rows of layer 1": 4 * 4 * pairs, "gradients of rows of layer 1": 4 * 4 * pairs}
		for _, phase := range p.Phases {
			if w, ok := want[phase.Name]; ok && phase.Bytes != w {
				t.Errorf("%d nodes: %s: %d bytes, want %d", nodes, phase.Name, phase.Bytes, w)
			}
			delete(want, phase.Name)
		}
		if len(want) > 0 || p.PairsRead != 3*10*(1+2+3+4) {
			t.Errorf("%d nodes: %+v; not there: %v", nodes, p.Phases, want)
		}
		sent, received := int64(0), int64(0)
		for _, n := range p.Nodes {
			sent, received = sent+n.Sent, received+n.Received
		}
		if sent != received || sent != p.Sent || p.Wire < p.Sent || float64(p.Wire) > 1.02*float64(p.Sent)+1 {
			t.Errorf("%d nodes: %d bytes sent, %d received, %d in all, %d on the wire", nodes, sent, received, p.Sent, p.Wire)
		}
	}
}

// Where training needs fewer of a layer's rows, no others cross in it, forward and backward, and no message keeps memory for them; which ones do is kept where
// they are sent and where they are read.
func TestPartsActive(t *testing.T) {
	s := fourParts()
	s.Nodes = 4
	for i := range s.Parts { // the last layer needs a tenth of the rows, the first all
		last := make([]int64, 4)
		for q := range last {
			last[q] = s.Parts[i].Reads[q] / 10
		}
		s.Parts[i].Active = [][]int64{s.Parts[i].Reads, last}
	}
	p, err := s.Plan()
	if err != nil {
		t.Fatal(err)
	}
	const pairs = 3 * 10 * (1 + 2 + 3 + 4)
	want := map[string]int64{"rows of layer 0": 4 * 16 * pairs, "rows of layer 1": 4 * 4 * pairs / 10, "gradients of rows of layer 1": 4 * 4 * pairs / 10}
	for _, phase := range p.Phases {
		if w, ok := want[phase.Name]; ok && phase.Bytes != w {
			t.Errorf("%s: %d bytes, want %d", phase.Name, phase.Bytes, w)
		}
		delete(want, phase.Name)
	}
	if len(want) > 0 {
		t.Errorf("%+v lacks %v", p.Phases, want)
	}
	if n := &p.Nodes[3]; n.Halo != 4*10*(1+2+3)+4*(6+12) || n.Messages != 4*(16*60+4*6+4*12)+n.Received {
		t.Errorf("node 3: %+v", *n)
	}
}

// What nodes compute adds up to what one does, an exchange waits for the busiest link, and a node's memory is its pieces'.
func TestPartsCosts(t *testing.T) {
	s := fourParts()
	s.Nodes = 4
	p, err := s.Plan()
	if err != nil {
		t.Fatal(err)
	}
	n := &p.Nodes[3]
	if p.Largest != 3 || n.Activations != 1000+100*100+50*120+8*1000 || n.Mapped != 5000 || n.Parameters != 4*1000*5 || n.Halo != 4*10*(1+2+3) || n.Once != 700 {
		t.Errorf("node %d needs most: %+v", p.Largest, *n)
	}
	if sent := int64(4 * (16*60 + 4*60 + 4*120)); n.Messages != sent+n.Received || n.Process != program+3*perPeer+n.Received+int64(heapSpan*float64(n.Messages+3*perPeer+n.Received)) {
		t.Errorf("of messages node 3 keeps %d bytes, and %d beside", n.Messages, n.Process)
	}
	if want := int64((100e-6 + 1000e-8) / 2 * 1e9); n.ForwardNanos < want-1 || n.ForwardNanos > want+1 || n.BackNanos < 100000-1 || n.BackNanos > 100000+1 {
		t.Errorf("%d and %d ns", n.ForwardNanos, n.BackNanos)
	}
	if sums := int64(2 * 4 * 1000 * 3 / 4); n.Sent != 4*(16*60+4*60+4*120)+sums || n.Received != 4*(16*120+4*120+4*60)+sums {
		t.Errorf("node 3 sends %d bytes and receives %d", n.Sent, n.Received)
	}
	for _, phase := range p.Phases {
		if phase.Name == "rows of layer 0" { // node 3 receives 120 rows of 16 values
			if want := 4 * 16 * 120 * 1.02 / 1e6; phase.Time.Seconds() < 0.999*want || phase.Time.Seconds() > 1.001*want {
				t.Errorf("%s takes %v, want %v s", phase.Name, phase.Time, want)
			}
		}
	}
}

// Features that cross once, of all pairs between nodes, are no step's, and nothing of them is in memory beside one.
func TestPartsInputs(t *testing.T) {
	s := fourParts()
	for i := range s.Parts {
		s.Parts[i].Active = [][]int64{make([]int64, 4), make([]int64, 4)}
	}
	s.Nodes, s.Rounds = 2, s.Rounds[1:]
	before, err := s.Plan()
	if err != nil {
		t.Fatal(err)
	}
	s.Inputs = 7
	after, err := s.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if pairs := int64(2*10 + 2*20 + 2*30 + 2*40); after.Before != 4*7*pairs || before.Before != 0 || !strings.Contains(after.String(), "features of others, once") {
		t.Errorf("%d bytes of features, and %d where there are none", after.Before, before.Before)
	}
	if b, a := before.Nodes[1], after.Nodes[1]; a != b || after.Step != before.Step || after.Sent != before.Sent {
		t.Errorf("with features %+v, without %+v", a, b)
	}
}

// Where no bandwidth is known an exchange takes what processors do for it; a piece without nodes takes nothing; two nodes already sum gradients.
func TestPartsAtTheirLeast(t *testing.T) {
	s := fourParts()
	s.Bandwidth, s.Nodes, s.Parts[3] = 0, 2, Part{Reads: make([]int64, 4)}
	p, err := s.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if n := &p.Nodes[1]; n.Activations != 1000+100*100+50*90+8*1000 || n.Parameters != 4*1000*5 {
		t.Errorf("the node of an empty piece: %+v", *n)
	}
	last := p.Phases[len(p.Phases)-1]
	if want := int64(2 * 2 * 4 * 1000 / 2); last.Bytes != want || last.Name != "gradients of parameters, and sums over nodes" {
		t.Errorf("%+v, want %d bytes of gradients", last, want)
	}
	if rows := p.Phases[1]; rows.Name != "rows of layer 0" || rows.Time != 21119 { // 60 rows of 16 values go each way
		t.Errorf("%+v", rows)
	}
}

// What does not fit is refused with what is needed and what there is, and the fewest nodes that do.
func TestPartsRefuses(t *testing.T) {
	s := fourParts()
	s.Nodes, s.Memory, s.Master.Bytes = 1, 230e6, 1e6
	p, err := s.PlanFitting()
	if err != nil {
		t.Fatal(err)
	}
	need := mebibytes(p.Nodes[0].Bytes())
	if err := p.Check(); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), need) || !strings.Contains(err.Error(), "has 219.3 MiB") || !strings.Contains(err.Error(), "4 nodes or more fit") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(p.String(), "the limit") || p.Beyond {
		t.Errorf("%s", p)
	}
	for _, part := range slices.Repeat(s.Parts, 2) { // twelve
		part.Reads = make([]int64, 12)
		s.Parts = append(s.Parts, part)
	}
	for i := range s.Parts[:4] {
		s.Parts[i].Reads = append(s.Parts[i].Reads, make([]int64, 8)...)
	}
	s.Nodes = 12
	if p, err = s.PlanFitting(); err != nil || p.Check() != nil || !p.Beyond || !strings.Contains(p.String(), "extrapolation") {
		t.Errorf("%v, %v, %v", err, p.Check(), p)
	}
	s.Memory = 1000
	if p, err = s.PlanFitting(); err != nil || !errors.Is(p.Check(), ErrMemory) || !strings.Contains(p.Check().Error(), "more pieces") {
		t.Errorf("%v, %v", err, p.Check())
	}
	for _, nodes := range []int{0, 13} {
		s.Nodes = nodes
		if _, err := s.Plan(); err == nil {
			t.Errorf("%d nodes for 12 pieces are planned", nodes)
		}
	}
}

package scheduler

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// busy is a machine that others load, as samplers' nodes measure it.
type busy struct {
	rnd    *rand.Rand
	cores  []float64 // that each node has by its limit
	noise  float64   // standard deviation of what a look shows, as a logarithm
	keeps  float64   // how much of a look's deviation the next one has
	biased bool      // a node's samplers seem to get what they would without waiting, where only one is
	off    []float64
}

func (m *busy) look(places []SamplerPlace) (nodes []SamplerNode) {
	for i, cores := range m.cores {
		name := string(rune('a' + i))
		m.off[i] = m.keeps*m.off[i] + math.Sqrt(1-m.keeps*m.keeps)*m.noise*m.rnd.NormFloat64()
		if on := len(slices.DeleteFunc(slices.Clone(places), func(p SamplerPlace) bool { return p.Node != name })); m.biased && on < 2 {
			cores *= 1.8
		}
		nodes = append(nodes, SamplerNode{Name: name, Work: time.Millisecond, Cores: min(cores*math.Exp(m.off[i]), 1)})
	}
	return nodes
}

// moves has samplers looked at once a second for so long, and returns how often they were moved and where they are.
func (m *busy) moves(seconds int, places []SamplerPlace, move func([]SamplerNode, []SamplerPlace) (SamplerPlace, string, bool)) (n int, last int) {
	rests := 0
	for s := range seconds {
		nodes := m.look(places)
		if rests--; rests > 0 {
			continue
		}
		if to, _, ok := move(nodes, places); ok {
			places[slices.IndexFunc(places, func(p SamplerPlace) bool { return p.Sampler == to.Sampler })] = to
			n, last, rests = n+1, s, 3
		}
	}
	return n, last
}

func on(places []SamplerPlace, nodes int) []int {
	all := make([]int, nodes)
	for _, p := range places {
		all[p.Node[0]-'a']++
	}
	return all
}

// Where nothing can be gained, looks that differ by factors, for a second or for many, and nodes that seem faster as long as they have
// little to do, do not have samplers moved for ever: in ten minutes after the first half minute once on average, and twice at most. MoveSampler by itself moves them every few seconds.
func TestBalancerStays(t *testing.T) {
	for name, x := range map[string]busy{
		"quiet":               {noise: 0.05},
		"noise":               {noise: 0.3},
		"much noise":          {noise: 0.6},
		"noise that stays":    {noise: 0.3, keeps: 0.9},
		"biased":              {noise: 0.1, biased: true},
		"biased, and noise":   {noise: 0.4, biased: true},
		"biased, noise stays": {noise: 0.3, keeps: 0.8, biased: true},
	} {
		t.Run(name, func(t *testing.T) {
			all, most, raw := 0, 0, 0
			for seed := range uint64(8) {
				for _, counts := range []bool{true, false} {
					m := x
					m.rnd, m.cores, m.off = rand.New(rand.NewPCG(seed, 18)), []float64{0.5, 0.5, 0.5}, make([]float64, 3)
					places := []SamplerPlace{{"p", "a"}, {"q", "a"}, {"r", "b"}, {"s", "c"}}
					if !counts {
						n, _ := m.moves(600, places, MoveSampler)
						raw += n
						continue
					}
					b := new(Balancer)
					m.moves(30, places, b.Move)
					n, _ := m.moves(600, places, b.Move)
					all, most = all+n, max(most, n)
				}
			}
			t.Logf("in 8 times ten minutes: %d moves, %d at most in one; %d by each look alone", all, most, raw)
			if most > 2 || all > 8 {
				t.Errorf("%d moves, %d at most in ten minutes", all, most)
			}
			if x.noise > 0.1 && raw < 8*20 {
				t.Errorf("%d moves by each look alone: this is no test", raw)
			}
		})
	}
}

// What is gained for good is gained within half a minute: a node that is cut to a quarter is left, and is taken again, also where looks differ much
// and after moves that gained nothing.
func TestBalancerMoves(t *testing.T) {
	for _, noise := range []float64{0.05, 0.3} {
		late := 0
		for seed := range uint64(20) {
			m := busy{rnd: rand.New(rand.NewPCG(seed, 19)), cores: []float64{0.5, 0.5, 0.5}, noise: noise, off: make([]float64, 3)}
			b, places := new(Balancer), []SamplerPlace{{"p", "a"}, {"q", "a"}, {"r", "b"}, {"s", "c"}}
			m.moves(120, places, b.Move)
			m.cores[0] = 0.125
			_, last := m.moves(120, places, b.Move)
			if got := on(places, 3); got[0] != 0 || last >= 30 {
				late++
			}
			m.cores[0] = 0.5
			m.moves(120, places, b.Move)
			if got := on(places, 3); slices.Max(got) > 2 {
				t.Errorf("noise %g, seed %d: after all %v", noise, seed, got)
			}
		}
		if late > 1 {
			t.Errorf("noise %g: %d of 20 did not leave the slow node within half a minute", noise, late)
		}
	}
}

// A node that slows down a quarter of a minute after a sampler came to it is left like any other: the move to it was right when
// it was made.
func TestBalancerTurns(t *testing.T) {
	for noise, most := range map[float64]int{0.05: 0, 0.3: 2} {
		late := 0
		for seed := range uint64(20) {
			m := busy{rnd: rand.New(rand.NewPCG(seed, 20)), cores: []float64{0.125, 0.5, 0.5}, noise: noise, off: make([]float64, 3)}
			b, places := new(Balancer), []SamplerPlace{{"p", "a"}, {"q", "a"}, {"r", "b"}, {"s", "c"}}
			for on(places, 3)[0] > 0 {
				m.moves(1, places, b.Move)
			}
			m.moves(15, places, b.Move)
			slow := places[1].Node[0] - 'a'
			m.cores[0], m.cores[slow] = 0.5, 0.125
			_, last := m.moves(120, places, b.Move)
			if got := on(places, 3); got[slow] != 0 || last >= 30 {
				late++
			}
		}
		if late > most {
			t.Errorf("noise %g: %d of 20 did not leave the slow node within half a minute", noise, late)
		}
	}
}

// A move that could not be made says nothing about those that follow: it is asked for again.
func TestBalancerAsksAgain(t *testing.T) {
	nodes := []SamplerNode{{Name: "a", Work: time.Millisecond, Cores: 0.5}, {Name: "b", Work: time.Millisecond, Cores: 0.5}}
	places := []SamplerPlace{{"p", "a"}, {"q", "a"}}
	b, asked := new(Balancer), 0
	for range 5 * 16 { // as many show that it is twice as fast
		if to, why, ok := b.Move(nodes, places); ok {
			if asked++; to != (SamplerPlace{"p", "b"}) {
				t.Errorf("%+v: %s", to, why)
			}
		}
	}
	if asked != 5 {
		t.Errorf("asked %d times in 80 looks", asked)
	}
}

// A move to a node that left says nothing about the next.
func TestBalancerNodeLeaves(t *testing.T) {
	node := func(name string) SamplerNode { return SamplerNode{Name: name, Work: time.Millisecond, Cores: 0.5} }
	b := new(Balancer)
	asks := func(nodes []SamplerNode, want SamplerPlace) {
		t.Helper()
		for range 16 {
			if to, _, ok := b.Move(nodes, []SamplerPlace{{"p", "a"}, {"q", "a"}}); ok && to == want {
				return
			}
		}
		t.Errorf("no move to %+v", want)
	}
	asks([]SamplerNode{node("a"), node("b")}, SamplerPlace{"p", "b"})
	b.Move([]SamplerNode{node("a"), node("b")}, []SamplerPlace{{"p", "b"}, {"q", "a"}}) // it is made
	asks([]SamplerNode{node("a"), node("c")}, SamplerPlace{"p", "c"})
}

// Looks are kept as long as they may be asked for; their mean is of what links take, too.
func TestBalancerLooks(t *testing.T) {
	b, look := new(Balancer), []SamplerNode{{Name: "a", Work: time.Millisecond, Cores: 1, Wire: 2 * time.Millisecond}}
	for range 2 * manyLooks {
		b.Move(look, []SamplerPlace{{"p", "a"}})
	}
	if len(b.looks) != manyLooks {
		t.Errorf("%d looks are kept", len(b.looks))
	}
	faster := []SamplerNode{{Name: "a", Work: time.Millisecond, Cores: 1, Wire: 4 * time.Millisecond, Most: 3}}
	if got := mean([][]SamplerNode{look, faster}); len(got) != 1 || got[0].Wire != 3*time.Millisecond || got[0].Most != 3 {
		t.Errorf("mean %+v", got)
	}
}

package scheduler

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Balancer decides where samplers are better moved while they sample, from what is measured of their nodes again and
// again: a look. Looks differ, on a machine that others load by factors; and a node may seem faster before a sampler comes to it
// than after, as who has little to do waits for nobody. MoveSampler, asked at each look, would move samplers for ever. So
//
//   - a move must promise the more the fewer looks show it: over the newest n, worth^√(doubt/n), as means of n differ by 1/√n of what looks do;
//   - before another is made, going back from it must seem to lose half of what it promised, or more, over the looks
//     since, without those that ask for the other where enough are left. If it does not, it gained nothing, and doubt is 16 times as much: four times the gain, as a logarithm, is asked for from then on.
//
// The zero value is ready. It is for one goroutine, and for one group of samplers.
type Balancer struct {
	looks [][]SamplerNode // since one was last moved, the newest last
	doubt float64         // in looks
	made  *move           // the last, until it is judged
}

// move is one from a node to another, with the logarithm of how much faster it makes the sampler.
type move struct {
	sampler, from, to string
	gain              float64
}

const (
	fewLooks, judging, manyLooks = 4, 12, 64
	// leastDoubt is what a Balancer begins with and comes back to, by half in half an hour of looks each second: a gain of
	// 2.8 is believed after 4 of them, and of 1.3 after 64.
	leastDoubt = 128
	fades      = 1.0 / 2600
)

// Move is MoveSampler, of a look.
func (b *Balancer) Move(nodes []SamplerNode, places []SamplerPlace) (to SamplerPlace, why string, ok bool) {
	if b.made != nil && !slices.Contains(places, SamplerPlace{b.made.sampler, b.made.to}) {
		b.made = nil // it could not be made, or was undone
	}
	b.looks = append(b.looks[max(0, len(b.looks)-manyLooks+1):], slices.Clone(nodes))
	b.doubt = max(leastDoubt, b.doubt*(1-fades))
	for n := fewLooks; n <= len(b.looks); n *= 2 {
		now := mean(b.looks[len(b.looks)-n:])
		to, why, ok := MoveSampler(now, places)
		if !ok {
			continue
		}
		i := slices.IndexFunc(places, func(p SamplerPlace) bool { return p.Sampler == to.Sampler })
		m := &move{to.Sampler, places[i].Node, to.Node, gain(now, places, places[i].Node, to.Node)}
		if b.trusts(m, n) {
			if was := b.made; was != nil && gain(mean(b.before(n)), places, was.to, was.from) > -was.gain/2 {
				b.made, b.doubt = nil, 16*b.doubt
			}
		}
		if b.trusts(m, n) {
			b.made, b.looks = m, nil
			return to, fmt.Sprintf("%s, over %d s", why, n), true
		}
	}
	return SamplerPlace{}, "", false
}

// trusts reports whether a move promises enough for one that n looks show.
func (b *Balancer) trusts(m *move, n int) bool {
	return m.gain >= math.Log(worth)*math.Sqrt(b.doubt/float64(n))
}

// before returns the looks before the newest n, as a node may have slowed down only in those; all of them if there are few
// before, which may show no more than what had one moved.
func (b *Balancer) before(n int) [][]SamplerNode {
	if k := len(b.looks) - n; k >= judging {
		return b.looks[:k]
	}
	return b.looks
}

// mean returns the nodes as looks show them; a node that is not in half of those is not known.
func mean(looks [][]SamplerNode) (all []SamplerNode) {
	in, sums, most := map[string]float64{}, map[string][3]float64{}, map[string]int{}
	for _, nodes := range looks {
		for _, x := range nodes {
			s := sums[x.Name]
			in[x.Name]++
			most[x.Name] = x.Most
			sums[x.Name] = [3]float64{s[0] + math.Log(max(x.Work.Seconds(), 1e-9)), s[1] + math.Log(x.Cores), s[2] + x.Wire.Seconds()}
		}
	}
	for name, k := range in {
		if s := sums[name]; 2*k >= float64(len(looks)) {
			all = append(all, SamplerNode{Name: name, Work: seconds(math.Exp(s[0] / k)), Cores: math.Exp(s[1] / k), Wire: seconds(s[2] / k), Most: most[name]})
		}
	}
	return all
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// gain is the logarithm of how much faster a sampler becomes by a move; 0: it is not known.
func gain(nodes []SamplerNode, places []SamplerPlace, from, to string) float64 {
	at := func(name string) int {
		return slices.IndexFunc(nodes, func(x SamplerNode) bool { return x.Name == name })
	}
	x, y := at(from), at(to)
	if x < 0 || y < 0 {
		return 0
	}
	on := map[string]int{}
	for _, p := range places {
		on[p.Node]++
	}
	return math.Log(nodes[x].each(on[from]) / nodes[y].each(on[to]+1))
}

package scheduler

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// settle moves samplers until none is worth it, and returns how many are on each node.
func settle(t *testing.T, nodes []SamplerNode, places []SamplerPlace) (on []int, moves int) {
	t.Helper()
	for ; ; moves++ {
		to, why, ok := MoveSampler(nodes, places)
		if !ok {
			break
		}
		i := slices.IndexFunc(places, func(p SamplerPlace) bool { return p.Sampler == to.Sampler })
		if moves > 20 || i < 0 || !strings.Contains(why, places[i].Node) || !strings.Contains(why, to.Node) {
			t.Fatalf("move %d: %+v, %s", moves, to, why)
		}
		places[i] = to
	}
	on = make([]int, len(nodes))
	for i, n := range nodes {
		for _, p := range places {
			if p.Node == n.Name {
				on[i]++
			}
		}
	}
	return on, moves
}

// Samplers leave a node that has become slow, as far as they are too many for it, and
// come back to one that is fast again; where it makes no difference they stay.
func TestMoveSampler(t *testing.T) {
	const ms = time.Millisecond
	at := func(nodes ...string) (all []SamplerPlace) {
		for i, n := range nodes {
			all = append(all, SamplerPlace{string(rune('p' + i)), n})
		}
		return all
	}
	half := []SamplerNode{{"a", ms, 0.5, 0, 0}, {"b", ms, 0.5, 0, 0}, {"c", ms, 0.5, 0, 0}}
	for name, x := range map[string]struct {
		nodes  []SamplerNode
		places []SamplerPlace
		want   []int
	}{
		"nothing to gain":               {half, at("a", "a", "b", "c"), []int{2, 1, 1}},
		"measured a little off":         {[]SamplerNode{{"a", ms, 0.5, 0, 0}, {"b", ms * 6 / 5, 0.5, 0, 0}, {"c", ms, 0.45, 0, 0}}, at("a", "a", "b", "c"), []int{2, 1, 1}},
		"one node has all":              {half, at("a", "a", "a", "a"), []int{2, 1, 1}},
		"one is cut":                    {[]SamplerNode{{"a", ms, 0.125, 0, 0}, {"b", ms, 0.5, 0, 0}, {"c", ms, 0.5, 0, 0}}, at("a", "a", "b", "c"), []int{0, 2, 2}},
		"one is cut to next to nothing": {[]SamplerNode{{"a", ms, 0.01, 0, 0}, {"b", ms, 0.5, 0, 0}, {"c", ms, 0.5, 0, 0}}, at("a", "b", "c"), []int{0, 2, 1}},
		"it is back":                    {half, at("b", "b", "c", "c", "c", "c"), []int{2, 2, 2}},
		"two are slow":                  {[]SamplerNode{{"a", 9 * ms, 1, 0, 0}, {"b", 9 * ms, 1, 0, 0}, {"c", ms, 1, 0, 0}}, at("a", "b", "c"), []int{0, 0, 3}},
		"more cores":                    {[]SamplerNode{{"a", ms, 1, 0, 0}, {"b", ms, 4, 0, 0}}, at("a", "a", "a", "a"), []int{1, 3}},
		"unknown nodes stay":            {half[:1], at("a", "z", "z"), []int{1}},
		"nobody":                        {nil, at("z"), []int{}},
		"a link bounds it":              {[]SamplerNode{{"a", ms, 4, 2 * ms, 0}, {"b", ms, 4, 0, 0}}, at("a", "a"), []int{0, 2}},
		"nothing":                       {half, nil, []int{0, 0, 0}},
		"one takes no more":             {[]SamplerNode{{"a", ms, 0.01, 0, 0}, {"b", ms, 0.5, 0, 2}, {"c", ms, 0.1, 0, 0}}, at("a", "a", "a", "a"), []int{0, 2, 2}},
		"none takes one more":           {[]SamplerNode{{"a", ms, 0.01, 0, 0}, {"b", ms, 0.5, 0, 1}, {"c", ms, 0.5, 0, 1}}, at("a", "a", "b", "c"), []int{2, 1, 1}},
		"all have too many":             {[]SamplerNode{{"a", ms, 0.01, 0, 1}, {"b", ms, 0.5, 0, 1}}, at("a", "a", "b"), []int{2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if on, moves := settle(t, x.nodes, x.places); !slices.Equal(on, x.want) {
				t.Errorf("after %d moves %v are on the nodes, not %v", moves, on, x.want)
			}
		})
	}
}

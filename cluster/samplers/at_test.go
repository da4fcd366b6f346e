package samplers

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/membership"
)

// Where samplers are: at home where that has the role, else dealt to those that have
// it, and not to one that drains, unless it is the trainer's own; where the table says,
// as long as that node can.
func TestAt(t *testing.T) {
	view := func(nodes ...membership.Info) *membership.View { return &membership.View{Members: nodes} }
	role := []string{Kind}
	a, b := membership.Info{Node: "a", Kinds: role}, membership.Info{Node: "b", Kinds: role}
	c, d := membership.Info{Node: "c", Samplers: 3}, membership.Info{Node: "d", Samplers: 2}
	gone, out := a, b
	gone.Yield, out.Drain = true, true
	home := membership.Info{Node: "h", Kinds: role, Samplers: 2}
	leaving := home
	leaving.Drain = true
	all := view(a, b, c, d, home)
	for name, x := range map[string]struct {
		v            *membership.View
		sampler, put string
		want         string
	}{
		"at home":                {all, "h:1", "", "h"},
		"home drains":            {view(a, leaving), "h:0", "", "h"},
		"put":                    {all, "c:0", "b", "b"},
		"put away from home":     {all, "h:0", "a", "a"},
		"put on one that is not": {view(a, c), "c:0", "z", "a"},
		"put on one that drains": {view(gone, b, c), "c:0", "a", "b"},
		"put on one without":     {view(a, c, d), "c:0", "d", "a"},
		"one drains":             {view(a, out, c), "c:1", "", "a"},
		"all drain":              {view(gone, out, c), "c:0", "", ""},
		"nobody":                 {view(c), "c:0", "", ""},
		"no name":                {all, "c", "", ""},
		"no number":              {all, "c:x", "", ""},
		"no such trainer":        {all, "x:0", "", ""},
		"no such trainer's, put": {all, "x:0", "a", ""},
		"one too many":           {all, "c:3", "", ""},
		"one too many at home":   {all, "h:2", "", ""},
		"by another name":        {all, "c:01", "", ""},
		"of far too many":        {view(a, membership.Info{Node: "c", Samplers: math.MaxInt}, d), "d:1", "", "a"},
		"of fewer than none":     {view(a, membership.Info{Node: "c", Samplers: -3}, d), "d:1", "", "a"},
	} {
		if got := At(x.v, x.sampler, x.put); got != x.want {
			t.Errorf("%s: %s, put on %q, is on %q, not %q", name, x.sampler, x.put, got, x.want)
		}
	}
	if n, i, ok := parse(Name("node:with:colons", 7)); !ok || n != "node:with:colons" || i != 7 {
		t.Errorf("parsed %q, %d, %v", n, i, ok)
	}
}

// A node takes no more samplers of others than it says: they are dealt to the others, or to none, and what was put where there are too many
// by now is dealt again.
func TestMost(t *testing.T) {
	role := []string{Kind}
	view := func(most ...int) *membership.View {
		v := &membership.View{Members: []membership.Info{{Node: "t", Samplers: 4}, {Node: "u", Samplers: 3}}}
		for i, n := range most {
			v.Members = append(v.Members, membership.Info{Node: fmt.Sprint("w", i), Kinds: role, Most: n})
		}
		return v
	}
	on := func(v *membership.View, placed map[string]string) string {
		n := map[string]int{}
		for _, m := range v.Members {
			for i := range Count(&m) {
				n[At(v, Name(m.Node, i), placed[Name(m.Node, i)])]++
			}
		}
		return strings.TrimPrefix(fmt.Sprint(n), "map")
	}
	for want, most := range map[string][]int{
		"[w0:1 w1:6]": {1, 0}, "[:5 w0:1 w1:1]": {1, 1}, "[w0:2 w1:2 w2:3]": {2, 2, 0}, "[w0:1 w1:2 w2:4]": {1, 2, 4}, "[:1 w0:1 w1:2 w2:3]": {1, 2, 3}, "[w0:7]": {0},
	} {
		if got := on(view(most...), nil); got != want {
			t.Errorf("%v at most: dealt %s, not %s", most, got, want)
		}
	}
	home := view(1)
	home.Members[0].Kinds, home.Members[0].Most = role, 1
	if got := on(home, nil); got != "[:1 t:5 w0:1]" {
		t.Errorf("at home %s", got) // its own four, and one
	}
	put := map[string]string{"t:0": "w1", "t:1": "w1", "u:0": "w1", "u:1": "", "u:2": "z"}
	for name, x := range map[string]struct {
		v        *membership.View
		want, on string
	}{
		"any number": {view(0, 0), "[t:0:w1 t:1:w1 u:0:w1]", "[w0:2 w1:5]"},
		"as many":    {view(0, 7), "[t:0:w1 t:1:w1 u:0:w1]", "[w0:2 w1:5]"},
		"too many":   {view(0, 2), "[]", "[w0:5 w1:2]"},
	} {
		kept := Keep(x.v, put)
		if got := strings.TrimPrefix(fmt.Sprint(kept), "map"); got != x.want {
			t.Errorf("%s: kept %s, not %s", name, got, x.want)
		}
		if got := on(x.v, kept); got != x.on {
			t.Errorf("%s: then they are on %s, not %s", name, got, x.on)
		}
	}
}

// Samplers are dealt alike, to within one for each trainer. When a node comes or goes most of those that it
// does not take, or had, stay where they are.
func TestDealtAlike(t *testing.T) {
	const trainers, each = 5, 8
	nodes := func(n int) *membership.View {
		v := new(membership.View)
		for i := range n {
			v.Members = append(v.Members, membership.Info{Node: fmt.Sprint("s", i), Kinds: []string{Kind}})
		}
		for i := range trainers {
			v.Members = append(v.Members, membership.Info{Node: fmt.Sprint("t", i), Samplers: each})
		}
		return v
	}
	places := func(v *membership.View) map[string]string {
		all, on := map[string]string{}, map[string]int{}
		for i := range trainers {
			for j := range each {
				name := Name(fmt.Sprint("t", i), j)
				all[name] = At(v, name, "")
				on[all[name]]++
			}
		}
		n := len(v.Members) - trainers
		for node, k := range on {
			if most := (trainers*each + n - 1) / n; k > most {
				t.Errorf("%d of %d samplers are on %s, one of %d", k, trainers*each, node, n)
			}
		}
		return all
	}
	for n := 1; n < 8; n++ {
		less, more, others := places(nodes(n)), places(nodes(n+1)), 0
		for name, at := range more {
			if is := less[name]; is != at && at != fmt.Sprint("s", n) {
				others++
			}
		}
		if others > trainers*each/5 {
			t.Errorf("when node %d comes, %d of %d samplers move to others", n, others, trainers*each)
		}
	}
}

package samplers

import (
	"math"
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
		"first":                  {all, "c:0", "", "a"},
		"second":                 {all, "c:1", "", "b"},
		"third":                  {all, "c:2", "", "h"},
		"after those of c":       {all, "d:0", "", "a"},
		"and next":               {all, "d:1", "", "b"},
		"at home":                {all, "h:1", "", "h"},
		"home drains":            {view(a, leaving), "h:0", "", "h"},
		"put":                    {all, "c:0", "b", "b"},
		"put away from home":     {all, "h:0", "a", "a"},
		"put on one that is not": {all, "c:0", "z", "a"},
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
		"of far too many":        {view(a, b, membership.Info{Node: "c", Samplers: math.MaxInt}, d), "d:1", "", "b"},
		"of fewer than none":     {view(a, b, membership.Info{Node: "c", Samplers: -3}, d), "d:1", "", "b"},
	} {
		if got := At(x.v, x.sampler, x.put); got != x.want {
			t.Errorf("%s: %s, put on %q, is on %q, not %q", name, x.sampler, x.put, got, x.want)
		}
	}
	if n, i, ok := parse(Name("node:with:colons", 7)); !ok || n != "node:with:colons" || i != 7 {
		t.Errorf("parsed %q, %d, %v", n, i, ok)
	}
}

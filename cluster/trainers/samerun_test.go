package trainers

import (
	"errors"
	"strings"
	"testing"
)

// Of nodes of two runs those stay that are more, or further, or come first; the others are
// told what is not the same.
func TestSameRun(t *testing.T) {
	const a, b = `{"seed":1,"stages":["x 1"]}`, `{"seed":1}`
	nodes := []string{"p", "q", "r"}
	for name, x := range map[string]struct {
		ids   []string
		steps []int64
		stays string
	}{
		"more":    {[]string{b, a, a}, []int64{9, 0, 0}, a},
		"further": {[]string{b, a}, []int64{3, 4}, a},
		"first":   {[]string{b, a}, []int64{3, 3}, b},
	} {
		var all []hello
		for i, id := range x.ids {
			all = append(all, hello{Identity: id, Step: x.steps[i]})
		}
		for _, mine := range []string{a, b} {
			err := sameRun(all, mine, nodes)
			if err == nil || errors.Is(err, ErrOtherRun) != (mine != x.stays) {
				t.Errorf("%s: node of %s: %v", name, mine, err)
			}
			if says := map[string]string{a: `and ["x 1"] here`, b: `stages is ["x 1"] at node`}[mine]; err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v; want %q", name, err, says)
			}
		}
	}
	if err := sameRun([]hello{{Identity: a}, {Identity: a}}, a, nodes); err != nil {
		t.Error(err)
	}
	if err := sameRun([]hello{{Identity: "a"}, {Identity: "b"}}, "b", nodes); !errors.Is(err, ErrOtherRun) || !strings.Contains(err.Error(), "node p has another configuration, data or version") {
		t.Error(err)
	}
}

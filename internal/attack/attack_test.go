package attack

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/rng"
)

// A mutator damages what it is given, the same way for the same key, and leaves
// the original alone.
func TestMutators(t *testing.T) {
	for _, n := range []int{1, 2, 7, 511, 5000, 70000} {
		content := make([]byte, n)
		for i := range content {
			content[i] = byte(i*i>>3) | 1
		}
		original := bytes.Clone(content)
		for _, m := range Mutators() {
			different := map[string]bool{}
			for i := range uint64(50) {
				out := m.Apply(rng.New(i), content)
				if !bytes.Equal(content, original) {
					t.Fatalf("%s changes what it was given", m)
				}
				if bytes.Equal(out, content) {
					t.Errorf("%s of %d bytes, key %d: nothing is damaged", m, n, i)
				}
				if !bytes.Equal(out, m.Apply(rng.New(i), content)) {
					t.Errorf("%s of %d bytes, key %d: not twice the same", m, n, i)
				}
				if (m == Truncate) != (len(out) < n) && m != Splice || (m == Extend) != (len(out) > n) && m != Splice {
					t.Errorf("%s makes %d bytes of %d", m, len(out), n)
				}
				different[string(out)] = true
			}
			if n > 500 && m != Zero && len(different) < 8 {
				t.Errorf("%s of %d bytes: %d different results of 50 keys", m, n, len(different))
			}
		}
	}
	if out := Extend.Apply(1, nil); len(out) == 0 {
		t.Error("an empty file is not extended")
	}
	for _, m := range Mutators() {
		m.Apply(1, nil)
	}
}

func TestTally(t *testing.T) {
	var c Tally
	c.Add("store", "bit", Refused)
	c.Add("store", "zero", Refused)
	c.Add("store", "bit", Panic)
	c.Add("config", "bit", Other)
	if c.Total() != 4 || c.Of("store", Refused) != 2 || c.Of("", Panic) != 1 || c.Of("config", Same) != 0 {
		t.Errorf("it counts\n%s", &c)
	}
	want := []string{
		"cases same refused other left memory hang panic",
		"config 1 0 0 1 0 0 0 0", "store 3 0 2 0 0 0 0 1", "(bit) 3 0 1 1 0 0 0 1", "(zero) 1 0 1 0 0 0 0 0", "all 4 0 2 1 0 0 0 1",
	}
	for i, line := range strings.Split(strings.TrimSpace(c.String()), "\n") {
		if got := strings.Join(strings.Fields(line), " "); got != want[i] {
			t.Errorf("line %d is %q, want %q", i, got, want[i])
		}
	}
}

package compute

import (
	"fmt"
	"slices"
	"strings"
)

// NameMap says which tensors of a file are which parameters of a Model: a line 'ours = theirs' for each, '#' before what
// is a remark. 'ours = theirs transposed' exchanges rows and columns, 'ours = 0' is of zeros, in the shape that the model
// needs, '- = theirs' is not read. Other tensors are read by ReadNames.
type NameMap []mappedName

type mappedName struct {
	ours, theirs string
	transposed   bool
}

// ParseNameMap reads a NameMap. Errors name the line.
func ParseNameMap(text string) (NameMap, error) {
	var m NameMap
	line := 0
	for s := range strings.Lines(text) {
		line++
		s, _, _ = strings.Cut(s, "#")
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		ours, theirs, ok := strings.Cut(s, "=")
		words := strings.Fields(theirs)
		if ours = strings.TrimSpace(ours); !ok || ours == "" || len(words) == 0 || len(words) > 2 || len(words) == 2 && words[1] != "transposed" || ours == "-" && words[0] == "0" {
			return nil, fmt.Errorf("line %d: %q: must be like 'convs.0.lin.weight = conv_in.w' or 'convs.0.lin.weight = conv_in.w transposed', 'convs.0.bias = 0', or '- = unused'", line, s)
		}
		if ours != "-" && slices.ContainsFunc(m, func(x mappedName) bool { return x.ours == ours }) {
			return nil, fmt.Errorf("line %d: %s was said before", line, ours)
		}
		m = append(m, mappedName{ours, words[0], len(words) == 2})
	}
	return m, nil
}

// Read returns tensors under the names of a Model. The error names what m says and the tensors do not have.
func (m NameMap) Read(tensors []RawTensor) ([]RawTensor, error) {
	named := map[string]RawTensor{}
	for _, t := range tensors {
		named[t.Name] = t
	}
	var out, rest []RawTensor
	for _, x := range m {
		t, ok := named[x.theirs]
		switch {
		case x.theirs == "0":
			t = RawTensor{DType: "F32"} // Layout.Unpack knows how large
		case !ok:
			return nil, fmt.Errorf("compute: %w: the map says %s = %s, and there is no tensor %[3]q", ErrNames, x.ours, x.theirs)
		case x.ours == "-":
			continue
		case x.transposed:
			t = transposed(t)
		}
		t.Name, t.from = x.ours, x.theirs
		out = append(out, t)
	}
	for _, t := range tensors {
		if !slices.ContainsFunc(m, func(x mappedName) bool { return x.theirs == t.Name }) {
			rest = append(rest, t)
		}
	}
	if rest == nil {
		return out, nil
	}
	// With those that the map names, which say where in the order the others are.
	all := append(slices.DeleteFunc(slices.Clone(out), func(t RawTensor) bool { return t.anyZeros() }), rest...)
	read, err := ReadNames(all)
	if err != nil {
		return append(out, rest...), nil // Layout.Unpack says which are not known
	}
	for _, t := range out {
		if t.anyZeros() {
			read = append(read, t)
		}
	}
	return read, nil
}

// Write returns tensors, which have a Model's names, under those that m says.
func (m NameMap) Write(tensors []RawTensor) ([]RawTensor, error) {
	out := slices.Clone(tensors)
	for i := range out {
		k := slices.IndexFunc(m, func(x mappedName) bool { return x.ours == out[i].Name && x.theirs != "0" })
		if k < 0 {
			continue
		}
		if m[k].transposed {
			out[i] = transposed(out[i])
		}
		out[i].Name = m[k].theirs
	}
	for _, x := range m {
		if x.ours != "-" && !slices.ContainsFunc(tensors, func(t RawTensor) bool { return t.Name == x.ours }) {
			return nil, fmt.Errorf("compute: %w: the map says %s = %s, and the model has no parameter %[2]q", ErrNames, x.ours, x.theirs)
		}
	}
	return out, nil
}

// anyZeros reports whether t stands for zeros of the shape that is needed, see NameMap.
func (t *RawTensor) anyZeros() bool { return t.from == "0" && t.Data == nil }

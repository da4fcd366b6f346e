package compute

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// integer reports whether files hold t as one I64: PyTorch's count of batches.
func (t *Tensor) integer() bool { return t.Statistic && len(t.Shape) == 0 }

// Pack returns params as one tensor per parameter, named as the layout names
// them with prefix before it.
func (l *Layout) Pack(prefix string, params []float32) []RawTensor {
	tensors := make([]RawTensor, len(l.tensors))
	for i, t := range l.tensors {
		x := params[t.Offset : t.Offset+t.Len]
		if t.integer() {
			tensors[i] = RawTensor{Name: prefix + t.Name, DType: "I64", Shape: []int{}, Data: binary.LittleEndian.AppendUint64(nil, uint64(int64(x[0])))}
			continue
		}
		tensors[i] = Float32Tensor(prefix+t.Name, t.Shape, x)
	}
	return tensors
}

// Unpack is the reverse of Pack: it returns the flat vector of the tensors
// whose names begin with prefix, and reports every tensor that is missing, that
// the layout does not know or that has another shape. Tensors with other
// prefixes are left alone.
func (l *Layout) Unpack(prefix string, tensors []RawTensor) ([]float32, error) {
	params := make([]float32, l.size)
	found := make([]bool, len(l.tensors))
	var bad []string
	for i := range tensors {
		name, ours := strings.CutPrefix(tensors[i].Name, prefix)
		if !ours {
			continue
		}
		k, known := l.byName[name]
		if !known {
			bad = append(bad, told(&tensors[i])+" is not a parameter of this model")
			continue
		}
		found[k] = true
		t := l.tensors[k]
		if tensors[i].anyZeros() {
			continue
		}
		if !slices.Equal(t.Shape, tensors[i].Shape) {
			bad = append(bad, fmt.Sprintf("%s has shape %v; this model needs %v%s", called(&tensors[i]), tensors[i].Shape, t.Shape, otherShape(&t, tensors[i].Shape)))
			continue
		}
		if t.integer() && tensors[i].DType == "I64" {
			params[t.Offset] = float32(int64(binary.LittleEndian.Uint64(tensors[i].Data)))
			continue
		}
		if err := tensors[i].float32s(params[t.Offset : t.Offset+t.Len]); err != nil {
			bad = append(bad, err.Error())
		}
	}
	for k, t := range l.tensors {
		if !found[k] {
			bad = append(bad, fmt.Sprintf("%q is missing, of shape %v", prefix+t.Name, t.Shape))
		}
	}
	if bad != nil {
		return nil, fmt.Errorf("parameters do not fit the model: %s", strings.Join(bad, "; "))
	}
	return params, nil
}

// CheckFinite reports the first parameter that is NaN or infinite, by the name of
// its tensor and its index there.
func (l *Layout) CheckFinite(params []float32) error {
	for _, t := range l.tensors {
		for i, x := range params[t.Offset : t.Offset+t.Len] {
			if x-x != 0 {
				return fmt.Errorf("tensor %q is %v at index %v", t.Name, x, indexOf(i, t.Shape))
			}
		}
	}
	return nil
}

// indexOf returns where element i of a tensor of a shape is.
func indexOf(i int, shape []int) []int {
	at := make([]int, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		at[d], i = i%shape[d], i/shape[d]
	}
	return at
}

// called names a tensor as its file does, and the parameter that it was taken for.
func called(t *RawTensor) string {
	if t.from == "" || t.from == t.Name {
		return fmt.Sprintf("%q", t.Name)
	}
	return fmt.Sprintf("%q (%s)", t.from, t.Name)
}

// otherShape says what may be behind a shape that is not t's.
func otherShape(t *Tensor, shape []int) string {
	switch {
	case len(shape) == 2 && len(t.Shape) == 2 && shape[0] == t.Shape[1] && shape[1] == t.Shape[0]:
		return ": it is transposed, which a map says by 'transposed'"
	case strings.HasSuffix(t.Name, ".bias") && len(shape) == 1 && len(t.Shape) == 1 && shape[0] > t.Shape[0] && shape[0]%t.Shape[0] == 0:
		return ": the heads of the output layer lie side by side (concat), and here their mean is taken"
	}
	return ""
}

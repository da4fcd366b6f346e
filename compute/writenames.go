package compute

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// NameStyles are what WriteNames knows: pyg, the names of PyG's own models and of gnnactor; conv, those of a module whose layers
// are called conv1, norm1 and lin1; dgl, those of DGL's layers in a list called layers.
func NameStyles() []string { return []string{"pyg", "conv", "dgl"} }

var ourLayer = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(convs|norms|decoder\.lins)\.(\d+)\.(?:module\.)?(.*)$`)
})

// WriteNames returns the tensors of a model under names of the style, and in the shapes of its layers: DGL's GraphConv has its weight
// transposed, its GATConv a bias for each head, its GATv2Conv its bias in those of the products.
func WriteNames(style string, spec Spec, tensors []RawTensor) ([]RawTensor, error) {
	if style == "pyg" {
		return tensors, nil
	}
	if !slices.Contains(NameStyles(), style) {
		return nil, fmt.Errorf("compute: names %q are not one of %s", style, strings.Join(NameStyles(), ", "))
	}
	if style == "dgl" && spec.Model == "mixhop" {
		return nil, errors.New("compute: DGL has no layer like mixhop's; take the names pyg or conv")
	}
	if style == "dgl" && (spec.concatenates() || spec.EdgeDim > 0) {
		return nil, errors.New("compute: DGL has no layer like this model's, which concatenates or reads edge features; take the names pyg or conv")
	}
	var out []RawTensor
	biases := map[string][]float32{}
	for _, t := range tensors {
		if x := ourLayer().FindStringSubmatch(t.Name); x != nil && x[1] == "convs" && x[3] == "bias" && spec.Model == "gatv2" {
			b, err := t.Float32s()
			if err != nil {
				return nil, err
			}
			biases[x[2]] = b
		}
	}
	for _, t := range tensors {
		x := ourLayer().FindStringSubmatch(t.Name)
		if x == nil {
			out = append(out, t)
			continue
		}
		i, _ := strconv.Atoi(x[2]) // the pattern's digits
		leaf := x[3]
		if style == "conv" {
			t.Name = fmt.Sprintf("%s%d.%s", map[string]string{"convs": "conv", "norms": "norm", "decoder.lins": "lin"}[x[1]], i+1, leaf)
			out = append(out, t)
			continue
		}
		if x[1] != "convs" {
			t.Name = fmt.Sprintf("%s.%d.%s", strings.TrimPrefix(x[1], "decoder."), i, leaf)
			out = append(out, t)
			continue
		}
		var err error
		output := i == spec.Layers-1 && !spec.head()
		if leaf, t, err = dglTensor(&spec, leaf, t, output, biases[x[2]]); err != nil {
			return nil, err
		}
		if leaf != "" {
			t.Name = fmt.Sprintf("layers.%d.%s", i, leaf)
			out = append(out, t)
		}
	}
	return out, nil
}

// dglTensor returns what DGL's layer calls a parameter, and its value there; "" if it has none. after is the bias of a GATv2
// layer, which DGL's lacks.
func dglTensor(s *Spec, leaf string, t RawTensor, output bool, after []float32) (string, RawTensor, error) {
	heads := s.headsOf(output)
	name, known := map[string]map[string]string{
		"gcn":   {"lin.weight": "weight", "bias": "bias"},
		"sage":  {"lin_l.weight": "fc_neigh.weight", "lin_l.bias": "fc_self.bias", "lin_r.weight": "fc_self.weight"},
		"gat":   {"lin.weight": "fc.weight", "att_src": "attn_l", "att_dst": "attn_r", "bias": "bias"},
		"gatv2": {"att": "attn", "bias": "", "lin_l.weight": "fc_src.weight", "lin_l.bias": "fc_src.bias", "lin_r.weight": "fc_dst.weight", "lin_r.bias": "fc_dst.bias"},
		"gin":   {"eps": "eps"},
	}[s.Model][leaf]
	if s.Model == "gin" && !known { // a Sequential of linear layer, norm, activation, linear layer
		inner := strings.TrimPrefix(leaf, "nn.")
		second := 2
		if s.Norm != "" {
			second = 3
		}
		for _, x := range []struct {
			ours string
			at   int
		}{{"lins.0.", 0}, {"norms.0.module.", 1}, {"norms.0.", 1}, {"lins.1.", second}} {
			if rest, ok := strings.CutPrefix(inner, x.ours); ok {
				return fmt.Sprintf("apply_func.%d.%s", x.at, rest), t, nil
			}
		}
	}
	switch {
	case s.Model == "gcn" && leaf == "lin.weight":
		t = transposed(t)
	case s.Model == "gat" && leaf == "bias" && output:
		b, err := t.Float32s()
		if err != nil {
			return "", t, err
		}
		b = slices.Repeat(b, heads)
		t = Float32Tensor("", []int{len(b)}, b)
	case s.Model == "gatv2" && strings.HasSuffix(leaf, ".bias"): // what is added to values is taken from scores
		b, err := t.Float32s()
		if err != nil {
			return "", t, err
		}
		for i := range b {
			if leaf == "lin_l.bias" {
				b[i] += after[i%len(after)]
			} else {
				b[i] -= after[i%len(after)]
			}
		}
		t = Float32Tensor("", t.Shape, b)
	}
	return name, t, nil
}

package compute

import "fmt"

// GuessSpec returns what tensors under a Model's names say of it: all but the activation, the aggregation and what only
// training depends on. A layer more or less of the decoder is taken for one of jumping knowledge if it is as wide as all layers.
func GuessSpec(tensors []RawTensor) (Spec, error) {
	at := map[string][]int{}
	for _, t := range tensors {
		at[t.Name] = t.Shape
	}
	dim := func(name string, i int) int {
		if s := at[name]; i < len(s) {
			return s[i]
		}
		return 0
	}
	s := Spec{}
	for dim(fmt.Sprintf("decoder.lins.%d.weight", s.Decoder), 0) > 0 {
		s.Decoder++
	}
	head := at["lin.weight"] != nil || s.Decoder > 0
	for i := 0; ; i++ {
		c := fmt.Sprintf("convs.%d.", i)
		in, out := 0, 0
		switch att := at[c+"att_src"]; {
		case len(att) == 3 || len(at[c+"att"]) == 3:
			s.Model, in = "gat", dim(c+"lin.weight", 1)
			if att == nil {
				s.Model, att, in = "gatv2", at[c+"att"], dim(c+"lin_l.weight", 1)
			}
			if i == 0 {
				s.Heads, s.EdgeDim = att[1], dim(c+"lin_edge.weight", 1)
			}
			out, s.OutHeads = att[1]*att[2], att[1]
		case dim(c+"nn.lins.0.weight", 1) > 0:
			s.Model, in, out = "gin", dim(c+"nn.lins.0.weight", 1), dim(c+"nn.lins.0.weight", 0)
			if at[c+"nn.norms.0.module.weight"] != nil {
				s.Norm = "batch"
			}
		case dim(c+"lins.0.weight", 1) > 0:
			s.Model, in, out = "mixhop", dim(c+"lins.0.weight", 1), dim(c+"lins.0.weight", 0)
			for s.Hops = 0; at[fmt.Sprintf("%slins.%d.weight", c, s.Hops+1)] != nil; {
				s.Hops++
			}
		case dim(c+"lin_l.weight", 1) > 0:
			s.Model, in, out = "sage", dim(c+"lin_l.weight", 1), dim(c+"lin_l.weight", 0)
			if at[c+"lin_r.bias"] != nil {
				s.Combine, out = "concat", 2*out
			}
		case dim(c+"lin.weight", 1) > 0:
			s.Model, in, out = "gcn", dim(c+"lin.weight", 1), dim(c+"lin.weight", 0)
		}
		if out == 0 {
			break
		}
		if in == 0 {
			return s, fmt.Errorf("compute: %w: layer %d has attention, and no weight beside it", ErrNames, i)
		}
		if s.Layers++; i == 0 {
			s.InDim, s.Hidden = in, out
		}
		if s.OutDim = out; s.OutHeads > 0 && !head {
			s.OutDim = out / s.OutHeads
		}
	}
	if s.Layers == 0 {
		return s, fmt.Errorf("compute: %w: there is no graph convolution among them", ErrNames)
	}
	switch {
	case at["norms.0.module.weight"] != nil:
		s.Norm = "batch"
	case at["norms.0.weight"] != nil:
		s.Norm = "layer"
	}
	if s.OutHeads == s.Heads || head {
		s.OutHeads = 0
	}
	if at["predictor.lins.0.weight"] != nil {
		s.LinkDecoder = "mlp"
	}
	if head {
		wide := s.Hidden * s.widening()
		first := "lin.weight"
		if s.OutDim = dim(first, 0); s.Decoder > 0 {
			first, s.OutDim = "decoder.lins.0.weight", dim(fmt.Sprintf("decoder.lins.%d.weight", s.Decoder-1), 0)
		}
		switch {
		case s.Layers > 1 && dim(first, 1) == wide*s.Layers:
			s.JumpingKnowledge = "cat"
		case s.Decoder == 0 && s.Combine == "" && s.Model != "mixhop":
			s.Decoder = 1
		}
	}
	return s, nil
}

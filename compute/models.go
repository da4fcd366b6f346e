package compute

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// Models returns the names of the models that take one block per layer, sorted.
// There is one more, mixhop, which takes one per layer and hop (Model.Blocks).
func Models() []string { return []string{"gat", "gatv2", "gcn", "gin", "sage"} }

// Spec says what a model is. It is part of a run's identity.
type Spec struct {
	Model   string  `json:"model"`   // a name out of Models, or mixhop
	Layers  int     `json:"layers"`  // message-passing layers
	Hidden  int     `json:"hidden"`  // width of the layers between; mixhop: of each power
	InDim   int     `json:"in_dim"`  // input features per node
	OutDim  int     `json:"out_dim"` // classes
	Dropout float64 `json:"dropout"` // probability of dropping a hidden value in training
	// InputDropout is the same for input features.
	InputDropout float64 `json:"input_dropout"`

	// Aggregation is sage's reduction: mean (also if empty), max or sum.
	Aggregation string `json:"aggregation,omitempty"`
	// Combine is how sage joins a node's own part and its neighbours': add (also
	// if empty), or concat, side by side, each half of Hidden wide. A linear layer
	// then follows the convolutions, so that every class sees both.
	Combine string `json:"combine,omitempty"`
	// Hops is how far a layer of mixhop reaches: the powers of the adjacency
	// matrix are 0, 1, ..., Hops. 0: 2.
	Hops int `json:"hops,omitempty"`
	// GCNNorm says where the degrees in the coefficients of gcn and mixhop come
	// from in training: graph (also if empty) scales the whole graph's to the
	// sampled neighbours, without bias; block counts the block's own, as PyG
	// does on a loader's batch. Inference takes the graph's.
	GCNNorm string `json:"gcn_norm,omitempty"`
	// TrainEps makes gin's ε a parameter that is learnt.
	TrainEps bool `json:"train_eps,omitempty"`
	// Heads is the number of attention heads of gat and gatv2. Hidden layers
	// put them side by side, Hidden/Heads columns each; the output layer takes
	// their mean. 0: 1.
	Heads int `json:"heads,omitempty"`
	// OutHeads is the number of heads of the output layer; 0: Heads.
	OutHeads int `json:"output_heads,omitempty"`
	// EdgeDim is the number of features per edge that gat's scores read; 0: it
	// reads none.
	EdgeDim int `json:"edge_dim,omitempty"`
	// NoLoops keeps nodes of gat and gatv2 from attending to themselves, but
	// for edges of the graph that say so (PyG: add_self_loops=False).
	NoLoops bool `json:"no_loops,omitempty"`
	// AttentionDropout is the probability of dropping an attention weight in
	// training.
	AttentionDropout float64 `json:"attention_dropout,omitempty"`
	// WeightAttention multiplies an entry's share in the softmax of gat and
	// gatv2 by the sampler's weight, so that attention over all neighbours is
	// estimated; without it attention ignores those weights.
	WeightAttention bool `json:"weight_attention,omitempty"`
	// ScaleSums multiplies what sage with sums and gin receive from sampled
	// neighbours by d(v)/|S(v)|, so that the sum over all neighbours is
	// estimated without bias.
	ScaleSums bool `json:"scale_sums,omitempty"`
	// Activation follows every convolution but the last: relu (also if empty),
	// leaky-relu (slope 0.01) or elu.
	Activation string `json:"activation,omitempty"`
	// Norm is what normalises every convolution's result before its
	// activation: empty (nothing), layer (layer norm of each node) or batch
	// (batch norm over the micro-batch's nodes; in inference, over what
	// training saw). In gin it is in the convolutions' MLPs, too.
	Norm string `json:"norm,omitempty"`
	// Residual adds to every convolution's result its input, where both have
	// one width.
	Residual bool `json:"residual,omitempty"`
	// JumpingKnowledge makes the output a linear layer over the results of
	// all convolutions: cat (side by side) or max (element by element); last
	// takes the last one alone. Empty: the last convolution is the output.
	JumpingKnowledge string `json:"jumping_knowledge,omitempty"`
	// Decoder is the number of linear layers, with ReLU between, that follow
	// the convolutions, which then all have width Hidden. 0: none, but for one
	// with JumpingKnowledge, mixhop and concatenating sage.
	Decoder int `json:"decoder,omitempty"`
	// LinkDecoder makes a score of two nodes' outputs in link prediction: dot (also
	// if empty), their dot product, or mlp, two linear layers with the activation
	// between, OutDim wide, of their product element by element.
	LinkDecoder string `json:"link_decoder,omitempty"`

	bare   bool // the last convolution is the output, whatever the model: golden files
	concat bool // of heads in the output layer, too: golden files
}

// Validate reports every problem of s at once.
func (s *Spec) Validate() error { return s.validate(false) }

func (s *Spec) validate(custom bool) error {
	var bad []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	oneOf := func(name, v string, allowed ...string) {
		check(v == "" || slices.Contains(allowed, v), "%s %q is not one of %s", name, v, strings.Join(allowed, ", "))
	}
	models := append(Models(), "mixhop")
	known := custom || slices.Contains(models, s.Model)
	check(known, "model %q is not one of %s", s.Model, strings.Join(models, ", "))
	oneOf("aggregation", s.Aggregation, "mean", "max", "sum")
	oneOf("combine", s.Combine, "add", "concat")
	check(!s.concatenates() || s.Hidden%2 == 0, "hidden width %d is odd; combine concat gives a node and its neighbours half each", s.Hidden)
	oneOf("link decoder", s.LinkDecoder, "dot", "mlp")
	oneOf("norm", s.Norm, "layer", "batch")
	oneOf("activation", s.Activation, "relu", "leaky-relu", "elu")
	oneOf("gcn norm", s.GCNNorm, "graph", "block")
	oneOf("jumping knowledge", s.JumpingKnowledge, "cat", "max", "last")
	check(s.Layers >= 1, "%d layers; there must be at least 1", s.Layers)
	check(s.Hidden >= 1 || s.Layers == 1 && !s.head(), "hidden width is %d; it must be at least 1", s.Hidden)
	check(s.InDim >= 1, "nodes have %d input features; there must be at least 1", s.InDim)
	check(s.OutDim >= 1, "there are %d classes; there must be at least 1", s.OutDim)
	check(!custom || s.Model != "" && !slices.Contains(models, s.Model), "an own model needs a name of its own, not %q", s.Model)
	check(s.Decoder >= 0, "%d decoder layers; there must be 0 or more", s.Decoder)
	check(s.Hops >= 0, "%d hops; there must be at least 1, or 0 for the default of 2", s.Hops)
	check(s.Heads >= 0, "%d heads; there must be at least 1, or 0 for the default of 1", s.Heads)
	check(s.OutHeads >= 0, "%d output heads; there must be at least 1, or 0 for as many as heads", s.OutHeads)
	check(s.OutHeads == 0 || !s.head(), "%d output heads, and linear layers make the output; leave one of them out", s.OutHeads)
	attends := s.Model == "gat" || s.Model == "gatv2"
	check(!attends || s.Heads < 1 || s.Hidden%s.Heads == 0 || s.Layers == 1 && !s.head(), "hidden width %d is not a multiple of %d heads", s.Hidden, s.Heads)
	for _, o := range options {
		read := slices.ContainsFunc(s.kinds(custom), func(k string) bool { return slices.Contains(o.kinds, k) })
		check(!o.given(s) || read || !known, "%s does nothing in model %q: leave it out, or choose %s", o.name, s.Model, o.readers)
	}
	check(s.EdgeDim >= 0, "%d features per edge; there must be 0 or more", s.EdgeDim)
	check(s.EdgeDim == 0 || s.Model == "gat" || custom, "model %q does not read edge features; gat does", s.Model)
	check(s.AttentionDropout >= 0 && s.AttentionDropout < 1, "attention dropout %v is not in [0, 1)", s.AttentionDropout)
	check(s.Dropout >= 0 && s.Dropout < 1, "dropout %v is not in [0, 1)", s.Dropout)
	check(s.InputDropout >= 0 && s.InputDropout < 1, "input dropout %v is not in [0, 1)", s.InputDropout)
	if bad != nil {
		return errors.New("compute: " + strings.Join(bad, "; "))
	}
	return nil
}

// options are what some models read and the others would silently ignore: only
// values that are not the default count as given. What own layers can see of a
// Spec is ScaleSums, by Context.SumWeights.
var options = []struct {
	name    string
	given   func(s *Spec) bool
	kinds   []string
	readers string // in words, for the message
}{
	{"aggregation other than mean", func(s *Spec) bool { return s.Aggregation != "" && s.Aggregation != "mean" }, []string{"sage"}, "sage"},
	{"combine concat", func(s *Spec) bool { return s.Combine != "" && s.Combine != "add" }, []string{"sage"}, "sage"},
	{"a number of hops", func(s *Spec) bool { return s.hops() != 2 }, []string{"mixhop"}, "mixhop"},
	{"gcn norm block", func(s *Spec) bool { return s.GCNNorm != "" && s.GCNNorm != "graph" }, []string{"gcn", "mixhop"}, "gcn or mixhop"},
	{"learning epsilon", func(s *Spec) bool { return s.TrainEps }, []string{"gin"}, "gin"},
	{"a number of heads", func(s *Spec) bool { return s.heads() != 1 }, attentive, "gat or gatv2"},
	{"a number of output heads", func(s *Spec) bool { return s.OutHeads != 0 }, attentive, "gat or gatv2"},
	{"leaving out loops", func(s *Spec) bool { return s.NoLoops }, attentive, "gat or gatv2"},
	{"attention dropout", func(s *Spec) bool { return s.AttentionDropout != 0 }, attentive, "gat or gatv2"},
	{"weighting attention", func(s *Spec) bool { return s.WeightAttention }, attentive, "gat or gatv2"},
	{"scaling sums", func(s *Spec) bool { return s.ScaleSums }, []string{"gin", "sage with sum", ownLayers}, "gin, or sage with aggregation sum"},
}

var attentive = []string{"gat", "gatv2"}

// ownLayers stands for the caller's model in options.
const ownLayers = "own"

// kinds is what options calls the model.
func (s *Spec) kinds(custom bool) []string {
	switch {
	case custom:
		return []string{ownLayers}
	case s.Model == "sage" && s.Aggregation == "sum":
		return []string{"sage", "sage with sum"}
	}
	return []string{s.Model}
}

func (s *Spec) activation() cpu.Activation {
	switch s.Activation {
	case "leaky-relu":
		return cpu.LeakyReLU
	case "elu":
		return cpu.ELU
	}
	return cpu.ReLU
}

// head reports whether a linear layer follows the convolutions.
func (s *Spec) head() bool {
	return !s.bare && (s.JumpingKnowledge != "" || s.Model == "mixhop" || s.concatenates() || s.Decoder > 0)
}

func (s *Spec) concatenates() bool { return s.Model == "sage" && s.Combine == "concat" }

// widening is how many times as wide as Hidden a convolution's result is.
func (s *Spec) widening() int {
	if s.Model == "mixhop" {
		return s.hops() + 1
	}
	return 1
}

func (s *Spec) hops() int {
	if s.Hops == 0 {
		return 2
	}
	return s.Hops
}

func (s *Spec) heads() int { return max(s.Heads, 1) }

// headsOf is how many heads a convolution has, the output layer or another.
func (s *Spec) headsOf(output bool) int {
	if output && s.OutHeads > 0 {
		return s.OutHeads
	}
	return s.heads()
}

func (s *Spec) reduce() cpu.Reduce {
	switch s.Aggregation {
	case "max":
		return cpu.Max
	case "sum":
		return cpu.Sum
	}
	return cpu.Mean
}

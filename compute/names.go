package compute

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Files of other programs have their authors' names: conv1.lin_l.weight, module.convs.0.lin_l.weight,
// layers.0.fc_neigh.weight. ReadNames finds out which parameter of a Model each tensor is, by what the
// layers of PyG and DGL call their own, and by the numbers before it; a NameMap says so where that is
// not enough. WriteNames is the reverse.

// foreignLeaf is what PyG's and DGL's layers call their parameters, after the author's name of the layer.
var foreignLeaf = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:(.*?)\.)??((?:lin|lin_l|lin_r|lin_src|lin_dst|lin_edge|fc|fc_self|fc_neigh|fc_src|fc_dst|fc_edge)\.(?:weight|bias)|att|att_src|att_dst|att_edge|att_l|att_r|attn|attn_l|attn_r|attn_e|eps|lins\.\d+\.weight|weight|bias|running_mean|running_var|num_batches_tracked)$`)
})

// leaves are gnnactor's names, PyG's of today, for those of foreignLeaf in a layer of each kind.
var leaves = map[string]map[string]string{
	"gcn":    {"lin.weight": "lin.weight", "weight": "lin.weight", "bias": "bias"},
	"sage":   {"lin_l.weight": "lin_l.weight", "lin_l.bias": "lin_l.bias", "lin_r.weight": "lin_r.weight", "lin_r.bias": "lin_r.bias", "fc_neigh.weight": "lin_l.weight", "fc_neigh.bias": "lin_l.bias", "fc_self.weight": "lin_r.weight", "fc_self.bias": "lin_l.bias", "bias": "lin_l.bias"},
	"gat":    {"lin.weight": "lin.weight", "lin_src.weight": "lin.weight", "lin_l.weight": "lin.weight", "fc.weight": "lin.weight", "att_src": "att_src", "att_dst": "att_dst", "att_l": "att_src", "att_r": "att_dst", "attn_l": "att_src", "attn_r": "att_dst", "lin_edge.weight": "lin_edge.weight", "att_edge": "att_edge", "bias": "bias"},
	"gatv2":  {"att": "att", "attn": "att", "lin_l.weight": "lin_l.weight", "lin_l.bias": "lin_l.bias", "lin_r.weight": "lin_r.weight", "lin_r.bias": "lin_r.bias", "fc_src.weight": "lin_l.weight", "fc_src.bias": "lin_l.bias", "fc_dst.weight": "lin_r.weight", "fc_dst.bias": "lin_r.bias", "bias": "bias"},
	"gin":    {"eps": "eps"},
	"mixhop": {"bias": "bias"}, // and lins.0.weight, ...
}

// convLeaf is the name of a layer's parameter that only layers of a kind have; those before go first.
var convLeaf = []struct {
	kind string
	any  []string
}{
	{"gin", []string{"eps"}},
	{"gatv2", []string{"att", "attn"}},
	{"gat", []string{"att_src", "att_dst", "att_l", "att_r", "attn_l", "attn_r"}},
	{"mixhop", []string{"lins.0.weight"}},
	{"sage", []string{"lin_l.weight", "lin_r.weight", "fc_neigh.weight", "fc_self.weight"}},
	{"gcn", []string{"lin.weight", "weight"}},
}

// layerGroup is the tensors of one layer of a file, by their names in it.
type layerGroup struct {
	name string
	t    map[string]RawTensor
}

// ErrNames is wrapped where it cannot be told which parameter a tensor is.
var ErrNames = errors.New("names of tensors are not understood")

// ReadNames returns tensors under the names that a Model has for them, and with its shapes: those of PyG's GCNConv,
// SAGEConv, GATConv, GATv2Conv, GINConv and MixHopConv and of DGL's GraphConv, SAGEConv, GATConv, GATv2Conv and GINConv, of the
// norms between and the linear layers after them, under any names that have numbers in order of the layers. Layers without a bias get one of zeros. Tensors
// that have a Model's names already keep them. The error wraps ErrNames and says which tensor, of which shape, is not
// understood; the data of tensors is shared where it need not change.
func ReadNames(tensors []RawTensor) ([]RawTensor, error) {
	for _, t := range tensors {
		if t.NumElements() == 0 {
			return nil, fmt.Errorf("compute: %w: %s is empty", ErrNames, told(&t))
		}
	}
	r := nameReader{convs: map[string]*layerGroup{}}
	if err := r.group(tensors); err != nil {
		return nil, fmt.Errorf("compute: %w: %w", ErrNames, err)
	}
	if err := r.translate(); err != nil {
		return nil, fmt.Errorf("compute: %w: %w", ErrNames, err)
	}
	return r.out, nil
}

type nameReader struct {
	convs map[string]*layerGroup // by what precedes the leaves
	lins  []*layerGroup          // linear layers
	norms []*layerGroup
	out   []RawTensor
}

// group sorts the tensors by the layer that they are of.
func (r *nameReader) group(tensors []RawTensor) error {
	names, strip := make([]string, len(tensors)), 0
	for i, t := range tensors {
		names[i] = strings.ReplaceAll(t.Name, "_orig_mod.", "") // torch.compile's
	}
	for len(names) > 0 { // module., model.: what all have in common
		first, _, more := strings.Cut(names[0][strip:], ".")
		all := more && !slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n[strip:], first+".") })
		if !all {
			break
		}
		strip += len(first) + 1
	}
	eps := map[string]bool{}
	for i := range names {
		names[i] = names[i][strip:]
		if base, ok := strings.CutSuffix("."+names[i], ".eps"); ok {
			eps[strings.TrimPrefix(base, ".")] = true
		}
	}
	pairs := map[string]*layerGroup{} // weight with a bias or more, which may be a linear layer, a norm or DGL's GraphConv
	for i, t := range tensors {
		name := names[i]
		if strings.HasPrefix(name, "predictor.lins.") { // the decoder of links
			t.Name, t.from = name, tensors[i].Name
			r.out = append(r.out, t)
			continue
		}
		if base, inner, ok := innerMLP(name, eps); ok {
			r.conv(base).t[inner] = t
			continue
		}
		m := foreignLeaf().FindStringSubmatch(name)
		if m == nil {
			return fmt.Errorf("%s is of no layer that is known", told(&t))
		}
		base, leaf := m[1], m[2]
		last := base[strings.LastIndexByte(base, '.')+1:]
		switch {
		case leaf == "weight" || leaf == "bias" || strings.HasPrefix(leaf, "running_") || leaf == "num_batches_tracked":
			groupOf(pairs, base).t[leaf] = t
		case strings.HasPrefix(leaf, "lins."), last == "decoder" && strings.HasPrefix(leaf, "lin"):
			// MixHopConv's have no bias; a list of linear layers has.
			if k := slices.Index(names, strings.TrimSuffix(name, "weight")+"bias"); k >= 0 {
				groupOf(pairs, strings.TrimSuffix(name, ".weight")).t["weight"] = t
			} else {
				r.conv(base).t[leaf] = t
			}
		case (leaf == "lin.weight" || leaf == "fc.weight") && (slices.Contains(names, strings.TrimSuffix(name, "weight")+"bias") || base == "" && len(names) > 1 && !slices.ContainsFunc(names, func(n string) bool { return !strings.Contains(n, ".") })):
			groupOf(pairs, strings.TrimSuffix(name, ".weight")).t["weight"] = t
		case leaf == "lin.bias" || leaf == "fc.bias":
			groupOf(pairs, strings.TrimSuffix(name, ".bias")).t["bias"] = t
		default:
			r.conv(base).t[leaf] = t
		}
	}
	return r.sortPairs(pairs)
}

// innerMLP says which of GIN's layers name is inside of, and what it is called there.
func innerMLP(name string, eps map[string]bool) (base, inner string, ok bool) {
	for base := range eps {
		prefix := base + "."
		if base == "" {
			prefix = ""
		}
		if rest, under := strings.CutPrefix(name, prefix); under && rest != "eps" && strings.Contains(rest, ".") && (base != "" || len(eps) == 1) {
			return base, rest, true
		}
	}
	return "", "", false
}

func groupOf(groups map[string]*layerGroup, name string) *layerGroup {
	g := groups[name]
	if g == nil {
		g = &layerGroup{name, map[string]RawTensor{}}
		groups[name] = g
	}
	return g
}

func (r *nameReader) conv(name string) *layerGroup { return groupOf(r.convs, name) }

// sortPairs tells what weights with biases are: parts of convolutions, norms, linear layers or DGL's GraphConv.
func (r *nameReader) sortPairs(pairs map[string]*layerGroup) error {
	stem := func(name string) string { return strings.TrimRight(name, "0123456789") }
	graphConvs, linear := map[string]bool{}, map[string]bool{} // by what precedes the number
	var open []*layerGroup
	explicit := len(r.convs) > 0
	for _, name := range ordered(pairs) {
		g := pairs[name]
		w, weighted := g.t["weight"]
		b, biased := g.t["bias"]
		switch {
		case r.convs[name] != nil && !weighted && biased && len(g.t) == 1:
			r.convs[name].t["bias"] = b
		case !weighted:
			for _, t := range g.t {
				return fmt.Errorf("%s has no weight beside it", told(&t))
			}
		case len(w.Shape) == 1:
			r.norms = append(r.norms, g)
		case len(w.Shape) != 2:
			return fmt.Errorf("%s is of no layer that is known", told(&w))
		case explicit || biased && len(b.Shape) == 1 && b.Shape[0] == w.Shape[0] && w.Shape[0] != w.Shape[1]:
			linear[stem(name)] = true
			r.lins = append(r.lins, g)
		case biased && len(b.Shape) == 1 && b.Shape[0] == w.Shape[1] && w.Shape[0] != w.Shape[1]:
			graphConvs[stem(name)] = true
			r.convs[name] = g
		default:
			open = append(open, g)
		}
	}
	for _, g := range open { // a square one is what others of its list are
		w := g.t["weight"]
		switch s := stem(g.name); {
		case graphConvs[s] && !linear[s]:
			r.convs[g.name] = g
		case linear[s] && !graphConvs[s]:
			r.lins = append(r.lins, g)
		default:
			return fmt.Errorf("%s is a linear layer or a graph convolution: its shape does not tell", told(&w))
		}
	}
	for _, g := range r.lins {
		parent := ""
		if i := strings.LastIndexByte(g.name, '.'); i >= 0 {
			parent = g.name[:i]
		}
		if w := g.t["weight"]; r.convs[parent] != nil { // a part of a convolution: fc_pool, res_fc
			return fmt.Errorf("%s is of no layer that is known", told(&w))
		}
	}
	if len(r.convs) == 0 {
		return errors.New("there is no graph convolution among them")
	}
	return nil
}

// told names a tensor in an error.
func told(t *RawTensor) string {
	name := t.Name
	if t.from != "" {
		name = t.from
	}
	return fmt.Sprintf("%q of shape %v", name, t.Shape)
}

// put adds a tensor under its name in a Model.
func (r *nameReader) put(name string, t RawTensor) {
	if t.from == "" {
		t.from = t.Name
	}
	t.Name = name
	r.out = append(r.out, t)
}

func (r *nameReader) translate() error {
	order := ordered(r.convs)
	for i := 1; i < len(order); i++ {
		if a, b := order[i-1], order[i]; compareLayers(a, b) == 0 {
			return fmt.Errorf("which of the layers %q and %q comes first is not in their names", a, b)
		}
	}
	kind, biased := "", false
	for _, name := range order {
		g := r.convs[name]
		k := slices.IndexFunc(convLeaf, func(c struct {
			kind string
			any  []string
		}) bool {
			return slices.ContainsFunc(c.any, func(leaf string) bool { _, ok := g.t[leaf]; return ok })
		})
		if k < 0 {
			for _, t := range g.t {
				return fmt.Errorf("%s is of no layer that is known", told(&t))
			}
		}
		if kind != "" && kind != convLeaf[k].kind {
			return fmt.Errorf("%q is a layer of %s and %q one of %s; a model has layers of one kind", order[0], kind, name, convLeaf[k].kind)
		}
		kind = convLeaf[k].kind
		for leaf := range g.t {
			biased = biased || (kind == "sage" && leaves[kind][leaf] == "lin_l.bias") || kind != "sage" && leaf == "bias"
		}
	}
	for i, name := range order {
		if err := r.translateConv(kind, r.convs[name], i, i == len(order)-1 && len(r.lins) == 0, biased); err != nil {
			return err
		}
	}
	for i, g := range sortedGroups(r.norms) {
		r.putNorm(fmt.Sprintf("norms.%d.", i), g.t)
	}
	for i, g := range sortedGroups(r.lins) {
		name := fmt.Sprintf("decoder.lins.%d.", i)
		if len(r.lins) == 1 {
			name = "lin."
		}
		r.put(name+"weight", g.t["weight"])
		if b, ok := g.t["bias"]; ok {
			r.put(name+"bias", b)
		} else {
			r.put(name+"bias", zeros(g.t["weight"].Shape[0]))
		}
	}
	return nil
}

// putNorm adds a norm: PyG's batch norm wraps PyTorch's.
func (r *nameReader) putNorm(prefix string, t map[string]RawTensor) {
	if _, batch := t["running_mean"]; batch {
		prefix += "module."
	}
	for _, leaf := range sortedKeys(t) {
		r.put(prefix+leaf, t[leaf])
	}
}

// translateConv adds convolution i, output: its heads' mean is the model's output.
func (r *nameReader) translateConv(kind string, g *layerGroup, i int, output, biased bool) error {
	prefix := fmt.Sprintf("convs.%d.", i)
	ours := map[string]RawTensor{}
	put := func(leaf string, t RawTensor) error {
		was, twice := ours[leaf]
		if twice && leaf == "lin_l.bias" { // of both products: their sum
			sum, err := plus(was, t)
			if err != nil {
				return err
			}
			t = sum
		} else if twice {
			return fmt.Errorf("%s and %s are the same parameter", told(&was), told(&t))
		}
		ours[leaf] = t
		return nil
	}
	inner := map[string]*layerGroup{} // GIN's MLP
	for _, leaf := range sortedKeys(g.t) {
		t := g.t[leaf]
		name, known := leaves[kind][leaf]
		switch {
		case kind == "mixhop" && strings.HasPrefix(leaf, "lins."):
			name, known = leaf, true
		case kind == "gin" && !known && strings.Contains(leaf, "."):
			base, last := leaf[:strings.LastIndexByte(leaf, '.')], leaf[strings.LastIndexByte(leaf, '.')+1:]
			groupOf(inner, strings.TrimSuffix(base, ".module")).t[last] = t
			continue
		case kind == "gat" && sameAs(t, g.t, leaf, map[string]string{"lin_dst.weight": "lin_src.weight", "lin_r.weight": "lin_l.weight"}):
			continue // one weight under two names, as PyG up to 2.4 has it
		}
		if !known {
			return fmt.Errorf("%s is of no layer of %s that is known", told(&t), kind)
		}
		if kind == "gcn" && leaf == "weight" { // x·W
			t = transposed(t)
		}
		if err := put(name, t); err != nil {
			return err
		}
	}
	linears, norms := 0, 0
	for _, m := range sortedGroups(values(inner)) {
		if w := m.t["weight"]; len(w.Shape) == 1 {
			r.putNorm(fmt.Sprintf("%snn.norms.%d.", prefix, norms), m.t)
			norms++
			continue
		}
		for _, leaf := range sortedKeys(m.t) {
			t := m.t[leaf]
			r.put(fmt.Sprintf("%snn.lins.%d.%s", prefix, linears, leaf), t)
		}
		if w, ok := m.t["weight"]; ok && len(w.Shape) == 2 && len(m.t) == 1 {
			r.put(fmt.Sprintf("%snn.lins.%d.bias", prefix, linears), zeros(w.Shape[0]))
		}
		linears++
	}
	att, attends := ours["att_src"]
	if !attends {
		att, attends = ours["att"]
	}
	if b, dgl := ours["bias"], g.t["attn_l"].Data != nil; dgl && output && attends && len(att.Shape) == 3 && len(b.Shape) == 1 && b.Shape[0] == att.Shape[1]*att.Shape[2] {
		mean, err := meanOfHeads(b, att.Shape[1])
		if err != nil {
			return err
		}
		ours["bias"] = mean
	}
	if !biased {
		leaf, width := "bias", 0
		switch w := ours["lin.weight"]; {
		case attends && len(att.Shape) == 3:
			width = att.Shape[2]
			if !output {
				width *= att.Shape[1]
			}
		case kind == "sage":
			if w := ours["lin_l.weight"]; len(w.Shape) == 2 {
				leaf, width = "lin_l.bias", w.Shape[0]
			}
		case kind == "gcn" && len(w.Shape) == 2:
			width = w.Shape[0]
		}
		if width > 0 {
			ours[leaf] = zeros(width)
		}
	}
	for _, leaf := range sortedKeys(ours) {
		r.put(prefix+leaf, ours[leaf])
	}
	return nil
}

// sameAs reports whether t, called leaf, has the data of the tensor that twins names for it.
func sameAs(t RawTensor, all map[string]RawTensor, leaf string, twins map[string]string) bool {
	twin, ok := all[twins[leaf]]
	return ok && slices.Equal(twin.Shape, t.Shape) && bytes.Equal(twin.Data, t.Data)
}

func zeros(n int) RawTensor { return Float32Tensor("", []int{n}, make([]float32, n)) }

func plus(a, b RawTensor) (RawTensor, error) {
	x, err := a.Float32s()
	if err != nil {
		return a, err
	}
	y, err := b.Float32s()
	if err != nil {
		return a, err
	}
	if len(x) != len(y) {
		return a, fmt.Errorf("%s and %s are biases of one layer", told(&a), told(&b))
	}
	for i := range x {
		x[i] += y[i]
	}
	return Float32Tensor(a.Name, a.Shape, x), nil
}

// meanOfHeads is what biases of heads side by side add to the heads' mean.
func meanOfHeads(b RawTensor, heads int) (RawTensor, error) {
	x, err := b.Float32s()
	if err != nil {
		return b, err
	}
	width := len(x) / heads
	mean := make([]float32, width)
	for i, v := range x {
		mean[i%width] += v / float32(heads)
	}
	return Float32Tensor(b.Name, []int{width}, mean), nil
}

// transposed returns the matrix t with rows and columns exchanged.
func transposed(t RawTensor) RawTensor {
	if len(t.Shape) != 2 {
		return t
	}
	rows, cols, size := t.Shape[0], t.Shape[1], safetensorsSizes[t.DType]
	data := make([]byte, len(t.Data))
	for i := range rows {
		for j := range cols {
			copy(data[(j*rows+i)*size:][:size], t.Data[(i*cols+j)*size:])
		}
	}
	t.Shape, t.Data = []int{cols, rows}, data
	return t
}

func values(groups map[string]*layerGroup) (all []*layerGroup) {
	for _, name := range ordered(groups) {
		all = append(all, groups[name])
	}
	return all
}

func sortedGroups(groups []*layerGroup) []*layerGroup {
	slices.SortFunc(groups, func(a, b *layerGroup) int { return compareLayers(a.name, b.name) })
	return groups
}

func sortedKeys(m map[string]RawTensor) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// ordered returns the names of groups, in order of the layers.
func ordered(groups map[string]*layerGroup) []string {
	var names []string
	for name := range groups {
		names = append(names, name)
	}
	slices.Sort(names)
	slices.SortStableFunc(names, compareLayers)
	return names
}

// firstWords and lastWords are names for layers that have no number.
var (
	firstWords = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?:^|[._])(in|input|first)(?:$|[._])`) })
	lastWords  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?:^|[._])(out|output|last|final)(?:$|[._])`) })
	numbers    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\d+`) })
)

// compareLayers orders names by what they say of a layer's place: in, numbers, out.
func compareLayers(a, b string) int {
	place := func(name string) []int {
		switch {
		case firstWords().MatchString(name):
			return []int{-1}
		case lastWords().MatchString(name):
			return []int{1 << 30}
		}
		var at []int
		for _, n := range numbers().FindAllString(name, -1) {
			v, _ := strconv.Atoi(n) // one that is too large is as good as the largest
			at = append(at, v)
		}
		return at
	}
	return slices.Compare(place(a), place(b))
}

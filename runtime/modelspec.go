package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/sampling"
)

// newModel returns the model that cfg describes, or why there can be none.
func newModel(cfg *Config, ds *graph.Dataset) (*compute.Model, error) {
	switch {
	case ds.NodeFeatures == nil:
		return nil, fmt.Errorf("%w: %s has no node features; add them to the data, such as features.npy in a directory beside an edge list", ErrNoModel, ds.Name)
	case cfg.outputs(ds) == 0:
		return nil, fmt.Errorf("%w: %s has no labels; add them to the data (gnnactor import --label COL says which column of a table has them), or name a saved model (params) to predict by", ErrNoModel, ds.Name)
	}
	if cfg.Model.EdgeFeatures && ds.EdgeFeatures == nil {
		return nil, fmt.Errorf("%w: edge-features: %s has no edge features; add them to the data, or leave the setting out", ErrConfig, ds.Name)
	}
	var m *compute.Model
	var err error
	if spec := cfg.modelSpec(ds); cfg.Model.Layer == nil {
		m, err = compute.NewModel(spec, ds.Graph)
	} else {
		m, err = compute.NewCustomModel(spec, ds.Graph, cfg.Model.Layer)
	}
	if ofData(err) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if !absent(ds.NodeFeatures) && !cfg.ownRows() {
		m.BindFeatures(ds.NodeFeatures)
	}
	return m, nil
}

// UsesFanouts reports whether the sampler takes a number per layer.
func (c *Config) UsesFanouts() bool {
	switch c.Sampling.Sampler {
	case "full", "khop", "node", "edge", "walk", "frontier", "cluster":
		return false
	}
	return true
}

// optionProblem puts what the YAML package says of the sampler's option k, with the
// value v, into the words of settings.
func optionProblem(sampler, k, v string, err error) error {
	if strings.Contains(err.Error(), "not found in type") {
		has := "has none"
		if reads := slices.DeleteFunc(slices.Clone(sampling.Reads(sampler)), func(name string) bool { return sampling.Takes(name) == "" }); len(reads) > 0 {
			has = fmt.Sprintf("has %s; of %s, %s", strings.Join(reads, ", "), reads[0], sampling.Takes(reads[0]))
		}
		return fmt.Errorf("sampler-options: %s=%s: there is no such option; %s %s", k, v, sampler, has)
	}
	if takes := sampling.Takes(k); takes != "" {
		return fmt.Errorf("sampler-options: %s=%s: %s", k, v, takes)
	}
	return fmt.Errorf("sampler-options: %s=%s: %w", k, v, err)
}

// InPieces reports whether all pieces of a partition set compute each batch together.
func (c *Config) InPieces() bool { return c.Sampling.Sampler == "full" || c.Sampling.Hybrid }

// samplerSpec returns the sampler's settings.
func (c *Config) samplerSpec() (sampling.Spec, error) {
	var s sampling.Spec
	for _, k := range slices.Sorted(maps.Keys(c.Sampling.Options)) {
		switch k {
		case "":
			return s, errors.New("sampler-options: an option without a name; write NAME=VALUE, as in budget=8000")
		case "name", "fanouts", "layers", "mini-batch", "epoch-subgraphs", "inductive":
			return s, fmt.Errorf("sampler-options: %s is set by a setting of its own: sampler, fanouts, layers, batch-size, epoch-subgraphs, inductive", k)
		}
		v := c.Sampling.Options[k] // unquoted in the node, so that "8000" is read as a number
		option, err := yaml.Marshal(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: k}, {Kind: yaml.ScalarNode, Value: v}}})
		if err != nil {
			return s, fmt.Errorf("sampler-options: %w", err)
		}
		d := yaml.NewDecoder(bytes.NewReader(option))
		d.KnownFields(true)
		if err := d.Decode(&s); err != nil {
			return s, optionProblem(c.Sampling.Sampler, k, v, err)
		}
	}
	s.Name, s.Layers, s.Fanouts = c.Sampling.Sampler, c.Blocks(), nil
	s.EpochSubgraphs, s.Inductive = c.Sampling.EpochSubgraphs, c.Sampling.Inductive
	s.EdgeIDs = s.EdgeIDs || c.Model.EdgeFeatures
	if c.UsesFanouts() {
		s.Fanouts = c.Sampling.Fanouts
	}
	if c.Sampling.Own != nil {
		s.Version = c.Sampling.Own.Version
	}
	if c.Sampling.Sampler == "lazy" {
		s.MiniBatch = c.Sampling.BatchSize
	}
	return s, nil
}

// outputs returns how wide the model's output is; 0: nothing says it.
func (c *Config) outputs(ds *graph.Dataset) int {
	if c.Model.Task == "link" {
		return c.Model.Hidden
	}
	classes := 0
	if ds.Labels != nil {
		classes = ds.Labels.NumClasses
	}
	if m := c.Model.Saved; m != nil && m.about != nil && m.about.Task != "link" {
		return max(classes, m.about.Model.OutDim)
	} else if m != nil && m.guess != nil && classes == 0 {
		return m.guess.OutDim
	}
	return classes
}

// multiLabel reports whether nodes have several labels each.
func (c *Config) multiLabel(ds *graph.Dataset) bool {
	if ds.Labels != nil {
		return ds.Labels.IsMulti()
	}
	m := c.Model.Saved
	return m != nil && m.about != nil && m.about.MultiLabel
}

func (c *Config) modelSpec(ds *graph.Dataset) compute.Spec {
	s := c.spec()
	s.InDim, s.OutDim = ds.NodeFeatures.Cols, c.outputs(ds)
	if c.Model.EdgeFeatures {
		s.EdgeDim = ds.EdgeFeatures.Cols
	}
	return s
}

// spec is modelSpec without what the data says.
func (c *Config) spec() compute.Spec {
	m := &c.Model
	s := compute.Spec{
		Model: m.Name, Layers: m.Layers, Hidden: m.Hidden, Dropout: m.Dropout, InputDropout: m.InputDropout,
		Aggregation: m.Aggregation, Combine: m.Combine, Heads: m.Heads, OutHeads: m.OutputHeads, AttentionDropout: m.AttentionDropout,
		Activation: m.Activation, Norm: m.Norm, Residual: m.Residual, JumpingKnowledge: m.JumpingKnowledge, Hops: m.Hops,
		GCNNorm: m.GCNNorm, TrainEps: m.TrainEps, ScaleSums: m.ScaleSums, WeightAttention: m.WeightAttention, Decoder: m.DecoderLayers, LinkDecoder: m.LinkDecoder,
	}
	switch {
	case m.Norm == "none":
		s.Norm = ""
	case m.Norm == "" && m.Name == "gin":
		s.Norm = "batch"
	}
	if s.InputDropout < 0 {
		s.InputDropout = 0
		if m.Name == "gcn" {
			s.InputDropout = 1 - (1-m.Dropout)*(1-m.Dropout)
		}
	}
	return s
}

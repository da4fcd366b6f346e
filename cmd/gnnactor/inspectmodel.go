package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/runtime"
)

// modelInspection is what `inspect --output json` prints of parameters.
type modelInspection struct {
	File             string               `json:"file"`
	About            *runtime.Description `json:"description"`     // null: the file has none
	Guess            *runtime.Description `json:"guess,omitempty"` // of a file without description: what its tensors say
	Parameters       int                  `json:"parameters"`
	ParametersSHA256 string               `json:"parameters_sha256,omitempty"`
	Checksums        bool                 `json:"checksums"`
	Columns          []string             `json:"columns,omitempty"` // that features were made of
	Classes          []string             `json:"classes,omitempty"`
	Progress         *runtime.Progress    `json:"checkpoint,omitempty"`
}

// inspectModel shows what a file of parameters or a checkpoint holds.
func (a *app) inspectModel(ctx context.Context, path string) error {
	m, err := runtime.OpenModel(ctx, path)
	if err != nil {
		return err
	}
	i := modelInspection{File: m.Path(), Checksums: m.Checked()}
	i.Parameters, i.ParametersSHA256 = m.Parameters()
	switch about, err := m.Description(); {
	case err == nil:
		i.About = &about
	case !errors.Is(err, runtime.ErrNoDescription):
		return err
	}
	if g, ok := m.Guess(); ok {
		i.Guess = &g
	}
	if made := m.Recipe(); made != nil {
		r, err := importer.ParseRecipe(made)
		if err != nil {
			return err
		}
		for _, c := range r.Nodes {
			i.Columns = append(i.Columns, c.Column)
		}
		if r.Label != nil {
			i.Classes = r.Label.Classes
		}
	}
	if p, ok := m.Progress(); ok {
		i.Progress = &p
	}
	if a.output == outputJSON {
		return a.printJSON(i)
	}
	return i.table().write(a.stdout)
}

func (i *modelInspection) table() *table {
	t := new(table)
	t.row("file", i.File)
	if d := i.About; d != nil {
		s := &d.Model
		t.row("model", fmt.Sprintf("%s, %s layers, %s wide", s.Model, formatCount(s.Layers), formatCount(s.Hidden)))
		t.row("task", d.Task)
		t.row("features of a node", formatCount(s.InDim))
		if s.EdgeDim > 0 {
			t.row("features of an edge", formatCount(s.EdgeDim))
		}
		out := formatCount(s.OutDim)
		if d.MultiLabel {
			out += ", several a node"
		}
		t.row("outputs", out)
		if d.NormalizeFeatures {
			t.row("features are normalised", "yes")
		}
		if d.Stages != nil {
			t.row("stages", strings.Join(d.Stages, ", "))
		}
	} else if i.Guess != nil {
		s := &i.Guess.Model
		t.row("model", fmt.Sprintf("by its tensors %s, %s layers, %s wide", s.Model, formatCount(s.Layers), formatCount(s.Hidden)))
		t.row("features of a node", formatCount(s.InDim))
		t.row("outputs", formatCount(s.OutDim))
	} else {
		t.row("model", "not described: name --model, --layers and --hidden with it")
	}
	if i.Columns != nil {
		t.row("columns", shortList(i.Columns))
	}
	if i.Classes != nil {
		t.row("classes", shortList(i.Classes))
	}
	if p := i.Progress; p != nil {
		t.row("epochs", formatCount(p.Epochs))
		t.row("batches", formatCount(p.Step))
		if p.BestEpoch > 0 {
			t.row("parameters of epoch", formatCount(p.BestEpoch), "best by validation, "+map[bool]string{true: "RMSE " + formatNumber(p.BestFigure), false: formatPercent(p.BestFigure)}[p.Identity.Task == "regression"])
		}
		id := &p.Identity
		t.row("sampler", fmt.Sprintf("%s %v", id.Sampler.Name, id.Sampler.Fanouts))
		t.row("batch size", formatCount(id.BatchSize))
		t.row("optimiser", fmt.Sprintf("%s, learning rate %v", id.Recipe.Optimizer, id.Recipe.LR))
		t.row("seed", fmt.Sprint(id.Seed))
		t.row("kernels", id.Kernels)
		t.row("data", id.Data[:min(16, len(id.Data))]+"…")
	}
	t.row("parameters", formatCount(i.Parameters))
	if i.ParametersSHA256 != "" {
		t.row("parameters sha256", i.ParametersSHA256)
	}
	if i.Checksums {
		t.row("every byte", "verified")
	} else {
		t.row("checksums", "none")
	}
	return t
}

// shortList names at most eight.
func shortList(names []string) string {
	more := ""
	if len(names) > 8 {
		names, more = names[:8], fmt.Sprintf(" and %d more", len(names)-8)
	}
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = shortened(name)
	}
	return strings.Join(short, ", ") + more
}

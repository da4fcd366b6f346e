package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/runtime"
)

// prediction is one class of a node in JSON.
type prediction struct {
	runtime.Prediction
	ClassName string `json:"class_name,omitempty"` // where the data has names of classes
}

// nodePrediction is one node's line in --output json.
type nodePrediction struct {
	ID any `json:"id"` // a number, or a text where the data's names are
	*prediction
	Classes *[]prediction `json:"classes,omitempty"` // where several can be
}

// nodeValue is one node's line in --output json, of a model of numbers.
type nodeValue struct {
	ID    any     `json:"id"`
	Value float32 `json:"value"`
}

// predictFlags say what is predicted of nodes, and where it goes.
type predictFlags struct {
	runtime.Choice
	out           string
	probabilities bool

	pairs, links string // of task link: a file of pairs, or the nodes whose best links are named
	among        string // the file of nodes that links may name; empty: all
	joined       bool
}

func (f *predictFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.out, "out", "", "`FILE`.csv, .jsonl or .parquet to write predictions to, or .npy for --probabilities and numbers (default: print them)")
	cmd.Flags().IntVar(&f.Top, "top", 0, "the `K` most probable classes of each node (default: one, or with several labels a node all by --threshold)")
	cmd.Flags().Float64Var(&f.Threshold, "threshold", 0, "classes that are at least so probable (default with several labels a node: 0.5)")
	cmd.Flags().StringVar(&f.pairs, "pairs", "", "of a model of links: CSV `FILE` of src,dst with the pairs of nodes to score")
	cmd.Flags().StringVar(&f.links, "links", "", "of a model of links: the `NODES`, listed as for --ids, whose --top best links to name, 10 by default each, those that are there left out")
	cmd.Flags().StringVar(&f.among, "among", "", "with --links: `FILE` of the nodes to choose from, by the first column of CSV, under id or not (default: all)")
	cmd.Flags().BoolVar(&f.joined, "joined", false, "with --links: name nodes that an edge joins to them, too")
	cmd.Flags().BoolVar(&f.probabilities, "probabilities", false, "with --out: the probability of every class, a column each")
}

func (f *predictFlags) check() error {
	switch {
	case f.pairs != "" && f.links != "":
		return usagef("--pairs and --links both choose pairs; give one of them")
	case f.joined && f.links == "":
		return usagef("--joined is of --links; give nodes, or leave it out")
	case f.among != "" && f.links == "":
		return usagef("--among is of --links; give nodes, or leave it out")
	case f.ofLinks() && (f.Threshold > 0 || f.probabilities) || f.pairs != "" && f.Top > 0:
		return usagef("--threshold and --probabilities, and with --pairs --top, are of classes; leave them out")
	case f.ofLinks():
		return checkRowsFile(f.out, rowsEndings[1:])
	case f.Top < 0:
		return usagef("--top %d: must be positive", f.Top)
	case !(f.Threshold >= 0 && f.Threshold <= 1):
		return usagef("--threshold %v is not in [0, 1]", f.Threshold)
	case f.probabilities && f.out == "":
		return usagef("--probabilities go to a file; name it with --out")
	case f.probabilities && (f.Top > 0 || f.Threshold > 0):
		return usagef("--probabilities are of every class; leave --top and --threshold out")
	case f.probabilities:
		return checkRowsFile(f.out, rowsEndings)
	}
	return checkRowsFile(f.out, rowsEndings)
}

// ofLinks reports whether pairs of nodes are scored.
func (f *predictFlags) ofLinks() bool { return f.pairs != "" || f.links != "" }

// fits refuses, before anything is computed, what outputs cannot be shown as that are numbers, or of the classes that c has.
func (f *predictFlags) fits(numbers bool, c called) error {
	switch {
	case numbers && (f.Top > 0 || f.Threshold > 0 || f.probabilities):
		return usagef("--top, --threshold and --probabilities are of classes, and the model predicts numbers; leave them out")
	case !numbers && !f.probabilities && plotFormat(f.out) == rowsEndings[0]:
		return usagef("--out %s: an array holds numbers alone; ask for --probabilities, or name a file %s", f.out, strings.Join(rowsEndings[1:], ", "))
	case numbers || !f.probabilities:
		return nil
	}
	return graph.Guard(func() error {
		columns := []string{"id"}
		recipe, err := c.recipe()
		if err != nil {
			return err
		}
		if recipe != nil && recipe.Label != nil {
			columns = append(columns, recipe.Label.Classes...)
		}
		return checkColumns(f.out, columns)
	})
}

// printValues prints or writes a number for each node.
func (a *app) printValues(ids []uint32, values []float32, f *predictFlags, c called) error {
	object := func(i int) nodeValue { return nodeValue{c.id(ids[i]), values[i]} }
	text := func(x float32) string { return strconv.FormatFloat(float64(x), 'g', -1, 32) }
	e := &runtime.Embedding{Rows: len(values), Cols: 1, Data: values}
	switch {
	case f.out != "":
		var err error
		if plotFormat(f.out) == rowsEndings[0] {
			err = writeRows(f.out, ids, e, nil, "", c)
		} else {
			err = writeLines(f.out, []column{c.column("id"), {"value", float32s}}, len(ids), func(i int) (any, [][]string) {
				return object(i), [][]string{{string(c.name(nil, ids[i])), text(values[i])}}
			})
		}
		if err != nil {
			return err
		}
		return a.showFile(f.out, e.Rows, e.Cols)
	case a.output == outputJSON:
		list := make([]nodeValue, len(ids))
		for i := range ids {
			list[i] = object(i)
		}
		return a.printJSON(map[string]any{"predictions": list})
	}
	return a.printRows(ids, e, c)
}

func newPredict(a *app) *cobra.Command {
	var (
		config  *configFlags
		c       clusterFlags
		nodes   *nodeFlags
		scratch string
		f       predictFlags
	)
	cmd := &cobra.Command{
		Use:   "predict --params FILE",
		Short: "Print the most probable class of nodes",
		Long: `Print the most probable class of nodes, by exact inference over their whole
neighbourhood: one line each with id, class and probability, tabs between. Ids are called what the
data calls them, classes what that of the training did. The data needs no labels.
Where nodes have several labels those are printed that are more probable than not. --top and
--threshold choose others, in a line each of id and pairs of class and probability. With --out they go to
a file, in CSV and Parquet a line for each node and class, or with --probabilities those of all classes. A model of numbers
(--task regression) predicts one for each node. One of links (--task link) scores the pairs of --pairs, a CSV file of src,dst, or names the
best links of each of --links, of all nodes or those in --among: a line each of src, dst, score and probability.

` + overPieces,
		Example: `  gnnactor predict --data DIR --params model.safetensors --ids 0,5,10-19
  gnnactor predict --data DIR --params model.safetensors --top 3 --out top.csv
  gnnactor predict --data DIR --params links.safetensors --links 17 --top 5`,
		Args: a.args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := f.check(); err != nil {
				return err
			}
			cfg, err := savedConfig(cmd, a, config)
			if err != nil {
				return err
			}
			if f.ofLinks() && (nodes.ids != "" || nodes.split != "" || nodes.sampled != nil) {
				return usagef("--ids, --split and --sampled are of predictions of nodes; leave them out with --pairs and --links")
			}
			if pieces.IsSet(cfg.Data.Path) {
				if f.ofLinks() {
					return usagef("--pairs and --links: links are scored over a store; name one")
				}
				if nodes.sampled != nil {
					return usagef("--sampled: partition sets are computed exactly; leave it out, or name the store")
				}
				ready := func(d *runtime.Divided) error { return f.fits(false, calledOver(d)) }
				return c.overPieces(cmd, a, cfg, config, scratch, ready, func(d *runtime.Divided, o *runtime.Outputs) error {
					return a.predictDivided(cmd.Context(), d, o, nodes, &f)
				})
			}
			if len(c.store) > 0 {
				return usagef("--cluster: nodes infer together over a partition set ('gnnactor partition --out DIR' makes one)")
			}
			rt, err := startSaved(cmd, cfg, scratch)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, rt.Stop()) }()
			switch links := rt.NumLinks(runtime.TrainLinks) > 0; {
			case links && f.ofLinks():
				return a.predictLinks(cmd.Context(), rt, &f)
			case links:
				return usagef("the model predicts links: name pairs with --pairs FILE, or a node with --links NODE")
			case f.ofLinks():
				return usagef("--pairs and --links are of models of links (train --task link)")
			}
			if err := f.fits(rt.Regression(), calledIn(rt.Dataset())); err != nil {
				return err
			}
			ids, err := nodes.nodes(rt.Dataset())
			if err != nil {
				return err
			}
			e, err := nodes.embed(cmd.Context(), rt, ids)
			if err == nil {
				err = rt.Verified(cmd.Context())
			}
			if err != nil {
				return err
			}
			if rt.Regression() {
				return a.printValues(ids, rt.Values(e), &f, calledIn(rt.Dataset()))
			}
			return a.printPredictions(ids, e, rt.MultiLabel(), &f, calledIn(rt.Dataset()))
		},
	}
	config = addInferenceFlags(cmd)
	f.add(cmd)
	nodes = addNodeFlags(cmd)
	addScratchFlag(cmd, &scratch)
	c.addInferFlags(cmd)
	a.addOutputFlag(cmd)
	return cmd
}

// printPredictions prints or writes the classes of nodes under their names, of a model's outputs.
func (a *app) printPredictions(ids []uint32, e *runtime.Embedding, multi bool, f *predictFlags, c called) error {
	return graph.Guard(func() error {
		recipe, err := c.recipe()
		if err != nil {
			return err
		}
		if f.probabilities {
			if err := writeRows(f.out, ids, e.Probabilities(multi), recipe.ClassName, "probabilities", c); err != nil {
				return err
			}
			return a.showFile(f.out, e.Rows, e.Cols)
		}
		found := e.Predictions(multi, f.Choice)
		named := recipe != nil && recipe.Label != nil && recipe.Label.Classes != nil
		several := multi || f.Top > 1 || f.Threshold > 0
		object := func(i int) nodePrediction {
			list := make([]prediction, len(found[i]))
			for k, p := range found[i] {
				if list[k].Prediction = p; named {
					list[k].ClassName = recipe.ClassName(p.Class)
				}
			}
			if several {
				return nodePrediction{ID: c.id(ids[i]), Classes: &list}
			}
			return nodePrediction{ID: c.id(ids[i]), prediction: &list[0]}
		}
		switch {
		case f.out != "":
			class := column{"class", wholes}
			if named {
				class.of = texts
			}
			err := writeLines(f.out, []column{c.column("id"), class, {"probability", float32s}}, len(ids), func(i int) (any, [][]string) {
				if !inColumns(f.out) {
					return object(i), nil
				}
				var rows [][]string
				for _, p := range found[i] {
					rows = append(rows, []string{string(c.name(nil, ids[i])), recipe.ClassName(p.Class), strconv.FormatFloat(float64(p.Probability), 'g', -1, 32)})
				}
				if rows == nil { // none is so probable
					rows = [][]string{{string(c.name(nil, ids[i])), "", ""}}
				}
				return nil, rows
			})
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				return a.printJSON(map[string]any{"file": f.out, "nodes": len(ids)})
			}
			_, err = fmt.Fprintf(a.stdout, "%s: predictions of %s nodes\n", f.out, formatCount(len(ids)))
			return err
		case a.output == outputJSON:
			list := make([]nodePrediction, len(ids))
			for i := range ids {
				list[i] = object(i)
			}
			return a.printJSON(map[string]any{"predictions": list})
		}
		w := bufio.NewWriter(a.stdout)
		var line []byte
		for i, id := range ids {
			line = c.text(line[:0], id)
			w.Write(line) // the error stays until Flush
			for _, p := range found[i] {
				fmt.Fprintf(w, "\t%s\t%.3f", recipe.ClassName(p.Class), p.Probability)
			}
			w.WriteByte('\n')
		}
		return w.Flush()
	})
}

// called is what data calls nodes and classes.
type called struct {
	name  func(b []byte, v uint32) []byte // appends a node's name
	texts bool                            // names are texts
	made  []byte                          // a recipe
}

func calledIn(ds *graph.Dataset) called {
	return called{ds.Names.Append, ds.Names.AreTexts(), ds.Recipe}
}

func (c called) recipe() (*importer.Recipe, error) {
	if c.made == nil {
		return nil, nil
	}
	return importer.ParseRecipe(c.made)
}

// column is one of nodes' names.
func (c called) column(name string) column {
	if c.texts {
		return column{name, texts}
	}
	return column{name, wholes}
}

// id is a node's name for JSON.
func (c called) id(v uint32) any {
	name := string(c.name(nil, v))
	if c.texts {
		return name
	}
	return json.Number(name)
}

// text appends a node's name for a line of text, quoted if it would break that.
func (c called) text(b []byte, v uint32) []byte {
	at := len(b)
	if b = c.name(b, v); !bytes.ContainsFunc(b[at:], unicode.IsControl) {
		return b
	}
	return strconv.AppendQuote(b[:at], string(b[at:]))
}

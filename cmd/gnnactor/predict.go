package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/runtime"
)

// nodePrediction is one node's line in --output json.
type nodePrediction struct {
	ID any `json:"id"` // a number, or a text where the data's names are
	runtime.Prediction
	ClassName string `json:"class_name,omitempty"` // where the data has names of classes
}

func newPredict(a *app) *cobra.Command {
	var (
		config  *configFlags
		c       clusterFlags
		nodes   *nodeFlags
		scratch string
	)
	cmd := &cobra.Command{
		Use:   "predict --params FILE",
		Short: "Print the most probable class of nodes",
		Long: `Print the most probable class of nodes, by exact inference over their whole
neighbourhood: one line each with id, class and probability, tabs between. Ids are called what the
data calls them, classes what that of the training did. The data needs no labels.

` + overPieces,
		Example: `  gnnactor predict --data DIR --params model.safetensors --ids 0,5,10-19`,
		Args:    a.args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg, err := savedConfig(cmd, a, config)
			if err != nil {
				return err
			}
			if pieces.IsSet(cfg.Data.Path) {
				return c.overPieces(cmd, a, cfg, config, scratch, func(d *runtime.Divided, o *runtime.Outputs) error {
					return a.predictDivided(cmd.Context(), d, o, nodes)
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
			ids, err := nodes.nodes(rt.Dataset())
			if err != nil {
				return err
			}
			found, err := rt.Predict(cmd.Context(), ids)
			if err == nil {
				err = rt.Verified(cmd.Context())
			}
			if err != nil {
				return err
			}
			return a.printPredictions(ids, found, calledIn(rt.Dataset()))
		},
	}
	config = addConfigFlags(cmd, []group{dataGroup, modelGroup}, "threads", "device", "eval-chunk", "verify-data")
	nodes = addNodeFlags(cmd)
	addScratchFlag(cmd, &scratch)
	c.addInferFlags(cmd)
	a.addOutputFlag(cmd)
	return cmd
}

// printPredictions prints the classes of nodes under their names.
func (a *app) printPredictions(ids []uint32, found []runtime.Prediction, c called) error {
	return graph.Guard(func() error {
		recipe, err := c.recipe()
		if err != nil {
			return err
		}
		named := recipe != nil && recipe.Label != nil && recipe.Label.Classes != nil
		if a.output == outputJSON {
			list := make([]nodePrediction, len(ids))
			for i, id := range ids {
				list[i] = nodePrediction{ID: c.id(id), Prediction: found[i]}
				if named {
					list[i].ClassName = recipe.ClassName(found[i].Class)
				}
			}
			return a.printJSON(map[string]any{"predictions": list})
		}
		w := bufio.NewWriter(a.stdout)
		var line []byte
		for i, id := range ids {
			line = c.name(line[:0], id)
			fmt.Fprintf(w, "%s\t%s\t%.3f\n", line, recipe.ClassName(found[i].Class), found[i].Probability)
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

// id is a node's name for JSON.
func (c called) id(v uint32) any {
	name := string(c.name(nil, v))
	if c.texts {
		return name
	}
	return json.Number(name)
}

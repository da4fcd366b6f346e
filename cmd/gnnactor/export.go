package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/compute"
	"github.com/gnnactor/gnnactor/runtime"
)

func newExport(a *app) *cobra.Command {
	var names, mapFile string
	var unsaid runtime.Unsaid
	cmd := &cobra.Command{
		Use:   "export MODEL FILE",
		Short: "Write a model for other programs",
		Long: `Write the parameters of a model, a file of 'gnnactor train --save' or a directory of checkpoints, to
FILE.safetensors for other programs, with the names and the shapes of their layers:
  pyg   convs.0.lin_l.weight, as PyG's own models have them, and gnnactor
  conv  conv1.lin_l.weight, as in a module whose layers are called conv1, norm1 and lin1
  dgl   layers.0.fc_neigh.weight, DGL's layers in a list; its GraphConv has its weight transposed
--map FILE has lines 'convs.0.lin_l.weight = encoder.first.neigh.weight' for other names, with
'transposed' behind where rows and columns are exchanged; what reads files by such names takes
the same FILE: 'gnnactor predict --params THEIRS.safetensors --map FILE'.

FILE.onnx is the computation itself (opset 18), of gcn, sage, gin, gat and gatv2. Its inputs are x, the
features; edge_index_0, edge_index_1, ..., for each layer the sources and the targets of edges, as
rows of the layer's input; num_targets, for each layer how many of its first rows are computed; and,
with gcn, degree, 1 + the in-neighbours of each node. For a whole graph all layers have its edges and nodes.

MODEL may be another program's, too, with names that 'gnnactor inspect' understands; one whose names need a map to be
read is written as gnnactor's first: 'gnnactor train --data STORE --params THEIRS --map FILE --epochs 0 --save MODEL'. What its tensors do not say of
the computation, which a file of 'train --save' does, --activation, --aggregation and --residual do.

docs/from-pyg.md and docs/from-dgl.md have the code on their side.`,
		Example: `  gnnactor export model.safetensors dgl.safetensors --names dgl
  gnnactor export model.safetensors model.onnx
  gnnactor export run1 theirs.safetensors --map names.txt`,
		Args: a.args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ending := plotFormat(args[1])
			if ending != ".safetensors" && ending != ".onnx" {
				return usagef("%s: the name must end in .safetensors or .onnx", args[1])
			}
			if ending == ".onnx" && (mapFile != "" || cmd.Flags().Changed("names")) {
				return usagef("--names and --map are of .safetensors; leave them out")
			}
			if mapFile != "" && cmd.Flags().Changed("names") {
				return usagef("--names and --map both choose names; give one of them")
			}
			if err := checkReplaceable("FILE", args[1]); err != nil {
				return err
			}
			m, err := runtime.OpenModel(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if unsaid != (runtime.Unsaid{}) {
				if err := m.Suppose(unsaid); err != nil {
					return err
				}
			}
			if ending == ".onnx" {
				return m.ExportONNX(args[1])
			}
			var mapped compute.NameMap
			if mapFile != "" {
				if mapped, err = runtime.ReadNameMap(mapFile); err != nil {
					return err
				}
			}
			return m.Export(args[1], names, mapped)
		},
	}
	cmd.Flags().StringVar(&names, "names", "pyg", "`STYLE` of the names: "+strings.Join(compute.NameStyles(), ", "))
	cmd.Flags().StringVar(&mapFile, "map", "", "`FILE` that says which name each parameter gets")
	f := cmd.Flags()
	f.StringVar(&unsaid.Activation, "activation", "", "of another program's MODEL: `NAME` of what follows every convolution but the last: relu (default), leaky-relu, elu")
	f.StringVar(&unsaid.Aggregation, "aggregation", "", "of another program's MODEL: `NAME` of what sage does with its neighbours: mean (default), max, sum")
	f.BoolVar(&unsaid.Residual, "residual", false, "of another program's MODEL: a convolution's input is added to its result")
	return cmd
}

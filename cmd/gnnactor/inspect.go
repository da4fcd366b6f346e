package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/importer"
	"github.com/gnnactor/gnnactor/graph/pieces"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/runtime"
)

func newInspect(a *app) *cobra.Command {
	var verify bool
	cmd := &cobra.Command{
		Use:   "inspect PATH",
		Short: "Show what a store, a partition set, a saved model or a checkpoint holds, and check it",
		Long: `Show what a store holds, or a partition set ('gnnactor partition --out'). Opening one checks headers, sizes and version; --verify
also reads every byte and compares it with its checksums, and names the file and
the offsets of the first damage. A store of format version 1 has one checksum for
each file, and none for its blocks of 1 MiB: it is said what that store lacks.

Of a file of parameters ('gnnactor train --save'), a checkpoint or a directory of checkpoints,
of which it takes the newest, it shows the model, the features and classes that it knows, and
how far a run is; all of it is read and compared with its checksums.`,
		Args: a.args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			if runtime.IsSaved(dir) {
				return a.inspectModel(cmd.Context(), dir)
			}
			if pieces.IsSet(dir) {
				return a.inspectPieces(cmd.Context(), dir, verify)
			}
			format, err := importer.DetectFormat(dir)
			if err != nil {
				return err
			}
			if format != "store" {
				return fmt.Errorf("%s is data of format %s and no store; make one with 'gnnactor import %s STORE'", dir, format, dir)
			}
			began := time.Now()
			info := inspection{Verified: verify}
			err = store.View(dir, func(s *store.Store) error {
				info.OpenSeconds = time.Since(began).Seconds()
				if verify {
					if err := s.Verify(cmd.Context()); err != nil {
						return err
					}
				}
				info.Summary, info.Lacks = s.Dataset().Summary(), s.Lacks()
				return nil
			})
			if err != nil {
				return err
			}
			if info.Lacks != "" {
				a.logf("%s", info.Lacks)
			}
			if a.output == outputJSON {
				return a.printJSON(info)
			}
			return info.table().write(a.stdout)
		},
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "read every byte and compare it with its checksum")
	a.addOutputFlag(cmd)
	return cmd
}

// inspection is what --output json prints.
type inspection struct {
	graph.Summary
	OpenSeconds float64 `json:"open_seconds"`
	Verified    bool    `json:"verified"`
	Lacks       string  `json:"lacks,omitempty"` // what an older version did not write
}

func (i *inspection) table() *table {
	t := new(table)
	t.row("name", i.Name)
	t.row("nodes", formatCount(i.Nodes))
	t.row("edges", formatCount(i.Edges))
	if i.Weighted {
		t.row("edge weights", "yes")
	}
	if i.Nodes > 0 {
		t.row("in-degree, mean", significant(i.DegreeMean))
		t.row("min / median / max", fmt.Sprintf("%s / %s / %s", formatCount(i.DegreeMin), formatCount(i.DegreeMedian), formatCount(i.DegreeMax)))
	}
	if i.Named {
		t.row("node names", "kept")
	}
	t.row("isolated nodes", formatCount(i.Isolated))
	t.row("self-loops", formatCount(i.SelfLoops))
	t.row("parallel edges", formatCount(i.ParallelEdges))
	for _, f := range []struct {
		name string
		*graph.TableSummary
	}{{"node features", i.NodeFeatures}, {"edge features", i.EdgeFeatures}} {
		if f.TableSummary != nil {
			t.row(f.name, fmt.Sprintf("%s × %s", formatCount(f.Cols), f.DType))
		}
	}
	if i.Numbers {
		t.row("labels", "numbers")
		t.row("labelled nodes", formatCount(i.Labeled))
	} else if i.Classes > 0 {
		kind := ""
		if i.MultiLabel {
			kind = ", several a node"
		}
		t.row("classes", formatCount(i.Classes)+kind)
		t.row("labelled nodes", formatCount(i.Labeled))
	}
	t.row("train / valid / test", fmt.Sprintf("%s / %s / %s", formatCount(i.Splits["train"]), formatCount(i.Splits["valid"]), formatCount(i.Splits["test"])))
	if i.NodeTimes || i.EdgeTimes {
		t.row("times", map[[2]bool]string{{true, true}: "of nodes and edges", {true, false}: "of nodes", {false, true}: "of edges"}[[2]bool{i.NodeTimes, i.EdgeTimes}])
	}
	for _, p := range i.Partitions {
		t.row("partition", fmt.Sprintf("%s, %s parts of at most %s nodes", p.Method, formatCount(p.Parts), formatCount(p.Largest)))
	}
	t.row("size", formatBytes(i.Bytes))
	t.row("opened in", formatDuration(time.Duration(i.OpenSeconds*float64(time.Second))))
	if i.Verified {
		t.row("every byte", "verified")
	}
	if i.Lacks != "" {
		t.row("block checksums", "none")
	}
	t.row("fingerprint", i.Fingerprint[:min(16, len(i.Fingerprint))]+"…")
	return t
}

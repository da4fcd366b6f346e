package main

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
)

func newInspect(a *app) *cobra.Command {
	var verify bool
	cmd := &cobra.Command{
		Use:   "inspect STORE",
		Short: "Show what a store holds, and check it",
		Long: `Show what a store holds. Opening one checks headers, sizes and version; --verify
also reads every byte and compares it with its checksum.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := args[0]
			format, err := graph.DetectFormat(dir)
			if err != nil {
				return err
			}
			if format != "store" {
				return fmt.Errorf("%s is data of format %s and no store; make one with 'gnnactor import %s STORE'", dir, format, dir)
			}
			began := time.Now()
			s, err := graph.Open(dir)
			if err != nil {
				return err
			}
			defer s.Close()
			opened := time.Since(began)
			if verify {
				if err := s.Verify(); err != nil {
					return err
				}
			}
			info, err := inspectStore(s.Dataset(), dir)
			if err != nil {
				return err
			}
			info.Verified, info.Seconds = verify, time.Since(began).Seconds()
			if a.output == outputJSON {
				return a.printJSON(info)
			}
			return info.table(s.Dataset(), opened).write(a.stdout)
		},
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "read every byte and compare it with its checksum")
	a.addOutputFlag(cmd)
	return cmd
}

// storeInfo is what --output json prints.
type storeInfo struct {
	Name         string  `json:"name"`
	Nodes        int     `json:"nodes"`
	Edges        int64   `json:"edges"`
	Weighted     bool    `json:"weighted"`
	Features     int     `json:"features"`
	FeatureType  string  `json:"feature_type,omitempty"`
	EdgeFeatures int     `json:"edge_features"`
	Classes      int     `json:"classes"`
	MultiLabel   bool    `json:"multi_label"`
	Train        int     `json:"train"`
	Valid        int     `json:"valid"`
	Test         int     `json:"test"`
	Bytes        int64   `json:"bytes"`
	Fingerprint  string  `json:"fingerprint"`
	Verified     bool    `json:"verified"`
	Seconds      float64 `json:"seconds"`
}

func inspectStore(ds *graph.Dataset, dir string) (storeInfo, error) {
	info := storeInfo{
		Name: ds.Name, Nodes: ds.Graph.NumNodes(), Edges: ds.Graph.NumEdges(), Weighted: ds.Graph.Weights != nil,
		Train: len(ds.Train), Valid: len(ds.Valid), Test: len(ds.Test), Fingerprint: ds.Fingerprint,
	}
	if f := ds.NodeFeatures; f != nil {
		info.Features, info.FeatureType = f.Cols, f.DType.String()
	}
	if f := ds.EdgeFeatures; f != nil {
		info.EdgeFeatures = f.Cols
	}
	if l := ds.Labels; l != nil {
		info.Classes, info.MultiLabel = l.NumClasses, l.IsMulti()
	}
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		info.Bytes += fi.Size()
		return nil
	})
	return info, err
}

func (info storeInfo) table(ds *graph.Dataset, opened time.Duration) *table {
	t := new(table)
	t.row("name", info.Name)
	t.row("nodes", formatCount(info.Nodes))
	edges := formatCount(info.Edges)
	if info.Weighted {
		edges += ", weighted"
	}
	t.row("edges", edges)
	if info.Nodes > 0 {
		t.row("mean degree", significant(float64(info.Edges)/float64(info.Nodes)))
	}
	if info.Features > 0 {
		t.row("node features", fmt.Sprintf("%s × %s", formatCount(info.Features), info.FeatureType))
	}
	if f := ds.EdgeFeatures; f != nil {
		t.row("edge features", fmt.Sprintf("%s × %s", formatCount(f.Cols), f.DType))
	}
	if info.Classes > 0 {
		kind := ""
		if info.MultiLabel {
			kind = ", several a node"
		}
		t.row("classes", formatCount(info.Classes)+kind)
	}
	t.row("train / valid / test", fmt.Sprintf("%s / %s / %s", formatCount(info.Train), formatCount(info.Valid), formatCount(info.Test)))
	t.row("size", formatBytes(info.Bytes))
	t.row("opened in", formatDuration(opened))
	if info.Verified {
		t.row("every byte", "verified")
	}
	t.row("fingerprint", info.Fingerprint[:min(16, len(info.Fingerprint))]+"…")
	return t
}

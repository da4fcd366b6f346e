package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/runtime"
)

// nodeFlags choose nodes for embed and predict.
type nodeFlags struct {
	ids, split string
	sampled    []int // fan-outs; nil: inference is exact
}

func addNodeFlags(cmd *cobra.Command) *nodeFlags {
	n := new(nodeFlags)
	cmd.Flags().StringVar(&n.ids, "ids", "", "node ids and ranges, like 0,5,10-19, or names where the data has them, those with commas quoted as in CSV (default: all nodes)")
	cmd.Flags().StringVar(&n.split, "split", "", "`NAME` of a split whose nodes to take: train, valid or test")
	cmd.Flags().IntSliceVar(&n.sampled, "sampled", nil, "infer over sampled neighbours, `K,K` of a node for each layer, -1: all; far faster, and not exact (default: exact, over all neighbours)")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if n.ids != "" && n.split != "" {
			return usagef("--ids and --split both choose nodes; give one of them")
		}
		return nil
	}
	return n
}

// embed computes the model's output for ids.
func (n *nodeFlags) embed(ctx context.Context, rt *runtime.Runtime, ids []uint32) (*runtime.Embedding, error) {
	if n.sampled != nil {
		return rt.EmbedSampled(ctx, ids, n.sampled)
	}
	return rt.Embed(ctx, ids)
}

// nodes returns the chosen nodes of ds.
func (n *nodeFlags) nodes(ds *graph.Dataset) ([]uint32, error) {
	return n.of(ds.Graph.NumNodes(), namesOf(ds), func(i int) (ids []uint32, err error) {
		err = graph.Guard(func() error {
			ids = slices.Clone([][]uint32{ds.Train, ds.Valid, ds.Test}[i])
			return nil
		})
		return ids, err
	})
}

// namesOf returns what finds nodes of ds by their names; nil: they have none.
func namesOf(ds *graph.Dataset) func(names []string) ([]uint32, error) {
	if ds.Names == nil {
		return nil
	}
	return func(names []string) (ids []uint32, err error) {
		err = graph.Guard(func() error {
			ids, err = findIDs(names, ds)
			return err
		})
		return ids, err
	}
}

// listedNodes returns the nodes that a flag lists, of so many: by numbers and ranges, or by find, unless it is nil, names as in a line of CSV.
func listedNodes(flag, list string, nodes int, find func(names []string) ([]uint32, error)) (ids []uint32, err error) {
	if find == nil {
		ids, err = parseIDs(list, nodes)
		if err != nil {
			err = usagef("%s: %w", flag, err)
		}
		return ids, err
	}
	lines := csv.NewReader(strings.NewReader(list))
	lines.FieldsPerRecord = -1
	rows, err := lines.ReadAll()
	if err != nil {
		return nil, usagef("%s: %w; names with commas or quotes are quoted as in CSV", flag, err)
	}
	if ids, err = find(slices.Concat(rows...)); errors.Is(err, runtime.ErrNode) {
		err = usagef("%s: %w", flag, err)
	}
	return ids, err
}

// of returns the chosen nodes of so many, of which split has the three splits', and find, unless it is nil, those of names.
func (n *nodeFlags) of(nodes int, find func(names []string) ([]uint32, error), split func(i int) ([]uint32, error)) (ids []uint32, err error) {
	if n.ids != "" {
		return listedNodes("--ids", n.ids, nodes, find)
	}
	if i := slices.Index(splitNames[:], n.split); i >= 0 {
		return split(i)
	}
	if n.split == "" {
		return allNodes(nodes), nil
	}
	return nil, usagef("--split %q: must be train, valid or test", n.split)
}

// splitNames are those of the three splits.
var splitNames = [3]string{"train", "valid", "test"}

func allNodes(n int) []uint32 {
	all := make([]uint32, n)
	for i := range all {
		all[i] = uint32(i)
	}
	return all
}

// findIDs returns the nodes of those names.
func findIDs(names []string, ds *graph.Dataset) (ids []uint32, err error) {
	for _, name := range names {
		v, ok := ds.Names.Find(name, ds.Graph.NumNodes())
		if !ok {
			v, ok = ds.Names.Find(strings.TrimSpace(name), ds.Graph.NumNodes())
		}
		if !ok {
			return nil, fmt.Errorf("%w: no node is called %q", runtime.ErrNode, name)
		}
		ids = append(ids, v)
	}
	return ids, nil
}

// parseIDs reads "0,5,10-19"; every id must be below n.
func parseIDs(text string, n int) ([]uint32, error) {
	var ids []uint32
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			to = from
		}
		lo, err := parseID(from, n)
		if err != nil {
			return nil, err
		}
		hi, err := parseID(to, n)
		if err != nil {
			return nil, err
		}
		if hi < lo {
			return nil, fmt.Errorf("the range %s runs backward", part)
		}
		for v := lo; v <= hi; v++ {
			ids = append(ids, uint32(v))
		}
	}
	return ids, nil
}

func parseID(text string, n int) (uint64, error) {
	v, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a node id or a range like 10-19", text)
	}
	if v >= uint64(n) {
		return 0, fmt.Errorf("node %d is out of range [0, %d)", v, n)
	}
	return v, nil
}

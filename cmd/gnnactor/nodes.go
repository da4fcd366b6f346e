package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/graph"
)

// nodeFlags choose nodes for embed and predict.
type nodeFlags struct{ ids, split string }

func addNodeFlags(cmd *cobra.Command) *nodeFlags {
	n := new(nodeFlags)
	cmd.Flags().StringVar(&n.ids, "ids", "", "node ids and ranges, like 0,5,10-19, or names where the data has them (default: all nodes)")
	cmd.Flags().StringVar(&n.split, "split", "", "`NAME` of a split whose nodes to take: train, valid or test")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if n.ids != "" && n.split != "" {
			return usagef("--ids and --split both choose nodes; give one of them")
		}
		return nil
	}
	return n
}

// nodes returns the chosen nodes of ds.
func (n *nodeFlags) nodes(ds *graph.Dataset) ([]uint32, error) {
	return n.of(ds.Graph.NumNodes(), ds.Names, func(i int) (ids []uint32, err error) {
		err = graph.Guard(func() error {
			ids = slices.Clone([][]uint32{ds.Train, ds.Valid, ds.Test}[i])
			return nil
		})
		return ids, err
	})
}

// of returns the chosen nodes of so many, of which split has the three splits'.
func (n *nodeFlags) of(nodes int, names *graph.Names, split func(i int) ([]uint32, error)) (ids []uint32, err error) {
	if n.ids != "" {
		if names == nil {
			return parseIDs(n.ids, nodes)
		}
		err = graph.Guard(func() error {
			ids, err = findIDs(n.ids, names, nodes)
			return err
		})
		return ids, err
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

// findIDs reads "alice,bob", names of nodes.
func findIDs(text string, names *graph.Names, nodes int) (ids []uint32, err error) {
	for name := range strings.SplitSeq(text, ",") {
		v, ok := names.Find(name, nodes)
		if !ok {
			v, ok = names.Find(strings.TrimSpace(name), nodes)
		}
		if !ok {
			return nil, usagef("--ids: no node is called %q", name)
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
			return nil, usagef("--ids: the range %s runs backward", part)
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
		return 0, usagef("--ids: %q is not a node id or a range like 10-19", text)
	}
	if v >= uint64(n) {
		return 0, usagef("--ids: node %d is out of range [0, %d)", v, n)
	}
	return v, nil
}

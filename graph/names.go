package graph

import (
	"bytes"
	"slices"
	"sort"
	"strconv"

	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// Names are what the data that a graph was made of calls its nodes: whole numbers or
// texts, rising with the node's number, each once. Without any (nil) a node's name is its
// number. They may lie in mapped memory, like the Dataset that they belong to.
type Names struct {
	Numbers []int64 // of each node; nil: they are texts
	Text    []byte  // all texts, one after the other, in UTF-8
	Bounds  []int64 // of node v in Text: [Bounds[v], Bounds[v+1])
}

// Append appends the name of node v to b.
func (n *Names) Append(b []byte, v uint32) []byte {
	switch {
	case n == nil:
		return strconv.AppendUint(b, uint64(v), 10)
	case n.Numbers != nil:
		return strconv.AppendInt(b, n.Numbers[v], 10)
	}
	return append(b, n.Text[n.Bounds[v]:n.Bounds[v+1]]...)
}

// Of returns the name of node v.
func (n *Names) Of(v uint32) string { return string(n.Append(nil, v)) }

// AreTexts reports whether names are texts, and not numbers.
func (n *Names) AreTexts() bool { return n != nil && n.Numbers == nil }

// Find returns the node, of so many, that has the name; ok is false when there is none.
func (n *Names) Find(name string, nodes int) (v uint32, ok bool) {
	switch {
	case n == nil:
		x, err := strconv.ParseUint(name, 10, 32)
		return uint32(x), err == nil && x < uint64(nodes)
	case n.Numbers != nil:
		x, err := strconv.ParseInt(name, 10, 64)
		i, found := slices.BinarySearch(n.Numbers, x)
		return uint32(i), err == nil && found
	}
	count := len(n.Bounds) - 1
	i := sort.Search(count, func(i int) bool { return string(n.Text[n.Bounds[i]:n.Bounds[i+1]]) >= name })
	return uint32(i), i < count && string(n.Text[n.Bounds[i]:n.Bounds[i+1]]) == name
}

// Validate checks that there is a name for each of so many nodes, and that they rise.
func (n *Names) Validate(nodes int) error {
	if n == nil {
		return nil
	}
	if n.Numbers != nil {
		if len(n.Numbers) != nodes {
			return dataerr.Bad("%d names for %d nodes; give one each, or none", len(n.Numbers), nodes)
		}
		for v := 1; v < nodes; v++ {
			if n.Numbers[v-1] >= n.Numbers[v] {
				return dataerr.Bad("the name of node %d, %d, is not above that of the node before; names must rise", v, n.Numbers[v])
			}
		}
		return nil
	}
	if len(n.Bounds) != nodes+1 || n.Bounds[0] != 0 || n.Bounds[nodes] != int64(len(n.Text)) {
		return dataerr.Bad("the bounds of %d names do not fit %d nodes and %d bytes", len(n.Bounds)-1, nodes, len(n.Text))
	}
	for v := range nodes {
		if n.Bounds[v] > n.Bounds[v+1] || n.Bounds[v+1] > int64(len(n.Text)) {
			return dataerr.Bad("the bounds of the name of node %d run backward", v)
		}
		if v > 0 && bytes.Compare(n.Text[n.Bounds[v-1]:n.Bounds[v]], n.Text[n.Bounds[v]:n.Bounds[v+1]]) >= 0 {
			return dataerr.Bad("the name of node %d is not above that of the node before; names must rise", v)
		}
	}
	return nil
}

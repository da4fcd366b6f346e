// Package arrays names the flat arrays that a dataset consists of, and computes what
// identifies their content.
package arrays

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"sync"
)

// The arrays of a dataset. A store keeps each in a file of that name plus ".bin".
const (
	Indptr       = "indptr"
	Indices      = "indices"
	Weights      = "weights"
	NodeFeatures = "node-features"
	NodeRowScale = "node-features-row-scale"
	NodeColScale = "node-features-col-scale"
	EdgeFeatures = "edge-features"
	EdgeRowScale = "edge-features-row-scale"
	EdgeColScale = "edge-features-col-scale"
	Labels       = "labels"
	NodeTimes    = "node-times"
	EdgeTimes    = "edge-times"
	Train        = "train"
	Valid        = "valid"
	Test         = "test"
	NodeIDs      = "node-ids"         // what the data calls the nodes, where that is whole numbers
	NodeNames    = "node-names"       // or texts, of these
	NameBounds   = "node-name-bounds" // bounds
	Recipe       = "recipe"           // how columns became features and classes, in JSON
)

// The arrays that a piece of a divided graph has beside those.
const (
	Sources    = "sources"   // nodes of other pieces that its edges come from
	Targets    = "targets"   // nodes of other pieces that its edges lead to
	Originals  = "originals" // the ids that the user's data gives its nodes
	OutIndptr  = "out-indptr"
	OutIndices = "out-indices"
	OutWeights = "out-weights"
)

// SetManifest is the name of the file that makes a directory a partition set.
const SetManifest = "pieces.json"

// Names are the arrays in the order in which a manifest lists them.
var Names = []string{
	Indptr, Indices, Weights,
	NodeFeatures, NodeRowScale, NodeColScale,
	EdgeFeatures, EdgeRowScale, EdgeColScale,
	Labels, Train, Valid, Test,
	NodeTimes, EdgeTimes,
	Sources, Targets, Originals, OutIndptr, OutIndices, OutWeights,
	NodeIDs, NodeNames, NameBounds, Recipe,
}

// What more of is a sign of the wrong file.
const (
	MaxColumns = 1 << 20 // of a table
	MaxClasses = 1 << 24
	MaxParts   = 1 << 24 // of a partition
)

// MethodName is what a partition's method may be called.
var MethodName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`) })

// Info is what a manifest says of an array.
type Info struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Rows   int64  `json:"rows"`
	Cols   int64  `json:"cols"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Find returns the array of that name; nil: there is none.
func Find(list []Info, name string) *Info {
	if i := slices.IndexFunc(list, func(a Info) bool { return a.Name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

// Fingerprint hashes the arrays' types, shapes and checksums, which is to say
// the content, and nothing of how or when it was written. splitLabels, of
// SplitLabels, stands for the checksum of the labels unless it is empty.
func Fingerprint(list []Info, classes int64, splitLabels string) string {
	h := sha256.New()
	fmt.Fprintf(h, "gnnactor dataset 1\nclasses %d\n", classes)
	for _, name := range Names {
		a := Find(list, name)
		if a == nil || a.Rows == 0 && (name == Train || name == Valid || name == Test) {
			continue // an empty split is the same as none
		}
		sum := a.SHA256
		if name == Labels && splitLabels != "" {
			sum = splitLabels
		}
		fmt.Fprintf(h, "%s %s %d %d %s\n", a.Name, a.Type, a.Rows, a.Cols, sum)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// SplitLabels hashes the labels of the nodes in the splits, in node order: of class,
// or where that is nil of multi, classes for each node. It is "" when there are no
// labels or no splits.
func SplitLabels(nodes, classes int, class []int32, multi []uint8, splits ...[]uint32) string {
	if class == nil && multi == nil || !slices.ContainsFunc(splits, func(s []uint32) bool { return len(s) > 0 }) {
		return ""
	}
	in := make([]uint64, (nodes+63)/64)
	for _, s := range splits {
		for _, v := range s {
			in[v/64] |= 1 << (v % 64)
		}
	}
	h := sha256.New()
	buf := make([]byte, 0, 1<<16)
	for v := range nodes {
		if in[v/64]>>(v%64)&1 == 0 {
			continue
		}
		buf = append(buf, Bytes([]uint32{uint32(v)})...)
		if class != nil {
			buf = append(buf, Bytes(class[v:v+1])...)
		} else {
			buf = append(buf, multi[v*classes:(v+1)*classes]...)
		}
		if len(buf) > 1<<15 {
			h.Write(buf)
			buf = buf[:0]
		}
	}
	h.Write(buf)
	return hex.EncodeToString(h.Sum(nil))
}

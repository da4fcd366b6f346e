package importer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/graphtest"
)

// shared returns a path among the data that lie beside the repository.
func shared(t testing.TB, elem ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "..", "shared"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there: %v", path, err)
	}
	return path
}

// imported returns the dataset that Import makes of src.
func imported(t testing.TB, src string, o Options) *graph.Dataset {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "store")
	if err := Import(t.Context(), src, dst, o); err != nil {
		t.Fatal(err)
	}
	return opened(t, dst).Dataset()
}

func TestCoraIsTheSameFromBothFormats(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {NormalizeFeatures: true}, {Undirected: true, SelfLoops: true}} {
		bolt := imported(t, shared(t, "data", "cora"), o)
		ogb := imported(t, shared(t, "data", "cora-ogb"), o)
		if bolt.Graph.NumNodes() != 2708 || len(bolt.Train) != 140 || len(bolt.Valid) != 500 || len(bolt.Test) != 1000 {
			t.Fatalf("%d nodes, splits of %d, %d, %d", bolt.Graph.NumNodes(), len(bolt.Train), len(bolt.Valid), len(bolt.Test))
		}
		if e := bolt.Graph.NumEdges(); e != 10556 && !o.SelfLoops || e != 10556+2708 && o.SelfLoops {
			t.Errorf("%d edges", e)
		}
		if bolt.Fingerprint != ogb.Fingerprint || len(bolt.Fingerprint) != 64 {
			t.Errorf("fingerprints %s and %s differ", bolt.Fingerprint, ogb.Fingerprint)
		}
		if !slices.Equal(bolt.Graph.Indptr, ogb.Graph.Indptr) || !slices.Equal(bolt.Graph.Indices, ogb.Graph.Indices) {
			t.Error("the graphs differ")
		}
		if want := map[bool]graph.DType{false: graph.Uint8, true: graph.Float32}[o.NormalizeFeatures]; bolt.NodeFeatures.DType != want || bolt.NodeFeatures.Cols != 1433 {
			t.Errorf("features are %d columns of %s", bolt.NodeFeatures.Cols, bolt.NodeFeatures.DType)
		}
		if !slices.Equal(bolt.NodeFeatures.Data, ogb.NodeFeatures.Data) {
			t.Error("the features differ")
		}
		if bolt.Labels.NumClasses != 7 || ogb.Labels.NumClasses != 7 {
			t.Errorf("%d and %d classes", bolt.Labels.NumClasses, ogb.Labels.NumClasses)
		}
		for _, split := range [][2][]uint32{{bolt.Train, ogb.Train}, {bolt.Valid, ogb.Valid}, {bolt.Test, ogb.Test}} {
			if !slices.Equal(split[0], split[1]) {
				t.Error("a split differs")
			}
			for _, v := range split[0] {
				if bolt.Labels.Class[v] != ogb.Labels.Class[v] {
					t.Errorf("label of node %d: %d and %d", v, bolt.Labels.Class[v], ogb.Labels.Class[v])
				}
			}
		}
		if h := graphtest.Hash(t, bolt); h != bolt.Fingerprint {
			t.Errorf("ContentHash is %s, the store's fingerprint %s", h, bolt.Fingerprint)
		}
	}
}

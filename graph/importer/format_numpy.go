package importer

import (
	"path/filepath"

	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// readNumPy reads a directory of .npy files: indptr.npy and indices.npy, the
// rows of which list the sources of each node's incoming edges (CSC; of a
// symmetric graph CSR is the same), or edges.npy of shape (2, E) or (E, 2).
// Where they are there: weights.npy, edge_features.npy and edge_times.npy, one
// row per edge; features.npy, labels.npy and node_times.npy; and train.npy, valid.npy, test.npy, of ids or
// booleans.
func (im *importer) readNumPy(dir string) error {
	at := func(name string) string { return filepath.Join(dir, name) }
	csc := has("indptr.npy")(dir)
	if csc && has("edges.npy")(dir) {
		return dataerr.Bad("%s has both indptr.npy and edges.npy; take one of them away", dir)
	}
	return im.withNodeTables(dir, func() error {
		if csc {
			return im.cscNPY(at("indptr.npy"), at("indices.npy"), false)
		}
		return im.edgesNPY(at("edges.npy"))
	})
}

// withNodeTables reads edges and the .npy files that may lie beside them.
func (im *importer) withNodeTables(dir string, edges func() error) error {
	optional := func(name string, read func(path string) error) error {
		path := filepath.Join(dir, name)
		if !exists(path) {
			return nil
		}
		return read(path)
	}
	table := func(array string) func(string) error {
		return func(path string) error {
			if array == arrays.Weights && im.weights != nil {
				return dataerr.Bad("%s: the edges have weights already; take one of them away", path)
			}
			return im.edgeTableNPY(path, array)
		}
	}
	split := func(k int) func(string) error {
		return func(path string) (err error) {
			im.splits[k], err = im.idsNPY(path)
			return err
		}
	}
	// What tells the number of nodes comes before what names nodes.
	steps := []func() error{
		func() error { return optional("features.npy", im.nodeFeaturesNPY) },
		func() error { return optional("labels.npy", im.labelsNPY) },
		func() error { return optional("node_times.npy", im.nodeTimesNPY) },
		edges,
		func() error { return optional("weights.npy", table(arrays.Weights)) },
		func() error { return optional("edge_features.npy", table(arrays.EdgeFeatures)) },
		func() error { return optional("edge_times.npy", im.edgeTimesNPY) },
		func() error {
			if im.nodes < 0 {
				return im.nameNodes()
			}
			return nil
		},
		func() error { return optional("train.npy", split(0)) },
		func() error { return optional("valid.npy", split(1)) },
		func() error { return optional("test.npy", split(2)) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

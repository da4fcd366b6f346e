package importer

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// readOGB reads the layout of the Open Graph Benchmark's node property data
// sets: raw/edge.csv.gz, raw/num-node-list.csv.gz, raw/num-edge-list.csv.gz,
// and where they are there raw/node-feat.csv.gz, raw/edge-feat.csv.gz,
// raw/edge_weight.csv.gz, raw/node-label.csv.gz and
// split/NAME/{train,valid,test}.csv.gz.
func (im *importer) readOGB(dir string) error {
	raw := func(name string) string { return filepath.Join(dir, "raw", name+".csv.gz") }
	if path := raw("num-node-list"); exists(path) {
		n, err := im.countText(path)
		if err != nil {
			return err
		}
		if err := im.setNodes(n, path); err != nil {
			return err
		}
	}
	if path := raw("node-feat"); exists(path) {
		if err := im.nodeFeaturesText(path); err != nil {
			return err
		}
	}
	if path := raw("node_year"); exists(path) {
		if err := im.nodeTimesText(path); err != nil {
			return err
		}
	}
	if path := raw("node-label"); exists(path) {
		if err := im.labelsText(path); err != nil {
			return err
		}
	}
	if err := im.edgePairs(raw("edge")); err != nil {
		return err
	}
	if path := raw("num-edge-list"); exists(path) {
		n, err := im.countText(path)
		if err != nil {
			return err
		}
		if n != im.edges.count {
			return dataerr.Bad("%s says %d edges, but %s has %d lines; they must agree", path, n, raw("edge"), im.edges.count)
		}
	}
	for _, name := range []string{"edge_weight", "edge-weight"} {
		if path := raw(name); exists(path) {
			if err := im.edgeTableText(path, arrays.Weights); err != nil {
				return err
			}
			break
		}
	}
	if path := raw("edge-feat"); exists(path) {
		if err := im.edgeTableText(path, arrays.EdgeFeatures); err != nil {
			return err
		}
	}
	return im.readOGBSplit(filepath.Join(dir, "split"))
}

// countText reads a file of one number: the size of the only graph.
func (im *importer) countText(path string) (int64, error) {
	t, err := im.openText(path)
	if err != nil {
		return 0, err
	}
	defer t.close()
	line, err := t.next()
	if err == io.EOF {
		return 0, dataerr.Bad("%s: it is empty; want one number", path)
	}
	if err != nil {
		return 0, err
	}
	var n int64
	if _, err := fmt.Sscanf(strings.TrimSpace(string(line)), "%d", &n); err != nil || n < 0 {
		return 0, t.errorf("%q is not a count", clip(line))
	}
	switch _, err := t.next(); err {
	case io.EOF:
		return n, nil
	case nil:
		return 0, t.errorf("there are several graphs in this data set; only one is supported")
	default:
		return 0, err
	}
}

func (im *importer) readOGBSplit(dir string) error {
	if !exists(dir) && im.o.Split == "" {
		return nil
	}
	list, err := im.src.readDir(dir)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range list {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	name := im.o.Split
	for _, n := range names {
		if !printable(n) {
			return dataerr.Bad("%s: the name %q cannot be printed; rename the directory", dir, clip(n))
		}
	}
	switch {
	case name != "" && !filepath.IsLocal(name):
		return fmt.Errorf("graph: split %q is not the name of a directory in %s", name, dir)
	case name != "":
	case len(names) == 0:
		return nil
	case len(names) == 1:
		name = names[0]
	default:
		return dataerr.Bad("%s has several splits (%s); choose one by the option Split", dir, strings.Join(names, ", "))
	}
	for k, set := range []string{arrays.Train, arrays.Valid, arrays.Test} {
		path := filepath.Join(dir, name, set+".csv.gz")
		if pt := filepath.Join(dir, name, set+".pt"); exists(pt) && !exists(path) {
			return dataerr.Bad("%s: a pickled PyTorch file, of links as in ogbl data sets, is not read; move the directory %s away, and task link holds out links of its own", pt, dir)
		}
		ids, err := im.idsText(path)
		if err != nil {
			return err
		}
		im.splits[k] = ids
	}
	return nil
}

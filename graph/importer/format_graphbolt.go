package importer

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/internal/arrays"
	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// boltMetadata is what is used of a GraphBolt OnDiskDataset's metadata.yaml.
type boltMetadata struct {
	Name  string `yaml:"dataset_name"`
	Graph *struct {
		Nodes []struct {
			Type string `yaml:"type"`
			Num  int64  `yaml:"num"`
		} `yaml:"nodes"`
		Edges []struct {
			Type   string `yaml:"type"`
			Format string `yaml:"format"`
			Path   string `yaml:"path"`
		} `yaml:"edges"`
	} `yaml:"graph"`
	Features []boltFile `yaml:"feature_data"`
	Tasks    []boltTask `yaml:"tasks"`
}

// boltFile names a file, of features or of a task's data.
type boltFile struct {
	Domain string `yaml:"domain"`
	Type   string `yaml:"type"`
	Name   string `yaml:"name"`
	Format string `yaml:"format"`
	Path   string `yaml:"path"`
}

// isTime reports whether the features are times: what GraphBolt's temporal
// samplers read by default, or called so.
func (f *boltFile) isTime() bool { return f.Name == "timestamp" || f.Name == "time" }

type boltTask struct {
	Name       string    `yaml:"name"`
	NumClasses int       `yaml:"num_classes"`
	Train      []boltSet `yaml:"train_set"`
	Valid      []boltSet `yaml:"validation_set"`
	Test       []boltSet `yaml:"test_set"`
}

type boltSet struct {
	Type string     `yaml:"type"`
	Data []boltFile `yaml:"data"`
}

const maxMetadata = 1 << 18 // bytes

// decodeBoltMetadata reads metadata.yaml and checks all that can be checked
// without the other files.
func decodeBoltMetadata(b []byte) (*boltMetadata, error) {
	m := new(boltMetadata)
	if err := yaml.Unmarshal(b, m); err != nil {
		return nil, plainError(err)
	}
	if !printable(m.Name) || len(m.Name) > 200 {
		return nil, fmt.Errorf("dataset_name: %q is too long for a name, or cannot be printed", clip(m.Name))
	}
	if m.Graph == nil {
		return nil, fmt.Errorf("graph is missing")
	}
	if len(m.Graph.Nodes) != 1 || len(m.Graph.Edges) != 1 {
		return nil, fmt.Errorf("%d node types and %d edge types; only graphs with one of each are supported", len(m.Graph.Nodes), len(m.Graph.Edges))
	}
	if n := m.Graph.Nodes[0].Num; n < 0 || n > graph.MaxNodes {
		return nil, fmt.Errorf("graph.nodes.num: %d is out of range [0, %d]", n, graph.MaxNodes)
	}
	e := m.Graph.Edges[0]
	if err := checkBoltFile("graph.edges", e.Path, e.Format, "csv", "numpy"); err != nil {
		return nil, err
	}
	for i, f := range m.Features {
		if f.Domain != "node" && f.Domain != "edge" {
			return nil, fmt.Errorf("feature_data[%d].domain: %q is neither node nor edge", i, clip(f.Domain))
		}
		formats := []string{"numpy", "csv"}
		if f.isTime() {
			formats = formats[:1]
		}
		if err := checkBoltFile(fmt.Sprintf("feature_data[%d]", i), f.Path, f.Format, formats...); err != nil {
			return nil, err
		}
	}
	for i, t := range m.Tasks {
		if t.NumClasses < 0 || t.NumClasses > arrays.MaxClasses {
			return nil, fmt.Errorf("tasks[%d].num_classes: %d is out of range [0, %d]", i, t.NumClasses, arrays.MaxClasses)
		}
		for _, sets := range [][]boltSet{t.Train, t.Valid, t.Test} {
			if len(sets) > 1 {
				return nil, fmt.Errorf("tasks[%d]: a set has %d node types; only one is supported", i, len(sets))
			}
			for _, set := range sets {
				for _, f := range set.Data {
					if err := checkBoltFile(fmt.Sprintf("tasks[%d], data %q", i, clip(f.Name)), f.Path, f.Format, "numpy"); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return m, nil
}

// plainError keeps of an error, which may quote what was read, a printable line.
func plainError(err error) error {
	s := err.Error()
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s[:min(len(s), 200)])
	return errors.New(s)
}

func checkBoltFile(what, path, format string, allowed ...string) error {
	if !filepath.IsLocal(filepath.FromSlash(path)) || len(path) > 1000 || !printable(path) {
		return fmt.Errorf("%s.path: %q must be a path inside of the dataset's directory, and printable", what, clip(path))
	}
	for _, f := range allowed {
		if f == format {
			return nil
		}
	}
	return fmt.Errorf("%s.format: %q is not supported; use %v", what, clip(format), allowed)
}

// readGraphBolt reads an OnDiskDataset: the edges, the node features named
// "feat" (or the only ones), the edge features named "feat" (or the only ones)
// and "weight", the times of either named "timestamp" or "time", and the task named "node_classification" (or the first one).
func (im *importer) readGraphBolt(dir string) error {
	path := filepath.Join(dir, "metadata.yaml")
	f, err := im.src.open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxMetadata+1))
	if err != nil {
		return fmt.Errorf("graph: %w", err)
	}
	if len(b) > maxMetadata {
		return dataerr.Bad("%s: longer than %d bytes; is this the metadata?", path, maxMetadata)
	}
	m, err := decodeBoltMetadata(b)
	if err != nil {
		return dataerr.Bad("%s: %w", path, err)
	}
	if m.Name != "" && im.o.Name == "" {
		im.w.SetName(m.Name)
	}
	if err := im.setNodes(m.Graph.Nodes[0].Num, path+" (graph.nodes.num)"); err != nil {
		return err
	}
	at := func(p string) string { return filepath.Join(dir, filepath.FromSlash(p)) }
	if e := m.Graph.Edges[0]; e.Format == "csv" {
		err = im.edgePairs(at(e.Path))
	} else {
		err = im.edgesNPY(at(e.Path))
	}
	if err != nil {
		return err
	}
	node, err := m.feature("node")
	if err != nil {
		return dataerr.Bad("%s: %w", path, err)
	}
	if node != nil {
		read := im.nodeFeaturesNPY
		if node.Format == "csv" {
			read = im.nodeFeaturesText
		}
		if err := read(at(node.Path)); err != nil {
			return err
		}
	}
	for _, f := range m.Features {
		var err error
		switch {
		case f.Domain == "edge" && f.Name == "weight":
			err = im.boltEdges(&f, arrays.Weights, at)
		case f.Domain == "edge" && f.isTime():
			err = im.edgeTimesNPY(at(f.Path))
		case f.isTime():
			err = im.nodeTimesNPY(at(f.Path))
		}
		if err != nil {
			return err
		}
	}
	edge, err := m.feature("edge")
	if err != nil {
		return dataerr.Bad("%s: %w", path, err)
	}
	if edge != nil {
		if err := im.boltEdges(edge, arrays.EdgeFeatures, at); err != nil {
			return err
		}
	}
	return im.readBoltTask(m.task(), path, at)
}

// boltEdges reads weights or features of edges.
func (im *importer) boltEdges(f *boltFile, name string, at func(string) string) error {
	if f.Format == "csv" {
		return im.edgeTableText(at(f.Path), name)
	}
	return im.edgeTableNPY(at(f.Path), name)
}

// feature returns the features to use of a domain, or nil.
func (m *boltMetadata) feature(domain string) (*boltFile, error) {
	var found *boltFile
	var names []string
	for i := range m.Features {
		f := &m.Features[i]
		if f.Domain != domain || domain == "edge" && f.Name == "weight" || f.isTime() {
			continue
		}
		if f.Name == "feat" {
			return f, nil
		}
		found, names = f, append(names, clip(f.Name))
	}
	if names = names[:min(len(names), 8)]; len(names) > 1 {
		return nil, fmt.Errorf("feature_data: several of domain %s (%q); name the one to use \"feat\"", domain, names)
	}
	return found, nil
}

func (m *boltMetadata) task() *boltTask {
	for i := range m.Tasks {
		if m.Tasks[i].Name == "node_classification" {
			return &m.Tasks[i]
		}
	}
	if len(m.Tasks) > 0 {
		return &m.Tasks[0]
	}
	return nil
}

func (im *importer) readBoltTask(t *boltTask, path string, at func(string) string) error {
	if t == nil {
		return nil
	}
	im.labels.NumClasses = t.NumClasses
	for k, sets := range [][]boltSet{t.Train, t.Valid, t.Test} {
		if len(sets) == 0 {
			continue
		}
		var seeds, labels string
		for _, f := range sets[0].Data {
			switch f.Name {
			case "seeds", "seed_nodes":
				seeds = at(f.Path)
			case "labels":
				labels = at(f.Path)
			}
		}
		if seeds == "" {
			return dataerr.Bad("%s: task %q: a set has no data named \"seeds\"", path, clip(t.Name))
		}
		if pairs, err := im.isPairsNPY(seeds); err != nil {
			return err
		} else if pairs {
			return dataerr.Bad("%s: task %q: %s has two nodes per row; a data set's own links for training and test are not read: take the task out, and task link holds out links of its own", path, clip(t.Name), seeds)
		}
		ids, err := im.idsNPY(seeds)
		if err != nil {
			return err
		}
		im.splits[k] = ids
		if labels == "" {
			continue
		}
		if err := im.labelsOf(ids, labels, t.NumClasses); err != nil {
			return err
		}
	}
	return nil
}

// isPairsNPY reports whether the file has two columns, as seeds of links have.
func (im *importer) isPairsNPY(path string) (bool, error) {
	a, err := im.openNPY(path)
	if err != nil {
		return false, err
	}
	defer a.close()
	return len(a.shape) == 2 && a.shape[1] == 2, nil
}

// labelsOf reads the labels of some nodes; the others stay without.
func (im *importer) labelsOf(ids []uint32, path string, classes int) error {
	l := &im.labels
	width, i := 0, 0
	return im.eachLabelNPY(path, func(rows int64, cols int) error {
		if rows != int64(len(ids)) {
			return dataerr.Bad("%s has %d rows for %d seeds; give one each", path, rows, len(ids))
		}
		width = cols
		if cols == 1 {
			if l.Multi != nil {
				return dataerr.Bad("%s: one column, but other sets have %d; they must agree", path, l.NumClasses)
			}
			if l.Class == nil {
				if err := im.claimNodes(); err != nil {
					return err
				}
				l.Class = make([]int32, im.nodes)
				for v := range l.Class {
					l.Class[v] = graph.Unlabeled
				}
			}
			return nil
		}
		if classes > 0 && classes != cols || l.Class != nil || l.Multi != nil && l.NumClasses != cols {
			return dataerr.Bad("%s: %d columns, but the metadata or other sets have another number of classes; they must agree", path, cols)
		}
		if l.Multi == nil {
			if err := im.claim(im.nodes*int64(cols), path, fmt.Sprintf("labels of %d columns for %d nodes", cols, im.nodes)); err != nil {
				return err
			}
			l.NumClasses, l.Multi = cols, make([]uint8, im.nodes*int64(cols))
		}
		return nil
	}, func(x []float32) error {
		v := ids[i]
		i++
		if width > 1 {
			r := labelReader{cols: width}
			if err := r.row(x); err != nil {
				return err
			}
			copy(l.Multi[int64(v)*int64(width):], r.labels.Multi)
			return nil
		}
		c, err := classOf(x[0])
		if err != nil {
			return err
		}
		if classes > 0 && int(c) >= classes {
			return fmt.Errorf("%w: label %d is out of range [0, %d), the classes that the metadata names", errRow, c, classes)
		}
		if classes == 0 {
			l.NumClasses = max(l.NumClasses, int(c)+1)
		}
		l.Class[v] = c
		return nil
	})
}

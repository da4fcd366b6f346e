package importer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// findFile returns the one file of a name that named accepts: path itself, or
// the only one in the directory path. want says what is looked for.
func findFile(path string, named func(string) bool, want string) (string, error) {
	found, err := findFiles(path, named, want)
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", dataerr.Bad("%s: %d files could be it (%q); there must be one; the name of %s", path, len(found), found[:min(len(found), 8)], want)
	}
	return found[0], nil
}

func findFiles(path string, named func(string) bool, want string) (found []string, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	if !st.IsDir() {
		if !named(path) {
			return nil, dataerr.Bad("%s: the name of %s", path, want)
		}
		return []string{path}, nil
	}
	list, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	for _, e := range list {
		if e.IsDir() || !named(e.Name()) {
			continue
		}
		if !printable(e.Name()) {
			return nil, dataerr.Bad("%s: the name %q cannot be printed; rename the file", path, clip(e.Name()))
		}
		found = append(found, filepath.Join(path, e.Name()))
	}
	return found, nil
}

// tableExt is what says the syntax of a table, ".csv" for all text with separators, or what is
// registered; "": it is none.
func tableExt(path string) string {
	if decoderOf(path) != nil {
		return strings.ToLower(filepath.Ext(path))
	}
	name := strings.ToLower(filepath.Base(path))
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	switch ext := filepath.Ext(name); ext {
	case ".csv", ".tsv", ".txt", ".edges", ".edgelist", ".tab":
		return ".csv"
	case ".jsonl", ".ndjson":
		return ".jsonl"
	default:
		return ""
	}
}

// tables finds the tables of edges and nodes: what the options say, or else in a directory the only
// table, or two of which one's name begins with edge, link or rel.
func (o *Options) tables(path string) (edges, nodes string, err error) {
	if o.Edges != "" || o.Nodes != "" {
		if o.Edges == "" {
			return "", "", fmt.Errorf("graph: a table of nodes without one of edges; say where the edges are (the option Edges, --edges)")
		}
		for _, p := range []string{o.Edges, o.Nodes} {
			if p != "" && tableExt(p) == "" {
				return "", "", dataerr.Bad("%s: the name of %s", p, tableEnds())
			}
		}
		return o.Edges, o.Nodes, nil
	}
	found, err := findFiles(path, func(name string) bool { return tableExt(name) != "" }, tableEnds())
	if err != nil {
		return "", "", err
	}
	if len(found) == 1 {
		return found[0], "", nil
	}
	var other []string
	for _, p := range found {
		name := strings.ToLower(filepath.Base(p))
		switch {
		case edges == "" && slices.ContainsFunc([]string{"edge", "link", "rel"}, func(s string) bool { return strings.HasPrefix(name, s) }):
			edges = p
		default:
			other = append(other, p)
		}
	}
	if len(found) != 2 || edges == "" {
		return "", "", dataerr.Bad("%s: %d tables (%s); say which are the edges and the nodes (--edges FILE --nodes FILE)", path, len(found), listed(found))
	}
	return edges, other[0], nil
}

// readTables reads a table of edges, and perhaps one of nodes, or in a directory the .npy files that
// readNumPy knows.
func (im *importer) readTables(path string) error {
	edges, nodes, err := im.o.tables(path)
	if err != nil {
		return err
	}
	if im.o.Recipe != nil {
		im.made = *im.o.Recipe
	}
	switch {
	case nodes != "":
		if err := im.readNodes(nodes); err != nil {
			return err
		}
		err = im.readEdges(edges)
	case path != "" && edges != path:
		err = im.withNodeTables(path, func() error { return im.readEdges(edges) })
	default:
		err = im.readEdges(edges)
	}
	if err != nil || im.o.dryRun {
		return err
	}
	if nodes != "" || im.splitKind() != "" {
		if im.nodes < 0 {
			if err := im.nameNodes(); err != nil {
				return err
			}
		}
		if err := im.drawSplit(); err != nil {
			return err
		}
	}
	if len(im.made.Nodes)+len(im.made.Edges) > 0 || im.made.Label != nil {
		im.recipe = im.made.encode()
	}
	return nil
}

package importer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gnnactor/gnnactor/graph/internal/dataerr"
)

// findFile returns the one file of a name that named accepts: path itself, or
// the only one in the directory path. want says what is looked for.
func findFile(path string, named func(string) bool, want string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("graph: %w", err)
	}
	if !st.IsDir() {
		if !named(path) {
			return "", dataerr.Bad("%s: the name of %s", path, want)
		}
		return path, nil
	}
	list, err := os.ReadDir(path)
	if err != nil {
		return "", fmt.Errorf("graph: %w", err)
	}
	var found []string
	for _, e := range list {
		if !e.IsDir() && named(e.Name()) {
			found = append(found, e.Name())
		}
	}
	if len(found) != 1 {
		return "", dataerr.Bad("%s: %d files could be it (%q); there must be one; the name of %s", path, len(found), found[:min(len(found), 8)], want)
	}
	if !printable(found[0]) {
		return "", dataerr.Bad("%s: the name %q cannot be printed; rename the file", path, clip(found[0]))
	}
	return filepath.Join(path, found[0]), nil
}

func edgeListName(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(name), ".gz"), ".zst")
	switch filepath.Ext(name) {
	case ".csv", ".tsv", ".txt", ".edges":
		return true
	}
	return false
}

// readEdgeList reads a file of lines "source destination [weight [time]]", separated
// by tabs, commas, semicolons or spaces, perhaps with a header, which may name the
// third column "time", and in a directory the .npy files that readNumPy knows.
func (im *importer) readEdgeList(path string) error {
	file, err := findFile(path, edgeListName, "an edge list ends in .csv, .tsv, .txt or .edges, and perhaps .gz or .zst")
	if err != nil {
		return err
	}
	edges := func() error { return im.edgesText(file, true, true) }
	if file == path {
		return edges()
	}
	return im.withNodeTables(path, edges)
}

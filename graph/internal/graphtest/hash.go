package graphtest

import (
	"testing"

	"github.com/gnnactor/gnnactor/graph"
)

// Hash returns the dataset's ContentHash.
func Hash(t testing.TB, ds *graph.Dataset) string {
	t.Helper()
	hash, err := ds.ContentHash(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

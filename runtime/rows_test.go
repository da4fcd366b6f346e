package runtime

import (
	"context"
	"errors"
	"testing"

	"github.com/gnnactor/gnnactor/graph"
	"github.com/gnnactor/gnnactor/graph/features"
	"github.com/gnnactor/gnnactor/graph/generate"
)

func TestRowsRefused(t *testing.T) {
	ds := generate.Builtin()
	rows := features.InMemory(ds.NodeFeatures)
	defer rows.Close()
	for name, change := range map[string]func(*Config){
		"normalised": func(c *Config) { c.Data.NormalizeFeatures = true },
		"elsewhere":  func(c *Config) { c.Memory.Features = "disk" },
		"full":       func(c *Config) { c.Sampling.Sampler = "full" },
		"other": func(c *Config) {
			other := *ds
			other.NodeFeatures = graph.NewFeatures(ds.NodeFeatures.Rows, 1, make([]float32, ds.NodeFeatures.Rows))
			c.Data.Dataset = &other
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := config()
			c.Data.Rows = rows
			change(&c)
			r, err := Start(context.Background(), c)
			if err == nil {
				err = r.Stop()
			}
			if !errors.Is(err, ErrConfig) {
				t.Errorf("%v", err)
			}
		})
	}
}

// hashOf returns the dataset's ContentHash.
func hashOf(t *testing.T, ds *graph.Dataset) string {
	t.Helper()
	hash, err := ds.ContentHash(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

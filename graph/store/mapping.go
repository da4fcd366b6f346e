package store

import (
	"errors"
	"fmt"
	"os"

	"github.com/gnnactor/gnnactor/graph"
)

// withMapped calls f under Guard with the first size bytes of h, mapped for as long
// as it runs.
func withMapped(h *os.File, size int64, f func(mem []byte) error) error {
	mem, err := mapFile(h, size)
	if err != nil {
		return fmt.Errorf("graph: map %s: %w", h.Name(), err)
	}
	return errors.Join(graph.Guard(func() error { return f(mem) }), unmapFile(mem))
}

//go:build !amd64

package features

import "github.com/gnnactor/gnnactor/graph"

// copyFast reports that there is no kernel.
func copyFast(*Request, *graph.Features, int, int, int, bool) bool { return false }

// fetch would prefetch.
func fetch(base *byte, index *uint32, n, size, less int) {}

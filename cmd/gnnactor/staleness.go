package main

import (
	"fmt"
	"strings"

	"github.com/gnnactor/gnnactor/runtime"
)

// addStaleness adds what share of an asynchronous run's gradients was how late.
func addStaleness(t *table, done runtime.Event) {
	total := int64(0)
	for _, n := range done.Late {
		total += n
	}
	if total == 0 {
		return
	}
	var parts []string
	for late, n := range done.Late {
		parts = append(parts, fmt.Sprintf("%d: %s", late, formatPercent(float64(n)/float64(total))))
	}
	t.row("gradients, by steps late", strings.Join(parts, "  "))
}

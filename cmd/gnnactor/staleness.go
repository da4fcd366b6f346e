package main

import (
	"fmt"
	"strings"
)

// addStaleness adds what share of an asynchronous run's gradients was how late, of as many as were 0, 1, … steps late.
func addStaleness(t *table, counts []int64) {
	total := int64(0)
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return
	}
	var parts []string
	for late, n := range counts {
		parts = append(parts, fmt.Sprintf("%d: %s", late, formatPercent(float64(n)/float64(total))))
	}
	t.row("gradients, by steps late", strings.Join(parts, "  "))
}

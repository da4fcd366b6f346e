package main

import (
	"strings"
	"testing"
)

// An asynchronous run says how late its gradients were: all of them are counted,
// and none is later than the bound.
func TestStaleness(t *testing.T) {
	out, _ := mustInvoke(t, "train", "--sync", "ssp:2", "--trainers", "3", "--epochs", "2", "--batch-size", "64", "--output", "json")
	m := lastLine(t, out)
	late, _ := m["staleness"].([]any)
	sum := 0.0
	for _, n := range late {
		sum += n.(float64)
	}
	if len(late) < 1 || len(late) > 3 || sum != m["batches"].(float64) {
		t.Errorf("it prints staleness %v of %v batches", late, m["batches"])
	}
	out, _ = mustInvoke(t, "train", "--sync", "ssp:2", "--trainers", "3", "--epochs", "1")
	if !strings.Contains(out, "gradients, by steps late") {
		t.Errorf("it prints\n%s", out)
	}
	out, _ = mustInvoke(t, "train", "--epochs", "1", "--output", "json")
	if m := lastLine(t, out); m["staleness"] != nil {
		t.Errorf("a synchronous run prints staleness %v", m["staleness"])
	}
}

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/cluster/node"
	"github.com/gnnactor/gnnactor/runtime"
)

// A run whose program has stages of its own is refused by one that lacks them, by name.
func TestRunWithOtherStages(t *testing.T) {
	var c clusterFlags
	cfg := runtime.DefaultConfig()
	r := &node.Run{Node: "a", Settings: map[string]string{runStages: "thin 2 after sample"}}
	err := c.check(r, nil, nil, &cfg)
	if !errors.Is(err, node.ErrOtherRun) || !strings.Contains(err.Error(), "node a began: stages of its own are thin 2 after sample, and none here") {
		t.Error(err)
	}
	cfg.Stages = []runtime.Stage{{Name: "thin", Version: "2", After: runtime.AfterSample}}
	if err := c.check(r, nil, nil, &cfg); err != nil {
		t.Error(err)
	}
}

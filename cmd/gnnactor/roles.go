package main

import (
	"fmt"
	"strings"
)

// roles are what a node does for a run.
type roles struct{ sample, train, rows bool }

// Set implements pflag.Value.
func (r *roles) Set(text string) error {
	*r = roles{}
	for name := range strings.SplitSeq(text, ",") {
		switch strings.TrimSpace(name) {
		case "sampler":
			r.sample = true
		case "trainer":
			r.train = true
		case "rows":
			r.rows = true
		default:
			return fmt.Errorf("%q is none of sampler, trainer, rows", name)
		}
	}
	return nil
}

// String implements pflag.Value.
func (r *roles) String() string {
	var all []string
	for _, x := range []struct {
		has  bool
		name string
	}{{r.sample, "sampler"}, {r.train, "trainer"}, {r.rows, "rows"}} {
		if x.has {
			all = append(all, x.name)
		}
	}
	return strings.Join(all, ",")
}

// Type implements pflag.Value.
func (*roles) Type() string { return "ROLES" }

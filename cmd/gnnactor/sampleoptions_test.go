package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/sampling"
)

// The help names every option of a sampler that has no flag of its own.
func TestHelpNamesSamplerOptions(t *testing.T) {
	out, _ := mustInvoke(t, "sample", "--help")
	spec := reflect.TypeFor[sampling.Spec]()
	for i := range spec.NumField() {
		name, _, _ := strings.Cut(spec.Field(i).Tag.Get("yaml"), ",")
		switch name {
		case "name", "fanouts", "layers", "edge-ids": // settings of the run
			continue
		}
		if !strings.Contains(out, name) {
			t.Errorf("the help of sample does not say what %s is", name)
		}
	}
}

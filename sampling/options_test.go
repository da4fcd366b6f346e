package sampling

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Every option that a sampler reads says what it takes. What it shows as an example it takes, and what it does not is refused by
// name, with what was given; so is what a sampler needs and nobody gave.
func TestOptionsSayWhatTheyTake(t *testing.T) {
	wrong := map[string]string{"recycle-growth": "0.5", "cache-fraction": "1.5", "cache-by": "luck", "normalize": "max", "restart": "1"}
	for _, sampler := range Names() {
		spec := Spec{Name: sampler, Layers: 1}
		if err := yaml.Unmarshal(fmt.Append(nil, "fanouts: [3]\nmini-batch: 1\nepoch-subgraphs: 1"), &spec); err != nil {
			t.Fatal(err)
		}
		for _, own := range []string{"mini-batch", "epoch-subgraphs"} {
			if !slices.Contains(Reads(sampler), own) {
				spec.MiniBatch, spec.EpochSubgraphs = 0, 0
			}
		}
		for _, name := range needs[sampler] {
			if err := spec.Validate(); err == nil || !strings.Contains(err.Error(), name+": "+sampler+" needs it") || !strings.Contains(err.Error(), "like "+name+"=") {
				t.Errorf("%s without %s: %v", sampler, name, err)
			}
			if err := yaml.Unmarshal(fmt.Append(nil, name, ": ", options[name].like), &spec); err != nil {
				t.Fatal(err)
			}
		}
		if err := spec.Validate(); err != nil {
			t.Errorf("%s: %v", sampler, err)
		}
		for _, name := range Reads(sampler) {
			o, is := options[name]
			if !is {
				if name != "mini-batch" && name != "epoch-subgraphs" { // of the run
					t.Errorf("%s has %s, and nothing says what that takes", sampler, name)
				}
				continue
			}
			try := func(value string) error {
				one := spec
				if err := yaml.Unmarshal(fmt.Append(nil, name, ": ", value), &one); err != nil {
					return err
				}
				return one.Validate()
			}
			if err := try(o.like); err != nil {
				t.Errorf("%s: %s, and %v", sampler, Takes(name), err)
			}
			bad := wrong[name]
			if v := reflect.ValueOf(spec); bad == "" && slices.ContainsFunc(reflect.VisibleFields(v.Type()), func(f reflect.StructField) bool {
				return strings.HasPrefix(f.Tag.Get("yaml"), name+",") && f.Type.Kind() == reflect.Int
			}) {
				bad = "-1"
			}
			if bad == "" { // true or false, or a text that others check
				continue
			}
			if err := try(bad); err == nil || !strings.Contains(err.Error(), name+"="+bad+": it takes "+o.takes+", like "+name+"="+o.like) {
				t.Errorf("%s with %s=%s: %v", sampler, name, bad, err)
			}
		}
	}
}

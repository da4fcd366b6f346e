package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gnnactor/gnnactor/runtime"
)

// yamlNames returns the yaml tags of the sections of runtime.Config.
func yamlNames(t *testing.T) []string {
	t.Helper()
	var names []string
	config := reflect.TypeFor[runtime.Config]()
	for i := range config.NumField() {
		section := config.Field(i)
		switch tag := section.Tag.Get("yaml"); tag {
		case "-":
			continue
		case ",inline":
		default:
			t.Errorf("Config.%s has the yaml tag %q, and is no section", section.Name, tag)
			continue
		}
		for j := range section.Type.NumField() {
			f := section.Type.Field(j)
			tag, ok := f.Tag.Lookup("yaml")
			if !ok {
				t.Errorf("Config.%s.%s has no yaml tag", section.Name, f.Name)
			}
			if tag != "-" {
				names = append(names, tag)
			}
		}
	}
	return names
}

// Every setting has a flag, an environment variable and a description, and
// there is none besides.
func TestSettingsMatchConfig(t *testing.T) {
	names := yamlNames(t)
	var described []string
	for _, s := range settings {
		described = append(described, s.name)
		if strings.TrimSpace(s.doc) == "" {
			t.Errorf("setting %s has no description", s.name)
		}
	}
	slices.Sort(names)
	slices.Sort(described)
	if !slices.Equal(names, described) {
		t.Errorf("Config has  %v\nsettings are %v", names, described)
	}
	root, _ := newRoot(nil, nil)
	train, _, err := root.Find([]string{"train"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f := train.Flags().Lookup(name)
		if f == nil {
			t.Errorf("train has no flag --%s", name)
			continue
		}
		want := field(new(runtime.DefaultConfig()), name)
		if f.DefValue != want.String() {
			t.Errorf("--%s shows the default %q, it is %q", name, f.DefValue, want.String())
		}
	}
}

// No setting's variable is one of those that mean something else.
func TestReservedEnvironment(t *testing.T) {
	for _, s := range settings {
		if slices.Contains(reservedEnv, s.env()) || s.env() == configEnv {
			t.Errorf("%s is reserved", s.env())
		}
	}
}

// samples holds a value of each type, other than any default, as flags spell
// it, as YAML spells it, and what it means.
var samples = map[reflect.Type]struct {
	flag, yaml string
	want       any
}{
	reflect.TypeFor[string]():  {"x/y", "x/y", "x/y"},
	reflect.TypeFor[bool]():    {"true", "true", true},
	reflect.TypeFor[int]():     {"7", "7", 7},
	reflect.TypeFor[uint64]():  {"18446744073709551615", "18446744073709551615", uint64(1<<64 - 1)},
	reflect.TypeFor[float64](): {"0.125", "0.125", 0.125},
	reflect.TypeFor[[]int]():   {"15, -1,5", "[15, -1, 5]", []int{15, -1, 5}},

	reflect.TypeFor[runtime.Sync](): {"ssp:7", "ssp:7", runtime.SSP(7)},

	reflect.TypeFor[map[string]string](): {"budget=8000, frontier=50", "{budget: 8000, frontier: 50}", map[string]string{"budget": "8000", "frontier": "50"}},
}

// Each setting arrives from each of its three sources.
func TestEverySettingFromEverySource(t *testing.T) {
	for _, s := range settings {
		sample := samples[field(new(runtime.Config), s.name).Value().Type()]
		if s.name == "format" { // checked while loading
			sample.flag, sample.yaml, sample.want = "ogb", "ogb", "ogb"
		}
		if s.name == "params" { // read while loading
			name := savedParams(t)
			sample.flag, sample.yaml, sample.want = name, name, name
		}
		for source, run := range map[string]struct {
			args, env []string
			file      string
		}{
			"flag": {args: []string{"--" + s.name + "=" + sample.flag}},
			"env":  {env: []string{s.env() + "=" + sample.flag}},
			"file": {file: s.name + ": " + sample.yaml + "\n"},
		} {
			t.Run(s.name+"/"+source, func(t *testing.T) {
				cfg, _, err := loadConfig(t, run.args, run.env, run.file)
				if err != nil {
					t.Fatal(err)
				}
				if got := field(&cfg, s.name).Value().Interface(); !reflect.DeepEqual(got, sample.want) {
					t.Errorf("got %v, want %v", got, sample.want)
				}
			})
		}
	}
}

// loadConfig loads the settings that a command with every flag would.
func loadConfig(t *testing.T, args, env []string, file string) (runtime.Config, string, error) {
	t.Helper()
	var stderr strings.Builder
	a := &app{stderr: &stderr, environ: func() []string { return env }}
	cmd := &cobra.Command{Use: "test"}
	cmd.SetContext(t.Context())
	c := addConfigFlags(cmd, []group{dataGroup, modelGroup, samplingGroup, trainingGroup, executionGroup, checkpointGroup})
	if file != "" {
		args = append(args, "--config", writeTemp(t, "config.yaml", file))
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	cfg, err := c.load(cmd, a)
	return cfg, stderr.String(), err
}

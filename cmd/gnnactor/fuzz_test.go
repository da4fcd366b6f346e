package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/runtime"
)

// Node ids are in range or refused, whatever is written.
func FuzzParseIDs(f *testing.F) {
	for _, s := range []string{"", "0", "0,5,10-19", "7-3", "-", "1-", " 3", "4294967295"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const n = 100
		ids, err := parseIDs(text, n)
		if err == nil && len(ids) == 0 {
			t.Errorf("%q is no nodes and no error", text)
		}
		for _, v := range ids {
			if v >= n {
				t.Errorf("%q: node %d of %d", text, v, n)
			}
		}
	})
}

// A config file changes settings or is refused; it never touches what is no
// setting.
func FuzzConfigFile(f *testing.F) {
	for _, s := range []string{"hidden: 7", "fanouts: [1, 2]\nlayers: 2", "dataset: {}", "a: &a [*a]", "{", "- 1", "---\n---\n", "resume: yes"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := runtime.DefaultConfig()
		c := &configFlags{given: map[string]string{}}
		err := c.readFile(name, &cfg)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "config file ") {
				t.Errorf("%v", err)
			}
			return
		}
		if cfg.Data.Dataset != nil || cfg.Logger != nil {
			t.Error("a file set what is no setting")
		}
		for k := range c.given {
			field(&cfg, k) // panics when k is no setting
		}
		if len(c.given) == 0 && !reflect.DeepEqual(cfg, runtime.DefaultConfig()) {
			t.Errorf("%q names no setting and changes one", text)
		}
	})
}

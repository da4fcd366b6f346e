package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The command lines in examples/cluster have subcommands and flags that exist,
// with values that they take.
func TestClusterExamples(t *testing.T) {
	dir := filepath.Join("..", "..", "examples", "cluster")
	var lines [][]string
	var find func(n *yaml.Node)
	find = func(n *yaml.Node) {
		for i, child := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "command" {
				var line []string
				if err := child.Decode(&line); err != nil {
					t.Errorf("line %d: %v", child.Line, err)
				}
				lines = append(lines, line)
			}
			find(child)
		}
	}
	for _, name := range []string{"compose.yaml", "kubernetes.yaml"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range bytes.Split(b, []byte("\n---\n")) {
			var n yaml.Node
			if err := yaml.Unmarshal(doc, &n); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			find(&n)
		}
	}
	units, err := filepath.Glob(filepath.Join(dir, "*.service"))
	if err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile(`(?m)^ExecStart=(.*)$`)
	for _, unit := range units {
		b, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		m := start.FindSubmatch(bytes.ReplaceAll(b, []byte("\\\n"), nil))
		if m == nil {
			t.Fatalf("%s starts nothing", unit)
		}
		lines = append(lines, strings.Fields(string(m[1])))
	}
	if len(lines) != 4+3+3 {
		t.Errorf("%d command lines; there should be 10", len(lines))
	}
	for _, line := range lines {
		root, _ := newRoot(new(bytes.Buffer), new(bytes.Buffer))
		cmd, rest, err := root.Find(line[1:])
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil || filepath.Base(line[0]) != "gnnactor" || cmd.HasSubCommands() {
			t.Errorf("%v: %v", line, err)
		}
	}
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gnnactor/gnnactor/rng"
	"github.com/gnnactor/gnnactor/runtime"
)

// searchSpace is what a search draws settings from, in the order of the file.
type searchSpace []searchRange

// searchRange is where one setting's values come from: a list, or numbers from one to another.
type searchRange struct {
	name     string
	values   []string // as flags spell them; nil: a range
	from, to float64  // both may be drawn
	log      bool     // the number's logarithm is uniform, not the number
	whole    bool     // whole numbers alone
}

// searchedGroups are those of the settings that a search may vary.
var searchedGroups = []group{modelGroup, samplingGroup, trainingGroup}

// unsearched are settings of those groups that a search may not vary: figures of two tasks do not compare, the others are files.
var unsearched = []string{"task", "params", "map", "keep"}

// readSpace reads a YAML file of ranges. What is wrong is told with its line.
func readSpace(name string) (searchSpace, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("ranges: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is no setting; write one per line, like 'hidden: [32, 64, 128]' or 'lr: {from: 0.0001, to: 0.1, log: true}'", name)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more than one YAML document; keep one", name)
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s line %d: must be settings with their values, like 'hidden: [32, 64, 128]'", name, top.Line)
	}
	var s searchSpace
	for i := 0; i < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		r := searchRange{name: key.Value}
		if slices.ContainsFunc(s, func(other searchRange) bool { return other.name == r.name }) {
			return nil, fmt.Errorf("%s line %d: %s: is there twice; keep one", name, key.Line, r.name)
		}
		if err := r.read(value); err != nil {
			return nil, fmt.Errorf("%s line %d: %s: %w", name, key.Line, r.name, err)
		}
		s = append(s, r)
	}
	if s == nil {
		return nil, fmt.Errorf("%s line %d: there is no setting; write one, like 'hidden: [32, 64, 128]'", name, top.Line)
	}
	return s, nil
}

// read takes the values that a node of the file has for r's setting.
func (r *searchRange) read(node *yaml.Node) error {
	at := slices.IndexFunc(settings, func(s setting) bool { return s.name == r.name })
	switch {
	case at < 0:
		return errors.New("there is no such setting; 'gnnactor search --help' lists them")
	case r.name != "normalize-features" && !slices.Contains(searchedGroups, settings[at].group), slices.Contains(unsearched, r.name):
		return fmt.Errorf("is the same for all trials; say it with --%s", r.name)
	case node.Kind == yaml.MappingNode && !r.isMap():
		return r.readRange(node)
	case node.Kind != yaml.SequenceNode:
		node = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{node}}
	}
	for _, item := range node.Content {
		text, err := flagText(item)
		if err == nil {
			err = r.accepts(text)
		}
		if err != nil {
			return err
		}
		r.values = append(r.values, text)
	}
	if r.values == nil {
		return errors.New("has no values; write some, like [a, b], or leave it out")
	}
	return nil
}

// isMap reports whether values of the setting are mappings themselves.
func (r *searchRange) isMap() bool {
	_, is := field(new(runtime.Config), r.name).Value().Interface().(map[string]string)
	return is
}

// accepts refuses what the setting's flag would.
func (r *searchRange) accepts(text string) error {
	if err := field(new(runtime.Config), r.name).Set(text); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	return nil
}

// flagText is a value as flags spell it: lists with commas, mappings as key=value pairs.
func flagText(node *yaml.Node) (string, error) {
	var parts []string
	for i, item := range node.Content {
		if item.Kind != yaml.ScalarNode {
			return "", fmt.Errorf("line %d: lists in a list of lists; a value is text, a number, or one list", item.Line)
		}
		if node.Kind == yaml.MappingNode && i%2 == 1 {
			parts[len(parts)-1] += "=" + item.Value
			continue
		}
		parts = append(parts, item.Value)
	}
	if node.Kind == yaml.ScalarNode {
		return node.Value, nil
	}
	return strings.Join(parts, ","), nil
}

// rangeExample is what errors of ranges show.
const rangeExample = "a range is written {from: 0.0001, to: 0.1, log: true}, without log where numbers are to be uniform"

func (r *searchRange) readRange(node *yaml.Node) error {
	switch field(new(runtime.Config), r.name).Value().Interface().(type) {
	case int, uint64:
		r.whole = true
	case float64:
	default:
		return errors.New("is no number, which a range is of; list its values, like [a, b]")
	}
	given := map[string]bool{}
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i].Value, node.Content[i+1]
		var err error
		switch key {
		case "from":
			err = value.Decode(&r.from)
		case "to":
			err = value.Decode(&r.to)
		case "log":
			err = value.Decode(&r.log)
		default:
			err = errors.New("unknown")
		}
		if err != nil || given[key] {
			return fmt.Errorf("%s: %s: %s", key, value.Value, rangeExample)
		}
		given[key] = true
	}
	switch {
	case !given["from"] || !given["to"] || !(r.from < r.to) || math.IsInf(r.to-r.from, 0):
		return fmt.Errorf("needs a from that is less than to; %s", rangeExample)
	case r.log && r.from <= 0:
		return fmt.Errorf("from is %v, which has no logarithm; make it more than 0, or leave log out", r.from)
	case r.whole && (r.from != math.Trunc(r.from) || r.to != math.Trunc(r.to) || r.from < 0 || r.to > 1<<53):
		return fmt.Errorf("from %v to %v: must be whole numbers, not negative", r.from, r.to)
	}
	return nil
}

// draw returns the value of one draw, as flags spell it.
func (r *searchRange) draw(seed, draw uint64) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, r.name) // so that a setting that is added changes no other's values
	key := rng.New(seed, h.Sum64())
	if r.values != nil {
		return r.values[key.Uintn(draw, uint64(len(r.values)))]
	}
	from, to := r.from, r.to
	if r.whole { // each number has the same room
		from, to = from-0.5, to+0.5
	}
	u, x := key.Open(draw), 0.0
	if r.log {
		from = max(from, 1e-300)
		x = math.Exp(math.Log(from) + u*(math.Log(to)-math.Log(from)))
	} else {
		x = from + u*(to-from)
	}
	if r.whole {
		return strconv.FormatFloat(min(max(math.Round(x), r.from), r.to), 'f', -1, 64)
	}
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'e', 3, 64), 64) // four digits: command lines are read
	return strconv.FormatFloat(min(max(x, r.from), r.to), 'g', -1, 64)
}

// repeats is how many draws in a row may give what was drawn before until there is taken to be no more.
const repeats = 1000

// draw returns the settings of n trials, no two the same, or of fewer where the space has no more. Of more trials
// the first are those of fewer.
func (s searchSpace) draw(seed uint64, n int) []map[string]string {
	var trials []map[string]string
	for i, last := 0, 0; len(trials) < n && i-last < repeats; i++ {
		one := map[string]string{}
		for _, r := range s {
			one[r.name] = r.draw(seed, uint64(i))
		}
		if !slices.ContainsFunc(trials, func(t map[string]string) bool { return maps.Equal(t, one) }) {
			trials, last = append(trials, one), i
		}
	}
	return trials
}

// text writes the space so that two are the same if and only if their texts are.
func (s searchSpace) text() map[string]string {
	all := map[string]string{}
	for _, r := range s {
		all[r.name] = strings.Join(r.values, " | ")
		if r.values == nil {
			all[r.name] = fmt.Sprintf("from %v to %v", r.from, r.to)
			if r.log {
				all[r.name] += ", log"
			}
		}
	}
	return all
}

// rung is a stage of a search: how many trials train until which epoch.
type rung struct{ trials, epochs int }

// rungs are those of a search: with eta below 2 one, else of synchronous successive halving (Jamieson and Talwalkar 2016), each of
// which has 1/eta of the trials of the one before, the best, train eta times as long, until epochs.
func rungs(trials, epochs, eta, least int) []rung {
	list := []rung{{trials, epochs}}
	if eta < 2 {
		return list
	}
	n, e := 1, epochs
	for n*eta <= trials && e/eta >= max(least, 1) {
		n, e = n*eta, e/eta
	}
	list = nil
	for part := 1; part <= n; part *= eta {
		list = append(list, rung{trials / part, max(1, epochs/(n/part))})
	}
	return list
}

package sampling

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
)

// option is what a setting of Spec takes, besides its zero value, which is that nobody gave it.
type option struct {
	takes       string
	like        string
	least, most float64  // of numbers; most is math.MaxInt64 of those without
	words       []string // of texts
}

func truth() option { return option{takes: "true or false", like: "true"} }

func count(like string) option {
	return option{takes: "a whole number, at least 1", like: like, least: 1, most: math.MaxInt64}
}

func oneOf(words ...string) option {
	return option{takes: strings.Join(words, " or "), like: words[0], words: words}
}

// options are those of all samplers, but for the run's own settings.
var options = map[string]option{
	"weighted": truth(), "replace": truth(), "temporal": truth(), "dependency": count("4"),
	"mega-batch": count("4096"), "recycle": count("2"), "recycle-growth": {takes: "a number, at least 1", like: "1.1", least: 1, most: math.MaxFloat64},
	"cache-fraction": {takes: "a number above 0 and at most 1", like: "0.01", most: 1}, "cache-period": count("2"), "cache-by": oneOf("degree", "walks"),
	"cache-only": truth(), "cache-approximate": truth(), "normalize": oneOf("sum", "degree"),
	"budget": count("8000"), "roots": count("3000"), "walks": count("10"), "walk-length": count("3"),
	"restart":  {takes: "a probability, at least 0 and below 1", like: "0.5", most: math.Nextafter(1, 0)},
	"frontier": count("1000"), "degree-cap": count("256"), "distinct": truth(), "normalization": count("50"), "clip": count("8"),
	"clusters": {takes: "a whole number, at least 1 and below 2^31", like: "1000", least: 1, most: maxClusters}, "per-batch": count("20"),
	"partition-by": {takes: "the name of a method", like: "metis"}, "partition-sha256": {takes: "a partition's SHA-256", like: "9f86d0…"}, "boundary": truth(),
}

// needs are settings that samplers cannot do without.
var needs = map[string][]string{"node": {"budget"}, "edge": {"budget"}, "walk": {"roots", "walk-length"}, "frontier": {"frontier", "budget"}}

// Takes says what the setting of Spec of a name, as in YAML, takes, with an example; empty: it is none that a sampler has for itself.
func Takes(name string) string {
	o, is := options[name]
	if !is {
		return ""
	}
	return fmt.Sprintf("it takes %s, like %s=%s", o.takes, name, o.like)
}

// accepts reports whether a value that is not its type's zero is one of o's.
func (o option) accepts(v reflect.Value) bool {
	switch {
	case o.words != nil:
		return slices.Contains(o.words, v.String())
	case v.CanInt():
		return v.Int() >= int64(o.least) && float64(v.Int()) <= o.most
	case v.CanFloat():
		return v.Float() >= o.least && v.Float() <= o.most
	}
	return true
}

// misgiven says which options of s's sampler have values that they do not take, or are missing.
func (s Spec) misgiven() (bad []string) {
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		o, is := options[name]
		switch {
		case !is || !slices.Contains(Reads(s.Name), name):
		case v.Field(i).IsZero() && slices.Contains(needs[s.Name], name):
			bad = append(bad, fmt.Sprintf("%s: %s needs it, and it is 0 or not given; %s", name, s.Name, Takes(name)))
		case !v.Field(i).IsZero() && !o.accepts(v.Field(i)):
			bad = append(bad, fmt.Sprintf("%s=%v: %s", name, v.Field(i), Takes(name)))
		}
	}
	return bad
}

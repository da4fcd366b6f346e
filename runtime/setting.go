package runtime

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// settingFields says where in a Config the setting of a name lies: the yaml tags of its
// sections' fields are the one place that names them.
var settingFields = func() map[string][]int {
	all := map[string][]int{}
	config := reflect.TypeFor[Config]()
	for i := range config.NumField() {
		section := config.Field(i)
		if section.Tag.Get("yaml") != ",inline" {
			continue
		}
		for j := range section.Type.NumField() {
			if name := section.Type.Field(j).Tag.Get("yaml"); name != "-" {
				all[name] = []int{i, j}
			}
		}
	}
	return all
}()

// RunSettings returns the names of the settings that all nodes of a run have in common: those that
// change what it computes, and how long. Where each has the data is its own affair.
func RunSettings() []string {
	all := []string{"normalize-features"}
	for _, section := range []reflect.Type{reflect.TypeFor[ModelConfig](), reflect.TypeFor[SamplingConfig](), reflect.TypeFor[TrainingConfig]()} {
		for i := range section.NumField() {
			if name := section.Field(i).Tag.Get("yaml"); name != "-" && name != "params" && name != "map" { // files of each node's
				all = append(all, name)
			}
		}
	}
	return all
}

// Setting returns the field of c that is the setting of a name. It panics when there is none.
func (c *Config) Setting(name string) *Setting {
	index, ok := settingFields[name]
	if !ok {
		panic("runtime: no setting is named " + name)
	}
	return &Setting{reflect.ValueOf(c).Elem().FieldByIndex(index)}
}

// Setting is a field of a Config as flags and environment variables spell it: a pflag.Value.
type Setting struct{ v reflect.Value }

// Value returns the field, which can be set.
func (f *Setting) Value() reflect.Value { return f.v }

// Type names the values in --help.
func (f *Setting) Type() string {
	switch f.v.Kind() {
	case reflect.Bool:
		return "bool"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "n,n"
	case reflect.Map:
		return "key=value,..."
	case reflect.String, reflect.Struct:
		return "name"
	}
	return "n"
}

// String returns what Set reads.
func (f *Setting) String() string {
	if !f.v.IsValid() { // pflag asks a zero value
		return ""
	}
	if list, ok := f.v.Interface().([]int); ok {
		parts := make([]string, len(list))
		for i, n := range list {
			parts[i] = strconv.Itoa(n)
		}
		return strings.Join(parts, ",")
	}
	if options, ok := f.v.Interface().(map[string]string); ok {
		parts := make([]string, 0, len(options))
		for _, k := range slices.Sorted(maps.Keys(options)) {
			parts = append(parts, k+"="+options[k])
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(f.v.Interface())
}

// Set parses text as flags and environment variables spell it.
func (f *Setting) Set(text string) error {
	if v, ok := f.v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return v.UnmarshalText([]byte(text))
	}
	switch f.v.Interface().(type) {
	case string:
		f.v.SetString(text)
	case bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("must be true or false")
		}
		f.v.SetBool(b)
	case int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("must be a whole number")
		}
		f.v.SetInt(int64(n))
	case uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("must be a whole number, 0 or more")
		}
		f.v.SetUint(n)
	case float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("must be a number")
		}
		f.v.SetFloat(x)
	case []int:
		var list []int
		for part := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(part))
			if err != nil {
				return fmt.Errorf("must be whole numbers with commas between, like 15,10,5")
			}
			list = append(list, n)
		}
		f.v.Set(reflect.ValueOf(list))
	case map[string]string:
		options := map[string]string{}
		for part := range strings.SplitSeq(text, ",") {
			key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
			if !ok {
				return fmt.Errorf("must be settings with commas between, like budget=8000,frontier=1000")
			}
			options[key] = value
		}
		f.v.Set(reflect.ValueOf(options))
	default:
		return fmt.Errorf("settings of type %s cannot be set here", f.v.Type())
	}
	return nil
}

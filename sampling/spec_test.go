package sampling

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Every setting is read by a sampler, and every sampler refuses, by name and all
// at once, those that it does not read.
func TestUnreadSettings(t *testing.T) {
	all := map[string]bool{}
	for _, name := range Names() {
		for _, option := range Reads(name) {
			all[option] = true
		}
		s := Spec{Name: name, Layers: 2}
		v := reflect.ValueOf(&s).Elem()
		var unread []string
		for i := range v.NumField() {
			option, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			switch f := v.Field(i); {
			case slices.Contains([]string{"name", "layers", "fanouts", "edge-ids", "inductive"}, option):
				continue
			case f.Kind() == reflect.Bool:
				f.SetBool(true)
			case f.Kind() == reflect.Int:
				f.SetInt(1)
			case f.Kind() == reflect.Float64:
				f.SetFloat(0.5)
			default:
				f.SetString("x")
			}
			if !slices.Contains(Reads(name), option) {
				unread = append(unread, option)
			}
		}
		err := s.Validate()
		if err == nil {
			t.Fatalf("%s takes every setting", name)
		}
		if list := " " + strings.Join(unread, ", ") + " ("; !strings.Contains(err.Error(), list) {
			t.Errorf("%s: error is %q, which does not list %q", name, err, list)
		}
	}
	if n := reflect.TypeFor[Spec]().NumField() - 6; len(all) != n {
		t.Errorf("samplers read %d settings of %d", len(all), n)
	}
	err := Spec{Name: "gns", Fanouts: []int{0, 5, -2}, Budget: 3, Clip: 2}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"fan-out 1 is 0", "fan-out 3 is -2", "gns does not read budget, clip"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

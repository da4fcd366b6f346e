package compute

import (
	"fmt"
	"reflect"
	"strings"
)

// specNames are the names of a Spec's fields for those who do not know it.
var specNames = map[string]string{
	"in_dim": "the data's number of features", "out_dim": "the number of outputs", "edge_dim": "edge-features (columns)", "decoder": "decoder-layers",
}

// Unlike says what s has otherwise than a model, of what it computes with the same parameters, by the names of settings.
func (s Spec) Unlike(model Spec) (differ []string) {
	show := func(v reflect.Value) any {
		if v.Kind() == reflect.String && v.Len() == 0 {
			return "none"
		}
		return v.Interface()
	}
	now, was := reflect.ValueOf(s.architecture()), reflect.ValueOf(model.architecture())
	for i := range now.NumField() {
		f := now.Type().Field(i)
		if !f.IsExported() || now.Field(i).Interface() == was.Field(i).Interface() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if called, ok := specNames[name]; ok {
			name = called
		}
		differ = append(differ, fmt.Sprintf("%s is %v, and the model's %v", strings.ReplaceAll(name, "_", "-"), show(now.Field(i)), show(was.Field(i))))
	}
	return differ
}

// architecture is s with defaults named, and without what only training depends on: equal
// for models that compute the same of the same parameters.
func (s Spec) architecture() Spec {
	s.Dropout, s.InputDropout, s.AttentionDropout = 0, 0, 0
	s.GCNNorm, s.ScaleSums, s.WeightAttention = "", false, false
	for _, x := range []struct {
		field *string
		empty string
	}{{&s.Aggregation, "mean"}, {&s.Combine, "add"}, {&s.Activation, "relu"}, {&s.LinkDecoder, "dot"}} {
		if *x.field == "" {
			*x.field = x.empty
		}
	}
	s.Heads = max(s.Heads, 1)
	if s.OutHeads == s.Heads {
		s.OutHeads = 0
	}
	if s.Hops == 0 {
		s.Hops = 2
	}
	if s.Decoder == 0 && (s.JumpingKnowledge != "" || s.Model == "mixhop" || s.Combine == "concat") {
		s.Decoder = 1
	}
	return s
}

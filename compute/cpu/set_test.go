package cpu

import (
	"strings"
	"testing"
)

func TestDetect(t *testing.T) {
	for v := Go; v <= AVX512; v++ {
		t.Setenv(SetVariable, v.String())
		got, err := Detect()
		if v.Supported() && (err != nil || got != v) {
			t.Errorf("%s=%v gives %v, %v", SetVariable, v, got, err)
		}
		if !v.Supported() && (err == nil || !strings.Contains(err.Error(), v.String())) {
			t.Errorf("%s=%v is not refused here: %v", SetVariable, v, err)
		}
	}
	t.Setenv(SetVariable, "sse9")
	if _, err := Detect(); err == nil || !strings.Contains(err.Error(), "sse9") {
		t.Errorf("an unknown set is not refused: %v", err)
	}
	t.Setenv(SetVariable, "")
	got, err := Detect()
	if err != nil || !got.Supported() {
		t.Errorf("Detect gives %v, %v", got, err)
	}
	if got < AVX512 && (got + 1).Supported() {
		t.Errorf("Detect gives %v although %v is supported", got, got+1)
	}
}

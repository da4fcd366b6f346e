package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	_, last, _ := strings.Cut(out.String(), "test accuracy ")
	var accuracy float64
	if _, err := fmt.Sscan(last, &accuracy); err != nil {
		t.Fatal(err)
	}
	// A person's own features name the circle in about 79 % of the cases: the
	// classes' means lie 2·0.4·√4 = 1.6 deviations apart.
	if accuracy < 0.88 {
		t.Errorf("accuracy %v; the neighbours must help\n%s", accuracy, out.String())
	}
}

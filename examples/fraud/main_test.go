package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestRun(t *testing.T) {
	var out bytes.Buffer
	picture := filepath.Join(t.TempDir(), "fraud.svg")
	if err := run(t.Context(), &out, picture); err != nil {
		t.Fatal(err)
	}
	average := func(name string) (p float64) {
		_, rest, _ := strings.Cut(out.String(), name)
		_, rest, _ = strings.Cut(rest, "average precision ")
		if _, err := fmt.Sscanf(rest, "%f", &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	// By chance it is the share of launderers.
	if who, read := average("who pays whom"), average("amounts and hours"); !(read > who+0.05) {
		t.Errorf("amounts and hours must tell more\n%s", out.String())
	}
	if b, err := os.ReadFile(picture); err != nil || !bytes.Contains(b, []byte("precision")) {
		t.Errorf("the picture: %v", err)
	}
}

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
	picture := filepath.Join(t.TempDir(), "books.svg")
	if err := run(t.Context(), &out, picture); err != nil {
		t.Fatal(err)
	}
	_, last, _ := strings.Cut(out.String(), "of 101; ")
	var taste float64
	if _, err := fmt.Sscanf(last, "%f %%", &taste); err != nil {
		t.Fatal(err)
	}
	if taste < 60 { // two genres of six are a third
		t.Errorf("what is named is hardly to the reader's taste\n%s", out.String())
	}
	if b, err := os.ReadFile(picture); err != nil || !bytes.Contains(b, []byte("epoch")) {
		t.Errorf("the picture: %v", err)
	}
}

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
	picture := filepath.Join(t.TempDir(), "papers.svg")
	if err := run(t.Context(), &out, picture); err != nil {
		t.Fatal(err)
	}
	_, last, _ := strings.Cut(out.String(), "had not seen ")
	var right float64
	if _, err := fmt.Sscanf(last, "%f %%", &right); err != nil {
		t.Fatal(err)
	}
	if right < 75 { // one in six by chance
		t.Errorf("hardly any field is right\n%s", out.String())
	}
	if b, err := os.ReadFile(picture); err != nil || !bytes.Contains(b, []byte("databases")) {
		t.Errorf("the picture: %v", err)
	}
}

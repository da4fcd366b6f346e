package pieces

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The same options make the same bytes, whatever the memory and the number of readers.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	src := create(t, random(5000, 30000, 1, true))
	sum := func(name string, limit int) string {
		s, err := Create(t.Context(), filepath.Join(t.TempDir(), name), src, Options{Method: "hash", Pieces: 3, Seed: 1, limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		return s.Fingerprint()
	}
	if a, b := sum("a", 0), sum("b", 100); a != b {
		t.Errorf("the set's fingerprint depends on the memory: %s, %s", a, b)
	}
}

// A call that was interrupted anywhere is continued by the next one, to the same bytes.
func TestResume(t *testing.T) {
	t.Parallel()
	src := create(t, random(6000, 20000, 2, false))
	o := Options{Method: "hash", Pieces: 3, Seed: 1}
	want, err := Create(t.Context(), filepath.Join(t.TempDir(), "whole"), src, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, stop := range []int{0, 1, 2, 3, 5} {
		dir := filepath.Join(t.TempDir(), "set")
		var done []string
		for try := 0; ; try++ {
			ctx, cancel := context.WithCancelCause(t.Context())
			told, enough := 0, errors.New("enough")
			o.Progress = func(doing string, _, _ int64) {
				done = append(done, doing)
				if told++; try == 0 && told > stop {
					cancel(enough)
				}
			}
			s, err := Create(ctx, dir, src, o)
			cancel(nil)
			if try == 0 && stop < 4 {
				if !errors.Is(err, enough) || !strings.Contains(err.Error(), "goes on") {
					t.Fatalf("stop %d: %v", stop, err)
				}
				if _, err := os.Stat(dir); err == nil {
					t.Fatal("a set that is not finished has its name")
				}
				continue
			}
			if try == 0 && errors.Is(err, enough) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if s.Fingerprint() != want.Fingerprint() {
				t.Errorf("stop %d: another set", stop)
			}
			break
		}
		if reads := count(done, "placing nodes"); stop > 1 && reads > 1 {
			t.Errorf("stop %d: nodes were placed %d times", stop, reads)
		}
	}
}

// Whatever is missing of what a call has left, or is shorter than it was, the next one makes again.
func TestResumeWithoutParts(t *testing.T) {
	t.Parallel()
	src := create(t, random(6000, 20000, 2, false))
	o := Options{Method: "hash", Pieces: 3, Seed: 1, limit: 1000}
	want, err := Create(t.Context(), filepath.Join(t.TempDir(), "whole"), src, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, missing := range [][]string{
		{scannedFile}, {scannedFile, scratchDir}, {idsAbout}, {idsFile}, {scratchDir}, {scratchDir, pieceName(1)}, {aboutFile}, {"edges/out-1-0-0", pieceName(1)}, {"cut", pieceName(1)},
	} {
		t.Run(fmt.Sprint(missing), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "set")
			work := filepath.Join(filepath.Dir(dir), ".set.unfinished")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o := o
			o.Progress = func(doing string, done, of int64) {
				if doing == "writing pieces" && done == of {
					cancel()
				}
			}
			if _, err := Create(ctx, dir, src, o); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			for _, name := range missing {
				if name == "cut" { // as after the machine's end
					err = os.Truncate(filepath.Join(work, "edges/out-1-0-0"), 0)
				} else {
					err = os.RemoveAll(filepath.Join(work, name))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			o.Progress = nil
			s, err := Create(t.Context(), dir, src, o)
			if err != nil {
				t.Fatal(err)
			}
			if s.Fingerprint() != want.Fingerprint() {
				t.Error("another set")
			}
		})
	}
}

// What another call has left is not taken for one's own.
func TestResumeOther(t *testing.T) {
	t.Parallel()
	src := create(t, random(3000, 9000, 2, false))
	want, err := Create(t.Context(), filepath.Join(t.TempDir(), "whole"), src, Options{Method: "hash", Pieces: 2, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "set")
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{Method: "hash", Pieces: 2, Seed: 1, Progress: func(doing string, _, _ int64) {
		if doing == "writing pieces" {
			cancel()
		}
	}}
	if _, err := Create(ctx, dir, src, o); err == nil {
		t.Fatal("it was not interrupted")
	}
	got, err := Create(t.Context(), dir, src, Options{Method: "hash", Pieces: 2, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	if got.Fingerprint() != want.Fingerprint() {
		t.Error("what was left of another seed was used")
	}
}

func count(list []string, of string) (n int) {
	for _, x := range list {
		if x == of {
			n++
		}
	}
	return n
}

package checkpoint

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gnnactor/gnnactor/internal/leak"
	"github.com/gnnactor/gnnactor/training"
)

func TestMain(m *testing.M) { leak.Main(m) }

// archive is where copies are kept; the first waits.
type archive struct {
	training.Archive
	began, goes chan struct{}
	steps       []int64
}

func (a *archive) Replicate(_ context.Context, _ [32]byte, step int64, r io.ReaderAt) (string, error) {
	if a.steps = append(a.steps, step); len(a.steps) == 1 {
		close(a.began)
		<-a.goes
	}
	_, err := r.ReadAt(make([]byte, 1), 0)
	return "other", err
}

// While one checkpoint is copied others come: the newest of them is next, and End waits for it.
func TestReplicator(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &archive{began: make(chan struct{}), goes: make(chan struct{})}
	g := NewReplicator(a, slog.New(slog.DiscardHandler))
	for step := range int64(4) {
		if err := g.Add([32]byte{}, step, path); err != nil {
			t.Fatal(err)
		}
		if step == 0 {
			<-a.began
		}
	}
	close(a.goes)
	g.End()
	if want := []int64{0, 3}; !slices.Equal(a.steps, want) {
		t.Errorf("copies of the steps %v, want %v", a.steps, want)
	}
	(*Replicator)(nil).End()
}

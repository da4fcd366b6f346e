package actors

import (
	"errors"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/internal/fault"
	"github.com/gnnactor/gnnactor/internal/pool"
)

// A job's error is the one that it returned, and a fault's place is named once.
func TestGuardedNamesEachPlaceOnce(t *testing.T) {
	own := errors.New("features: node 7 is out of range [0, 5)")
	if res, err := guarded(func() (any, error) { return 3, own }); err != own || res != 3 {
		t.Errorf("a job that fails gives %v and %v", res, err)
	}
	bad := &fault.Error{Path: "rows.bin", Offset: 7}
	_, err := guarded(func() (any, error) {
		return guarded(func() (any, error) { return nil, bad })
	})
	if !errors.Is(err, bad) || strings.Count(err.Error(), "features:") != 1 {
		t.Errorf("a fault reads %q", err)
	}
	var p *pool.PanicError
	if _, err := guarded(func() (any, error) { panic(own) }); !errors.As(err, &p) || !errors.Is(err, own) {
		t.Errorf("a panic gives %v", err)
	}
}

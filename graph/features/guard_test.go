package features

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/internal/fault"
	"github.com/gnnactor/gnnactor/internal/pool"
)

// Guard tells its own name of a fault, once, and leaves other errors as they are.
func TestGuardNamesFaultsOnce(t *testing.T) {
	bad := &fault.Error{Path: "rows.bin", Offset: 7}
	own := errors.New("compute: no gradient")
	told := fmt.Errorf("features: %w", bad)
	for _, err := range []error{nil, own, told} {
		if got := Guard(func() error { return err }); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	once := Guard(func() error { return bad })
	twice := Guard(func() error { return Guard(func() error { return bad }) })
	for _, err := range []error{once, twice} {
		if text := err.Error(); strings.Count(text, "features:") != 1 || !errors.Is(err, bad) {
			t.Errorf("the fault reads %q", text)
		}
	}
}

// A panic of a read is its error.
func TestReadPanics(t *testing.T) {
	cause := errors.New("a bug")
	for name, f := range map[string]func() error{
		"a value":  func() error { panic("a bug") },
		"an error": func() error { panic(cause) },
		"an index": func() error { var x []int; return fmt.Errorf("%d", x[len(x)]) },
		"a pool's": func() error { panic(&pool.PanicError{Value: cause}) },
	} {
		var a reads
		var got []error
		a.start(f, func(err error) { got = append(got, err) })
		a.wg.Wait()
		var p *pool.PanicError
		if len(got) != 1 || !errors.As(got[0], &p) {
			t.Errorf("%s: done got %v", name, got)
		} else if (name == "an error" || name == "a pool's") && !errors.Is(got[0], cause) {
			t.Errorf("%s: done got %v, which does not wrap the cause", name, got[0])
		}
	}
	var a reads
	var got error
	a.start(func() error { return cause }, func(err error) { got = err })
	a.wg.Wait()
	if got != cause {
		t.Errorf("done got %v, want the error", got)
	}
}

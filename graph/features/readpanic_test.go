package features

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gnnactor/gnnactor/pool"
)

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

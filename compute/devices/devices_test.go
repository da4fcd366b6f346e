package devices_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/compute/devices"
)

// A program that links no kind of devices, as with -tags nogpu, has none by any name, says so, and how to go on; auto is the processor.
func TestNoKinds(t *testing.T) {
	for _, name := range []string{"cuda", "cuda:1", "cuda:all", "cuda:0,cuda:1"} {
		c, err := devices.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		if all, why, err := c.Open(); all != nil || why != nil || !errors.Is(err, devices.ErrNone) || !strings.Contains(err.Error(), "built without cuda: build it without -tags nogpu, on Linux, or use --device cpu") {
			t.Errorf("%s: %v, %v, %v", name, all, why, err)
		}
	}
	for name, said := range map[string]bool{"": false, devices.CPU: false, devices.Auto: true} {
		d, why, err := devices.Open(name)
		if d != nil || err != nil || said != (why != nil) || said && !strings.Contains(why.Error(), "built without kinds of devices") {
			t.Errorf("%q: %v, %v, %v", name, d, why, err)
		}
	}
}

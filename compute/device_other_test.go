//go:build !(linux && amd64) || nogpu

package compute

import (
	"testing"

	"github.com/gnnactor/gnnactor/compute/cpu"
)

// deviceExec returns nil: there is no emulated device here.
func deviceExec(*testing.T) *cpu.Exec { return nil }

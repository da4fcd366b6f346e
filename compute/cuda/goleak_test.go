//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"testing"

	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

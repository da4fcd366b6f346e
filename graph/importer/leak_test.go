package importer

import (
	"testing"

	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) {
	leak.Beside(4) // they wait for the disk
	leak.Main(m)
}

package importer

import (
	"testing"

	"github.com/gnnactor/gnnactor/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

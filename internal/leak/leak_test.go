package leak

import (
	"strings"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

func stuck(end chan struct{}) { <-end }

// A goroutine is found for as long as it lives, and not afterwards.
func TestFind(t *testing.T) {
	end := make(chan struct{})
	go stuck(end)
	if err := find(0); err == nil || !strings.Contains(err.Error(), "leak.stuck") {
		t.Errorf("a goroutine that is left: %v", err)
	}
	close(end)
	if err := find(patience); err != nil {
		t.Errorf("after its end: %v", err)
	}
}

package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// taskBar shows how far a task of several steps is: on a terminal one line that is rewritten,
// elsewhere a line when a step begins. show may be called from any goroutine.
type taskBar struct {
	mu    sync.Mutex
	w     io.Writer
	width int // of the terminal; 0: not a terminal
	doing string
	last  time.Time // of the last line written
}

func newTaskBar(w io.Writer) *taskBar {
	width, _ := terminal(w)
	return &taskBar{w: w, width: width}
}

func (b *taskBar) show(doing string, done, of int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if doing == b.doing && (b.width == 0 || now.Sub(b.last) < 100*time.Millisecond) {
		return
	}
	begins := doing != b.doing
	b.doing, b.last = doing, now
	if b.width == 0 {
		if begins {
			fmt.Fprintf(b.w, "gnnactor: %s\n", doing)
		}
		return
	}
	share := 0.0
	if of > 0 {
		share = float64(done) / float64(of)
	}
	line := []rune(fmt.Sprintf("%s %s %3.0f %%", doing, drawBar(share, max(4, min(40, b.width-len(doing)-8))), 100*share))
	fmt.Fprintf(b.w, "\r%s\x1b[K", string(line[:min(len(line), b.width-1)]))
}

// clear removes the line.
func (b *taskBar) clear() {
	if b.width > 0 && b.doing != "" {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}

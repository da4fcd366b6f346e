package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gnnactor/gnnactor/runtime"
)

// stepLine is a line of --steps.
type stepLine struct {
	Epoch     int       `json:"epoch"`
	Batch     int       `json:"batch"`
	Applied   int64     `json:"applied"` // steps of the run, with this one
	Loss      finite    `json:"loss"`
	Time      time.Time `json:"time"`                // at which this process heard of it
	Staleness *int      `json:"staleness,omitempty"` // of --sync ssp: steps applied since the version that it was computed on
}

// stepLog writes a line for each step that this process hears of. Nil: it is not
// asked for.
type stepLog struct {
	file  *os.File
	stale bool
	err   error
}

// openStepLog appends to a file, so that a run that is resumed goes on there.
func openStepLog(name string, stale bool) (*stepLog, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--steps: %w", err)
	}
	return &stepLog{file: f, stale: stale}, nil
}

// event writes at once, so that a process that is killed leaves its lines.
func (l *stepLog) event(e runtime.Event) {
	if l == nil || e.Kind != runtime.EventStep || l.err != nil {
		return
	}
	line := stepLine{Epoch: e.Epoch, Batch: e.Batch, Applied: e.Applied, Loss: finite(e.Loss), Time: time.Now()}
	if l.stale {
		line.Staleness = &e.Staleness
	}
	b, err := json.Marshal(&line)
	if err == nil {
		err = l.write(append(b, '\n'))
	}
	l.err = err
}

// write appends all of a line, or nothing.
func (l *stepLog) write(line []byte) error {
	n, err := l.file.Write(line)
	if err != nil && n > 0 {
		st, serr := l.file.Stat()
		if serr == nil {
			serr = l.file.Truncate(st.Size() - int64(n))
		}
		err = errors.Join(err, serr)
	}
	return err
}

// close returns why lines are missing.
func (l *stepLog) close() error {
	if l == nil {
		return nil
	}
	err := l.file.Close()
	if l.err != nil {
		err = l.err
	}
	if err != nil {
		return fmt.Errorf("--steps: %w", err)
	}
	return nil
}

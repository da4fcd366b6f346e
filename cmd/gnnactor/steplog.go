package main

import (
	"encoding/json"
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

// writeStep adds a line to --steps for a step that this process hears of.
func (l *lineLog) writeStep(e runtime.Event, stale bool) {
	if l == nil || e.Kind != runtime.EventStep {
		return
	}
	line := stepLine{Epoch: e.Epoch, Batch: e.Batch, Applied: e.Applied, Loss: finite(e.Loss), Time: time.Now()}
	if stale {
		line.Staleness = &e.Staleness
	}
	b, err := json.Marshal(&line)
	if err != nil {
		l.err = err
		return
	}
	l.write(append(b, '\n'))
}

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gnnactor/gnnactor/runtime"
)

// metricsLog writes a line for each epoch: JSON, or CSV where the name ends so.
type metricsLog struct {
	*lineLog
	csv    bool
	figure splitFigure
}

// metricsEndings are those of files that --metrics makes.
var metricsEndings = []string{".jsonl", ".ndjson", ".csv"}

func openMetrics(name string) (*metricsLog, error) {
	if name == "" {
		return nil, nil
	}
	if !slices.Contains(metricsEndings, plotFormat(name)) {
		return nil, usagef("--metrics %s: the name must end in .jsonl, .ndjson or .csv", name)
	}
	l, err := openLines("--metrics", name)
	return &metricsLog{lineLog: l, csv: plotFormat(name) == ".csv"}, err
}

// figure is a named one of an epoch. Those that were not measured are NaN: null in JSON, empty in CSV.
type figure struct {
	name  string
	value float64
}

// figures are those of an epoch, in the order in which files have them.
func figures(e runtime.Event, f splitFigure) []figure {
	metric := strings.ToLower(f.name())
	best := math.NaN()
	if e.Best > 0 {
		best = float64(e.Best)
	}
	list := []figure{
		{"epoch", float64(e.Epoch + 1)}, {"steps", float64(e.Applied)}, {"seconds", e.Wall.Seconds()}, {"loss", e.Loss},
		{"train_accuracy", e.TrainAccuracy}, {"valid_" + metric, e.ValidAccuracy}, {"test_" + metric, e.TestAccuracy}, {"best_epoch", best},
	}
	for _, name := range stageOrder {
		list = append(list, figure{name + "_seconds", e.Stages[name].Seconds()})
	}
	asked, loaded := math.NaN(), math.NaN()
	if e.Rows.Asked > 0 { // else they lie where compute reads them
		asked, loaded = float64(e.Rows.Asked), float64(e.Rows.Loaded)
	}
	list = append(list, figure{"rows_asked", asked}, figure{"rows_loaded", loaded})
	return list
}

// event writes at once, so that a process that is killed leaves its lines.
func (l *metricsLog) event(e runtime.Event) {
	if l == nil || e.Kind != runtime.EventEpoch {
		return
	}
	var b bytes.Buffer
	list := figures(e, l.figure)
	if l.csv {
		w := csv.NewWriter(&b)
		var names, values []string
		for _, f := range list {
			names = append(names, f.name)
			cell := ""
			if x := f.value; x-x == 0 {
				cell = strconv.FormatFloat(x, 'f', -1, 64)
			}
			values = append(values, cell)
		}
		if l.empty() {
			_ = w.Write(names) // to memory
		}
		_ = w.Write(values)
		w.Flush()
	} else {
		b.WriteByte('{')
		for i, f := range list {
			if i > 0 {
				b.WriteByte(',')
			}
			x, _ := json.Marshal(finite(f.value)) // numbers always encode
			fmt.Fprintf(&b, "%q:%s", f.name, x)
		}
		b.WriteString("}\n")
	}
	l.write(b.Bytes())
}

func (l *metricsLog) close() error {
	if l == nil {
		return nil
	}
	return l.lineLog.close()
}

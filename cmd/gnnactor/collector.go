package main

import (
	"os"
	goruntime "runtime"
	"runtime/debug"

	"github.com/gnnactor/gnnactor/runtime"
)

// collectsFrom is of how many bytes an evaluation's outputs are for them to be collected at once.
const collectsFrom = 16 << 20

// setCollector has Go's collector collect as often as rt's plan counts on, unless GOGC says how often. It returns what to call after an
// evaluation, whose outputs would else lie beside the next one's: memory that large is collected in a small part of the time that computing it takes.
func setCollector(rt *runtime.Runtime) (evaluated func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	debug.SetGCPercent(rt.Plan().GCPercent)
	if rt.Plan().InferenceBytes < collectsFrom {
		return func() {}
	}
	return goruntime.GC
}

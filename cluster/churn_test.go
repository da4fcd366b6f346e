package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster/trainers"
	"github.com/gnnactor/gnnactor/training"
)

// soak is the environment variable that makes TestChurn go on for a time.
const soak = "GNNACTOR_SOAK"

// soakPace is the least time between two visits of a soak.
const soakPace = 250 * time.Millisecond

// steps makes steps with whoever is there until enough says so, and returns how
// many there were.
func steps(ctx context.Context, team *trainers.Trainers, enough func(made int) bool) (made int, err error) {
	const micros = 2
	var step int64
	sum := make([]float32, 1<<14)
	for {
		share, err := team.Rendezvous(ctx, training.Position{
			Identity: "churn", Step: step,
			Save:    func() ([]byte, error) { return binary.LittleEndian.AppendUint64(nil, uint64(step)), nil },
			Restore: func(b []byte) (int64, error) { step = int64(binary.LittleEndian.Uint64(b)); return step, nil },
		})
		if err != nil {
			return made, err
		}
		for err == nil {
			parts, meta := make([][]float32, micros), make([][]byte, micros)
			for m := range parts {
				if share.Mine(m, micros) {
					parts[m] = make([]float32, len(sum))
					parts[m][0] = float32(m + 1)
				}
			}
			if _, err = share.AllReduce(ctx, step, sum, parts, meta); err != nil {
				break
			}
			if sum[0] != 3 {
				return made, fmt.Errorf("step %d: %v, not 3", step, sum[0])
			}
			step++
			if made++; enough(made) {
				return made, nil
			}
		}
		if ctx.Err() != nil {
			return made, ctx.Err()
		}
	}
}

// visit is one node's coming, training and going.
func visit(t *testing.T, o NodeOptions) {
	t.Helper()
	// Not within: that is kept until the test ends, 4 KiB a visit.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	n, err := Enter(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer leave(t, n)
	team, err := n.Train(ctx, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer team.Close()
	if _, err := steps(ctx, team, func(made int) bool { return made == 3 }); err != nil {
		t.Fatal(err)
	}
}

// heap returns the bytes that live.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// resident returns this process's RSS, 0 where it is not to be had.
func resident() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		var kb int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	return 0
}

func mean(all []int64) float64 {
	sum := 0.0
	for _, x := range all {
		sum += float64(x)
	}
	return sum / float64(len(all))
}

// Nodes that come, train and go leave nothing behind in one that stays.
// GNNACTOR_SOAK=30m makes them do so for that long, and watches the process's RSS.
func TestChurn(t *testing.T) {
	var long time.Duration
	if text := os.Getenv(soak); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t)
	stays := enter(t, options(s, "a", t.TempDir()))
	team, err := stays.Train(within(t), 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := steps(ctx, team, func(int) bool { return false })
		done <- err
	}()
	dir := t.TempDir()
	const warm, rounds = 5, 12
	for range warm {
		visit(t, options(s, "b", dir))
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	for range 4 { // what is on its way between the nodes comes and goes
		before, goroutines = min(before, heap()), min(goroutines, runtime.NumGoroutine())
	}
	began, said, visits := time.Now(), time.Time{}, 0
	var rss []int64
	pace := time.NewTicker(soakPace) // so that a busy machine makes no other history in the store
	defer pace.Stop()
	for ; visits < rounds || time.Since(began) < long; visits++ {
		if long > 0 {
			<-pace.C
		}
		visit(t, options(s, "b", dir))
		if long > 0 && time.Since(said) > long/20 {
			said = time.Now()
			rss = append(rss, resident())
			t.Logf("%v, %d visits: RSS %.1f MiB, heap %.1f MiB, %d goroutines", time.Since(began).Round(time.Second), visits+1,
				float64(resident())/(1<<20), float64(heap())/(1<<20), runtime.NumGoroutine())
		}
	}
	// The store keeps a history of what changed, an hour long.
	for limit := within(t); heap() > before+4<<20+int64(visits)<<11 || runtime.NumGoroutine() > goroutines+10; {
		if limit.Err() != nil {
			t.Fatalf("after %d visits: a heap of %d bytes, then %d; %d goroutines, then %d", visits, before, heap(), goroutines, runtime.NumGoroutine())
		}
	}
	if n := len(rss) / 4; n >= 3 { // in the first quarter the heap gets to its size
		if second, last := mean(rss[n:2*n]), mean(rss[3*n:]); last > 1.3*second {
			t.Errorf("RSS of %.0f bytes in the second quarter, of %.0f in the last", second, last)
		}
	}
	cancel()
	if err := <-done; err != context.Canceled {
		t.Error(err)
	}
	team.Close()
}

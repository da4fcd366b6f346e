package async

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// Random histories of trainers that are fast, slow, stuck and gone: every step
// is applied once, none staler than the bound, and there is always a way on.
func TestSchedule(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 3))
	for range 2000 {
		bound, trainers, steps := r.IntN(6), 1+r.IntN(8), int64(1+r.IntN(40))
		first := int64(r.IntN(3))
		s := newSchedule(first, first+steps, bound)
		type worker struct {
			name string
			step int64
			at   int // 0: idle, 1: dealt, 2: computing, 3: sent
		}
		var all []*worker
		for i := range trainers {
			all = append(all, &worker{name: strconv.Itoa(i)})
		}
		seen := map[int64]int{}
		stopAt := -1
		if r.IntN(3) == 0 {
			stopAt = r.IntN(100)
		}
		for turn := 0; !s.over(); turn++ {
			if turn > 100000 {
				t.Fatalf("bound %d, %d trainers: no way on at version %d of %d", bound, trainers, s.version, s.end)
			}
			if turn == stopAt {
				s.stop()
			}
			w := all[r.IntN(len(all))]
			if _, mine := s.tasks[w.step]; w.at > 0 && (!mine || s.tasks[w.step].trainer != w.name) {
				w.at = 0 // applied, or taken back
			}
			switch {
			case r.IntN(50) == 0 && w.at < 3:
				s.gone(func(name string) bool { return name == w.name })
				w.at = 0
			case w.at == 0:
				if step, ok := s.deal(w.name); ok {
					w.step, w.at = step, 1
				}
			case w.at == 1:
				ok, err := s.begin(w.name, w.step)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					w.at = 2
				}
			case w.at == 2 && r.IntN(1+int(w.name[0]-'0')) == 0:
				if err := s.arrive(&pendingPush{Push: Push{Step: w.step, Version: s.tasks[w.step].version}, trainer: w.name}); err != nil {
					t.Fatal(err)
				}
				w.at = 3
			}
			if task := s.due(); task != nil && r.IntN(2) == 0 {
				stale := s.apply(task)
				seen[task.step]++
				if stale < 0 || stale > int64(bound) {
					t.Fatalf("bound %d: step %d was %d stale", bound, task.step, stale)
				}
			}
			lo := s.version
			for _, o := range s.tasks {
				if o.version >= 0 {
					lo = min(lo, o.version)
				}
			}
			if s.version-lo > int64(bound) {
				t.Fatalf("bound %d: version %d while one computes on %d", bound, s.version, lo)
			}
		}
		for step := first; step < s.end; step++ {
			if seen[step] != 1 {
				t.Fatalf("step %d was applied %d times", step, seen[step])
			}
		}
		if int64(len(seen)) != s.end-first || len(s.tasks)+len(s.arrived)+s.begun != 0 {
			t.Fatalf("%d steps were applied, of %d; %d tasks are left", len(seen), s.end-first, len(s.tasks))
		}
		if stopAt < 0 && s.end != first+steps {
			t.Fatal("it ended early")
		}
	}
}

// What a trainer may not do.
func TestScheduleRefusals(t *testing.T) {
	s := newSchedule(0, 10, 1)
	step, _ := s.deal("a")
	for name, err := range map[string]error{
		"a step of another": func() error { _, err := s.begin("b", step); return err }(),
		"one never dealt":   func() error { _, err := s.begin("a", 5); return err }(),
		"a gradient early":  s.arrive(&pendingPush{Push: Push{Step: step, Version: -1}, trainer: "a"}),
	} {
		if err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
	if ok, err := s.begin("a", step); !ok || err != nil {
		t.Fatal(ok, err)
	}
	g := &pendingPush{Push: Push{Step: step, Version: 0}, trainer: "a"}
	if _, err := s.begin("a", step); err == nil {
		t.Error("a step begins twice")
	}
	if s.arrive(&pendingPush{Push: Push{Step: step, Version: 7}, trainer: "a"}) == nil || s.arrive(&pendingPush{Push: Push{Step: step, Version: 0}, trainer: "b"}) == nil {
		t.Error("a gradient on another version, or of another trainer, is taken")
	}
	if err := s.arrive(g); err != nil {
		t.Fatal(err)
	}
	if s.arrive(g) == nil {
		t.Error("a gradient is taken twice")
	}
	s.apply(s.due())
	if s.arrive(g) == nil {
		t.Error("a gradient is taken again after it was applied")
	}
}

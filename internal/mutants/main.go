// Command mutants measures tests: it breaks a package in many small ways, one at
// a time, and counts how many of them its tests notice.
//
//	go run ./internal/mutants -seed 1 -n 150 ./sampling
//
// A mutant has an operator swapped, an integer one larger, a condition negated, a
// statement left out, or a function that returns at once. Mutants are drawn by the
// seed, evenly, from all of a package's own source files that build here; one that
// does not build is drawn again. Those in functions are in one binary: it is built once.
// Calls that ask for memory ahead of its use, by functions named prefetch, have none.
// The package's tests run over it with -short, those first that take little, and the
// quick ones again with the portable kernels where it is above any. A mutant is
//
//   - killed, if a test fails or panics; one that comes to no end is left out then,
//     and the others run,
//   - timed out, if none does and the tests take five times the processor's time that they do
//     without it, five times as long and -wait, or more memory than the limit,
//   - equivalent, if it survives and equivalent.txt says why no test can tell it,
//   - or survives.
//
// One that survives and changes speed alone, as a size of a table or the choice of
// a kernel does, is a matter for benchmarks: equivalent.txt says "Speed:", and
// another is drawn.
//
// It exits with 1 where fewer than 85 of 100 are killed or more than 5 of 100 are
// equivalent, and where the list names one that is killed.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed equivalent.txt
var equivalents string

const memoryKiB = 8 << 20 // that can be written, for each run of the tests: the emulated device reserves more addresses

func main() {
	seed := flag.Uint64("seed", 1, "the `seed` that mutants are drawn by")
	count := flag.Int("n", 150, "the `number` of mutants of each package")
	jobs := flag.Int("jobs", 1, "the `number` of mutants that are tried at the same time")
	only := flag.String("only", "", "try all mutants whose description contains this `text`, and draw none")
	wait := flag.Duration("wait", 5*time.Minute, "how long tests may take beyond five times as long as without a mutant")
	former := flag.String("resume", "", "a `file` with lines that a former run printed, whose mutants are not tried again")
	flag.Parse()
	done := make(map[string]string)
	if *former != "" {
		lines, err := os.ReadFile(*former)
		if err != nil {
			fmt.Fprintf(os.Stderr, "mutants: %v\n", err)
			os.Exit(2)
		}
		for _, line := range strings.Split(string(lines), "\n") {
			if f := strings.Split(line, "\t"); len(f) == 3 {
				done[f[1]] = line
			}
		}
	}
	ok := true
	for _, pattern := range flag.Args() {
		good, err := measure(pattern, *seed, *count, *jobs, *only, *wait, done)
		if err != nil {
			fmt.Fprintf(os.Stderr, "mutants: %s: %v\n", pattern, err)
			os.Exit(2)
		}
		ok = ok && good
	}
	if !ok {
		os.Exit(1)
	}
}

// measure tries the mutants of one package, and returns whether they are what
// they should be.
func measure(pattern string, seed uint64, count, jobs int, only string, wait time.Duration, done map[string]string) (bool, error) {
	reasons, err := parseReasons(equivalents)
	if err != nil {
		return false, err
	}
	k, all, err := open(pattern)
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(k.temp)
	ids := make(map[string]bool)
	for _, m := range all {
		ids[m.id] = true
	}
	for id := range reasons {
		if strings.HasPrefix(id, k.pkg+"/") && filepath.Dir(strings.Fields(id)[0]) == k.pkg && !ids[id] {
			return false, fmt.Errorf("equivalent.txt names a mutant that is not there: %s", id)
		}
	}
	if only != "" {
		all = slices.DeleteFunc(all, func(m mutant) bool { return !strings.Contains(m.id, only) })
		count = len(all)
	}
	shuffle(all, seed)
	woven := min(count, len(all))
	if err := k.weave(all[:woven], done); err != nil {
		return false, err
	}
	if err := k.time(wait); err != nil {
		return false, err
	}

	var mu sync.Mutex
	var failed error
	next, drawn, wrong := 0, 0, 0
	counts := make(map[verdict]int)
	var wg sync.WaitGroup
	for j := range jobs {
		wg.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			for drawn < count && next < len(all) && failed == nil {
				if next == woven {
					woven = min(next+count-drawn, len(all))
					if failed = k.weave(all[next:woven], done); failed != nil {
						break
					}
				}
				m := all[next]
				next++
				drawn++
				mu.Unlock()
				v, by, err := k.try(m, j, done[m.id])
				mu.Lock()
				if err != nil {
					failed = fmt.Errorf("%s: %w", m.id, err)
					continue
				}
				v, ok := listed(v, reasons[m.id])
				if !ok {
					wrong++
					by += " (equivalent.txt says that no test can tell it)"
				}
				if v == unbuildable || v == speed {
					drawn--
				}
				counts[v]++
				fmt.Printf("%s\t%s\t%s\n", v, m.id, by)
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return false, failed
	}
	n := float64(max(1, drawn))
	fmt.Printf("%s: %d of %d mutants, seed %d: %d killed (%.1f %%), %d timed out, %d equivalent (%.1f %%), %d survive; %d others did not build, and %d change speed alone\n",
		k.pkg, drawn, len(all), seed, counts[killed], 100*float64(counts[killed])/n, counts[timedOut], counts[equivalent],
		100*float64(counts[equivalent])/n, counts[survived], counts[unbuildable], counts[speed])
	return wrong == 0 && float64(counts[killed]) >= 0.85*n && float64(counts[equivalent]) <= 0.05*n, nil
}

// listed returns what a verdict becomes by what equivalent.txt says of the mutant,
// and whether that is so.
func listed(v verdict, reason string) (verdict, bool) {
	switch {
	case reason == "" || v == unbuildable:
		return v, true
	case v != survived:
		return v, false
	case strings.HasPrefix(reason, "Speed: "):
		return speed, true
	}
	return equivalent, true
}

// parseReasons reads the list of equivalent mutants: two lines each, what it is
// and why no test can tell it, then an empty one.
func parseReasons(list string) (map[string]string, error) {
	reasons := make(map[string]string)
	for _, entry := range strings.Split(strings.TrimSpace(list), "\n\n") {
		id, why, _ := strings.Cut(strings.TrimSpace(entry), "\n")
		if id == "" {
			continue
		}
		if why = strings.TrimSpace(why); why == "" || reasons[id] != "" {
			return nil, fmt.Errorf("equivalent.txt: each mutant is there once, with a sentence below it: %s", id)
		}
		reasons[id] = why
	}
	return reasons, nil
}

type verdict string

const (
	killed      verdict = "killed"
	timedOut    verdict = "timed out"
	survived    verdict = "survived"
	equivalent  verdict = "equivalent"
	speed       verdict = "speed"
	unbuildable verdict = "unbuilt"
)

// kit tries mutants of one package.
type kit struct {
	pkg  string // its folder, from the module's root
	root string
	temp string
	runs []run
	// kernels: it has some, or is above some, that are in Go and in assembly.
	kernels bool

	binary string // the newest that was woven
	woven  int    // how many were
}

// run is one of the runs of the tests that a mutant must survive.
type run struct {
	only, skip []string // tests; none in only: all
	env        string
	wall, cpu  time.Duration // limits
}

func open(pattern string) (*kit, []mutant, error) {
	out, err := exec.Command("go", "list", "-json=Dir,GoFiles,Module,Deps,ImportPath", pattern).Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list: %w", err)
	}
	var list struct {
		Dir     string
		GoFiles []string
		Module  struct{ Dir string }

		ImportPath string
		Deps       []string
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, nil, fmt.Errorf("go list names no package, or several: %w", err)
	}
	k := &kit{root: list.Module.Dir}
	k.kernels = slices.ContainsFunc(append(list.Deps, list.ImportPath), func(p string) bool {
		return strings.HasSuffix(p, "/compute/cpu") || strings.HasSuffix(p, "/graph/features")
	})
	if k.pkg, err = filepath.Rel(k.root, list.Dir); err != nil {
		return nil, nil, err
	}
	if k.temp, err = os.MkdirTemp("", "mutants"); err != nil {
		return nil, nil, err
	}
	var all []mutant
	for _, name := range list.GoFiles {
		src, err := os.ReadFile(filepath.Join(list.Dir, name))
		if err != nil {
			return nil, nil, err
		}
		mutants, err := mutate(filepath.Join(k.pkg, name), src)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, mutants...)
	}
	return k, all, nil
}

var testLine = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\w+) \(([0-9.]+)s\)`)

// time runs the woven tests without a mutant, to see which are slow and how long they take.
func (k *kit) time(wait time.Duration) error {
	passes := func(r run) (out []byte, wall, cpu time.Duration, err error) {
		began := time.Now()
		r.wall, r.cpu = 20*time.Minute, time.Hour
		v, out, cpu, err := k.test(k.binary, 0, r)
		if err == nil && v != survived {
			err = fmt.Errorf("the tests do not pass as they are:\n%s", out)
		}
		return out, time.Since(began), cpu, err
	}
	out, _, _, err := passes(run{})
	if err != nil {
		return err
	}
	type timed struct {
		name    string
		seconds float64
	}
	var tests []timed
	all := 0.0
	for _, line := range testLine.FindAllStringSubmatch(string(out), -1) {
		seconds, _ := strconv.ParseFloat(line[3], 64)
		tests = append(tests, timed{line[2], seconds})
		all += seconds
	}
	slices.SortStableFunc(tests, func(a, b timed) int { return cmp.Compare(a.seconds, b.seconds) })
	// Those that take a fifth of the time together are first: most mutants need no others.
	var late, slow []string
	sum := 0.0
	for _, t := range tests {
		if sum += t.seconds; sum > all/5 {
			late = append(late, t.name)
		}
		if t.seconds > 0.3 {
			slow = append(slow, t.name)
		}
	}
	runs := []run{{skip: late}}
	if k.kernels {
		runs = append(runs, run{skip: slow, env: "GNNACTOR_SIMD=go"})
	}
	if len(late) > 0 {
		runs = append(runs, run{only: late})
	}
	for _, r := range runs {
		_, wall, cpu, err := passes(r)
		if err != nil {
			return err
		}
		// The clock is for what waits for ever: a busy machine stretches it.
		r.wall, r.cpu = 5*wall+wait, 5*cpu+5*time.Second
		k.runs = append(k.runs, r)
	}
	return nil
}

func (k *kit) build(binary string, flags ...string) ([]byte, error) {
	cmd := exec.Command("go", append(append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}, flags...), "./"+k.pkg)...)
	cmd.Dir = k.root
	return cmd.CombinedOutput()
}

// test runs the tests once, with the mutant of a number, and returns what they printed and
// the processor's time.
func (k *kit) test(binary string, number int, r run) (verdict, []byte, time.Duration, error) {
	// Beyond the tests' own limit, the search for leaked goroutines takes a minute.
	ctx, cancel := context.WithTimeout(context.Background(), r.wall+90*time.Second)
	defer cancel()
	args := []string{"-c", fmt.Sprintf(`ulimit -d %d -t %d; exec "$0" "$@"`, memoryKiB, int(r.cpu.Seconds())), binary,
		"-test.v", "-test.short", "-test.failfast", "-test.timeout", r.wall.String()}
	those := func(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }
	if len(r.only) > 0 {
		args = append(args, "-test.run", those(r.only))
	}
	if len(r.skip) > 0 {
		args = append(args, "-test.skip", those(r.skip))
	}
	cmd := exec.CommandContext(ctx, "bash", args...)
	cmd.Dir = filepath.Join(k.root, k.pkg)
	cmd.Env = append(os.Environ(), "GOGC=400", r.env, fmt.Sprintf("%s=%d", chosen, number)) // half of the time of small heaps is their collection
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return "", out, 0, err
	}
	return judge(out, cmd.ProcessState.ExitCode()), out, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

var limits = regexp.MustCompile(`(?m)^(panic: test timed out|fatal error: .*(out of memory|cannot (allocate|map|reserve)))`)

// judge says what became of a run of the tests by what it printed and its exit
// status, -1 if it was ended at a limit.
func judge(out []byte, status int) verdict {
	switch {
	case status == 0:
		return survived
	case failure.Match(out): // what came after it does not matter
		return killed
	case status < 0, limits.Match(out):
		return timedOut
	}
	return killed
}

// try builds the package with the mutant in it, in place number job of those that
// are there at the same time, and runs its tests.
func (k *kit) try(m mutant, job int, former string) (v verdict, by string, err error) {
	if f := strings.Split(former, "\t"); len(f) == 3 {
		if v = verdict(f[0]); v == equivalent || v == speed {
			v = survived // as far as the tests can tell
		}
		return v, f[2], nil
	}
	if m.number < 0 {
		return unbuildable, "", nil
	}
	if m.number > 0 {
		return k.verdict(m.binary, m.number)
	}
	path := filepath.Join(k.root, m.file)
	src, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	base := filepath.Join(k.temp, strconv.Itoa(job))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: base + ".go"}})
	if err != nil {
		return "", "", err
	}
	if err := errors.Join(os.WriteFile(base+".go", m.apply(src), 0o600), os.WriteFile(base+".json", overlay, 0o600)); err != nil {
		return "", "", err
	}
	if _, err := k.build(base, "-overlay", base+".json"); err != nil {
		return unbuildable, "", nil
	}
	return k.verdict(base, 0)
}

// verdict runs the tests over a mutant; again without those that came to no end.
func (k *kit) verdict(binary string, number int) (verdict, string, error) {
	all := survived
	var endless []string
	for _, r := range k.runs {
		for {
			r.skip = slices.Concat(r.skip, endless)
			v, out, _, err := k.test(binary, number, r)
			if err != nil || v == killed {
				return v, first(out), err
			}
			if v == survived {
				break
			}
			all = timedOut
			test := last(out)
			if test == "" || len(endless) == 3 {
				return all, "", nil
			}
			endless = append(endless, test)
		}
	}
	return all, "", nil
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// first names the test that failed first.
func first(out []byte) string {
	if m := failure.FindSubmatch(out); m != nil {
		return string(m[1])
	}
	return ""
}

var begun = regexp.MustCompile(`(?m)^=== RUN +(\w+)$`)

// last names the test that ran when all ended; empty: there is none.
func last(out []byte) string {
	all := begun.FindAllSubmatch(out, -1)
	if len(all) == 0 {
		return ""
	}
	name := string(all[len(all)-1][1])
	for _, line := range testLine.FindAllSubmatch(out, -1) {
		if string(line[2]) == name {
			return ""
		}
	}
	return name
}

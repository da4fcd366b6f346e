package attack

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Campaign damages the files of a directory, case by case.
type Campaign struct {
	Dir     string // what the commands read; it is copied, never changed
	Kinds   []Kind
	Seed    uint64
	Workers []*Worker // they take the cases by turns
	Scratch string    // a directory for their copies
	// Volatile are the fields of a command's JSON that differ from run to run.
	Volatile []string
	// Report is told what came of every case, one at a time.
	Report func(Result)

	Tally Tally
	// Share is the largest share of its bound that a command took in memory.
	Share float64

	mu     sync.Mutex
	files  map[string][]string   // by kind
	honest map[string]*undamaged // by kind and command
}

// Result is what came of a case.
type Result struct {
	Case    Case
	Outcome Outcome
	Bad     bool   // it is a finding
	Text    string // what was said, or how the result differs
}

// undamaged is what a command gives for undamaged files.
type undamaged struct {
	result       string
	peak         int64
	lines, looks int
}

// Prepare finds the files, and runs every command on the undamaged directory
// with every worker: its result must not depend on which.
func (c *Campaign) Prepare() error {
	c.files, c.honest = map[string][]string{}, map[string]*undamaged{}
	for i := range c.Workers {
		if err := os.CopyFS(c.copy(i), os.DirFS(c.Dir)); err != nil {
			return err
		}
	}
	for i := range c.Kinds {
		k := &c.Kinds[i]
		for _, pattern := range k.Files {
			found, err := filepath.Glob(filepath.Join(c.Dir, pattern))
			if err != nil || len(found) == 0 {
				return fmt.Errorf("attack: %s: no file is %s (%v)", k.Name, pattern, err)
			}
			for _, f := range found {
				name, _ := filepath.Rel(c.Dir, f)
				c.files[k.Name] = append(c.files[k.Name], name)
			}
		}
		for _, command := range k.Commands {
			for i, w := range c.Workers {
				r, err := c.run(i, w, command, Request{})
				if err != nil {
					return err
				}
				if r.Code != 0 {
					return fmt.Errorf("attack: %s: %s ends with %d on undamaged files: %s", k.Name, command.Name, r.Code, r.Stderr)
				}
				result, err := c.result(i, command, r)
				if err = errors.Join(err, c.restore(i, command)); err != nil {
					return err
				}
				id := k.Name + " " + command.Name
				if h := c.honest[id]; h == nil {
					c.honest[id] = &undamaged{result, r.Peak, r.Events, r.Looks}
				} else if h.result != result {
					return fmt.Errorf("attack: %s gives one time\n%s\nand another\n%s", id, h.result, result)
				} else {
					h.peak = max(h.peak, r.Peak)
				}
			}
		}
	}
	return nil
}

// Bound is the memory that a command may take at most for damaged files.
func Bound(honest int64) int64 { return 2*honest + 64<<20 }

func (c *Campaign) copy(worker int) string { return filepath.Join(c.Scratch, fmt.Sprint(worker)) }

// Run runs the first perKind cases of every kind, and then as many in which a
// mapped file is shortened while a command runs. Prepare must have succeeded.
func (c *Campaign) Run(perKind int) error {
	cases := make(chan Case)
	go func() {
		defer close(cases)
		for _, shorten := range []bool{false, true} {
			for n := range perKind {
				for i := range c.Kinds {
					if k := &c.Kinds[i]; k.Mapped || !shorten {
						cases <- c.draw(k, n, shorten)
					}
				}
			}
		}
	}()
	errs := make([]error, len(c.Workers))
	var wg sync.WaitGroup
	for i, w := range c.Workers {
		wg.Go(func() {
			for one := range cases {
				if errs[i] == nil {
					errs[i] = c.one(i, w, one)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *Campaign) draw(k *Kind, number int, shorten bool) Case {
	one := draw(c.Seed, k, c.files[k.Name], number)
	if h := c.honest[k.Name+" "+one.Command.Name]; shorten {
		return one.shorten(h.lines, h.looks)
	}
	return one
}

// One runs a single case, and, of a kind that is mapped, its twin.
func (c *Campaign) One(kind string, number int) error {
	for i := range c.Kinds {
		if k := &c.Kinds[i]; k.Name == kind {
			err := c.one(0, c.Workers[0], c.draw(k, number, false))
			if err == nil && k.Mapped {
				err = c.one(0, c.Workers[0], c.draw(k, number, true))
			}
			return err
		}
	}
	return fmt.Errorf("attack: there is no kind %q", kind)
}

func (c *Campaign) one(i int, w *Worker, one Case) error {
	path := filepath.Join(c.copy(i), one.File)
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var q Request
	if one.Event != 0 {
		q = Request{Shorten: path, ShortenTo: one.length(len(content)), Event: one.Event}
	} else if err := replace(path, one.Damage(content)); err != nil {
		return err
	}
	r, err := c.run(i, w, one.Command, q)
	if err != nil {
		return err
	}
	o, text, err := c.judge(i, w, one, r)
	if err != nil {
		return err
	}
	if err := errors.Join(replace(path, content), c.restore(i, one.Command)); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Tally.Add(one.Kind, string(one.Mutator), o)
	c.Share = max(c.Share, float64(r.Peak)/float64(Bound(c.honest[one.Kind+" "+one.Command.Name].peak)))
	c.Report(Result{one, o, o > Other || o == Other && (r.Code != 0 || !c.open(one.Kind)), text})
	return nil
}

func (c *Campaign) open(kind string) bool {
	return slices.ContainsFunc(c.Kinds, func(k Kind) bool { return k.Name == kind && k.Open })
}

// replace puts a new file in the place of one that may be mapped.
func replace(path string, content []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

// run runs a command on a worker's copy.
func (c *Campaign) run(i int, w *Worker, command Command, q Request) (Reply, error) {
	if _, err := c.left(i, command); err != nil { // of a command before that crashed
		return Reply{}, err
	}
	q.Args = expand(command.Args, c.copy(i))
	return w.Run(q)
}

// restore makes a directory what it was before a command that changes it.
func (c *Campaign) restore(i int, command Command) error {
	if command.Changes == "" {
		return nil
	}
	dir := filepath.Join(c.copy(i), command.Changes)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.CopyFS(dir, os.DirFS(filepath.Join(c.Dir, command.Changes)))
}

func expand(args []string, dir string) (all []string) {
	for _, a := range args {
		all = append(all, strings.ReplaceAll(a, "$DIR", dir))
	}
	return all
}

// judge says what came of a case.
func (c *Campaign) judge(i int, w *Worker, one Case, r Reply) (Outcome, string, error) {
	honest := c.honest[one.Kind+" "+one.Command.Name]
	if o := Crashed(r); o != Same {
		return o, r.Stderr, nil
	}
	if r.Peak > Bound(honest.peak) {
		return Memory, fmt.Sprintf("it took %d MiB, undamaged %d MiB: %s", r.Peak>>20, honest.peak>>20, r.Stderr), nil
	}
	if r.Code > 2 {
		return Other, fmt.Sprintf("exit %d: %s", r.Code, r.Stderr), nil
	}
	if r.Code != 0 {
		left, err := c.left(i, one.Command)
		if left != "" {
			return Left, left + " is left behind after: " + r.Stderr, err
		}
		return Refused, r.Stderr, err
	}
	result, err := c.result(i, one.Command, r)
	if err != nil || result == honest.result {
		return Same, "", err
	}
	text := fmt.Sprintf("it gives\n%s\nand not\n%s", result, honest.result)
	if one.Command.Check != nil {
		checked, err := w.Run(Request{Args: expand(one.Command.Check, c.copy(i))})
		if err != nil {
			return Other, text, err
		}
		if o := Crashed(checked); o != Same {
			return o, checked.Stderr, nil
		}
		if checked.Code != 0 {
			return Left, "what it made is not whole: " + checked.Stderr, nil
		}
	}
	return Other, text, nil
}

// left returns what a command that failed has left of its output, hidden
// temporaries beside it included.
func (c *Campaign) left(i int, command Command) (string, error) {
	if command.Out == "" {
		return "", nil
	}
	path := filepath.Join(c.copy(i), command.Out)
	hidden, err := filepath.Glob(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".*"))
	if _, serr := os.Stat(path); serr == nil {
		hidden = append(hidden, path)
	}
	for _, h := range hidden {
		err = errors.Join(err, os.RemoveAll(h))
	}
	return strings.Join(hidden, ", "), err
}

// traces are what Go prints of a panic, in a process that ends by it or in the
// text of an error that hides one.
var traces = regexp.MustCompile(`(?m)^goroutine \d+ |panic: |^fatal error: |unexpected fault address`)

var outOfMemory = regexp.MustCompile(`out of memory|cannot allocate memory|address space collisions|makeslice: len out of range`)

// Crashed returns Panic, Hang or Memory; Same stands for none of them.
func Crashed(r Reply) Outcome {
	switch {
	case r.Hung:
		return Hang
	case outOfMemory.MatchString(r.Stderr):
		return Memory
	case r.Died || traces.MatchString(r.Stderr):
		return Panic
	}
	return Same
}

// result is what must be the same: what was printed, without times, and a hash
// of what was written.
func (c *Campaign) result(i int, command Command, r Reply) (string, error) {
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	last := lines[len(lines)-1]
	var object map[string]any
	if json.Unmarshal([]byte(last), &object) == nil {
		c.strip(object)
		b, err := json.Marshal(object)
		if err != nil {
			return "", err
		}
		lines[len(lines)-1] = string(b)
	}
	text := strings.Join(lines, "\n")
	if command.Out == "" {
		return text, nil
	}
	path := filepath.Join(c.copy(i), command.Out)
	if st, err := os.Stat(path); err != nil || st.IsDir() {
		if err != nil {
			return "", err
		}
		all, err := Contents(path)
		sum := sha256.New()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			fmt.Fprintf(sum, "%s %d %s\n", name, len(all[name]), all[name])
		}
		return fmt.Sprintf("%s\n%s holds %x", text, command.Out, sum.Sum(nil)), err
	}
	b, err := os.ReadFile(path)
	return fmt.Sprintf("%s\n%s is %x", text, command.Out, sha256.Sum256(b)), err
}

// strip takes the volatile fields out of an object, at any depth.
func (c *Campaign) strip(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			if slices.Contains(c.Volatile, name) {
				delete(v, name)
			} else {
				c.strip(inner)
			}
		}
	case []any:
		for _, inner := range v {
			c.strip(inner)
		}
	}
}

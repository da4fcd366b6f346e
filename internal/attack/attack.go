// Package attack is the project's test kit for damage: it spoils files by seed,
// runs commands on them in processes of their own, and counts what came of it.
//
// A [Kind] says which files of a directory are damaged and which commands read
// them. A [Campaign] first runs every command on the undamaged directory, and
// then case after case: one file, spoiled by one [Mutator], and one command.
// All of that follows from (seed, kind, case) alone, so that a case can be run
// again without those before it.
//
// What may come of a case is that the command refuses, or that its result is the
// undamaged one. Everything else is a finding: another result, a panic, a hang,
// memory beyond what the damage can account for, files left behind. Text and
// other formats that carry no checksum are the exception: a digit that was
// changed is other data, and nothing can tell ([Kind.Open]); what was made of
// it must still be whole.
//
// Commands run in a [Worker], a process that takes one after the other, so that
// a fatal fault or a limit on memory ends that process and not the test. What it
// wrote before it ended says how.
package attack

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gnnactor/gnnactor/rng"
)

// Outcome is what came of a case.
type Outcome int

// Same and Refused are what is asked for, Other is right where the kind is Open.
const (
	Same    Outcome = iota // the result is the undamaged one
	Refused                // an error
	Other                  // another result
	Left                   // an error, and something half-written or lost
	Memory                 // more memory than the bound
	Hang
	Panic
	numOutcomes
)

var outcomeNames = [numOutcomes]string{"same", "refused", "other", "left", "memory", "hang", "panic"}

func (o Outcome) String() string { return outcomeNames[o] }

// Command is one way to read the files of a kind.
type Command struct {
	Name string
	Args []string // $DIR stands for the directory that holds the files
	// Out is a file or directory that it makes, below the directory: it is
	// removed before, part of the result, and must not be there after an error.
	Out string
	// Changes is a directory that it changes, which is made anew after it.
	Changes string
	// Check, if not nil, is run after a result that is another, and must
	// succeed: what was made of other data is whole.
	Check []string
}

// Kind is a kind of file, with the commands that read it.
type Kind struct {
	Name     string
	Files    []string // below the directory: patterns of filepath.Glob
	Open     bool     // the format has no checksum: other data may be a result
	Mapped   bool     // into memory: a file that becomes shorter is a fault
	Commands []Command
}

// Case is one damaged file and the command that reads it.
type Case struct {
	Kind    string
	Number  int
	File    string
	Mutator Mutator
	Command Command
	// Event is when a file is shortened while the command runs, as in Request; 0:
	// it is damaged before.
	Event int
	key   rng.Key
}

func (c Case) String() string {
	if c.Event != 0 {
		what, n := "line", c.Event
		if n < 0 {
			what, n = "look at the context", -n
		}
		return fmt.Sprintf("%s/%d: %s is shortened at %s %d, %s", c.Kind, c.Number, c.File, what, n, c.Command.Name)
	}
	return fmt.Sprintf("%s/%d: %s of %s, %s", c.Kind, c.Number, c.Mutator, c.File, c.Command.Name)
}

// Damage returns what the case makes of the file's content.
func (c Case) Damage(content []byte) []byte { return c.Mutator.Apply(c.key, content) }

// draw returns case number n of a kind: every mutator by turns, of a file and
// for a command that are drawn.
func draw(seed uint64, k *Kind, files []string, n int) Case {
	key := rng.New(seed, hash(k.Name), uint64(n))
	all := Mutators()
	return Case{
		Kind: k.Name, Number: n, Mutator: all[n%len(all)],
		File:    files[key.Uintn(0, uint64(len(files)))],
		Command: k.Commands[key.Uintn(1, uint64(len(k.Commands)))],
		key:     key.With(2),
	}
}

// shorten makes of a case one whose file is shortened while the command runs, at
// a line that it writes or at a look at its context.
func (c Case) shorten(lines, looks int) Case {
	c.Mutator = "shorten"
	if n := int(c.key.Uintn(3, uint64(lines+looks))); n < lines {
		c.Event = n + 1
	} else {
		c.Event = lines - n - 1
	}
	return c
}

// length is what is left of a file of n bytes: whole pages, so that reading the
// rest is a fault, or else any length, where the rest of a page reads as zeros.
func (c Case) length(n int) int64 {
	left := c.key.Uintn(4, uint64(n))
	if c.Number%2 == 0 {
		left &^= 4095
	}
	return int64(left)
}

func hash(s string) uint64 {
	k := rng.New(uint64(len(s)))
	for _, c := range []byte(s) {
		k = k.With(uint64(c))
	}
	return uint64(k)
}

// Tally counts outcomes by kind of file, or whatever met a fault, and by fault.
type Tally struct {
	kinds, faults []string
	counts        map[tallyKey]*[numOutcomes]int
}

type tallyKey struct{ kind, fault string }

// Add counts one case.
func (t *Tally) Add(kind, fault string, o Outcome) {
	if t.counts == nil {
		t.counts = map[tallyKey]*[numOutcomes]int{}
	}
	if !slices.Contains(t.kinds, kind) {
		t.kinds = append(t.kinds, kind)
	}
	if !slices.Contains(t.faults, fault) {
		t.faults = append(t.faults, fault)
	}
	k := tallyKey{kind, fault}
	if t.counts[k] == nil {
		t.counts[k] = new([numOutcomes]int)
	}
	t.counts[k][o]++
}

// Of returns how many cases of a kind ended so; "" stands for all kinds.
func (t *Tally) Of(kind string, o Outcome) (n int) {
	for k, c := range t.counts {
		if kind == "" || k.kind == kind {
			n += c[o]
		}
	}
	return n
}

// Total returns the number of cases.
func (t *Tally) Total() (n int) {
	for o := range numOutcomes {
		n += t.Of("", o)
	}
	return n
}

// String returns a table of kinds, and below it one of faults.
func (t *Tally) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, of func(Outcome) int) {
		sum := 0
		for o := range numOutcomes {
			sum += of(o)
		}
		fmt.Fprintf(w, "%s\t%d\t", name, sum)
		for o := range numOutcomes {
			fmt.Fprintf(w, "%d\t", of(o))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "\tcases\t%s\t\n", strings.Join(outcomeNames[:], "\t"))
	for _, kind := range slices.Sorted(slices.Values(t.kinds)) {
		row(kind, func(o Outcome) int { return t.Of(kind, o) })
	}
	for _, fault := range t.faults {
		row("("+fault+")", func(o Outcome) (n int) {
			for k, c := range t.counts {
				if k.fault == fault {
					n += c[o]
				}
			}
			return n
		})
	}
	row("all", func(o Outcome) int { return t.Of("", o) })
	w.Flush()
	return b.String()
}

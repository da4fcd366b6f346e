package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gnnactor/gnnactor/internal/attack"
)

// writer is a command that writes below $DIR/disk.
type writer struct {
	name, args string
	// before makes what is there already; it is kept when the command fails.
	before string
	// grows is a file of lines: those that were written stay. adds says that
	// files which appear are whole, which after shows.
	grows string
	adds  bool
	after string // must succeed, whatever became of the command
}

// writers are all of the binary's.
func writers() []writer {
	train := "train --data $DIR/s --epochs 2 " + small
	return []writer{
		{name: "import", args: "import $DIR/data/numpy $DIR/disk/out"},
		{name: "import of text", args: "import $DIR/data/ogb $DIR/disk/out --undirected"},
		{name: "import over a store", args: "import $DIR/typed $DIR/disk/out --overwrite", before: "import $DIR/s $DIR/disk/out", after: "inspect $DIR/disk/out --verify"},
		{name: "generate", args: "generate sbm $DIR/disk/out --nodes 300"},
		{name: "generate over a store", args: "generate rmat $DIR/disk/out --scale 9 --edges 3000 --overwrite", before: "import $DIR/s $DIR/disk/out", after: "inspect $DIR/disk/out --verify"},
		{name: "partition", args: "partition --data $DIR/disk/out --parts 5", before: "import $DIR/s $DIR/disk/out", after: "inspect $DIR/disk/out --verify"},
		{name: "checkpoint", args: train + " --checkpoint $DIR/disk/ck", adds: true, after: train + " --checkpoint $DIR/disk/ck --resume"},
		{name: "checkpoint, resumed", args: train + " --epochs 4 --checkpoint $DIR/disk/ck --resume", adds: true, before: train + " --checkpoint $DIR/disk/ck", after: train + " --epochs 4 --checkpoint $DIR/disk/ck --resume"},
		{name: "save", args: train + " --save $DIR/disk/m.safetensors"},
		{name: "save over a file", args: train + " --seed 2 --save $DIR/disk/m.safetensors", before: train + " --save $DIR/disk/m.safetensors"},
		{name: "embed", args: "embed --data $DIR/s --params $DIR/m.safetensors --out $DIR/disk/e.npy"},
		{name: "embed over a file", args: "embed --data $DIR/s --params $DIR/m.safetensors --ids 0-99 --out $DIR/disk/e.npy", before: "embed --data $DIR/s --params $DIR/m.safetensors --out $DIR/disk/e.npy"},
		{name: "trace", args: train + " --trace $DIR/disk/t.json"},
		{name: "plot", args: train + " --plot $DIR/disk/c.svg"},
		{name: "plot over a file", args: train + " --seed 2 --plot $DIR/disk/c.png", before: train + " --plot $DIR/disk/c.png"},
		{name: "plot of samplers", args: "sample --stats --batches 1 --data $DIR/s --fanouts 3,3 --plot $DIR/disk/c.svg"},
		{name: "steps", args: train + " --steps $DIR/disk/steps", grows: "steps"},
		{name: "steps, resumed", args: train + " --seed 2 --steps $DIR/disk/steps", grows: "steps", before: train + " --steps $DIR/disk/steps"},
		{name: "certificates", args: "cluster certs $DIR/disk/certs x=127.0.0.1", adds: true, after: "cluster certs $DIR/disk/certs y=127.0.0.1"},
		{name: "certificates, renewed", args: "cluster certs --renew $DIR/disk/certs x=127.0.0.1", before: "cluster certs $DIR/disk/certs x=127.0.0.1", after: "@handshake $DIR/disk/certs x $DIR/disk/certs x"},
		{name: "home", args: "@home $DIR/disk/node", after: "@home $DIR/disk/node"},
	}
}

// Whatever is written to a disk that is full, or to a file that may not grow, the
// command says which file and what to do, keeps what was there, and leaves
// nothing half-written. Without a number of cases every second limit and disk is tried.
func TestAttackDisk(t *testing.T) {
	w := worker(t)
	dir := fixture(t)
	disk := filepath.Join(dir, "disk")
	every := os.Getenv(attackCases) != ""
	var tally attack.Tally
	do := func(args string, q attack.Request) attack.Reply {
		t.Helper()
		q.Args = strings.Fields(strings.ReplaceAll(args, "$DIR", dir))
		r, err := w.Run(q)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, c := range writers() {
		reset := func() map[string][]byte {
			t.Helper()
			if err := errors.Join(os.RemoveAll(disk), os.Mkdir(disk, 0o755)); err != nil {
				t.Fatal(err)
			}
			if c.before != "" {
				if r := do(c.before, attack.Request{}); r.Code != 0 {
					t.Fatalf("%s: what comes before it ends with %d: %s", c.name, r.Code, r.Stderr)
				}
			}
			return contents(t, disk)
		}
		before := reset()
		if r := do(c.args, attack.Request{}); r.Code != 0 {
			t.Fatalf("%s: it ends with %d: %s", c.name, r.Code, r.Stderr)
		}
		whole := contents(t, disk)
		if maps.EqualFunc(before, whole, bytes.Equal) {
			t.Fatalf("%s writes nothing", c.name)
		}
		check := func(fault string, r attack.Reply, after map[string][]byte, remedy string, fits func(map[string][]byte) bool) {
			t.Helper()
			o, why := attack.Refused, ""
			if o = attack.Crashed(r); o == attack.Same && !(r.Code == 0 && fits(after)) {
				o, why = verdict(c, r, before, after, disk, remedy)
			}
			if o == attack.Refused && c.after != "" {
				if r := do(c.after, attack.Request{}); r.Code != 0 {
					o, why = attack.Left, fmt.Sprintf("%s ends with %d afterwards: %s", c.after, r.Code, r.Stderr)
				}
			}
			tally.Add(c.name, strings.Fields(fault)[0], o)
			if o > attack.Refused {
				t.Errorf("%s, %s: %v: %s\n%s", c.name, fault, o, why, r.Stderr)
			}
		}
		sizes := []int64{1}
		for name, content := range whole {
			if !bytes.Equal(content, before[name]) && len(content) > 2 {
				sizes = append(sizes, int64(len(content)/2), int64(len(content)-1))
			}
		}
		slices.Sort(sizes)
		for i, size := range slices.Compact(sizes) {
			if i%2 == 1 && !every {
				continue
			}
			before = reset()
			r := do(c.args, attack.Request{FileSize: size})
			check(fmt.Sprintf("limit of %d bytes", size), r, contents(t, disk), "raise the limit", func(after map[string][]byte) bool {
				return !slices.ContainsFunc(slices.Collect(maps.Values(after)), func(b []byte) bool { return int64(len(b)) > size })
			})
		}
		least := pages(before)
		for _, more := range []int64{1, 2, 4, 8} {
			if c.adds || least+more >= pages(whole) || !every && (more == 2 || more == 8) {
				continue // what is left on the small disk goes with it
			}
			before = reset()
			r := do(c.args, attack.Request{Disk: disk, DiskBytes: (least + more) * page})
			if r.Broken != "" {
				t.Logf("no small disk can be made here: %s", r.Broken)
				break
			}
			check(fmt.Sprintf("disk of %d pages", least+more), r, r.Files, "free some space", func(after map[string][]byte) bool { return pages(after) <= least+more })
		}
	}
	t.Logf("%d cases\n%s", tally.Total(), &tally)
}

const page = 4096

// pages returns how many pages of a tmpfs hold the files.
func pages(files map[string][]byte) (n int64) {
	for _, content := range files {
		n += (int64(len(content)) + page - 1) / page
	}
	return n
}

func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all, err := attack.Contents(dir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// lines reports whether a file has no half of a line.
func lines(b []byte) bool { return len(b) == 0 || b[len(b)-1] == '\n' }

// verdict says whether a command that could not write did all that it should.
func verdict(c writer, r attack.Reply, before, after map[string][]byte, disk, remedy string) (attack.Outcome, string) {
	if r.Code == 0 {
		return attack.Other, "it succeeds"
	}
	said := strings.Split(strings.TrimSpace(r.Stderr), "\n")
	if last := said[len(said)-1]; !strings.Contains(last, disk) || !strings.Contains(last, remedy) {
		return attack.Other, fmt.Sprintf("it names no file, or does not say %q", remedy)
	}
	for name, content := range before {
		if now := after[name]; !bytes.Equal(now, content) && !(name == c.grows && bytes.HasPrefix(now, content) && lines(now)) {
			return attack.Left, name + " is not what it was"
		}
	}
	for name, content := range after {
		_, old := before[name]
		switch {
		case old, c.adds && !strings.HasPrefix(filepath.Base(name), "."), name == c.grows && lines(content):
		default:
			return attack.Left, fmt.Sprintf("%s of %d bytes is left", name, len(content))
		}
	}
	return attack.Refused, ""
}

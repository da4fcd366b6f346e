package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gnnactor/gnnactor/cluster"
	"github.com/gnnactor/gnnactor/cluster/transport"
	"github.com/gnnactor/gnnactor/graph/generate"
	"github.com/gnnactor/gnnactor/graph/store"
	"github.com/gnnactor/gnnactor/internal/attack"
)

// Environment of the attacks. attackCases is how many cases there are of every
// kind of file (otherwise few), attackCase one case alone, such as store/17.
const (
	asWorker    = "GNNACTOR_TEST_ATTACKED"
	attackCases = "GNNACTOR_ATTACK_CASES"
	attackSeed  = "GNNACTOR_ATTACK_SEED"
	attackCase  = "GNNACTOR_ATTACK_CASE"
)

func init() {
	if os.Getenv(asWorker) == "1" {
		for _, name := range []string{asWorker, attackCases, attackSeed, attackCase} {
			os.Unsetenv(name) // or it would be taken for a setting
		}
		attack.Serve(attacked)
	}
}

// attacked runs a command line, or one of the calls that no command makes alone.
func attacked(ctx context.Context, args []string, stdout, stderr *attack.Output) int {
	call, ok := map[string]func([]string, io.Writer) error{"@home": callHome, "@handshake": callHandshake, "@issue": callIssue}[args[0]]
	if !ok {
		return run(ctx, args, stdout, stderr)
	}
	return report(ctx, stderr, args[0], call(args[1:], stdout))
}

func callHome(args []string, stdout io.Writer) error {
	home, err := cluster.Home(args[0])
	fmt.Fprintln(stdout, home)
	return err
}

// callHandshake lets node a of one directory meet node b of another.
func callHandshake(args []string, stdout io.Writer) error {
	a, err := transport.LoadCerts(transport.NodeFiles(args[0], args[1]), nil)
	if err != nil {
		return err
	}
	b, err := transport.LoadCerts(transport.NodeFiles(args[2], args[3]), nil)
	if err != nil {
		return err
	}
	for _, pair := range [][2]*transport.Reloader{{a, b}, {b, a}} {
		here, there := net.Pipe()
		server, client := tls.Server(here, pair[0].Client("")), tls.Client(there, pair[1].Client("127.0.0.1"))
		done := make(chan error, 1)
		go func() {
			done <- server.Handshake()
			here.Close()
		}()
		// A byte: in TLS 1.3 the client is done before the server refuses it.
		_, err := client.Read(make([]byte, 1))
		there.Close()
		if err := <-done; err != nil {
			return err
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		fmt.Fprintln(stdout, server.ConnectionState().PeerCertificates[0].Subject.CommonName)
	}
	return nil
}

// callIssue makes a certificate with an authority's key, and meets with it.
func callIssue(args []string, stdout io.Writer) error {
	a, err := transport.LoadAuthority(args[0])
	if err != nil {
		return err
	}
	if _, err := a.Issue(args[0], "new", []string{"127.0.0.1"}, time.Hour); err != nil {
		return err
	}
	return callHandshake([]string{args[0], "new", args[1], "b"}, stdout)
}

func fields(args string) []string { return strings.Fields(args) }

// fixture makes one of every kind of file.
func fixture(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ds, err := generate.SBM(t.Context(), generate.SBMOptions{Nodes: 160, Classes: 4, AvgDegree: 6, Homophily: 0.7, FeatureDim: 8, Signal: 0.5, TrainFraction: 0.4, ValidFraction: 0.2, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(store.Create(t.Context(), at("s"), ds), store.Create(t.Context(), at("typed"), typed(ds))); err != nil {
		t.Fatal(err)
	}
	datasets(t, at("data"), ds)
	do := func(args string) {
		t.Helper()
		mustInvoke(t, strings.Fields(strings.ReplaceAll(args, "$DIR", dir))...)
	}
	do("import $DIR/data/numpy $DIR/int8 --feature-type int8")
	do("partition --data $DIR/s --parts 8 --method hash")
	do("train --data $DIR/s " + small + " --epochs 2 --save $DIR/m.safetensors")
	do("train --data $DIR/s " + small + " --epochs 2 --checkpoint $DIR/ck --keep-checkpoints 1")
	do("cluster certs $DIR/certs a=127.0.0.1")
	if _, err := cluster.Home(at("home")); err != nil {
		t.Fatal(err)
	}
	// The other side of a handshake, which is not damaged.
	if err := os.CopyFS(at("intact"), os.DirFS(at("certs"))); err != nil {
		t.Fatal(err)
	}
	do("cluster certs $DIR/intact b=127.0.0.1")
	config := "data: " + at("s") + "\nepochs: 1\nhidden: 4\nlayers: 2\nfanouts: [3, 3]\nbatch-size: 32\nthreads: 1\nmodel: sage\nlr: 0.01\nseed: 7\n"
	if err := os.WriteFile(at("c.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// small is a model that trains in milliseconds; whole is of samplers without fan-outs.
const (
	whole = "--hidden 4 --layers 2 --batch-size 32 --threads 1 --baseline=false --output json"
	small = whole + " --fanouts 3,3"
)

// kinds are all kinds of files, with the commands that read them.
func kinds() []attack.Kind {
	command := func(name, args string) attack.Command { return attack.Command{Name: name, Args: fields(args)} }
	train := func(name, more string) attack.Command {
		return command("train "+name, "train --data $DIR/s --epochs 1 "+small+" "+more)
	}
	trainWhole := func(name, more string) attack.Command {
		return command("train "+name, "train --data $DIR/s --epochs 1 "+whole+" "+more)
	}
	imported := func(of string, more string) attack.Command {
		return attack.Command{
			Name: "import", Args: fields("import $DIR/" + of + " $DIR/out --output json " + more), Out: "out",
			Check: fields("inspect $DIR/out --verify --output json"),
		}
	}
	partition := command("partition", "partition --data $DIR/s --parts 4 --output json")
	partition.Changes = "s"
	embed := command("embed", "embed --data $DIR/s --params $DIR/m.safetensors --threads 1 --out $DIR/e.npy --output json")
	embed.Out = "e.npy"
	infer := []attack.Command{
		command("eval", "eval --data $DIR/s --params $DIR/m.safetensors --threads 1 --output json"), embed,
		command("predict", "predict --data $DIR/s --params $DIR/m.safetensors --threads 1"),
	}
	readers := append([]attack.Command{
		train("sage", ""), trainWhole("gcn, whole graph", "--model gcn --sampler full"), train("gat", "--model gat"),
		train("mapped", "--features mmap --reorder 4"), train("from disk", "--features disk --cache hot:4KiB"),
		train("degree cache", "--features disk --cache degree:5%"), train("links", "--task link"),
		train("labor", "--sampler labor"), trainWhole("node", "--sampler node --sampler-options budget=60"), trainWhole("edge", "--sampler edge --sampler-options budget=60"),
		trainWhole("walk", "--sampler walk --sampler-options roots=10,walk-length=3"), trainWhole("frontier", "--sampler frontier --sampler-options frontier=10,budget=40"),
		trainWhole("cluster", "--sampler cluster"), train("fastgcn", "--sampler fastgcn"), train("ladies", "--sampler ladies"),
		train("pinsage", "--sampler pinsage"), train("gns", "--sampler gns --cache gns:5%"),
		command("inspect --verify", "inspect $DIR/s --verify --output json"), partition, imported("s", ""),
		command("sample", "sample --data $DIR/s --fanouts 3,3 --batch-size 32 --threads 1 --output json"),
		command("sample --stats", "sample --stats --batches 2 --data $DIR/s --fanouts 3,3 --batch-size 32 --threads 1 --output json"),
	}, infer...)
	ofTyped := []attack.Command{
		command("train gat", "train --data $DIR/typed --epochs 1 --model gat --edge-features "+small),
		command("train temporal", "train --data $DIR/typed --epochs 1 --sampler-options temporal=true "+small),
		command("train weighted", "train --data $DIR/typed --epochs 1 --sampler-options weighted=true "+small),
		command("inspect --verify", "inspect $DIR/typed --verify --output json"), imported("typed", ""),
	}
	resume := command("train --resume", "train --data $DIR/s "+small+" --epochs 3 --checkpoint $DIR/ck --resume")
	resume.Changes = "ck"
	handshake, issue := command("handshake", "@handshake $DIR/certs a $DIR/intact b"), command("issue", "@issue $DIR/certs $DIR/intact")
	issue.Changes = "certs"
	all := []attack.Kind{
		{Name: "store", Mapped: true, Files: []string{"s/ind*.bin", "s/labels.bin", "s/node-features.bin", "s/t*.bin", "s/valid.bin"}, Commands: readers},
		{Name: "store, typed", Mapped: true, Files: []string{"typed/*.bin"}, Commands: ofTyped},
		{Name: "store, int8", Mapped: true, Files: []string{"int8/node-*.bin"}, Commands: []attack.Command{
			command("train", "train --data $DIR/int8 --epochs 1 "+small), command("train from disk", "train --data $DIR/int8 --epochs 1 --features disk "+small),
		}},
		{Name: "manifest", Files: []string{"s/store.json"}, Commands: readers},
		{Name: "partition", Mapped: true, Files: []string{"s/partition*.bin"}, Commands: []attack.Command{
			trainWhole("cluster", "--sampler cluster --sampler-options clusters=8,partition-by=hash"), command("inspect --verify", "inspect $DIR/s --verify --output json"),
		}},
		{Name: "checkpoint", Files: []string{"ck/*"}, Commands: []attack.Command{resume}},
		{Name: "parameters", Files: []string{"m.safetensors"}, Commands: infer},
		{Name: "config", Files: []string{"c.yaml"}, Open: true, Commands: []attack.Command{command("train", "train --config $DIR/c.yaml --baseline=false --output json")}},
		{Name: "certificates", Files: []string{"certs/*"}, Commands: []attack.Command{handshake, issue}},
		{Name: "home", Files: []string{"home/home"}, Open: true, Commands: []attack.Command{command("home", "@home $DIR/home")}},
	}
	for _, of := range []struct {
		format string
		open   bool
	}{
		{"list", true}, {"list-gz", false}, {"list-zst", false}, {"mtx", true}, {"mtx-gz", false}, {"numpy", true}, {"numpy-csc", true},
		{"npz", false}, {"scipy", false}, {"scipy-coo", false}, {"graphbolt", true},
	} {
		files := "data/" + of.format + "/*"
		if !of.open {
			files = "data/" + of.format + "/g.*" // beside it lie arrays without checksums
		}
		all = append(all, attack.Kind{Name: "import " + of.format, Files: []string{files}, Open: of.open, Commands: []attack.Command{imported("data/"+of.format, "")}})
	}
	return append(all, attack.Kind{Name: "import ogb", Files: []string{"data/ogb/raw/*", "data/ogb/split/any/*"}, Commands: []attack.Command{imported("data/ogb", "")}})
}

func fromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: it must be a number above 0", name, text)
	}
	return n
}

// worker returns a process that runs command lines.
func worker(t *testing.T) *attack.Worker {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := attack.NewWorker(self, asWorker+"=1")
	t.Cleanup(w.Close)
	return w
}

// Whatever is damaged, a command refuses it or gives its undamaged result.
func TestAttackFiles(t *testing.T) {
	one := os.Getenv(attackCase)
	if one == "" && os.Getenv(attackCases) == "" {
		t.Skipf("set %s to a number of cases for every kind of file", attackCases)
	}
	unnamed := 0
	c := &attack.Campaign{
		Dir: fixture(t), Scratch: t.TempDir(), Kinds: kinds(), Seed: uint64(fromEnv(t, attackSeed, 1)),
		Volatile: []string{"seconds", "stages", "overlap", "peak_rss_bytes", "batches_per_second", "sampled_edges_per_second", "open_seconds", "file", "rows"},
		Report: func(r attack.Result) {
			if r.Outcome == attack.Refused && !strings.Contains(r.Text, filepath.Dir(r.Case.File)) {
				unnamed++
			}
			if r.Bad {
				t.Errorf("%v: %v: %s", r.Case, r.Outcome, r.Text[:min(len(r.Text), 1500)])
			} else if one != "" {
				t.Logf("%v: %v: %s", r.Case, r.Outcome, r.Text)
			}
		},
	}
	for range max(2, goruntime.NumCPU()) {
		c.Workers = append(c.Workers, worker(t))
	}
	if err := c.Prepare(); err != nil {
		t.Fatal(err)
	}
	if one != "" {
		kind, number, _ := strings.Cut(one, "/")
		n, err := strconv.Atoi(number)
		if err == nil {
			err = c.One(kind, n)
		}
		if err != nil {
			t.Fatal(err)
		}
	} else if err := c.Run(fromEnv(t, attackCases, 8)); err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d, %d cases; memory: at most %.0f %% of the bound; %d of %d errors do not name the file or its directory\n%s",
		c.Seed, c.Tally.Total(), 100*c.Share, unnamed, c.Tally.Of("", attack.Refused), &c.Tally)
}

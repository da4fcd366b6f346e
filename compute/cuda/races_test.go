//go:build linux && amd64 && !nogpu

package cuda_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gnnactor/gnnactor/compute/cuda"
	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/compute/cuda/kernels"
)

// slow is the environment variable with which CI asks for what takes a minute.
const slow = "GNNACTOR_CUDA_SLOW"

// kernelTests are those that between them launch every kernel.
var kernelTests = map[string]func(*testing.T){
	"Elementwise": TestElementwise, "Gemm": TestGemm, "Sums": TestSums, "Rows": TestRows, "Larger": TestLarger,
	"Aggregate": TestAggregate, "Tables": TestTables, "Attention": TestAttention, "Dropout": TestDropout,
	"SoftmaxCrossEntropy": TestSoftmaxCrossEntropy, "SigmoidCrossEntropy": TestSigmoidCrossEntropy, "LayerNorm": TestLayerNorm, "BatchNorm": TestBatchNorm,
	"NeighborSamplerTable": TestNeighborSamplerTable,
	"GemmByLargeTiles": func(t *testing.T) {
		defer cuda.Enough(1)()
		TestGemm(t)
	},
}

// replay runs recorded launches again with real threads under the thread sanitizer.
func replay(t *testing.T, sources fs.FS, file string) (string, error) {
	program := fakecuda.Compile(t, sources, "fake/replay.cc", "-O1", "-fsanitize=thread")
	cmd := exec.Command(program, file)
	cmd.Env = append(os.Environ(), "TSAN_OPTIONS=halt_on_error=0 exitcode=66 report_bugs=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// No two threads of a block touch the same memory without a barrier between them, unless
// both read: what kernels do in their tests, small launches of each, is done again with
// real threads under the thread sanitizer, and leaves the same bits.
func TestRaces(t *testing.T) {
	if os.Getenv(slow) == "" {
		t.Skip("set " + slow + "=1: a thread of the operating system for each of the device's takes long")
	}
	file := filepath.Join(t.TempDir(), "launches")
	d := fakecuda.Use(t)
	d.Record(file)
	for name, f := range kernelTests {
		t.Run(name, f)
	}
	d.Record("")
	out, err := replay(t, kernels.Sources, file)
	if err != nil || strings.Contains(out, "WARNING: ThreadSanitizer") {
		t.Fatalf("%v\n%s", err, out[max(0, strings.Index(out, "WARNING")-100):])
	}
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		seen[strings.TrimSpace(line)] = true
	}
	for _, k := range exported(t) {
		if !seen[k] {
			t.Errorf("kernel %s was not launched", k)
		}
	}
}

// exported returns the names of all kernels.
func exported(t *testing.T) (names []string) {
	files, err := fs.Glob(kernels.Sources, "*.cu")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f == "limits.cu" { // benchmarks run its kernels
			continue
		}
		ptx, err := os.ReadFile(filepath.Join("kernels", strings.TrimSuffix(f, ".cu")+".ptx"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\.visible \.entry (\w+)\(`).FindAllSubmatch(ptx, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}

// changed returns the sources with every match of old in a file replaced.
func changed(t *testing.T, file, old, new string) fs.FS {
	m := fstest.MapFS{}
	err := fs.WalkDir(kernels.Sources, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(kernels.Sources, path)
		if path == file {
			if !strings.Contains(string(text), old) {
				t.Fatalf("%s has no %q", file, old)
			}
			text = []byte(strings.ReplaceAll(string(text), old, new))
		}
		m[path] = &fstest.MapFile{Data: text}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Mutants of kernels are noticed by the tests of the emulator: barriers that are not there,
// tiles that end one too late or early, data that is read before it has come.
func TestMutants(t *testing.T) {
	if os.Getenv(slow) == "" {
		t.Skip("set " + slow + "=1: a library for every mutant takes long")
	}
	for _, m := range []struct{ file, old, new, test string }{
		{"product.cu", "    copy_wait<1>();\n    barrier();", "    copy_wait<1>();", "TestGemm"},
		{"product.cu", "    }\n    barrier();\n  }", "    }\n  }", "TestGemm"},
		{"product.cu", "copy_wait<1>()", "copy_wait<2>()", "TestGemm"},
		{"product.cu", "k0 + DEPTH < p.end", "k0 + DEPTH + 1 < p.end", "TestGemm"},
		{"product.cu", "r < p.m && c0 + j < p.n) d[j]", "r <= p.m && c0 + j < p.n) d[j]", "TestGemm"},
		{"product.cu", "for (int p = 0; p < count; p++)", "for (int p = 1; p < count; p++)", "TestGemm"},
		{"product.cu", "k - begin < terms ? k", "k - begin < terms ? k - 1", "TestGemm"},
		{"element.cu", "  barrier();\n", "", "TestRows"},
		{"sums.cu", "  barrier();\n", "", "TestSums"},
		{"sums.cu", "for (; i < end; i++)", "for (; i < end - 1; i++)", "TestSums"},
		{"loss.cu", "    sums[thread()] = s;\n    barrier();", "    sums[thread()] = s;", "TestSoftmax"},
		{"device.h", "0.693359375f", "0.6933f", "TestElementwise"},
	} {
		t.Run(m.file+"/"+m.new, func(t *testing.T) {
			library := fakecuda.Compile(t, changed(t, m.file, m.old, m.new), "fake/driver.cc", fakecuda.Flags()...)
			cmd := exec.Command(os.Args[0], "-test.run", "^"+m.test)
			cmd.Env = append(os.Environ(), fakecuda.Variable+"="+library)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL") && !strings.Contains(string(out), "SIGSEGV") {
				t.Errorf("%s does not notice that %q is %q in %s: %v\n%s", m.test, m.old, m.new, m.file, err, out)
			}
		})
	}
}

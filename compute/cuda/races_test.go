//go:build linux && amd64 && !nogpu

package cuda_test

import (
	"cmp"
	"fmt"
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
	"NeighborSamplerTable": TestNeighborSamplerTable, "Transpose": TestTranspose, "Optimizers": TestOptimizers, "MeanAndStatistics": TestMeanAndStatistics,
	"GemmPrecision": TestGemmPrecision,
	"LossOptions":   func(t *testing.T) { optionsOfLosses(t, [][2]int{{5, 3}, {3, 130}}) },
	"Regression":    func(t *testing.T) { regressions(t, 1, 70) },
	"GemmByLargeTiles": func(t *testing.T) {
		defer cuda.Enough(1)()
		TestGemm(t)
	},
}

// replay runs recorded launches again with real threads under the thread sanitizer.
func replay(t *testing.T, sources fs.FS, file string) (string, error) {
	program := fakecuda.Compile(t, sources, "fake/replay.cc", "-O1", "-fsanitize=thread")
	cmd := exec.Command(program, file)
	cmd.Env = append(os.Environ(), "TSAN_OPTIONS=halt_on_error=0 exitcode=66 report_bugs=1 history_size=7")
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
		names = append(names, kernels.Entries(ptx)...)
	}
	return names
}

// mutant is a change of a kernel's source, or of a header of it, which a test must notice.
type mutant struct {
	kernel         string // .cu file
	file, old, new string // file: the header, if it is in one
	test           string // what its name begins with
}

// mutants are barriers that are not there, tiles that end one too late or early, strides of
// something else, data that is read before it has come.
var mutants = []mutant{
	{"product.cu", "", "    copy_wait<STAGES - 2>();\n    barrier();\n    // The tile", "    copy_wait<STAGES - 2>();\n    // The tile", "TestGemmWhole"},
	{"product.cu", "", "      copy_wait<STAGES - 2>();\n      barrier();\n    }", "      copy_wait<STAGES - 2>();\n    }", "TestGemm$"},
	{"product.cu", "", "copy_wait<STAGES - 2>()", "copy_wait<STAGES - 1>()", "TestGemm$"},
	{"product.cu", "", "if (first < p.end) {", "if (first + 1 < p.end) {", "TestGemm$"},
	{"product.cu", "", "if (s < tiles) a.next", "if (s + 1 < tiles) a.next", "TestGemmWhole"},
	{"product.cu", "", "k = p.begin + tiles * DEPTH; k < p.end", "k = p.begin + tiles * DEPTH + 1; k < p.end", "TestGemmWhole"},
	{"product.cu", "", "from += ALONG ? DEPTH * stride : DEPTH", "from += ALONG ? DEPTH * stride : DEPTH + 1", "TestGemmWhole"},
	{"product.cu", "", "r < p.m && c0 + j < p.n) d[j]", "r <= p.m && c0 + j < p.n) d[j]", "TestGemm$"},
	{"product.cu", "", "for (int p = 0; p < count; p++)", "for (int p = 1; p < count; p++)", "TestGemm$"},
	{"product.cu", "product.h", "p.begin < terms ? p.k", "p.begin < terms ? p.k - 1", "TestGemm$"},
	{"tensor.cu", "", "    copy_wait<1>();\n    barrier();", "    copy_wait<1>();", "TestGemmPrecision"},
	{"tensor.cu", "", "    }\n    barrier();\n  }", "    }\n  }", "TestGemmPrecision"},
	{"tensor.cu", "", "copy_wait<1>()", "copy_wait<2>()", "TestGemmPrecision"},
	{"tensor.cu", "", "k0 + DEPTH < p.end", "k0 + DEPTH + 1 < p.end", "TestGemmPrecision"},
	{"tensor.cu", "product.h", "o0 + o < rows && i0 + i < columns", "o0 + o <= rows && i0 + i < columns", "TestGemmPrecision"},
	{"tensor.cu", "", "r < p.m && c < p.n", "r < p.m + 1 && c < p.n", "TestGemmPrecision"},
	{"tensor.cu", "", "term * 2 + e", "term + e", "TestGemmPrecision"},
	{"tensor.cu", "", "a[2 * i + 1][0], a[2 * i][1]", "a[2 * i][1], a[2 * i + 1][0]", "TestGemmPrecision"},
	{"tensor.cu", "", "(h * P::EACH + e) * 4", "(h * P::EACH + e) * 5", "TestGemmPrecision"},
	{"tensor.cu", "", "return to_tf32(v[0])", "return to_bits(v[0])", "TestGemmPrecision"},
	{"element.cu", "", "  barrier();\n", "", "TestRows"},
	{"element.cu", "device.h", "0.693359375f", "0.6933f", "TestElementwise"},
	{"sums.cu", "", "  barrier();\n", "", "TestSums"},
	{"sums.cu", "", "for (; i < end; i++, p += as)", "for (; i < end - 1; i++, p += as)", "TestSums"},
	{"sums.cu", "", "parts[(i64)c * cols]", "parts[(i64)c * (cols + 1)]", "TestSums"},

	{"aggregate.cu", "rows.h", "op.stage(stage, i, e, n);\n      warp_barrier();", "op.stage(stage, i, e, n);", "TestAggregate$"},
	{"aggregate.cu", "rows.h", "op.add(sum, stage, k);\n      }\n      warp_barrier();", "op.add(sum, stage, k);\n      }", "TestAggregate$"},
	{"aggregate.cu", "rows.h", "parts[warp * 32 + lane] = sum;\n      barrier();", "parts[warp * 32 + lane] = sum;", "TestAggregate$"},
	{"aggregate.cu", "rows.h", "whole == (end - begin > long_row)", "whole == (end - begin >= long_row)", "TestAggregate$"},
	{"aggregate.cu", "rows.h", "vote(lane < row_warps &&", "vote(lane < row_warps - 1 &&", "TestAggregate$"},
	{"aggregate.cu", "rows.h", "e += whole ? chunk : row_warps * chunk", "e += chunk", "TestAggregate$"},
	{"aggregate.cu", "rows.h", "int n = end - e < chunk ?", "int n = end - e <= chunk + 1 ?", "TestAggregate$"},
	{"aggregate.cu", "rows.h", "for (int w = 1; w < row_warps; w++) sum", "for (int w = 1; w < row_warps - 1; w++) sum", "TestAggregate$"},
	{"aggregate.cu", "", "if (lane < n) s.row[lane] = source_row", "if (lane < n - 1) s.row[lane] = source_row", "TestAggregate$"},
	{"aggregate.cu", "", "i < loops", "i <= loops", "TestAggregate$"},
	{"aggregate.cu", "", "argmax[r * cols + column]", "argmax[r * dy_stride + column]", "TestAggregate$"},
	{"aggregate.cu", "", "s.coefficient[k * heads + head]", "s.coefficient[k + head]", "TestAttention"},
	{"aggregate.cu", "", "store<V>(p.dst + i * p.dst_stride, j, read", "store<V>(p.dst + i * p.cols, j, read", "TestRows"},

	{"attention.cu", "", "x[warp * 32 + lane] = v;\n    barrier();", "x[warp * 32 + lane] = v;", "TestAttention"},
	{"attention.cu", "", "    meet(t);\n", "", "TestAttention"},
	{"attention.cu", "", "  meet(all);\n", "", "TestAttention"},
	{"attention.cu", "", "parts[thread()].att = made;\n  barrier();", "parts[thread()].att = made;", "TestAttention"},
	{"attention.cu", "", "first += octets", "first += octets + 1", "TestAttention"},
	{"attention.cu", "", "block ? row_warps * each : each", "block ? row_warps * each + 1 : each", "TestAttention"},
	{"attention.cu", "", "p.dst[i * p.dst_stride + h]", "p.dst[i * p.src_stride + h]", "TestAttention"},

	{"optimizer.cu", "", "  barrier(); // before", "  // before", "TestMeanAndStatistics"},
	{"optimizer.cu", "", "j < 2 * n", "j < 2 * n - 1", "TestMeanAndStatistics"},
	{"optimizer.cu", "", "f.rest2 * (d * d)", "f.rest2 * d * d", "TestOptimizers"},
	{"optimizer.cu", "", "d + momentum * now : now", "d : now", "TestOptimizers"},

	{"norm.cu", "", "shuffle_from(v, first + l)", "shuffle_from(v, l)", "TestLayerNorm"},
	{"norm.cu", "", "j < cols; j += lanes) sum = sum + a[j]", "j < cols - 1; j += lanes) sum = sum + a[j]", "TestLayerNorm"},
	{"norm.cu", "", "p.dy + i * p.dy_stride", "p.dy + i * p.a_stride", "TestLayerNorm"},
	{"norm.cu", "", "c < parts_of(p.rows)", "c < p.rows / sum_rows", "TestBatchNorm"},
	{"norm.cu", "", "i0 + sum_rows < p.rows ?", "i0 + sum_rows <= p.rows + 1 ?", "TestBatchNorm"},
	{"norm.cu", "", "to[p.cols] = squares", "to[1] = squares", "TestBatchNorm"},

	{"loss.cu", "", "    sums[thread()] = s;\n    barrier();", "    sums[thread()] = s;", "TestSoftmax"},
	{"loss.cu", "", "j >= 0; j -= 32", "j > 0; j -= 32", "TestSoftmax"},
	{"loss.cu", "", "p.logits + i * p.logits_stride", "p.logits + i * p.cols", "TestSoftmax"},
	{"loss.cu", "", "i0 + loss_rows < p.rows ?", "i0 + loss_rows < p.rows + 2 ?", "TestSoftmax"},
	{"loss.cu", "", "(i64)row * p.cols + j", "(i64)row * (p.cols + 1) + j", "TestSigmoid"},
	{"loss.cu", "", "double power = q > 0 ?", "double power = q > 1 ?", "TestLossOptions"},
	{"loss.cu", "", "if (u == 1) return x;", "", "TestLossOptions"},
	{"loss.cu", "", "(x / double_log(u))", "1", "TestLossOptions"},
	{"loss.cu", "", "j == label ? -q :", "j == label ? q :", "TestLossOptions"},
	{"loss.cu", "", "dot = warp_sum(dot)", "dot = dot", "TestLossOptions"},
	{"loss.cu", "", "even = p.smoothing / p.cols", "even = p.smoothing / 2", "TestLossOptions"},
	{"loss.cu", "", "set ? lp - z : lp + z", "lp - z", "TestLossOptions"},
	{"loss.cu", "", "Cost{c.cost, -c.slope}", "Cost{w * c.cost, -c.slope}", "TestLossOptions"},
	{"loss.cu", "", "+ p.smoothing / 2, yes", ", yes", "TestLossOptions"},
	{"loss.cu", "", "!(a > 0)", "a == 0", "TestRegression"},
	{"loss.cu", "", "huber && a < 1", "huber && a < 2", "TestRegression"},
	{"loss.cu", "", "d < 0 ? -1 : 1", "1", "TestRegression"},
	{"loss.cu", "", "p.dlogits[i * p.dlogits_stride] =", "p.dlogits[i] =", "TestRegression"},
	{"loss.cu", "", "g * 4 + 4 < p.cols ? g * 4 + 4", "g * 4 + 3 < p.cols ? g * 4 + 3", "TestDropout"},

	{"sample.cu", "", "  shared[t] = v;\n  barrier();", "  shared[t] = v;", "TestNeighborSamplerTable"},
	{"sample.cu", "", "shared[t - d] : 0;\n    barrier();", "shared[t - d] : 0;", "TestNeighborSamplerTable"},
	{"sample.cu", "", "shared[t] += a;\n    barrier();", "shared[t] += a;", "TestNeighborSamplerTable"},
	{"sample.cu", "", "first + k < p.rows", "first + k <= p.rows", "TestNeighborSampler"},
	{"sample.cu", "", "block_x() * scan_items", "block_x() * (scan_items - 1)", "TestNeighborSamplerLarge"},
	{"sample.cu", "", "(u32)old <= value", "(u32)old >= value", "TestNeighborSamplerTable"},
	{"sample.cu", "", "(u64)(d - k + mine) + 1", "(u64)(d - k + mine)", "TestNeighborSamplerTable"},
	{"sample.cu", "", "lane < l && drawn == t", "drawn == t", "TestNeighborSamplerTable"},
	{"sample.cu", "", "before < first", "before + 32 < first", "TestNeighborSampler$"},
	{"sample.cu", "", "  warp_barrier();\n  double total", "  double total", "TestNeighborSamplerTable"},
	{"sample.cu", "", "  warp_barrier();\n  double scale", "  double scale", "TestNeighborSamplerTable"},
	{"sample.cu", "", "(u32)middle <= j", "(u32)middle < j", "TestNeighborSamplerTable"},

	{"transpose.cu", "", "    warp_barrier();\n    if (same && !before)", "    if (same && !before)", "TestTranspose"},
	{"transpose.cu", "", "  sums[thread()] = n;\n  barrier();\n", "  sums[thread()] = n;\n", "TestTranspose"},
	{"transpose.cu", "", "p.forward[middle + 1] <= e", "p.forward[middle + 1] < e", "TestTranspose"},
	{"transpose.cu", "", "+ round * 32 +", "+ round * 31 +", "TestTranspose"},

	{"slab.cu", "", "i = k / words", "i = k / (words + 1)", "TestSlabReadsTogether"},
	{"slab.cu", "", "k < n; k += step", "k < n - 1; k += step", "TestSlabReadsTogether"},
	{"slab.cu", "", "* stride + j", "* words + j", "TestSlabGathers"},
}

// expand returns the text of a source with the headers that it includes in their places, each
// once, but the emulator's; change is applied to each file.
func expand(t *testing.T, file string, seen map[string]bool, change func(file, text string) string) string {
	text, err := fs.ReadFile(kernels.Sources, file)
	if err != nil {
		t.Fatal(err)
	}
	seen[file] = true
	return regexp.MustCompile(`(?m)^#(pragma once|include "(.*)")$`).ReplaceAllStringFunc(change(file, string(text)), func(line string) string {
		_, header, included := strings.Cut(strings.TrimSuffix(line, `"`), `"`)
		switch {
		case header == "emulator.h":
			return line
		case !included || seen[header]:
			return ""
		}
		return expand(t, header, seen, change)
	})
}

// mutated returns the sources with all mutants beside them, as numbers from 1.
func mutated(t *testing.T) fs.FS {
	all := fstest.MapFS{}
	err := fs.WalkDir(kernels.Sources, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(kernels.Sources, path)
		all[path] = &fstest.MapFile{Data: text}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range mutants {
		found := false
		text := expand(t, m.kernel, map[string]bool{}, func(file, text string) string {
			if file != cmp.Or(m.file, m.kernel) {
				return text
			}
			found = strings.Contains(text, m.old)
			return strings.ReplaceAll(text, m.old, m.new)
		})
		if !found {
			t.Fatalf("%s %s has no %q", m.kernel, m.file, m.old)
		}
		all[fmt.Sprint(strings.TrimSuffix(m.kernel, ".cu"), fakecuda.MutantOf, i+1, ".cu")] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

// Mutants of kernels are noticed by the tests of the emulator.
func TestMutants(t *testing.T) {
	sources := mutated(t) // of kernels as they are
	if os.Getenv(slow) == "" {
		t.Skip("set " + slow + "=1: a library of all mutants takes long")
	}
	library := fakecuda.Compile(t, sources, "fake/driver.cc", append(fakecuda.Flags(), "-O1")...)
	run := func(number int, test string) (string, error) {
		cmd := exec.Command(os.Args[0], "-test.timeout", "5m", "-test.run", "^"+test)
		cmd.Env = append(os.Environ(), fakecuda.Variable+"="+library, fmt.Sprint(fakecuda.MutantVariable, "=", number))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	tests := map[string]bool{}
	for i, m := range mutants {
		t.Run(fmt.Sprint(m.kernel, "/", i+1), func(t *testing.T) {
			if !tests[m.test] { // which passes without mutants
				tests[m.test] = true
				if out, err := run(0, m.test); err != nil || strings.Contains(out, "no tests to run") {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			out, err := run(i+1, m.test)
			if err == nil || strings.Contains(out, "test timed out") || !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "SIGSEGV") {
				t.Errorf("%s does not notice that %q is %q in %s: %v\n%s", m.test, m.old, m.new, cmp.Or(m.file, m.kernel), err, out)
			}
		})
	}
}

//go:build linux && amd64 && !nogpu

package cuda_test

import (
	"io/fs"
	"os/exec"
	"testing"
	"testing/fstest"

	"github.com/gnnactor/gnnactor/compute/cuda/fakecuda"
	"github.com/gnnactor/gnnactor/compute/cuda/kernels"
)

// Shared memory is NaN where a block has not written it, though one before it did.
func TestSharedMemoryBeginsAsNaN(t *testing.T) {
	if fakecuda.Real() {
		t.Skip("it asks the emulator")
	}
	sources := fstest.MapFS{
		"unwritten.cu": {Data: []byte(`#include "device.h"
KERNEL(32) unwritten(float *before, float *after) {
  SHARED float kept[32];
  before[block_x() * 32 + thread()] = kept[thread()];
  barrier();
  kept[thread()] = 1;
  after[block_x() * 32 + thread()] = kept[thread()];
}
EXPORT(unwritten)
`)},
		"unwritten.cc": {Data: []byte(`#include FAKE_KERNELS
int main() {
  float before[96], after[96], *b = before, *a = after;
  void *parameters[] = {&b, &a};
  if (const char *wrong = emulator::launch(emulator::Kernel::all()[0], {3, 1, 32}, parameters)) return puts(wrong), 2;
  for (int i = 0; i < 96; i++)
    if (before[i] == before[i] || after[i] != 1) return printf("thread %d of block %d has %f, and %f after it wrote 1\n", i % 32, i / 32, before[i], after[i]), 1;
}
`)},
	}
	for _, header := range []string{"device.h", "emulator.h"} {
		text, err := fs.ReadFile(kernels.Sources, header)
		if err != nil {
			t.Fatal(err)
		}
		sources[header] = &fstest.MapFile{Data: text}
	}
	if out, err := exec.Command(fakecuda.Compile(t, sources, "unwritten.cc", "-O2")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

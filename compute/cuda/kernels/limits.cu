// What a device can do at most, to compare kernels with.
#include "device.h"

// Every thread makes 8·256·rounds fused multiply-adds in registers. out is written if
// they come to a number that they do not.
KERNEL(256) fma_limit(float *out, float a, float b, int rounds) {
  float x[8];
  UNROLL for (int i = 0; i < 8; i++) x[i] = thread() + i;
  for (int r = 0; r < rounds; r++) {
#pragma unroll 32
    for (int k = 0; k < 256; k++) UNROLL for (int i = 0; i < 8; i++) x[i] = fma(x[i], a, b);
  }
  float sum = 0;
  UNROLL for (int i = 0; i < 8; i++) sum += x[i];
  if (sum == 0.125f) *out = sum;
}
EXPORT(fma_limit)

// Every warp reads count rows of 512 bytes, rows of them there are, at random; out as in fma_limit.
KERNEL(256) rows_limit(float *out, const float *table, u32 rows, int count) {
  u32 state = (block_x() * threads() + thread()) / 32 * 2654435761u + 12345;
  float sum = 0;
#pragma unroll 8
  for (int i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    float4 v = load4(table + (i64)(u32)(((u64)state * rows) >> 32) * 128 + thread() % 32 * 4);
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 0.125f) *out = sum;
}
EXPORT(rows_limit)

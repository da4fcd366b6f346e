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

// Every warp makes 64·8·rounds multiplications on tensor cores in registers, of 16×8 by 8×8 values in TF32 or 16×16 by 16×8 in
// bfloat16; out as in fma_limit.
template <bool TF32> DEVICE void tensor_limit(float *out, int rounds) {
  float d[8][4];
  UNROLL for (int i = 0; i < 8; i++) UNROLL for (int j = 0; j < 4; j++) d[i][j] = i + j;
  u32 a = TF32 ? to_tf32(thread() * 0.01f) : to_bf16(thread() * 0.01f, 0.5f), b = TF32 ? to_tf32(0.5f) : to_bf16(0.5f, 0.25f);
  for (int r = 0; r < rounds; r++) {
#pragma unroll 8
    for (int k = 0; k < 64; k++) {
      UNROLL for (int i = 0; i < 8; i++) {
        if (TF32) multiply_tf32(d[i], a, a, a, a, b, b);
        else multiply_bf16(d[i], a, a, a, a, b, b);
      }
    }
  }
  float sum = 0;
  UNROLL for (int i = 0; i < 8; i++) UNROLL for (int j = 0; j < 4; j++) sum += d[i][j];
  if (sum == 0.125f) *out = sum;
}
KERNEL(256) tf32_limit(float *out, int rounds) { tensor_limit<true>(out, rounds); }
EXPORT(tf32_limit)
KERNEL(256) bf16_limit(float *out, int rounds) { tensor_limit<false>(out, rounds); }
EXPORT(bf16_limit)

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

// What goes over matrices element by element, as compute/cpu has it to the bit.
#include "activation.h"

// The operations, in the order of cpu.ElementOp.
enum { ADD, AXPY, SCALE, MULTIPLY, COPY, FILL, RELU, RELU_BACKWARD, LEAKY, LEAKY_BACKWARD, ELU, ELU_BACKWARD, DIVIDE };

DEVICE float element_of(int op, float d, float a, float b, float f) {
  switch (op) {
  case ADD: return a + b;
  case AXPY: return d + f * a;
  case SCALE: return f * a;
  case MULTIPLY: return a * b;
  case FILL: return f;
  case RELU: return a <= 0 ? 0 : a;
  case RELU_BACKWARD: return b <= 0 ? 0 : a;
  case LEAKY: return a <= 0 ? a * f : a;
  case LEAKY_BACKWARD: return b <= 0 ? a * f : a;
  case ELU: return exponential_linear(a);
  case ELU_BACKWARD: return b <= 0 ? a * (b + 1) : a;
  case DIVIDE: return a / f;
  }
  return a; // COPY
}

// dst[i][j] = op of dst, a and b there, all of rows×cols values, with rows ds, as and bs
// values apart. The grid is one-dimensional, each thread takes every blocks·threads-th value.
KERNEL(256) element(int op, float *dst, i64 ds, const float *a, i64 as, const float *b, i64 bs, int rows, int cols, float f) {
  i64 n = (i64)rows * cols, step = (i64)blocks_x() * threads();
  for (i64 k = (i64)block_x() * threads() + thread(); k < n; k += step) {
    i64 i = k / cols, j = k % cols;
    float *d = dst + i * ds + j;
    *d = element_of(op, op == AXPY ? *d : 0, op == FILL ? 0 : a[i * as + j], op == FILL ? 0 : b[i * bs + j], f);
  }
}
EXPORT(element)

// Where a is larger than dst, which is no NaN: dst = a and which = k; with k = 1 which
// is 0 elsewhere.
KERNEL(256) larger_of(float *dst, i64 ds, const float *a, i64 as, u32 *which, u32 k, int rows, int cols) {
  i64 n = (i64)rows * cols, step = (i64)blocks_x() * threads();
  for (i64 e = (i64)block_x() * threads() + thread(); e < n; e += step) {
    i64 i = e / cols, j = e % cols;
    float d = dst[i * ds + j], v = a[i * as + j];
    if (!(v <= d) && d == d) {
      dst[i * ds + j] = v;
      which[e] = k;
    } else if (k == 1) {
      which[e] = 0;
    }
  }
}
EXPORT(larger_of)

// dst = a where which is k, else 0.
KERNEL(256) where(float *dst, i64 ds, const float *a, i64 as, const u32 *which, u32 k, int rows, int cols) {
  i64 n = (i64)rows * cols, step = (i64)blocks_x() * threads();
  for (i64 e = (i64)block_x() * threads() + thread(); e < n; e += step) {
    i64 i = e / cols, j = e % cols;
    dst[i * ds + j] = which[e] == k ? a[i * as + j] : 0;
  }
}
EXPORT(where)

// dst = aᵀ, plus what dst held: a block for every 32×32 values of a, rows of them in x.
KERNEL(256) transpose(float *dst, i64 ds, const float *a, i64 as, int rows, int cols, int accumulate) {
  SHARED float tile[32][33];
  int i0 = block_x() * 32, j0 = block_y() * 32, lane = thread() % 32;
  for (int r = thread() / 32; r < 32; r += 8)
    if (i0 + r < rows && j0 + lane < cols) tile[r][lane] = a[(i0 + r) * as + j0 + lane];
  barrier();
  for (int r = thread() / 32; r < 32; r += 8)
    if (j0 + r < cols && i0 + lane < rows) {
      float *d = dst + (j0 + r) * ds + i0 + lane;
      *d = accumulate ? tile[lane][r] + *d : tile[lane][r];
    }
}
EXPORT(transpose)

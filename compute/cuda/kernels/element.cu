// What goes over matrices element by element, as compute/cpu has it to the bit.
#include "activation.h"

// The operations, in the order of cpu.ElementOp.
enum { ADD, AXPY, SCALE, MULTIPLY, COPY, FILL, RELU, RELU_BACKWARD, LEAKY, LEAKY_BACKWARD, ELU, ELU_BACKWARD };

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

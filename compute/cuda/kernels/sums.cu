// Sums over rows, in the processor's order: chunks of ROWS rows, each from its first row
// on, and then the chunks in order.
#include "device.h"
enum { ROWS = 256, LANES = 8 };

// parts[c][j] = the sum over the rows of chunk c of column j. A block in x for every
// chunk, in y for every blockful of columns.
KERNEL(128) rows_summed(float *parts, const float *a, i64 as, int rows, int cols) {
  int j = block_y() * threads() + thread(), i = block_x() * ROWS, end = i + ROWS < rows ? i + ROWS : rows;
  if (j >= cols) return;
  float sum = 0;
  const float *p = a + i * as + j;
#pragma unroll 16
  for (; i < end; i++, p += as) sum += *p;
  parts[(i64)block_x() * cols + j] = sum;
}
EXPORT(rows_summed)

// dst[j] = (dst[j]) + the chunks' sums of column j.
KERNEL(128) rows_summed_fold(float *dst, const float *parts, int chunks, int cols, int accumulate) {
  int j = block_x() * threads() + thread();
  if (j >= cols) return;
  float sum = accumulate ? dst[j] : 0;
  parts += j;
#pragma unroll 16
  for (int c = 0; c < chunks; c++) sum += parts[(i64)c * cols];
  dst[j] = sum;
}
EXPORT(rows_summed_fold)

// parts[c] = the sum of a∘b over the rows of chunk c in float64: of each row in LANES
// sums by column, which are added by pairs. A block in x for every chunk.
KERNEL(256) dot(double *parts, const float *a, i64 as, const float *b, i64 bs, int rows, int cols) {
  SHARED double sums[ROWS];
  int i = block_x() * ROWS + thread();
  double s[LANES];
  UNROLL for (int l = 0; l < LANES; l++) s[l] = 0;
  for (int j0 = 0; i < rows && j0 < cols; j0 += LANES)
    UNROLL for (int l = 0; l < LANES; l++)
      if (j0 + l < cols) s[l] = fma((double)a[i * as + j0 + l], (double)b[i * bs + j0 + l], s[l]); // exact products: as if rounded
  double row = 0;
  UNROLL for (int l = 0; l < LANES; l++) row += s[l];
  sums[thread()] = row;
  barrier();
  if (thread() == 0) {
    double sum = 0;
    for (int r = 0; r < ROWS && block_x() * ROWS + r < rows; r++) sum += sums[r];
    parts[block_x()] = sum;
  }
}
EXPORT(dot)

// Layer norms and batch norms, forward and backward, as compute/cpu's portable kernels
// have them to the bit.
#include "device.h"

enum { lanes = 8, sum_rows = 256 };

// fold adds what the eight lanes of a row have, in their order.
DEVICE double fold(float v) {
  int first = thread() % 32 / lanes * lanes;
  double sum = 0;
  UNROLL for (int l = 0; l < lanes; l++) sum = sum + (double)shuffle_from(v, first + l);
  return sum;
}

// LayerNorm is layerNorm of norm.go. Eight threads make a row, 32 rows a block.
struct LayerNorm {
  float *dst;
  const float *a, *dy;           // dy: backward
  i64 dst_stride, a_stride, dy_stride;
  const float *gamma, *beta;
  float *mean, *rstd;            // per row: written forward, read backward
  float *terms;                  // backward: dy∘n; null: not wanted
  i64 terms_stride;
  double eps;
  int rows, cols;
};

KERNEL(256) layer_norm(LayerNorm p) {
  int lane = thread() % lanes;
  i64 i = (i64)block_x() * (threads() / lanes) + thread() / lanes;
  bool given = i < p.rows;
  int cols = given ? p.cols : 0; // where there is no row nothing is read, but sums are folded
  const float *a = p.a + i * p.a_stride;
  float sum = 0, squares = 0;
  for (int j = lane; j < cols; j += lanes) sum = sum + a[j];
  float mu = (float)(fold(sum) / p.cols);
  for (int j = lane; j < cols; j += lanes) squares = squares + (a[j] - mu) * (a[j] - mu);
  float rs = (float)(1 / square_root(fold(squares) / p.cols + p.eps));
  if (!given) return;
  if (lane == 0) p.mean[i] = mu, p.rstd[i] = rs;
  float *d = p.dst + i * p.dst_stride;
  for (int j = lane; j < p.cols; j += lanes) d[j] = p.gamma[j] * ((a[j] - mu) * rs) + p.beta[j];
}
EXPORT(layer_norm)

KERNEL(256) layer_norm_backward(LayerNorm p) {
  int lane = thread() % lanes;
  i64 i = (i64)block_x() * (threads() / lanes) + thread() / lanes;
  bool given = i < p.rows;
  int cols = given ? p.cols : 0; // dst may be dy: no other row is read
  const float *a = p.a + i * p.a_stride, *g = p.dy + i * p.dy_stride;
  float mu = given ? p.mean[i] : 0, rs = given ? p.rstd[i] : 0, sum = 0, dot = 0;
  for (int j = lane; j < cols; j += lanes) {
    float h = g[j] * p.gamma[j];
    sum = sum + h;
    dot = dot + h * (a[j] - mu);
  }
  float mh = (float)(fold(sum) / p.cols), mhn = (float)(fold(dot) * (double)rs / p.cols);
  if (!given) return;
  float *d = p.dst + i * p.dst_stride;
  for (int j = lane; j < cols; j += lanes) {
    float n = (a[j] - mu) * rs, v = g[j];
    if (p.terms) p.terms[i * p.terms_stride + j] = v * n;
    d[j] = rs * (p.gamma[j] * v - mh - n * mhn);
  }
}
EXPORT(layer_norm_backward)

// Columns is columns of norm.go. What goes over rows makes parts of 256 rows, two rows
// of parts for each: a thread has a column of a part, and adds its rows in their order.
// What ends them has a thread a column, and adds the parts in their order.
struct Columns {
  const float *a, *dy;
  i64 a_stride, dy_stride;
  float *parts;
  const float *gamma, *beta;     // null: 1 and 0
  const float *mean_in, *variance_in;
  float *mean, *variance;        // of Moments
  float *dgamma, *dbeta;         // null: not wanted
  float *scale, *slope, *shift;  // of the columns, for batch_norm
  float *dst;
  i64 dst_stride;
  double eps;
  int rows, cols;
};

struct Part { int column, first, end; bool given; };
DEVICE Part part_of(const Columns &p) {
  int j = block_y() * threads() + thread(), i0 = block_x() * sum_rows;
  return {j, i0, i0 + sum_rows < p.rows ? i0 + sum_rows : p.rows, j < p.cols};
}
DEVICE int parts_of(int rows) { return (rows + sum_rows - 1) / sum_rows; }

// moments_parts: of each part the mean, and the sum of the squared differences to it.
KERNEL(256) moments_parts(Columns p) {
  Part t = part_of(p);
  if (!t.given) return;
  const float *a = p.a + t.column;
  float sum = 0, squares = 0;
  for (int i = t.first; i < t.end; i++) sum = sum + a[i * p.a_stride];
  sum = sum * (1 / (float)(t.end - t.first));
  for (int i = t.first; i < t.end; i++) {
    float d = a[i * p.a_stride] - sum;
    squares = squares + d * d;
  }
  float *to = p.parts + 2 * (i64)block_x() * p.cols + t.column;
  to[0] = sum, to[p.cols] = squares;
}
EXPORT(moments_parts)

KERNEL(256) moments_join(Columns p) {
  int j = block_x() * threads() + thread();
  if (j >= p.cols) return;
  double mu = 0, square = 0;
  for (int c = 0; c < parts_of(p.rows); c++) {
    double before = (double)c * sum_rows, rows = p.rows - c * sum_rows < sum_rows ? p.rows - c * sum_rows : sum_rows;
    const float *from = p.parts + 2 * (i64)c * p.cols + j;
    double d = (double)from[0] - mu, share = rows / (before + rows);
    mu = mu + d * share;
    square = square + ((double)from[p.cols] + d * d * (before * share));
  }
  p.mean[j] = (float)mu;
  p.variance[j] = (float)(square / (p.rows > 1 ? p.rows : 1));
}
EXPORT(moments_join)

// batch_norm_columns makes scale and shift of the forward pass.
KERNEL(256) batch_norm_columns(Columns p) {
  int j = block_x() * threads() + thread();
  if (j >= p.cols) return;
  double f = 1 / square_root((double)p.variance_in[j] + p.eps);
  if (p.gamma) f = f * (double)p.gamma[j];
  p.scale[j] = (float)f;
  p.shift[j] = p.beta ? p.beta[j] : 0;
}
EXPORT(batch_norm_columns)

// batch_norm_parts: of each part the sums of dy and of dy∘(a-mean).
KERNEL(256) batch_norm_parts(Columns p) {
  Part t = part_of(p);
  if (!t.given) return;
  const float *a = p.a + t.column, *dy = p.dy + t.column;
  float sum = 0, dot = 0, mean = p.mean_in[t.column];
  for (int i = t.first; i < t.end; i++) {
    float v = dy[i * p.dy_stride];
    sum = sum + v;
    dot = dot + v * (a[i * p.a_stride] - mean);
  }
  float *to = p.parts + 2 * (i64)block_x() * p.cols + t.column;
  to[0] = sum, to[p.cols] = dot;
}
EXPORT(batch_norm_parts)

// batch_norm_join makes the gradients of γ and β, and what batch_norm makes that of a with.
KERNEL(256) batch_norm_join(Columns p) {
  int j = block_x() * threads() + thread();
  if (j >= p.cols) return;
  double sum = 0, dot = 0, rows = p.rows > 1 ? p.rows : 1;
  for (int c = 0; c < parts_of(p.rows); c++) {
    const float *from = p.parts + 2 * (i64)c * p.cols + j;
    sum = sum + (double)from[0];
    dot = dot + (double)from[p.cols];
  }
  double r = 1 / square_root((double)p.variance_in[j] + p.eps), g = p.gamma ? (double)p.gamma[j] : 1;
  dot = dot * r;
  if (p.dgamma) p.dgamma[j] = (float)dot;
  if (p.dbeta) p.dbeta[j] = (float)sum;
  p.scale[j] = (float)(g * r);
  p.slope[j] = (float)(-g * r * r * dot / rows);
  p.shift[j] = (float)(-g * r * sum / rows);
}
EXPORT(batch_norm_join)

// batch_norm computes dst = scale∘(a-mean) + shift or, with dy, dst = scale∘dy +
// slope∘(a-mean) + shift; of a single row with dy, 0.
KERNEL(256) batch_norm(Columns p) {
  i64 n = (i64)p.rows * p.cols, step = (i64)blocks_x() * threads();
  for (i64 k = (i64)block_x() * threads() + thread(); k < n; k += step) {
    i64 i = k / p.cols, j = k % p.cols;
    float v = p.a[i * p.a_stride + j] - p.mean_in[j], d;
    if (!p.dy)
      d = v * p.scale[j] + p.shift[j];
    else if (p.rows == 1)
      d = 0;
    else
      d = p.dy[i * p.dy_stride + j] * p.scale[j] + v * p.slope[j] + p.shift[j];
    p.dst[i * p.dst_stride + j] = d;
  }
}
EXPORT(batch_norm)

// Sums and maxima over the rows of a block, forward and, over its transpose, backward;
// and gathers. compute/cpu's portable kernels have the same to the bit, but for the sums
// of long rows.
#include "random.h"
#include "rows.h"

enum { coefficients = 128 };
static const u32 no_entry = 0xffffffffu;

// SumRows is sumRows of aggregate.go.
struct SumRows {
  const i64 *indptr;
  const u32 *indices;    // of a row's entries: the source's row
  const u32 *entry;      // over a transpose: of each entry its place in the block; else null
  const i64 *forward;    // the backward pass of a mean: the block's row pointers; else null
  const float *weights;  // per entry of the block and head; null: 1
  const float *self;     // per row and head, for the row's own source row; null: 1
  Source src;
  const float *own;      // where own rows lie, own_stride values apart; null: in src
  i64 own_stride;
  float *dst;
  i64 dst_stride;
  Dropped drop;          // of weights: of (destination, source, head)
  int rows, cols, heads;
  int loops;             // rows below it have their own source row, too
  int mean;              // multiply the sum by 1/(number of entries)
  int accumulate;        // begin with what dst holds
};

template <int T, int V> struct SumOp : SumRows {
  struct Stage {
    i64 row[staged]; // of the table
    float coefficient[coefficients];
  };
  struct Sum { float v[V]; };
  int column, head;

  MEMBER int chunk() const { return heads <= coefficients / staged ? staged : coefficients / heads; }
  MEMBER float dropped(i64 dst_row, i64 src_row, int h, float c) const {
    if (!drop.threshold) return c;
    u64 key = key_with(drop_row(drop, dst_row), drop.ids ? drop.ids[src_row] : (u64)src_row);
    return drop_value(drop, key_draw(key, h / 4), h, c);
  }
  MEMBER void stage(Stage &s, i64 i, i64 e, int n) const {
    int lane = thread() % 32;
    if (lane < n) s.row[lane] = source_row(src, indices[e + lane]);
    LOOP for (int p = lane; p < n * heads; p += 32) {
      int k = p / heads, h = p % heads;
      u32 u = indices[e + k];
      float c = 1;
      if (forward) c = c / (float)(forward[u + 1] - forward[u]);
      if (weights) {
        float w = weights[(entry ? (i64)entry[e + k] : e + k) * heads + h];
        c = forward ? c * w : w;
      }
      s.coefficient[p] = entry ? dropped(u, i, h, c) : dropped(i, u, h, c);
    }
  }
  MEMBER Sum start(i64 i, bool first) const {
    Sum s;
    UNROLL for (int q = 0; q < V; q++) s.v[q] = accumulate && first ? dst[i * dst_stride + column + q] : 0;
    return s;
  }
  MEMBER void add_row(Sum &sum, i64 r, float c) const {
    Values<V> x = read<T, V>(src, r, column);
    UNROLL for (int q = 0; q < V; q++) sum.v[q] = sum.v[q] + c * x.v[q];
  }
  MEMBER void add(Sum &sum, const Stage &s, int k) const { add_row(sum, s.row[k], s.coefficient[k * heads + head]); }
  MEMBER Sum join(const Sum &a, const Sum &b) const {
    Sum s;
    UNROLL for (int q = 0; q < V; q++) s.v[q] = a.v[q] + b.v[q];
    return s;
  }
  MEMBER void finish(i64 i, i64 n, Sum sum) const {
    if (mean && n > 0) {
      float f = 1 / (float)n;
      UNROLL for (int q = 0; q < V; q++) sum.v[q] = sum.v[q] * f;
    }
    if (i < loops) {
      float c = dropped(i, i, head, self ? self[i * heads + head] : 1);
      if (own) {
        UNROLL for (int q = 0; q < V; q++) sum.v[q] = sum.v[q] + c * own[i * own_stride + column + q];
      } else {
        add_row(sum, source_row(src, i), c);
      }
    }
    Values<V> x;
    UNROLL for (int q = 0; q < V; q++) x.v[q] = sum.v[q];
    store<V>(dst + i * dst_stride, column, x);
  }
};

// The shape of a kernel over rows: a block of 256 threads for every eight rows and every
// 32 groups of V columns.
#define SUM_ROWS(name, T, V) \
  KERNEL(256) name(SumRows p) { \
    typedef SumOp<T, V> Op; \
    SHARED Op::Stage stages[row_warps]; \
    SHARED Op::Sum parts[row_warps * 32]; \
    Op op; \
    (SumRows &)op = p; \
    op.column = (block_y() * 32 + thread() % 32) * V; \
    bool active = op.column < p.cols; \
    op.head = active ? op.column / (p.cols / p.heads) : 0; \
    each_row(op, stages, parts, active); \
  } \
  EXPORT(name)

SUM_ROWS(sum_rows_x1, any_type, 1)
SUM_ROWS(sum_rows_f32x1, float32, 1)
SUM_ROWS(sum_rows_f32x4, float32, 4)
SUM_ROWS(sum_rows_f16x4, float16, 4)
SUM_ROWS(sum_rows_bf16x4, bfloat16, 4)
SUM_ROWS(sum_rows_i8x4, int8, 4)
SUM_ROWS(sum_rows_u8x4, uint8, 4)

// MaxRows is maxRows of aggregate.go.
struct MaxRows {
  const i64 *indptr;
  const u32 *indices;
  const float *self;     // per row: what its own source row is added with; null: it is not
  Source src;
  float *dst;
  i64 dst_stride;
  u32 *argmax;           // rows×cols: the entry that won; may be null
  int rows, cols;
};

// The first of equals wins, and the first NaN over all.
template <int T> struct MaxOp : MaxRows {
  struct Stage { i64 row[staged]; i64 entry; };
  struct Sum { float v; u32 entry; };
  int column;

  MEMBER int chunk() const { return staged; }
  MEMBER float value(i64 r) const { return read<T, 1>(src, r, column).v[0]; }
  MEMBER void stage(Stage &s, i64, i64 e, int n) const {
    int lane = thread() % 32;
    if (lane == 0) s.entry = e;
    if (lane < n) s.row[lane] = source_row(src, indices[e + lane]);
  }
  MEMBER Sum start(i64, bool) const { return {0, no_entry}; }
  MEMBER void add(Sum &best, const Stage &s, int k) const {
    float v = value(s.row[k]);
    bool wins = best.entry == no_entry || (!(v <= best.v) && best.v == best.v);
    best.v = wins ? v : best.v;
    best.entry = wins ? (u32)(s.entry + k) : best.entry;
  }
  MEMBER Sum join(Sum a, Sum b) const {
    bool nan = a.v != a.v, other = b.v != b.v;
    bool later = b.v > a.v || (b.v == a.v && b.entry < a.entry);
    if (nan || other) later = other && (!nan || b.entry < a.entry);
    if (a.entry == no_entry) later = true;
    if (b.entry == no_entry) later = false;
    a.v = later ? b.v : a.v;
    a.entry = later ? b.entry : a.entry;
    return a;
  }
  MEMBER void finish(i64 i, i64, Sum best) const {
    if (argmax) argmax[i * cols + column] = best.entry;
    float v = best.v;
    if (self) v = v + self[i] * value(source_row(src, i));
    dst[i * dst_stride + column] = v;
  }
};

#define MAX_ROWS(name, T) \
  KERNEL(256) name(MaxRows p) { \
    typedef MaxOp<T> Op; \
    SHARED Op::Stage stages[row_warps]; \
    SHARED Op::Sum parts[row_warps * 32]; \
    Op op; \
    (MaxRows &)op = p; \
    op.column = block_y() * 32 + thread() % 32; \
    each_row(op, stages, parts, op.column < p.cols); \
  } \
  EXPORT(name)

MAX_ROWS(max_rows, any_type)
MAX_ROWS(max_rows_f32, float32)

// MaxBackward is maxBackward of aggregate.go: over a transpose, each source's sums of
// the gradients of what it won.
struct MaxBackward {
  const i64 *indptr;
  const u32 *indices, *entry;
  const u32 *argmax;     // dense, as wide as dy
  const float *self;     // per row below loops; null: none
  const float *dy;
  i64 dy_stride;
  float *dx;
  i64 dx_stride;
  int rows, cols, loops, accumulate;
};

struct MaxBackwardOp : MaxBackward {
  struct Stage { u32 row[staged], entry[staged]; };
  struct Sum { float v; };
  int column;

  MEMBER int chunk() const { return staged; }
  MEMBER void stage(Stage &s, i64, i64 e, int n) const {
    int lane = thread() % 32;
    if (lane < n) s.row[lane] = indices[e + lane], s.entry[lane] = entry[e + lane];
  }
  MEMBER Sum start(i64 i, bool first) const { return {accumulate && first ? dx[i * dx_stride + column] : 0}; }
  MEMBER void add(Sum &sum, const Stage &s, int k) const {
    i64 r = s.row[k];
    if (argmax[r * cols + column] == s.entry[k]) sum.v = sum.v + dy[r * dy_stride + column];
  }
  MEMBER Sum join(const Sum &a, const Sum &b) const { return {a.v + b.v}; }
  MEMBER void finish(i64 i, i64, Sum sum) const {
    if (self && i < loops) sum.v = sum.v + self[i] * dy[i * dy_stride + column];
    dx[i * dx_stride + column] = sum.v;
  }
};

KERNEL(256) max_backward(MaxBackward p) {
  SHARED MaxBackwardOp::Stage stages[row_warps];
  SHARED MaxBackwardOp::Sum parts[row_warps * 32];
  MaxBackwardOp op;
  (MaxBackward &)op = p;
  op.column = block_y() * 32 + thread() % 32;
  each_row(op, stages, parts, op.column < p.cols);
}
EXPORT(max_backward)

// GatherRows is gatherRows of aggregate.go: row i of dst becomes row i of src.
struct GatherRows {
  Source src;
  float *dst;
  i64 dst_stride;
  int rows, cols;
};

template <int V> DEVICE void gather(const GatherRows &p) {
  int groups = p.cols / V;
  i64 n = (i64)p.rows * groups, step = (i64)blocks_x() * threads();
  for (i64 k = (i64)block_x() * threads() + thread(); k < n; k += step) {
    i64 i = k / groups;
    int j = (int)(k % groups) * V;
    store<V>(p.dst + i * p.dst_stride, j, read<any_type, V>(p.src, source_row(p.src, i), j));
  }
}

KERNEL(256) gather_rows_x1(GatherRows p) { gather<1>(p); }
EXPORT(gather_rows_x1)
KERNEL(256) gather_rows_x4(GatherRows p) { gather<4>(p); }
EXPORT(gather_rows_x4)

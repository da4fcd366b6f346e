// Attention over the rows of a block, as cpu.Attention has it: scores per entry and head
// and their softmax, and the gradients of both; no value per entry and feature is
// stored. The sums weighted by them are sum_rows. A warp makes a destination, or a thread
// block one of more than long_row entries.
#include "random.h"
#include "rows.h"

// Attention is attention of attention.go.
struct Attention {
  const i64 *indptr;
  const u32 *indices;
  const float *src, *dst;        // scores of sources and destinations, or GATv2's rows; backward: values and dy
  i64 src_stride, dst_stride;
  const float *att;              // GATv2: as wide as rows
  const float *edge;             // entries×heads; null
  const float *weights;          // per entry; null
  float *alpha, *self;           // entries×heads and rows×heads
  float *ds, *dself;             // the gradients of scores
  float *ddst;                   // of destinations' scores
  i64 ddst_stride;
  float *dedge;                  // null: not wanted
  Dropped drop;
  int rows, heads, cols;         // cols: of all heads
  int loops, dynamic;            // booleans
  float slope;
};

// A Team is the threads that make one row: a warp, or a block. Of heads, up to 32 at a
// time, each thread has one, and every slots-th entry; threads beyond the last whole set
// of heads have none.
struct Team {
  bool block;
  int heads, head, slot, slots;  // of the heads that are done now
  float *exchange;               // 8×32 doubles in shared memory
  bool active;
};

DEVICE void meet(const Team &t) {
  if (t.block) barrier();
  else warp_barrier();
}
DEVICE int per_warp(int heads) { return 32 / heads; }
DEVICE Team team_of(bool block, int heads, float *exchange) {
  int lane = thread() % 32, each = per_warp(heads);
  Team t;
  t.block = block, t.heads = heads, t.exchange = exchange;
  t.active = lane < each * heads;
  t.head = lane % heads;
  t.slot = lane / heads + (block ? thread() / 32 * each : 0);
  t.slots = block ? row_warps * each : each;
  return t;
}

struct Greatest {
  DEVICE float of(float a, float b) { return larger(a, b); }
};
struct Total {
  DEVICE float of(float a, float b) { return a + b; }
  DEVICE double of(double a, double b) { return a + b; }
};
DEVICE float from_lane(float v, int lane) { return shuffle_from(v, lane); }
DEVICE double from_lane(double v, int lane) {
  u64 b = __builtin_bit_cast(u64, v);
  u32 lo = (u32)shuffle_from((int)(u32)b, lane), hi = (u32)shuffle_from((int)(u32)(b >> 32), lane);
  return __builtin_bit_cast(double, (u64)hi << 32 | lo);
}

// combine returns what F makes of all slots' values of this thread's head, in a tree of
// the slots of a warp and then warp by warp.
template <class F, class T> DEVICE T combine(const Team &t, T v) {
  int lane = thread() % 32, warp = thread() / 32, each = per_warp(t.heads), slot = lane / t.heads;
  UNROLL for (int d = 16; d; d /= 2) {
    T other = from_lane(v, lane + d * t.heads < 32 ? lane + d * t.heads : lane);
    if (slot + d < each && slot < d) v = F::of(v, other);
  }
  v = from_lane(v, t.head);
  if (t.block) {
    T *x = (T *)t.exchange;
    x[warp * 32 + lane] = v;
    barrier();
    v = x[lane];
    for (int w = 1; w < row_warps; w++) v = F::of(v, x[w * 32 + lane]);
    barrier();
  }
  return v;
}

DEVICE bool skipped(const Attention &p, i64 i, i64 e) { return p.loops && p.indices[e] == i; }
DEVICE float leaky(float v, float slope) { return v < 0 ? v * slope : v; }

// loop_edge returns the mean of edge over the entries of row i that are not skipped, for
// head h, and how many those are.
struct Mean { float mean; int n; };
DEVICE Mean loop_edge(const Attention &p, const Team &t, i64 i, int h, i64 begin, i64 end) {
  if (!p.edge) return {0, 0};
  float sum = 0, n = 0;
  for (i64 e = begin + t.slot; t.active && e < end; e += t.slots)
    if (!skipped(p, i, e)) sum = sum + p.edge[e * p.heads + h], n = n + 1;
  sum = combine<Total>(t, sum);
  n = combine<Total>(t, n); // exact below 2²⁴
  return {n > 0 ? sum / n : sum, (int)n};
}

// dots computes, for every entry and head of a row, or for its loop (end is begin), a sum
// over the head's columns, by eight threads each: f of column j, in the rows of entry e.
template <class F> DEVICE void each_dot(const Team &t, int heads, int per_head, i64 count, const F &f) {
  int lane = thread() % 8, octet = (t.block ? thread() : thread() % 32) / 8, octets = t.block ? row_warps * 4 : 4;
  for (i64 first = 0; first < count * heads; first += octets) {
    i64 q = first + octet, k = q / heads;
    int h = (int)(q % heads);
    bool given = k < count;
    float sum = 0;
    for (int j = lane; given && j < per_head; j += 8) sum = sum + f.term(k, h * per_head + j);
    UNROLL for (int d = 4; d; d /= 2) sum = sum + shuffle_xor(sum, d);
    if (given && lane == 0) f.done(k, h, sum);
  }
}

// Entry begin+k of row i, or, if loop, the row itself.
struct DynamicScore {
  const Attention &p;
  i64 i, begin;
  bool loop;
  MEMBER float term(i64 k, int j) const {
    i64 u = loop ? i : (i64)p.indices[begin + k];
    return p.att[j] * leaky(p.src[u * p.src_stride + j] + p.dst[i * p.dst_stride + j], p.slope);
  }
  MEMBER void done(i64 k, int h, float v) const {
    if (loop) p.self[i * p.heads + h] = v;
    else p.alpha[(begin + k) * p.heads + h] = v;
  }
};

// attend makes the weights of row i.
DEVICE void attend(const Attention &p, bool block, float *exchange, i64 i, i64 begin, i64 end) {
  const float none = from_bits(0xff800000);
  if (p.dynamic) {
    Team t = team_of(block, 1, exchange);
    each_dot(t, p.heads, p.cols / p.heads, end - begin, DynamicScore{p, i, begin, false});
    if (p.loops) each_dot(t, p.heads, p.cols / p.heads, 1, DynamicScore{p, i, begin, true});
    meet(t);
  }
  LOOP for (int h0 = 0; h0 < p.heads; h0 += 32) {
    Team t = team_of(block, p.heads - h0 < 32 ? p.heads - h0 : 32, exchange);
    int h = h0 + t.head;
    float own = none, most = none;
    if (p.loops) {
      if (p.dynamic) own = p.self[i * p.heads + h];
      else own = leaky(p.src[i * p.src_stride + h] + p.dst[i * p.dst_stride + h] + loop_edge(p, t, i, h, begin, end).mean, p.slope);
      most = own;
    }
    for (i64 e = begin + t.slot; t.active && e < end; e += t.slots) {
      float v;
      if (p.dynamic) {
        v = p.alpha[e * p.heads + h];
      } else {
        v = p.src[p.indices[e] * p.src_stride + h] + p.dst[i * p.dst_stride + h];
        if (p.edge) v = v + p.edge[e * p.heads + h];
        v = leaky(v, p.slope);
      }
      if (skipped(p, i, e) || (p.weights && p.weights[e] == 0)) v = none;
      p.alpha[e * p.heads + h] = v;
      most = larger(most, v);
    }
    most = combine<Greatest>(t, most);
    double sum = 0;
    for (i64 e = begin + t.slot; t.active && e < end; e += t.slots) {
      float v = exponential(p.alpha[e * p.heads + h] - most);
      p.alpha[e * p.heads + h] = v;
      sum = sum + (double)v;
    }
    sum = combine<Total>(t, sum);
    if (p.loops) {
      own = exponential(own - most);
      sum = sum + (double)own;
    }
    float inverse = (float)(1 / sum), weighed = 0;
    own = own * inverse;
    for (i64 e = begin + t.slot; t.active && e < end; e += t.slots) {
      float v = p.alpha[e * p.heads + h] * inverse;
      if (p.weights) {
        float w = p.weights[e];
        v = w == 0 ? 0 : v * w;
        weighed = weighed + v;
      }
      p.alpha[e * p.heads + h] = v;
    }
    if (p.weights) {
      weighed = combine<Total>(t, weighed);
      if (p.loops) weighed = own + weighed;
      if (weighed != 0) {
        own = own / weighed;
        for (i64 e = begin + t.slot; t.active && e < end; e += t.slots) p.alpha[e * p.heads + h] = p.alpha[e * p.heads + h] / weighed;
      }
    }
    if (p.loops && t.active && t.slot == 0) p.self[i * p.heads + h] = own;
  }
}

// The gradients of the weights of row i, from that of its sum: dst is the values, as src.
struct WeightGradient {
  const Attention &p;
  i64 i, begin;
  bool loop;
  MEMBER float term(i64 k, int j) const {
    i64 u = loop ? i : (i64)p.indices[begin + k];
    return p.dst[i * p.dst_stride + j] * p.src[u * p.src_stride + j];
  }
  MEMBER void done(i64 k, int h, float v) const {
    i64 u = loop ? i : (i64)p.indices[begin + k];
    if (p.drop.threshold) {
      u64 key = key_with(drop_row(p.drop, i), p.drop.ids ? p.drop.ids[u] : (u64)u);
      v = drop_value(p.drop, key_draw(key, h / 4), h, v);
    }
    if (loop) p.dself[i * p.heads + h] = v;
    else p.ds[(begin + k) * p.heads + h] = v;
  }
};

// score_gradients makes ds and dself of row i.
DEVICE void score_gradients(const Attention &p, bool block, float *exchange, i64 i, i64 begin, i64 end) {
  Team all = team_of(block, 1, exchange);
  each_dot(all, p.heads, p.cols / p.heads, end - begin, WeightGradient{p, i, begin, false});
  if (p.loops) each_dot(all, p.heads, p.cols / p.heads, 1, WeightGradient{p, i, begin, true});
  meet(all);
  LOOP for (int h0 = 0; h0 < p.heads; h0 += 32) {
    Team t = team_of(block, p.heads - h0 < 32 ? p.heads - h0 : 32, exchange);
    int h = h0 + t.head;
    float own = 0, down = 0;
    if (p.loops) own = p.self[i * p.heads + h], down = p.dself[i * p.heads + h];
    double sum = 0;
    for (i64 e = begin + t.slot; t.active && e < end; e += t.slots) sum = sum + (double)(p.alpha[e * p.heads + h] * p.ds[e * p.heads + h]);
    sum = combine<Total>(t, sum);
    if (p.loops) sum = sum + (double)(own * down);
    float w = (float)sum;
    for (i64 e = begin + t.slot; t.active && e < end; e += t.slots) p.ds[e * p.heads + h] = p.alpha[e * p.heads + h] * (p.ds[e * p.heads + h] - w);
    if (p.loops && t.active && t.slot == 0) p.dself[i * p.heads + h] = own * (down - w);
  }
}

// additive_gradients makes the gradients of GAT's scores before LeakyReLU of those after
// it, and adds up row i's.
DEVICE void additive_gradients(const Attention &p, bool block, float *exchange, i64 i, i64 begin, i64 end) {
  LOOP for (int h0 = 0; h0 < p.heads; h0 += 32) {
    Team t = team_of(block, p.heads - h0 < 32 ? p.heads - h0 : 32, exchange);
    int h = h0 + t.head;
    float d = p.dst[i * p.dst_stride + h], sum = 0, down = 0;
    if (p.loops) down = p.dself[i * p.heads + h];
    for (i64 e = begin + t.slot; t.active && e < end; e += t.slots) {
      float v = p.src[p.indices[e] * p.src_stride + h] + d, g = p.ds[e * p.heads + h];
      if (p.edge) v = v + p.edge[e * p.heads + h];
      if (v <= 0) g = g * p.slope;
      p.ds[e * p.heads + h] = g;
      if (p.dedge) p.dedge[e * p.heads + h] = g;
      sum = sum + g;
    }
    sum = combine<Total>(t, sum);
    if (p.loops) {
      Mean edge = loop_edge(p, t, i, h, begin, end);
      if (p.src[i * p.src_stride + h] + d + edge.mean <= 0) down = down * p.slope;
      sum = sum + down;
      if (p.dedge && edge.n > 0)
        for (i64 e = begin + t.slot; t.active && e < end; e += t.slots)
          if (!skipped(p, i, e)) p.dedge[e * p.heads + h] = p.dedge[e * p.heads + h] + down / (float)edge.n;
    }
    if (t.active && t.slot == 0) {
      if (p.loops) p.dself[i * p.heads + h] = down;
      p.ddst[i * p.ddst_stride + h] = sum;
    }
  }
}

// The rows of a thread block: this warp's own, unless it is long, and then the long
// ones, by all warps.
#define ATTENTION(name, each) \
  KERNEL(256) name(Attention p) { \
    SHARED double exchange[row_warps * 32]; \
    i64 first = (i64)block_x() * row_warps; \
    u32 longs = 0; \
    LOOP for (int turn = -1; turn < row_warps; turn++) { \
      bool block = turn >= 0; \
      if (turn == 0) longs = long_rows(p.indptr, first, p.rows); \
      if (block && longs >> turn == 0) break; \
      i64 i = first + (block ? turn : thread() / 32), begin = 0, end = 0; \
      if (i < p.rows) begin = p.indptr[i], end = p.indptr[i + 1]; \
      if (i < p.rows && block == (end - begin > long_row)) each(p, block, (float *)exchange, i, begin, end); \
    } \
  } \
  EXPORT(name)

ATTENTION(attention_weights, attend)
ATTENTION(attention_scores_backward, score_gradients)
ATTENTION(attention_additive_backward, additive_gradients)

// DynamicRows is dynamicRows of attention.go: the gradients of GATv2's rows, over a
// block or its transpose, and of att.
struct DynamicRows {
  const i64 *indptr;
  const u32 *indices, *entry;    // entry as in sum_rows
  const float *own, *other;      // the rows' own features, and those of their entries
  i64 own_stride, other_stride;
  const float *att;
  const float *ds, *dself;       // the gradients of scores
  float *gradient;
  i64 gradient_stride;
  float *parts;                  // thread blocks×cols: the gradient of att; null: not wanted
  int rows, heads, cols;
  int loops;                     // rows below it have a loop
  int accumulate;                // add to gradient
  float slope;
};

struct DynamicOp : DynamicRows {
  struct Stage { u32 row[staged]; float d[128]; };
  struct Sum { float gradient, att, own; };
  int column, head;

  MEMBER int chunk() const { return heads <= 4 ? (int)staged : 128 / heads; }
  MEMBER void stage(Stage &s, i64, i64 e, int n) const {
    int lane = thread() % 32;
    if (lane < n) s.row[lane] = indices[e + lane];
    LOOP for (int q = lane; q < n * heads; q += 32) {
      i64 at = e + q / heads;
      s.d[q] = ds[(entry ? (i64)entry[at] : at) * heads + q % heads];
    }
  }
  MEMBER Sum start(i64 i, bool first) const {
    bool given = i < rows && column < cols;
    return {first && accumulate ? gradient[i * gradient_stride + column] : 0, 0, given ? own[i * own_stride + column] : 0};
  }
  MEMBER void add_row(Sum &sum, i64 r, float d) const {
    float z = sum.own + other[r * other_stride + column], g = d * att[column];
    sum.att = sum.att + d * leaky(z, slope);
    sum.gradient = sum.gradient + (z <= 0 ? g * slope : g);
  }
  MEMBER void add(Sum &sum, const Stage &s, int k) const { add_row(sum, s.row[k], s.d[k * heads + head]); }
  MEMBER Sum join(const Sum &a, const Sum &b) const { return {a.gradient + b.gradient, a.att + b.att, a.own}; }
  MEMBER void finish(i64 i, i64, Sum &sum) const {
    if (i < loops) add_row(sum, i, dself[i * heads + head]);
    gradient[i * gradient_stride + column] = sum.gradient;
  }
};

KERNEL(256) dynamic_backward(DynamicRows p) {
  SHARED DynamicOp::Stage stages[row_warps];
  SHARED DynamicOp::Sum parts[row_warps * 32];
  DynamicOp op;
  (DynamicRows &)op = p;
  int lane = thread() % 32;
  op.column = block_y() * 32 + lane;
  bool active = op.column < p.cols;
  op.head = active ? op.column / (p.cols / p.heads) : 0;
  float made = each_row(op, stages, parts, active).att;
  if (!p.parts) return;
  parts[thread()].att = made;
  barrier();
  if (thread() >= 32 || !active) return;
  made = 0;
  for (int w = 0; w < row_warps; w++) made = made + parts[w * 32 + lane].att;
  p.parts[(i64)block_x() * p.cols + op.column] = made;
}
EXPORT(dynamic_backward)

// dynamic_att adds the parts of dynamic_backward up, in order.
KERNEL(256) dynamic_att(float *datt, const float *parts, int blocks, int cols) {
  int j = block_x() * threads() + thread();
  if (j >= cols) return;
  float sum = 0;
  for (int b = 0; b < blocks; b++) sum = sum + parts[(i64)b * cols + j];
  datt[j] = sum;
}
EXPORT(dynamic_att)

// Kernels over the rows of a block, as FastGL's memory-aware aggregation has them: a
// thread block makes eight rows by up to 128 columns, a warp each row. Where the rows of
// its entries lie, and what they are multiplied by, is brought to shared memory 32
// entries at a time, so that every thread reads them from there; sums stay in registers.
// A row of more than long_row entries is made by the eight warps together, which
// take 32 entries each by turns and add up what they have in shared memory, in their
// order. So each row has one writer, and the order of its sums is that of its entries or,
// of a long one, of its warps: whatever the other rows are.
#pragma once
#include "device.h"

#ifdef __CUDA__
#define UNROLL_4 _Pragma("unroll 4")
#else
#define UNROLL_4
#endif

enum { row_warps = 8, long_row = 256, staged = 32 };

// The types of stored values, by their graph.DType, and any of them.
enum { any_type = 0, float32, float16, bfloat16, int8, uint8 };

DEVICE int bytes_of(int type) { return type == float32 ? 4 : type == float16 || type == bfloat16 ? 2 : 1; }

// Exactly, as graph.Float16ToFloat32 does.
DEVICE float from_half(u32 h) {
  u32 sign = (h & 0x8000) << 16, size = h & 0x7fff;
  if (size >= 0x7c00) return from_bits(sign | 0x7f800000 | size << 13);
  return from_bits(sign | to_bits(from_bits(size << 13) * 0x1p112f));
}

DEVICE float decode(int type, u32 b) {
  switch (type) {
  case float16: return from_half(b);
  case bfloat16: return from_bits(b << 16);
  case int8: return (float)(signed char)b;
  case uint8: return (float)b;
  }
  return from_bits(b);
}

template <int V> struct Values { float v[V]; };

// A source is a table of stored values; those of int8 have scales.
struct Source {
  const char *data;
  i64 stride;            // in bytes
  const float *row_scale, *column_scale; // null: 1
  const u32 *ids;        // the table's row of each of the source's; null: itself
  i64 type;
};

DEVICE i64 source_row(const Source &s, i64 i) { return s.ids ? s.ids[i] : i; }

// read returns V values of a table's row r from column j on. T is the source's type, or
// any_type. With V of 4, j is a multiple of 4 and rows are aligned to four values.
template <int T, int V> DEVICE Values<V> read(const Source &s, i64 r, int j) {
  Values<V> x;
  int type = T == any_type ? (int)s.type : T;
  const char *p = s.data + r * s.stride + (i64)j * bytes_of(type);
  if (type == float32) {
    if (V == 4) {
      float4 f = load4((const float *)p);
      x.v[0] = f.x, x.v[1 % V] = f.y, x.v[2 % V] = f.z, x.v[3 % V] = f.w;
    } else {
      x.v[0] = *(const float *)p;
    }
  } else if (bytes_of(type) == 2) {
    u64 b = V == 4 ? *(const u64 *)p : *(const unsigned short *)p;
    UNROLL for (int q = 0; q < V; q++) x.v[q] = decode(type, b >> (16 * q) & 0xffff);
  } else {
    u32 b = V == 4 ? *(const u32 *)p : *(const unsigned char *)p;
    UNROLL for (int q = 0; q < V; q++) x.v[q] = decode(type, b >> (8 * q) & 0xff);
  }
  if (type == int8) {
    float f = s.row_scale ? s.row_scale[r] : 1;
    UNROLL for (int q = 0; q < V; q++) {
      x.v[q] = x.v[q] * f;
      if (s.column_scale) x.v[q] = x.v[q] * s.column_scale[j + q];
    }
  }
  return x;
}

// store writes V values from column j on.
template <int V> DEVICE void store(float *row, int j, const Values<V> &x) {
  if (V == 4)
    store4(row + j, {x.v[0], x.v[1 % V], x.v[2 % V], x.v[3 % V]});
  else
    row[j] = x.v[0];
}

// An Op says what is made of a row's entries:
//
//	Stage, Sum        what is brought to shared memory, and what a thread adds up
//	rows, cols        of the result; indptr, the row pointers
//	chunk()           how many entries are staged at a time, at most 32
//	stage(s, i, e, n) brings entries [e, e+n) of row i, by all threads of a warp
//	start(i, first)   what a sum begins with; first: the only sum of the row, or its first part
//	add(sum, s, k)    adds staged entry k
//	join(a, b)        what two parts of a row make, a before b
//	finish(i, n, sum) ends row i, of n entries

// long_rows has a bit for each of the thread block's rows, from first on, of more than long_row entries.
// All threads of a warp call it, once their own row is made: what it reads has come by then.
DEVICE u32 long_rows(const i64 *indptr, i64 first, int rows) {
  int lane = thread() % 32;
  return vote(lane < row_warps && first + lane < rows && indptr[first + lane + 1] - indptr[first + lane] > long_row);
}

// each_row runs op over the eight rows of this thread block, for the columns that op is
// made for: active says whether this thread has any. It returns the sum of the row that
// this warp has ended.
template <class Op> DEVICE typename Op::Sum each_row(const Op &op, typename Op::Stage *stages, typename Op::Sum *parts, bool active) {
  int warp = thread() / 32, lane = thread() % 32, chunk = op.chunk();
  typename Op::Stage &stage = stages[warp];
  i64 first = (i64)block_x() * row_warps;
  typename Op::Sum made = op.start(first, false);
  // This warp's own row, unless it is long, and then the long ones.
  u32 longs = 0;
  LOOP for (int turn = -1; turn < row_warps; turn++) {
    bool whole = turn < 0; // by one warp
    if (turn == 0) longs = long_rows(op.indptr, first, op.rows);
    if (!whole && longs >> turn == 0) break;
    i64 i = first + (whole ? warp : turn);
    i64 begin = 0, end = 0;
    if (i < op.rows) begin = op.indptr[i], end = op.indptr[i + 1];
    if (i >= op.rows || whole == (end - begin > long_row)) continue;
    typename Op::Sum sum = op.start(i, active && (whole || warp == 0));
    LOOP for (i64 e = whole ? begin : begin + warp * chunk; e < end; e += whole ? chunk : row_warps * chunk) {
      int n = end - e < chunk ? (int)(end - e) : chunk;
      op.stage(stage, i, e, n);
      warp_barrier();
      if (active) {
        UNROLL_4 for (int k = 0; k < n; k++) op.add(sum, stage, k);
      }
      warp_barrier();
    }
    if (!whole) {
      parts[warp * 32 + lane] = sum;
      barrier();
      if (warp == turn && active) {
        sum = parts[lane];
        LOOP for (int w = 1; w < row_warps; w++) sum = op.join(sum, parts[w * 32 + lane]);
      }
      barrier();
    }
    if (active && (whole || warp == turn)) {
      op.finish(i, end - begin, sum);
      made = sum;
    }
  }
  return made;
}

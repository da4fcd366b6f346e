// Dense products in tiles: dst = act(op(A)·op(B) + bias + (dst)), for product.cu and tensor.cu.
#pragma once
#include "activation.h"

struct Product {
  float *dst;
  const float *a, *b;
  i64 ds, as, bs;   // values between rows, as they are stored
  int m, n, k;      // of op(A)·op(B): m×k times k×n
  int ta, tb;       // A is stored k×m, B n×k
  int wide;         // 1: A's, 2: B's, 4: dst's rows begin at multiples of 16 bytes, and have multiples of four values
  int begin, end;   // of k
  const float *bias;
  int act, accumulate;
};

// stored begins to copy OUTER rows of INNER values each from row o0 and column i0 of x on to
// tile, PITCH values between rows, and zeros from row rows and column columns on. wide: four
// values at a time, columns being a multiple of four.
template <int OUTER, int INNER, int PITCH, int THREADS>
DEVICE void stored(float *tile, const float *x, i64 stride, bool wide, int o0, int rows, int i0, int columns) {
  if (wide) {
#pragma unroll 4
    for (int u = 0; u < OUTER * INNER / 4 / THREADS; u++) {
      int c = thread() + u * THREADS, o = c / (INNER / 4), i = c % (INNER / 4) * 4;
      copy_async16(tile + o * PITCH + i, x + (o0 + o) * stride + i0 + i, o0 + o < rows && i0 + i < columns);
    }
  } else {
#pragma unroll 4
    for (int u = 0; u < OUTER * INNER / THREADS; u++) {
      int c = thread() + u * THREADS, o = c / INNER, i = c % INNER;
      copy_async4(tile + o * PITCH + i, x + (o0 + o) * stride + i0 + i, o0 + o < rows && i0 + i < columns);
    }
  }
}

// rectified is activate for the activations that a product ends with.
DEVICE float rectified(int act, float v) { return act == LINEAR || !(v <= 0) ? v : act == RECTIFIED ? 0 : v * 0.01f; }

// cut leaves p one of the parts of k, of terms each, with its m·n values of dst.
DEVICE void cut(Product &p, int part, int terms) {
  p.dst += part * (i64)p.m * p.n;
  p.begin = part * terms;
  p.end = p.k - p.begin < terms ? p.k : p.begin + terms;
}

// A kernel of products by a function that computes tiles of M×N elements with THREADS threads, in
// shared memory for STAGES tiles of A, ROOM_A values each, and of B. The grid has a block
// in x for every M rows, in y for every N columns of every part of k, of terms each; parts write m·n values each, which fold adds.
#define PRODUCT(NAME, M, N, THREADS, STAGES, ROOM_A, ROOM_B, ...) \
  KERNEL(THREADS) NAME(float *dst, i64 ds, const float *a, i64 as, const float *b, i64 bs, int m, int n, int k, int ta, int tb, \
      int wide, int terms, const float *bias, int act, int accumulate) { \
    SHARED __attribute__((aligned(16))) float ta_[STAGES][ROOM_A]; \
    SHARED __attribute__((aligned(16))) float tb_[STAGES][ROOM_B]; \
    int across = (n + N - 1) / N; \
    Product p = {dst, a, b, ds, as, bs, m, n, k, ta, tb, wide, 0, 0, bias, act, accumulate}; \
    cut(p, block_y() / across, terms); \
    __VA_ARGS__(ta_, tb_, p, block_x() * M, block_y() % across * N); \
  } \
  EXPORT(NAME)

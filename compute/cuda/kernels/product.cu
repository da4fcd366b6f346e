// Dense products in float32.
//
// Every element is one sum over k in ascending order, by fused multiply-adds, whatever
// the tile; only a split of k, which the caller chooses by shapes, cuts it. So the
// choice of a tile changes no bit.
#include "product.h"

enum { PAD = 4 };

// fetch begins to copy terms [k0, k0+DEPTH) of SIDE rows or columns from i0 on to
// tile[k][i], and zeros where there are none. along: the values of one k follow each
// other in x, else those of one i. wide: four of them at a time, length being a
// multiple of four.
template <int SIDE, int THREADS>
DEVICE void fetch(float *tile, const float *x, i64 stride, bool along, bool wide, int i0, int length, int k0, int end) {
  if (along) {
    stored<DEPTH, SIDE, SIDE + PAD, THREADS>(tile, x, stride, wide, k0, end, i0, length);
    return;
  }
#pragma unroll 4
  for (int u = 0; u < SIDE * DEPTH / THREADS; u++) {
    int c = thread() + u * THREADS, k = c % DEPTH, i = c / DEPTH;
    copy_async4(tile + k * (SIDE + PAD) + i, x + (i0 + i) * stride + k0 + k, k0 + k < end && i0 + i < length);
  }
}

// product computes a tile of M×N elements of dst with M·N/64 threads, each of which has
// 8×8 of them: four rows and four columns in either half of the tile. as and bs are
// shared memory for two tiles of A and B.
template <int M, int N>
DEVICE void product(float (*as)[DEPTH * (M + PAD)], float (*bs)[DEPTH * (N + PAD)], const Product &p, int m0, int n0) {
  const int T = M * N / 64;
  int row = thread() / (N / 8) * 4, col = thread() % (N / 8) * 4;
  float acc[8][8];
  UNROLL for (int i = 0; i < 8; i++) UNROLL for (int j = 0; j < 8; j++) acc[i][j] = 0;
  // The tile of k0+DEPTH is on its way while that of k0 is multiplied.
  for (int k0 = p.begin - DEPTH, stage = 1; k0 < p.end; k0 += DEPTH, stage ^= 1) {
    if (k0 + DEPTH < p.end) {
      fetch<M, T>(as[stage ^ 1], p.a, p.as, p.ta, p.wide & 1, m0, p.m, k0 + DEPTH, p.end);
      fetch<N, T>(bs[stage ^ 1], p.b, p.bs, !p.tb, p.wide & 2, n0, p.n, k0 + DEPTH, p.end);
    }
    copy_commit();
    if (k0 < p.begin) continue;
    copy_wait<1>();
    barrier();
    const float *a = as[stage] + row, *b = bs[stage] + col;
    // Terms beyond the end are not added: -0 + 0 would no longer be -0.
    int terms = p.end - k0 < DEPTH ? p.end - k0 : DEPTH;
#pragma unroll 8
    for (int k = 0; k < terms; k++) {
      float4 a0 = load4(a + k * (M + PAD)), a1 = load4(a + k * (M + PAD) + M / 2);
      float4 b0 = load4(b + k * (N + PAD)), b1 = load4(b + k * (N + PAD) + N / 2);
      float x[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
      float y[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
      UNROLL for (int i = 0; i < 8; i++) UNROLL for (int j = 0; j < 8; j++) acc[i][j] = fma(x[i], y[j], acc[i][j]);
    }
    barrier();
  }
  UNROLL for (int h = 0; h < 2; h++) {
    int c0 = n0 + col + h * (N / 2);
    float bias[4] = {0, 0, 0, 0};
    if (p.bias) UNROLL for (int j = 0; j < 4; j++) if (c0 + j < p.n) bias[j] = p.bias[c0 + j];
    UNROLL for (int i = 0; i < 8; i++) {
      int r = m0 + row + i % 4 + i / 4 * (M / 2);
      float *d = p.dst + r * p.ds + c0;
      float v[4];
      UNROLL for (int j = 0; j < 4; j++) {
        v[j] = p.bias ? acc[i][h * 4 + j] + bias[j] : acc[i][h * 4 + j];
        if (p.accumulate && r < p.m && c0 + j < p.n) v[j] = d[j] + v[j];
        v[j] = rectified(p.act, v[j]);
      }
      if (p.wide & 4 && r < p.m && c0 < p.n) {
        store4(d, {v[0], v[1], v[2], v[3]});
      } else {
        UNROLL for (int j = 0; j < 4; j++) if (r < p.m && c0 + j < p.n) d[j] = v[j];
      }
    }
  }
}

#define FLOAT32(M, N) PRODUCT(product_##M##x##N, M, N, DEPTH * (M + PAD), DEPTH * (N + PAD), product<M, N>)
FLOAT32(128, 128)
FLOAT32(128, 64)
FLOAT32(64, 64)
FLOAT32(128, 32)
FLOAT32(32, 128)

// dst = act(the sum of parts, m×n each, in their order + bias + (dst)).
KERNEL(256) fold(float *dst, i64 ds, const float *parts, int count, int m, int n, const float *bias, int act, int accumulate) {
  i64 size = (i64)m * n, step = (i64)blocks_x() * threads();
  for (i64 e = (i64)block_x() * threads() + thread(); e < size; e += step) {
    int c = e % n;
    float *d = dst + e / n * ds + c, v = 0;
    for (int p = 0; p < count; p++) v += parts[p * size + e];
    if (bias) v += bias[c];
    if (accumulate) v = *d + v;
    *d = rectified(act, v);
  }
}
EXPORT(fold)

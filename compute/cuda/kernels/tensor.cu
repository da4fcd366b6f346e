// Dense products on tensor cores, of factors that are rounded to TF32 or to bfloat16, with sums
// in float32.
//
// Every element is one sum over k in ascending order, eight terms of TF32 or sixteen of bfloat16
// at a time, as the device adds those; only a split of k cuts it.
#include "product.h"

// DEPTH terms are in shared memory at a time, and as many more on their way.
enum { DEPTH = 16 };

// fetch begins to copy terms [k0, k0+DEPTH) of SIDE rows or columns from i0 on, and zeros where
// there are none, to a tile that lies as x does: a row of SIDE values for every k if along, else
// one of DEPTH for every row or column. Lanes that read eight of these and four terms of each
// read all banks once.
template <int SIDE, int THREADS>
DEVICE void fetch(float *tile, const float *x, i64 stride, bool along, bool wide, int i0, int length, int k0, int end) {
  if (along) stored<DEPTH, SIDE, SIDE + 8, THREADS>(tile, x, stride, wide, k0, end, i0, length);
  else stored<SIDE, DEPTH, DEPTH + 4, THREADS>(tile, x, stride, wide, i0, length, k0, end);
}

// What tensor cores multiply: a lane's 32 bits hold EACH factors.
struct TF32 {
  enum { EACH = 1 };
  DEVICE u32 rounded(const float *v) { return to_tf32(v[0]); }
  DEVICE void multiply(float *d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) { multiply_tf32(d, a0, a1, a2, a3, b0, b1); }
};
struct BFloat16 {
  enum { EACH = 2 };
  DEVICE u32 rounded(const float *v) { return to_bf16(v[0], v[1]); }
  DEVICE void multiply(float *d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) { multiply_bf16(d, a0, a1, a2, a3, b0, b1); }
};

// factors rounds the lane's terms of COUNT rows or columns, eight apart, from its first one on,
// BETWEEN values between rows, TERM between terms. Which terms are a lane's is the same for A and
// for B, so that they are each other's.
template <class P, int COUNT, int BETWEEN, int TERM>
DEVICE void factors(u32 (*f)[2], const float *first) {
  UNROLL for (int i = 0; i < COUNT; i++) UNROLL for (int h = 0; h < 2; h++) {
    float v[P::EACH];
    UNROLL for (int e = 0; e < P::EACH; e++) v[e] = first[i * 8 * BETWEEN + (h * P::EACH + e) * 4 * TERM];
    f[i][h] = P::rounded(v);
  }
}

// tensor computes a tile of M×N elements of dst, of which each warp has 64×32, or 32×64.
template <class P, int M, int N>
DEVICE void tensor(float (*as)[M * (DEPTH + 4)], float (*bs)[N * (DEPTH + 4)], const Product &p, int m0, int n0) {
  const int T = M * N / 64, HIGH = M < 64 ? 32 : 64, WIDE = 2048 / HIGH;
  int warp = thread() / 32, lane = thread() % 32;
  int row = warp % (M / HIGH) * HIGH + lane / 4, col = warp / (M / HIGH) * WIDE, term = lane % 4;
  float acc[HIGH / 16][WIDE / 8][4];
  UNROLL for (int i = 0; i < HIGH / 16; i++) UNROLL for (int j = 0; j < WIDE / 8; j++) UNROLL for (int e = 0; e < 4; e++) acc[i][j][e] = 0;
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
    UNROLL for (int k = 0; k < DEPTH; k += 8 * P::EACH) {
      u32 a[HIGH / 8][2], b[WIDE / 8][2];
      if (p.ta) factors<P, HIGH / 8, 1, M + 8>(a, as[stage] + (k + term) * (M + 8) + row);
      else factors<P, HIGH / 8, DEPTH + 4, 1>(a, as[stage] + row * (DEPTH + 4) + k + term);
      if (p.tb) factors<P, WIDE / 8, DEPTH + 4, 1>(b, bs[stage] + (col + lane / 4) * (DEPTH + 4) + k + term);
      else factors<P, WIDE / 8, 1, N + 8>(b, bs[stage] + (k + term) * (N + 8) + col + lane / 4);
      UNROLL for (int i = 0; i < HIGH / 16; i++) UNROLL for (int j = 0; j < WIDE / 8; j++)
        P::multiply(acc[i][j], a[2 * i][0], a[2 * i + 1][0], a[2 * i][1], a[2 * i + 1][1], b[j][0], b[j][1]);
    }
    barrier();
  }
  UNROLL for (int j = 0; j < WIDE / 8; j++) UNROLL for (int e = 0; e < 2; e++) {
    int c = n0 + col + j * 8 + term * 2 + e;
    float bias = p.bias && c < p.n ? p.bias[c] : 0;
    UNROLL for (int i = 0; i < HIGH / 8; i++) {
      int r = m0 + row + i * 8;
      if (r < p.m && c < p.n) {
        float *d = p.dst + r * p.ds + c, v = acc[i / 2][j][i % 2 * 2 + e];
        if (p.bias) v = v + bias;
        if (p.accumulate) v = *d + v;
        *d = rectified(p.act, v);
      }
    }
  }
}

#define TENSOR(M, N) \
  PRODUCT(product_tf32_##M##x##N, M, N, M * N / 64, 2, M * (DEPTH + 4), N * (DEPTH + 4), tensor<TF32, M, N>) \
  PRODUCT(product_bf16_##M##x##N, M, N, M * N / 64, 2, M * (DEPTH + 4), N * (DEPTH + 4), tensor<BFloat16, M, N>)
TENSOR(128, 128)
TENSOR(128, 64)
TENSOR(64, 64)
TENSOR(128, 32)
TENSOR(32, 128)

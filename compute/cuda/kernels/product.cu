// Dense products in float32.
//
// Every element is one sum over k in ascending order, by fused multiply-adds, whatever
// the tile; only a split of k, which the caller chooses by shapes, cuts it. So the
// choice of a tile changes no bit.
#include "product.h"

// DEPTH terms are multiplied at a time, while those of the STAGES-1 tiles after them are on their way.
enum { DEPTH = 16, STAGES = 2, PAD = 4 };

// fetch begins to copy terms [k0, k0+DEPTH) of SIDE rows of A or columns of B from i0 on to
// tile[k][i], and zeros where there are none. along: the values of one k follow each
// other in x, else those of one i. wide: four of them at a time, length being a
// multiple of four.
template <int SIDE, int THREADS>
DEVICE void fetch(float *tile, const float *x, i64 stride, bool along, bool wide, int i0, int length, int k0, int end) {
  if (along) {
    stored<DEPTH, SIDE, SIDE + PAD, THREADS>(tile, x, stride, wide, k0, end, i0, length);
    return;
  }
#pragma unroll 2
  for (int u = 0; u < SIDE * DEPTH / THREADS; u++) {
    int c = thread() + u * THREADS, k = c % DEPTH, i = c / DEPTH;
    copy_async4(tile + k * (SIDE + PAD) + i, x + (i0 + i) * stride + k0 + k, k0 + k < end && i0 + i < length);
  }
}

// A feed is fetch for tiles that are all there, one after the other: a thread's place in x moves on, and
// little is computed.
template <int SIDE, int THREADS, bool ALONG> struct Feed {
  enum { EACH = ALONG ? 4 : 1, LINE = ALONG ? SIDE / 4 : DEPTH, COPIES = SIDE * DEPTH / EACH / THREADS, APART = THREADS / LINE };
  const float *from; // what this thread copies first of the next tile
  i64 stride;
  int to;            // where in a tile that goes

  DEVICE Feed start(const float *x, i64 stride, int i0, int begin) {
    int line = thread() / LINE, at = thread() % LINE;
    if (ALONG) return {x + (begin + line) * stride + i0 + at * 4, stride, line * (SIDE + PAD) + at * 4};
    return {x + (i0 + line) * stride + begin + at, stride, at * (SIDE + PAD) + line};
  }
  MEMBER void next(float *tile) {
    const float *p = from;
    float *t = tile + to;
    UNROLL for (int u = 0; u < COPIES; u++, p += APART * stride) {
      if (ALONG) copy_async16(t + u * APART * (SIDE + PAD), p);
      else copy_async4(t + u * APART, p);
    }
    from += ALONG ? DEPTH * stride : DEPTH;
  }
};

// A thread's share of a tile of M×N elements: EACH rows and columns, in groups of four that are
// HIGH rows and WIDE columns apart. A warp's threads are LINES × 32/LINES, and next to each other in
// that way that reads shared memory the least.
template <int M, int N, int EACH> struct Share {
  enum {
    COLUMNS = N >= 8 * EACH ? 8 : 4, LINES = 32 / COLUMNS, GROUPS = EACH / 4, HIGH = LINES * 4, WIDE = COLUMNS * 4,
    ACROSS = N / (COLUMNS * EACH), THREADS = M * N / (EACH * EACH),
  };
  DEVICE int row() {
    int lane = thread() % 32, line = COLUMNS == 8 ? lane / 16 * 2 + lane % 2 : lane % 16 / 2;
    return thread() / 32 / ACROSS * (LINES * EACH) + line * 4;
  }
  DEVICE int column() {
    int lane = thread() % 32, c = COLUMNS == 8 ? lane % 16 / 2 : lane / 16 * 2 + lane % 2;
    return thread() / 32 % ACROSS * (COLUMNS * EACH) + c * 4;
  }
};

// A thread's factors of one k.
template <int GROUPS> struct Factors { float v[GROUPS * 4]; };
template <int GROUPS, int APART> DEVICE Factors<GROUPS> factors(const float *p) {
  Factors<GROUPS> f;
  UNROLL for (int g = 0; g < GROUPS; g++) {
    float4 x = load4(p + g * APART);
    f.v[g * 4] = x.x, f.v[g * 4 + 1] = x.y, f.v[g * 4 + 2] = x.z, f.v[g * 4 + 3] = x.w;
  }
  return f;
}

template <int EACH> struct Sums { float v[EACH][EACH]; };
template <int EACH> DEVICE void multiply(Sums<EACH> &acc, const Factors<EACH / 4> &f, const Factors<EACH / 4> &g) {
  UNROLL for (int i = 0; i < EACH; i++) UNROLL for (int j = 0; j < EACH; j++) acc.v[i][j] = fma(f.v[i], g.v[j], acc.v[i][j]);
}

// whole adds up all terms of a tile of dst that lies in it as a whole, of sides that are read 16 bytes
// at a time if ALONG: what the most of a large product is.
template <int M, int N, int EACH, bool TA, bool TB>
DEVICE void whole(Sums<EACH> &acc, float (*as)[DEPTH * (M + PAD)], float (*bs)[DEPTH * (N + PAD)], const Product &p, int m0, int n0) {
  typedef Share<M, N, EACH> S;
  int row = S::row(), col = S::column(), tiles = (p.end - p.begin) / DEPTH;
  Feed<M, S::THREADS, TA> a = Feed<M, S::THREADS, TA>::start(p.a, p.as, m0, p.begin);
  Feed<N, S::THREADS, !TB> b = Feed<N, S::THREADS, !TB>::start(p.b, p.bs, n0, p.begin);
  LOOP for (int s = 0; s < STAGES - 1; s++) {
    if (s < tiles) a.next(as[s]), b.next(bs[s]);
    copy_commit();
  }
  LOOP for (int t = 0, stage = 0; t < tiles; t++, stage = (stage + 1) % STAGES) {
    copy_wait<STAGES - 2>();
    barrier();
    // The tile that was multiplied before the barrier leaves its place to the one that comes last.
    int last = (stage + STAGES - 1) % STAGES;
    if (t + STAGES - 1 < tiles) a.next(as[last]), b.next(bs[last]);
    copy_commit();
    const float *x = as[stage] + row, *y = bs[stage] + col;
    Factors<S::GROUPS> f = factors<S::GROUPS, S::HIGH>(x), g = factors<S::GROUPS, S::WIDE>(y);
    UNROLL for (int k = 0; k < DEPTH; k++) {
      Factors<S::GROUPS> next_f = f, next_g = g; // are read while these are multiplied
      if (k + 1 < DEPTH) next_f = factors<S::GROUPS, S::HIGH>(x + (k + 1) * (M + PAD)), next_g = factors<S::GROUPS, S::WIDE>(y + (k + 1) * (N + PAD));
      multiply(acc, f, g);
      f = next_f, g = next_g;
    }
  }
  LOOP for (int k = p.begin + tiles * DEPTH; k < p.end; k++) { // less than a tile's
    Factors<S::GROUPS> f, g;
    UNROLL for (int i = 0; i < EACH; i++) {
      i64 r = m0 + row + i % 4 + i / 4 * S::HIGH, c = n0 + col + i % 4 + i / 4 * S::WIDE;
      f.v[i] = TA ? p.a[k * p.as + r] : p.a[r * p.as + k];
      g.v[i] = TB ? p.b[c * p.bs + k] : p.b[k * p.bs + c];
    }
    multiply(acc, f, g);
  }
}

// partly adds up all terms of a tile that may go beyond dst, however its sides lie.
template <int M, int N, int EACH>
DEVICE void partly(Sums<EACH> &acc, float (*as)[DEPTH * (M + PAD)], float (*bs)[DEPTH * (N + PAD)], const Product &p, int m0, int n0) {
  typedef Share<M, N, EACH> S;
  int ahead = p.begin - (STAGES - 1) * DEPTH; // no terms yet
  LOOP for (int stage = 0, first = p.begin; ahead < p.end; ahead += DEPTH, stage = (stage + 1) % STAGES) {
    if (ahead >= p.begin) {
      copy_wait<STAGES - 2>();
      barrier();
    }
    int last = (stage + STAGES - 1) % STAGES;
    if (first < p.end) {
      fetch<M, S::THREADS>(as[last], p.a, p.as, p.ta, p.wide & 1, m0, p.m, first, p.end);
      fetch<N, S::THREADS>(bs[last], p.b, p.bs, !p.tb, p.wide & 2, n0, p.n, first, p.end);
    }
    first += DEPTH;
    copy_commit();
    const float *x = as[stage] + S::row(), *y = bs[stage] + S::column();
    // Terms beyond the end are not added: -0 + 0 would no longer be -0.
    int terms = ahead < p.begin ? 0 : p.end - ahead < DEPTH ? p.end - ahead : DEPTH;
#pragma unroll 2
    for (int k = 0; k < terms; k++) multiply(acc, factors<S::GROUPS, S::HIGH>(x + k * (M + PAD)), factors<S::GROUPS, S::WIDE>(y + k * (N + PAD)));
  }
}

// product computes a tile of M×N elements of dst, EACH×EACH by a thread. as and bs are shared memory for
// STAGES tiles of A and B.
template <int M, int N, int EACH>
DEVICE void product(float (*as)[DEPTH * (M + PAD)], float (*bs)[DEPTH * (N + PAD)], const Product &p, int m0, int n0) {
  typedef Share<M, N, EACH> S;
  int row = S::row(), col = S::column();
  Sums<EACH> acc;
  UNROLL for (int i = 0; i < EACH; i++) UNROLL for (int j = 0; j < EACH; j++) acc.v[i][j] = 0;
  bool inside = M >= 64 && N >= 64 && m0 + M <= p.m && n0 + N <= p.n && (!p.ta || p.wide & 1) && (p.tb || p.wide & 2);
  if (inside && !p.ta && !p.tb) whole<M, N, EACH, false, false>(acc, as, bs, p, m0, n0);
  else if (inside && !p.tb) whole<M, N, EACH, true, false>(acc, as, bs, p, m0, n0);
  else if (inside && !p.ta) whole<M, N, EACH, false, true>(acc, as, bs, p, m0, n0);
  else partly<M, N, EACH>(acc, as, bs, p, m0, n0);
  UNROLL for (int h = 0; h < S::GROUPS; h++) {
    int c0 = n0 + col + h * S::WIDE;
    float bias[4] = {0, 0, 0, 0};
    if (p.bias) UNROLL for (int j = 0; j < 4; j++) if (c0 + j < p.n) bias[j] = p.bias[c0 + j];
    UNROLL for (int i = 0; i < EACH; i++) {
      int r = m0 + row + i % 4 + i / 4 * S::HIGH;
      float *d = p.dst + r * p.ds + c0;
      float v[4];
      UNROLL for (int j = 0; j < 4; j++) {
        v[j] = p.bias ? acc.v[i][h * 4 + j] + bias[j] : acc.v[i][h * 4 + j];
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

#define FLOAT32(M, N, EACH) \
  PRODUCT(product_##M##x##N, M, N, M * N / (EACH * EACH), STAGES, DEPTH * (M + PAD), DEPTH * (N + PAD), product<M, N, EACH>)
FLOAT32(128, 128, 8)
FLOAT32(128, 64, 8)
FLOAT32(64, 64, 8)
FLOAT32(128, 32, 8)
FLOAT32(32, 128, 8)
FLOAT32(32, 32, 4)

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

// Neighbour sampling fused with the numbering of its nodes (Fused-Map): uniform, by the
// weights of edges, or with a cache preferred (GNS). It makes the blocks of package sampling to the bit: entries are drawn by the same
// counter-based draws, and a node's local id is the rank of the first entry that has it.
//
// The table of ids is that of sampling's idMap: a slot holds a node in its upper half and
// base plus a value in its lower half, and is taken only if that is at least base. While a
// layer is numbered a new node's value is the number of nodes before plus the smallest of
// its entries that came so far: whoever comes with a smaller one replaces it. So the table
// is the same in the end, whoever comes first.
#include "random.h"

enum { scan_threads = 256, scan_each = 4, scan_items = scan_threads * scan_each };

// Sample is sample of sample.go.
struct Sample {
  const i64 *graph_indptr;
  const u32 *graph_indices;
  const float *graph_weights; // that entries are drawn by; null: uniformly
  const i64 *cached_indptr;   // of the cache's entries of every node's row; null: there is no cache
  const u64 *cached;          // where in its row each is, and above that its weight
  u32 *nodes;            // those numbered so far, and then the new ones
  i64 *indptr;           // of the layer
  u32 *indices;          // of the layer; until they are resolved the entries' slots
  u32 *sources;          // of the layer's entries, before they are numbered
  i64 *edge_ids;         // of the layer's entries; null: not asked for
  float *weights;        // of the layer's entries, where there is a cache
  u64 *table;
  i64 *sums;             // of a scan, one for each 1024 items
  i64 *totals;           // of the layer's entries, and of its new nodes
  u64 key;               // of the layer
  i64 given;             // not below 0: so many sources are there, of no rows
  u32 shift, mask, base; // of the table
  int fanout;            // -1: all
  int rows;              // nodes numbered so far
  int blocks;            // of the scan that goes on
  int total;             // which of totals that makes
  int only;              // entries are the cache's alone
  int by_degree;         // weights are divided by the degree, not by their sum
};

DEVICE i64 entries_of(const Sample &p) { return p.given >= 0 ? p.given : p.indptr[p.rows]; }

// scan returns the sum of what the threads before this one have, and the sum of all.
struct Scan { i64 before, all; };
DEVICE Scan scan(i64 v, i64 *shared) {
  int t = thread();
  shared[t] = v;
  barrier();
  for (int d = 1; d < scan_threads; d *= 2) {
    i64 a = t >= d ? shared[t - d] : 0;
    barrier();
    shared[t] += a;
    barrier();
  }
  Scan s = {shared[t] - v, shared[scan_threads - 1]};
  barrier();
  return s;
}

// sample_scan turns the sums of blocks into those of the blocks before.
KERNEL(256) sample_scan(Sample p) {
  SHARED i64 shared[scan_threads];
  i64 before = 0;
  for (int first = 0; first < p.blocks; first += scan_threads) {
    int b = first + thread();
    Scan s = scan(b < p.blocks ? p.sums[b] : 0, shared);
    if (b < p.blocks) p.sums[b] = before + s.before;
    before += s.all;
  }
  if (thread() == 0) p.totals[p.total] = before;
}
EXPORT(sample_scan)

// Rows: how many entries each has. Those that are drawn by weights were counted.
DEVICE i64 entries_in(const Sample &p, i64 i) {
  if (i >= p.rows) return 0;
  if (p.graph_weights) return p.indptr[i + 1];
  u32 v = p.nodes[i];
  const i64 *of = p.cached_indptr && p.only ? p.cached_indptr : p.graph_indptr;
  i64 d = of[v + 1] - of[v];
  return p.fanout < 0 || d <= p.fanout ? d : p.fanout;
}

KERNEL(256) sample_row_sums(Sample p) {
  SHARED i64 shared[scan_threads];
  i64 first = (i64)block_x() * scan_items + thread() * scan_each, n = 0;
  for (int k = 0; k < scan_each; k++) n += entries_in(p, first + k);
  Scan s = scan(n, shared);
  if (thread() == 0) p.sums[block_x()] = s.all;
}
EXPORT(sample_row_sums)

KERNEL(256) sample_row_pointers(Sample p) {
  SHARED i64 shared[scan_threads];
  i64 first = (i64)block_x() * scan_items + thread() * scan_each, n = 0, counts[scan_each];
  UNROLL for (int k = 0; k < scan_each; k++) n += counts[k] = entries_in(p, first + k);
  i64 at = scan(n, shared).before + p.sums[block_x()];
  if (block_x() == 0 && thread() == 0) p.indptr[0] = 0;
  UNROLL for (int k = 0; k < scan_each; k++) {
    at += counts[k];
    if (first + k < p.rows) p.indptr[first + k + 1] = at;
  }
}
EXPORT(sample_row_pointers)

// A row of the layer, and of the graph, that a warp works on. Rows past the last are left
// by whole warps, and no barrier of a block follows.
struct Row {
  i64 row;
  u32 v;
  i64 begin, d; // where its edges are, and how many
  int lane;
};
DEVICE Row row_of(const Sample &p) {
  Row r = {(i64)block_x() * (threads() / 32) + thread() / 32, 0, 0, 0, thread() % 32};
  if (r.row >= p.rows) return r;
  r.v = p.nodes[r.row];
  r.begin = p.graph_indptr[r.v];
  r.d = p.graph_indptr[r.v + 1] - r.begin;
  return r;
}
DEVICE void take(const Sample &p, i64 entry, i64 edge) {
  p.sources[entry] = p.graph_indices[edge];
  if (p.edge_ids) p.edge_ids[entry] = edge;
}

// choose writes to the indices of k entries a uniform subset of [0, d) in the order that
// Floyd's method draws it: draw i is uniform in [0, d-k+i], and d-k+i takes its place if it was
// drawn before; all in order if there are no more. A lane makes every 32nd draw, and what it
// writes is read by itself alone.
DEVICE void choose(const Sample &p, u64 key, i64 at, i64 k, i64 d, int lane) {
  if (k >= d) {
    for (i64 i = lane; i < d; i += 32) p.indices[at + i] = (u32)i;
    return;
  }
  for (i64 first = 0; first < k; first += 32) {
    i64 mine = first + lane;
    int end = k - first < 32 ? (int)(k - first) : 32;
    u32 drawn = 0;
    if (mine < k) drawn = (u32)key_below(key, mine, (u64)(d - k + mine) + 1);
    for (int l = 0; l < end; l++) {
      u32 t = (u32)shuffle_from((int)drawn, l);
      bool twice = lane < l && drawn == t;
      for (i64 before = lane; before < first; before += 32) twice = twice || p.indices[at + before] == t;
      if (vote(twice) && lane == l) drawn = (u32)(d - k + mine);
    }
    if (mine < k) p.indices[at + mine] = drawn;
  }
}

// sample_draw chooses the entries of rows, a warp each: all, or a uniform subset.
KERNEL(256) sample_draw(Sample p) {
  Row r = row_of(p);
  if (r.row >= p.rows) return;
  i64 at = p.indptr[r.row], n = p.indptr[r.row + 1] - at;
  if (n < r.d) choose(p, key_with(p.key, r.v), at, n, r.d, r.lane);
  for (i64 e = r.lane; e < n; e += 32) take(p, at + e, r.begin + (n < r.d ? p.indices[at + e] : e));
}
EXPORT(sample_draw)

// exponential_variate is sampling's exponential, to the bit: -ln of the unit interval's point
// that 64 bits are.
DEVICE double exponential_variate(u64 bits) {
  u64 x = to_bits(((double)(bits >> 12) + 0.5) * 0x1p-52);
  int e = (int)(x >> 52) - 1023;
  double m = from_bits((x & ((1ull << 52) - 1)) | 1023ull << 52);
  if (m > 1.41421356237309504880) {
    m *= 0.5;
    e++;
  }
  double f = m - 1, s = f / (2 + f), s2 = s * s, s4 = s2 * s2;
  double t1 = s2 * (0.6666666666666735130 + s4 * (0.2857142874366239149 + s4 * (0.1818357216161805012 + s4 * 0.1479819860511658591)));
  double t2 = s4 * (0.3999999999940941908 + s4 * (0.2222219843214978396 + s4 * 0.1531383769920937332));
  double half = 0.5 * f * f;
  return -((double)e * 0.69314718055994530942 - (half - s * (half + (t1 + t2)) - f));
}

// sample_count counts the entries of rows that are drawn by weights, of which those without
// one are never drawn.
KERNEL(256) sample_count(Sample p) {
  Row r = row_of(p);
  if (r.row >= p.rows) return;
  i64 n = 0;
  for (i64 first = 0; first < r.d; first += 32) {
    i64 e = first + r.lane;
    n += __builtin_popcount(vote(e < r.d && p.graph_weights[r.begin + (e < r.d ? e : 0)] > 0));
  }
  if (r.lane == 0) p.indptr[r.row + 1] = p.fanout >= 0 && n > p.fanout ? p.fanout : n;
}
EXPORT(sample_count)

// sample_draw_weighted chooses the entries of rows, a warp each, in the order of the graph:
// those of the smallest keys -ln(u)/w, the earlier of equal ones. The largest of their keys is
// found 8 bits at a time, highest first: keys are not negative, so that their bits are in order.
KERNEL(256) sample_draw_weighted(Sample p) {
  SHARED u32 shared[8 * 256];
  Row r = row_of(p);
  if (r.row >= p.rows) return;
  u32 *counts = shared + thread() / 32 * 256; // of the keys with those 8 bits
  i64 at = p.indptr[r.row], left = p.indptr[r.row + 1] - at;
  u64 draws = key_with(p.key, r.v), bits = 0, known = 0; // of the largest key
  const float *weights = p.graph_weights + r.begin;
  if (left == p.fanout && left < r.d)
    for (int shift = 56; shift >= 0; shift -= 8) {
      for (int b = r.lane; b < 256; b += 32) counts[b] = 0;
      warp_barrier();
      for (i64 e = r.lane; e < r.d; e += 32) {
        if (!(weights[e] > 0)) continue;
        u64 key = to_bits(exponential_variate(key_draw(draws, e)) / (double)weights[e]);
        if ((key & known) == bits) atomic_add(&counts[key >> shift & 255], 1);
      }
      warp_barrier();
      int mine = 0, b = 0;
      for (int k = 0; k < 8; k++) mine += counts[8 * r.lane + k];
      for (int n; (n = shuffle_from(mine, b / 8)) < left; b += 8) left -= n;
      for (; counts[b] < left; b++) left -= counts[b];
      bits |= (u64)b << shift;
      known |= 255ull << shift;
      bool all = counts[b] == left;
      warp_barrier();
      if (all) break;
    }
  for (i64 first = 0; first < r.d; first += 32) {
    i64 e = first + r.lane;
    bool may = e < r.d && weights[e] > 0;
    u64 key = may && known ? to_bits(exponential_variate(key_draw(draws, e)) / (double)weights[e]) & known : 0;
    u32 before = (1u << r.lane) - 1, equal = vote(may && key == bits);
    bool taken = may && (key < bits || (key == bits && __builtin_popcount(equal & before) < left));
    u32 all = vote(taken);
    if (taken) take(p, at + __builtin_popcount(all & before), r.begin + e);
    at += __builtin_popcount(all);
    left -= __builtin_popcount(equal);
  }
}
EXPORT(sample_draw_weighted)

// other_than returns the number of rank j among those that are none of c cached entries, which
// increase.
DEVICE u32 other_than(const u64 *cached, i64 c, u32 j) {
  i64 low = 0, high = c;
  while (low < high) {
    i64 middle = (low + high) / 2;
    if ((u32)cached[middle] - (u32)middle <= j) low = middle + 1;
    else high = middle;
  }
  return j + (u32)low;
}

// sample_draw_cached chooses the entries of rows, a warp each: all, or as many of the cache as
// there are and the fan-out allows, and others in the place of those that it lacks; with
// p.only, the cache's alone. Weights are those of a mean, as sampling's "gns" has them.
KERNEL(256) sample_draw_cached(Sample p) {
  Row r = row_of(p);
  if (r.row >= p.rows) return;
  i64 at = p.indptr[r.row], n = p.indptr[r.row + 1] - at;
  if (!p.only && n == r.d) {
    for (i64 e = r.lane; e < n; e += 32) {
      take(p, at + e, r.begin + e);
      p.weights[at + e] = 1;
    }
    return;
  }
  const u64 *cached = p.cached + p.cached_indptr[r.v];
  i64 c = p.cached_indptr[r.v + 1] - p.cached_indptr[r.v];
  u64 key = key_with(p.key, r.v);
  if (p.only || c >= n) {
    choose(p, key_with(key, 0), at, n, c, r.lane);
    float scale = (float)c / (float)n;
    for (i64 e = r.lane; e < n; e += 32) {
      u64 one = cached[p.indices[at + e]];
      take(p, at + e, r.begin + (u32)one);
      p.weights[at + e] = scale * from_bits((u32)(one >> 32));
    }
  } else {
    choose(p, key_with(key, 1), at + c, n - c, r.d - c, r.lane);
    float other = (float)((double)(r.d - c) / (double)(n - c));
    for (i64 e = r.lane; e < c; e += 32) {
      take(p, at + e, r.begin + (u32)cached[e]);
      p.weights[at + e] = 1;
    }
    for (i64 e = r.lane; e < n - c; e += 32) {
      take(p, at + c + e, r.begin + other_than(cached, c, p.indices[at + c + e]));
      p.weights[at + c + e] = other;
    }
  }
  warp_barrier();
  double total = (double)r.d;
  if (!p.by_degree) {
    total = 0;
    for (i64 e = 0; e < n; e++) total += (double)p.weights[at + e];
  }
  warp_barrier();
  double scale = (double)n / total;
  for (i64 e = r.lane; e < n; e += 32) p.weights[at + e] = (float)((double)p.weights[at + e] * scale);
}
EXPORT(sample_draw_cached)

// The items of a kernel over the layer's entries.
#define EACH_ENTRY(p, e) \
  for (i64 step = (i64)blocks_x() * threads(), count = entries_of(p), e = (i64)block_x() * threads() + thread(); e < count; e += step)

KERNEL(256) sample_insert(Sample p) {
  EACH_ENTRY(p, e) {
    u32 u = p.sources[e], value = p.base + (u32)p.rows + (u32)e;
    u64 mine = (u64)u << 32 | value;
    u32 h = u * 0x9e3779b1u >> p.shift & p.mask;
    for (;;) {
      u64 old = atomic_load(&p.table[h]);
      bool taken = (u32)old >= p.base;
      if (taken && (u32)(old >> 32) != u) {
        h = (h + 1) & p.mask;
        continue;
      }
      if (taken && (u32)old <= value) break;
      if (atomic_cas(&p.table[h], old, mine) == old) break;
    }
    p.indices[e] = h;
  }
}
EXPORT(sample_insert)

// is_first reports whether entry e is the first of a node that is new.
DEVICE bool is_first(const Sample &p, i64 e, i64 count) {
  return e < count && (u32)atomic_load(&p.table[p.indices[e]]) == p.base + (u32)p.rows + (u32)e;
}

KERNEL(256) sample_first_sums(Sample p) {
  SHARED i64 shared[scan_threads];
  i64 first = (i64)block_x() * scan_items + thread() * scan_each, n = 0, count = entries_of(p);
  for (int k = 0; k < scan_each; k++) n += is_first(p, first + k, count);
  Scan s = scan(n, shared);
  if (thread() == 0) p.sums[block_x()] = s.all;
}
EXPORT(sample_first_sums)

// sample_number gives new nodes their local ids, in the order of their first entries. What
// another thread block has numbered already is no entry's first: its value is that of an
// earlier entry.
KERNEL(256) sample_number(Sample p) {
  SHARED i64 shared[scan_threads];
  i64 first = (i64)block_x() * scan_items + thread() * scan_each, n = 0, count = entries_of(p);
  bool is[scan_each];
  UNROLL for (int k = 0; k < scan_each; k++) n += is[k] = is_first(p, first + k, count);
  i64 rank = p.rows + scan(n, shared).before + p.sums[block_x()];
  UNROLL for (int k = 0; k < scan_each; k++) {
    if (!is[k]) continue;
    u32 u = p.sources[first + k];
    p.nodes[rank] = u;
    atomic_store(&p.table[p.indices[first + k]], (u64)u << 32 | (p.base + (u32)rank));
    rank++;
  }
}
EXPORT(sample_number)

// sample_resolve replaces slots by the local ids in them.
KERNEL(256) sample_resolve(Sample p) {
  EACH_ENTRY(p, e) p.indices[e] = (u32)p.table[p.indices[e]] - p.base;
}
EXPORT(sample_resolve)

// sample_clear empties the table: of mask+1 slots.
KERNEL(256) sample_clear(Sample p) {
  for (i64 h = (i64)block_x() * threads() + thread(); h <= p.mask; h += (i64)blocks_x() * threads()) p.table[h] = 0;
}
EXPORT(sample_clear)

// sample_put fills an empty table with the nodes numbered so far.
KERNEL(256) sample_put(Sample p) {
  for (i64 i = (i64)block_x() * threads() + thread(); i < p.rows; i += (i64)blocks_x() * threads()) {
    u32 u = p.nodes[i], h = u * 0x9e3779b1u >> p.shift & p.mask;
    for (;; h = (h + 1) & p.mask) {
      u64 old = atomic_load(&p.table[h]);
      if ((u32)old < p.base && atomic_cas(&p.table[h], old, (u64)u << 32 | (p.base + (u32)i)) == old) break;
    }
  }
}
EXPORT(sample_put)

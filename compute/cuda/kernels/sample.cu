// Uniform neighbour sampling fused with the numbering of its nodes (Fused-Map), which
// make the blocks of package sampling to the bit: entries are drawn by the same
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
  u32 *nodes;            // those numbered so far, and then the new ones
  i64 *indptr;           // of the layer
  u32 *indices;          // of the layer; until they are resolved the entries' slots
  u32 *sources;          // of the layer's entries, before they are numbered
  i64 *edge_ids;         // of the layer's entries; null: not asked for
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

// Rows: how many entries each has.
DEVICE i64 entries_in(const Sample &p, i64 i) {
  if (i >= p.rows) return 0;
  u32 v = p.nodes[i];
  i64 d = p.graph_indptr[v + 1] - p.graph_indptr[v];
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

// sample_draw chooses the entries of rows, a warp each: all, or a uniform subset in the
// order that Floyd's method draws them. Draw i is uniform in [0, d-k+i], and d-k+i takes
// its place if it was drawn before. A thread has every 32nd draw.
KERNEL(256) sample_draw(Sample p) {
  int lane = thread() % 32;
  i64 i = (i64)block_x() * (threads() / 32) + thread() / 32;
  if (i >= p.rows) return; // the whole warp; no barrier of the block follows
  u32 v = p.nodes[i];
  i64 begin = p.graph_indptr[v], d = p.graph_indptr[v + 1] - begin, at = p.indptr[i];
  if (p.fanout < 0 || d <= p.fanout) {
    for (i64 e = lane; e < d; e += 32) {
      p.sources[at + e] = p.graph_indices[begin + e];
      if (p.edge_ids) p.edge_ids[at + e] = begin + e;
    }
    return;
  }
  u64 key = key_with(p.key, v);
  for (int first = 0; first < p.fanout; first += 32) {
    int mine = first + lane, end = p.fanout - first < 32 ? p.fanout - first : 32;
    u32 drawn = 0;
    if (mine < p.fanout) drawn = (u32)key_below(key, mine, (u64)(d - p.fanout + mine) + 1);
    for (int k = 0; k < end; k++) {
      u32 t = (u32)shuffle_from((int)drawn, k);
      bool twice = lane < k && drawn == t;
      for (int before = lane; before < first; before += 32) twice = twice || p.indices[at + before] == t; // its own
      if (vote(twice) && lane == k) drawn = (u32)(d - p.fanout + mine);
    }
    if (mine < p.fanout) {
      p.indices[at + mine] = drawn; // for the draws after the next 32
      p.sources[at + mine] = p.graph_indices[begin + drawn];
      if (p.edge_ids) p.edge_ids[at + mine] = begin + drawn;
    }
  }
}
EXPORT(sample_draw)

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

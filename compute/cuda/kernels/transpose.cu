// The transpose of a block's pattern: its entries sorted by their sources, those of one in the
// order that they have in the block. The sort goes by eight bits of the source after the other,
// from the lowest; each pass keeps the order of equal ones, so that no bit depends on how many
// threads there are. In a pass a warp goes over its own part of the entries, 32 at a time.
#include "device.h"

enum { digits = 256, sort_threads = 256, sort_warps = sort_threads / 32, sort_rounds = 8, sort_items = sort_threads * sort_rounds };

struct Sort {
  const u32 *keys, *entries; // entries: null: 0, 1, 2, ...
  u32 *sorted_keys, *sorted_entries;
  u32 *counts; // blocks × digits: how many items of a block have the digit, then where they begin
  i64 items;
  int shift, blocks;
};

// equal returns the lanes of the warp whose digit is this one's, of those that have any.
DEVICE u32 equal(u32 digit, bool given) {
  u32 same = vote(given);
  for (int b = 0; b < 8; b++) {
    u32 set = vote(digit >> b & 1);
    same &= digit >> b & 1 ? set : ~set;
  }
  return given ? same : 0;
}

DEVICE i64 sort_item(int round) { return (i64)block_x() * sort_items + thread() / 32 * (32 * sort_rounds) + round * 32 + thread() % 32; }

// sort_counted counts the digits of each warp's items in count, which is the warp's alone.
DEVICE void sort_counted(const Sort &p, u32 *count) {
  for (int d = thread() % 32; d < digits; d += 32) count[d] = 0;
  warp_barrier();
  for (int r = 0; r < sort_rounds; r++) {
    i64 i = sort_item(r);
    bool given = i < p.items;
    u32 digit = given ? p.keys[i] >> p.shift & (digits - 1) : 0, same = equal(digit, given);
    if (same && !(same & ((1u << thread() % 32) - 1))) count[digit] += __builtin_popcount(same);
    warp_barrier();
  }
}

KERNEL(256) sort_count(Sort p) {
  SHARED u32 counts[sort_warps * digits];
  sort_counted(p, counts + thread() / 32 * digits);
  barrier();
  u32 n = 0;
  for (int w = 0; w < sort_warps; w++) n += counts[w * digits + thread()];
  p.counts[block_x() * digits + thread()] = n;
}
EXPORT(sort_count)

// sort_scan turns counts into the sums of those before: of lower digits, and of the blocks before.
// One block of threads does it.
KERNEL(256) sort_scan(Sort p) {
  SHARED u32 sums[sort_threads];
  // Thread t has digit t's counts.
  u32 *mine = p.counts + thread(), n = 0;
  for (int b = 0; b < p.blocks; b++) n += mine[b * digits];
  sums[thread()] = n;
  barrier();
  u32 at = 0;
  for (int t = 0; t < thread(); t++) at += sums[t];
  for (int b = 0; b < p.blocks; b++) {
    u32 count = mine[b * digits];
    mine[b * digits] = at;
    at += count;
  }
}
EXPORT(sort_scan)

KERNEL(256) sort_place(Sort p) {
  SHARED u32 counts[sort_warps * digits];
  u32 *next = counts + thread() / 32 * digits;
  sort_counted(p, next);
  barrier();
  u32 at = p.counts[block_x() * digits + thread()];
  for (int w = 0; w < sort_warps; w++) { // where each warp's items of digit thread() begin
    u32 count = counts[w * digits + thread()];
    counts[w * digits + thread()] = at;
    at += count;
  }
  barrier();
  for (int r = 0; r < sort_rounds; r++) {
    i64 i = sort_item(r);
    bool given = i < p.items;
    u32 key = given ? p.keys[i] : 0, digit = key >> p.shift & (digits - 1), same = equal(digit, given);
    u32 before = same & ((1u << thread() % 32) - 1), to = given ? next[digit] + __builtin_popcount(before) : 0;
    warp_barrier();
    if (same && !before) next[digit] += __builtin_popcount(same);
    warp_barrier();
    if (given) {
      p.sorted_keys[to] = key;
      p.sorted_entries[to] = p.entries ? p.entries[i] : (u32)i;
    }
  }
}
EXPORT(sort_place)

struct Transpose {
  const i64 *forward;        // row pointers of the block
  const u32 *keys, *entries; // sorted
  i64 *indptr;
  u32 *dst;
  i64 items;
  int rows, columns; // destinations and sources of the block
};

// transpose_rows finds where each source's entries begin, and which destination an entry is of.
KERNEL(256) transpose_rows(Transpose p) {
  i64 step = (i64)blocks_x() * threads(), first = (i64)block_x() * threads() + thread();
  for (i64 u = first; u <= p.columns; u += step) {
    i64 low = 0, high = p.items; // the first key that is not below u
    while (low < high) {
      i64 middle = (low + high) / 2;
      if ((i64)p.keys[middle] < u) low = middle + 1;
      else high = middle;
    }
    p.indptr[u] = low;
  }
  for (i64 k = first; k < p.items; k += step) {
    i64 e = p.entries[k], low = 0, high = p.rows; // the last row that begins no later
    while (low < high) {
      i64 middle = (low + high) / 2;
      if (p.forward[middle + 1] <= e) low = middle + 1;
      else high = middle;
    }
    p.dst[k] = (u32)low;
  }
}
EXPORT(transpose_rows)

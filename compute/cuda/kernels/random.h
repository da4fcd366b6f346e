// The counter-based generator of package rng, to the bit.
#pragma once
#include "device.h"

DEVICE u64 mix(u64 z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
DEVICE u64 key_with(u64 key, u64 c) { return mix((key << 23 | key >> 41) ^ mix(c ^ 0xbb67ae8584caa73bull)); }
DEVICE u64 key_draw(u64 key, u64 i) { return mix(key + (i + 1) * 0x9e3779b97f4a7c15ull); }
DEVICE u64 key_below(u64 key, u64 i, u64 n) { return (u64)((unsigned __int128)key_draw(key, i) * n >> 64); }

// Dropout as cpu.Dropped decides it: of column j the 16 bits from 16·(j mod 4) on of draw
// ⌊j/4⌋ of its row's key, against the threshold. None is dropped if that is 0.
struct Dropped {
  u64 key;
  const u32 *ids; // of the rows; null: their numbers
  u32 threshold;
  float scale;
};
DEVICE u64 drop_row(const Dropped &d, i64 i) { return key_with(d.key, d.ids ? d.ids[i] : (u64)i); }
DEVICE float drop_value(const Dropped &d, u64 draw, int j, float v) {
  return (draw >> (16 * (j % 4)) & 0xffff) < d.threshold ? 0 : v * d.scale;
}

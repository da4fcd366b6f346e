// Runs launches that fake_record has recorded again, with a thread of the operating
// system for each of the device's, under the thread sanitizer: which reports two threads
// of a block that touch the same memory with no barrier between them. The device's memory
// must be what it was then, to the bit, since it depends on no order (but see settle).
#define EMULATE_THREADS
#include FAKE_KERNELS
#include <algorithm>
#include <cstdint>
#include <sys/mman.h>

static FILE *file;
static bool get(void *p, size_t n) { return fread(p, 1, n, file) == n; }
static uint64_t get() {
  uint64_t v;
  if (!get(&v, 8)) exit(4);
  return v;
}
static std::string text(size_t n) {
  std::string s(n, 0);
  if (n && !get(&s[0], n)) exit(4);
  return s;
}

// Of two nodes that want the same slot of a sampler's table of ids the first to come has it:
// slots depend on order, what they hold does not. After a launch that fills the table, settle
// puts what is held in place of the slots: the table's nodes and values in increasing order,
// and for each entry the value of its slot.
static void settle(const std::string &kernel, const void *parameter) {
  bool insert = kernel == "sample_insert";
  if (!insert && kernel != "sample_put") return;
  auto &p = *(const sample_cu::Sample *)parameter;
  if (insert)
    for (i64 e = 0, n = sample_cu::entries_of(p); e < n; e++) p.indices[e] = p.indices[e] <= p.mask ? (u32)p.table[p.indices[e]] : 0;
  for (u32 h = 0; h <= p.mask; h++)
    if ((u32)p.table[h] < p.base) p.table[h] = 0;
  std::sort(p.table, p.table + p.mask + 1);
}

int main(int, char **argv) {
  const uint64_t base = 1ull << 36, size = 1ull << 34; // of the fake driver's first device
  if (mmap((void *)base, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) != (void *)base) return 5;
  file = fopen(argv[1], "rb");
  if (!file) return 4;
  int launches = 0, wrong = 0;
  for (uint64_t n; get(&n, 8); launches++) {
    std::string name = text(n);
    emulator::Grid grid;
    grid.x = get(), grid.y = get(), grid.threads = get();
    std::vector<std::string> values(get());
    std::vector<void *> parameters;
    for (auto &v : values) v = text(get()), parameters.push_back(&v[0]);
    std::vector<std::pair<uint64_t, uint64_t>> memory(get());
    for (auto &m : memory) m.first = get(), m.second = get();
    for (auto &m : memory) memset((void *)m.first, 0xff, m.second);
    for (uint64_t i = 0, n = get(); i < n; i++) {
      uint64_t at = get(), size = get();
      if (!get((void *)at, size)) return 4;
    }
    const emulator::Kernel *kernel = nullptr;
    for (auto k : emulator::Kernel::all()) if (name == k->name) kernel = k;
    if (!kernel) return 4;
    fprintf(stderr, "%s\n", name.c_str()); // that a report of the sanitizer's follows
    emulator::launch(kernel, grid, parameters.data());
    settle(name, parameters[0]);
    std::vector<std::pair<uint64_t, std::string>> now(get());
    for (auto &m : now) { // what was there then takes its place
      m.first = get(), m.second.resize(get());
      memcpy(&m.second[0], (void *)m.first, m.second.size());
      if (!get((void *)m.first, m.second.size())) return 4;
    }
    settle(name, parameters[0]);
    bool same = true;
    for (auto &m : now) {
      for (size_t k = 0; k + 4 <= m.second.size(); k += 4) {
        float was, is;
        memcpy(&was, (char *)m.first + k, 4), memcpy(&is, &m.second[k], 4);
        // Which NaN a sum has is the compiler's choice of its operands' order.
        same = same && (!memcmp(&was, &is, 4) || (was != was && is != is));
      }
    }
    if (!same) wrong++, printf("kernel %s: %dx%d blocks of %d threads leave other bits\n", name.c_str(), grid.x, grid.y, grid.threads);
  }
  printf("%d launches, %d with other bits\n", launches, wrong);
  return wrong ? 6 : 0;
}

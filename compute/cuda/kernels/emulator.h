// The host's side of device.h: what a kernel needs to run as C++, one block at a time.
//
// The threads of a block are fibers of one thread, which run until they meet a barrier
// or a shuffle, in an order that differs from round to round. Shared memory begins as
// NaN in every block. Reported, with the kernel's name, and fatal to the launch: threads
// of one block that wait at different barriers, or end while others wait at one; a
// float4 that is not aligned. What copy_async copies is NaN until copy_wait.
//
// With EMULATE_THREADS they are threads of the operating system instead, for the
// thread sanitizer, which sees where a barrier is missing.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>
#define KERNEL(threads) static void
#define MEMBER inline
#define LOOP
#define JOINED(a, b) a##b
#define JOIN(a, b) JOINED(a, b)
#define TEXT_OF(a) #a
#define TEXT(a) TEXT_OF(a)
#define EXPORT(name) \
  extern "C" char JOIN(__start_shared_, MODULE)[] __attribute__((weak)), JOIN(__stop_shared_, MODULE)[] __attribute__((weak)); \
  static emulator::Kernel exported_##name(#name, name, MUTANT, JOIN(__start_shared_, MODULE), JOIN(__stop_shared_, MODULE));
#define DEVICE static inline
#define UNROLL

namespace emulator {

[[noreturn]] inline void fail(const char *what);

// Copies that a thread has begun and not waited for.
struct Copies {
  struct Copy { void *to; const void *from; int bytes; bool given; };
  std::vector<Copy> begun;
  std::vector<size_t> groups; // where in begun each group ends
  void clear() { begun.clear(), groups.clear(); }
  void begin(void *to, const void *from, int bytes, bool given) {
    if ((size_t)to % bytes || (given && (size_t)from % bytes)) fail("an asynchronous copy that is not aligned");
    memset(to, 0xff, bytes);
    begun.push_back({to, from, bytes, given});
  }
  void commit() { groups.push_back(begun.size()); }
  void wait(size_t but) {
    if (groups.size() <= but) return;
    size_t done = groups.size() - but, n = groups[done - 1];
    for (size_t i = 0; i < n; i++) {
      Copy &c = begun[i];
      if (c.given) memcpy(c.to, c.from, c.bytes);
      else memset(c.to, 0, c.bytes);
    }
    begun.erase(begun.begin(), begun.begin() + n);
    groups.erase(groups.begin(), groups.begin() + done);
    for (size_t &g : groups) g -= n;
  }
};

// A kernel and how to call it with parameters as cuLaunchKernel takes them.
struct Kernel {
  const char *name;
  int mutant; // that it is of; 0: none
  char *shared, *shared_end; // all shared memory of its module; null: none
  void (*function)();
  void (*call)(void (*)(), void **);
  std::vector<int> sizes; // of parameters; 0: a pointer
  static std::vector<Kernel *> &all() { static std::vector<Kernel *> k; return k; }
  template <class... A> Kernel(const char *n, void (*f)(A...), int m, char *begin, char *end) : name(n), mutant(m), shared(begin), shared_end(end), function((void (*)())f), call(&Kernel::with<A...>) {
    sizes = {(std::is_pointer_v<A> ? 0 : (int)sizeof(A))...};
    all().push_back(this);
  }
  template <class... A> static void with(void (*f)(), void **p) { apply<A...>((void (*)(A...))f, p, std::index_sequence_for<A...>{}); }
  template <class... A, size_t... I> static void apply(void (*f)(A...), void **p, std::index_sequence<I...>) { f(*(A *)p[I]...); }
};

struct Grid { int x = 1, y = 1, threads = 1; };

#ifndef EMULATE_THREADS
#define SHARED static __attribute__((section("shared_" TEXT(MODULE))))

enum State { AT_BARRIER, AT_SHUFFLE, ENDED };
struct Fiber {
  void *at = nullptr;    // where it goes on; null: it has not begun
  char *stack = nullptr; // that it runs on
  Copies copies;
};
struct Warp { bool ready; int shuffling; }; // all of its threads are, or so many wait for the others
inline Fiber fibers[1024];
inline Warp warps[32];
inline int current, bx, by;
inline Grid grid;
inline void *scheduler;
inline const Kernel *kernel;
inline void **parameters;
inline const char *failure;     // of the block that runs
inline bool odds[1024];
inline int turns[1024], turn, last_turn; // the threads of this round, and the one that runs
inline int waiting, ended;      // threads of the block at a barrier, and at their ends
inline int line, other_line;    // of the barrier where the first waits, and of another where one does
inline const size_t stack_bytes = (1 << 16) + 320; // whose ends share no set of a cache
inline std::vector<char *> stacks, free_stacks;

// Goes on at to, and has it saved where to go on here. It stands where it is used, as calls that do not return have
// the processor guess wrong where their callers do. A function that uses it is noipa: the compiler does not see that
// others run meanwhile, and would have its callers keep what shared memory, or a register, holds.
inline __attribute__((always_inline)) void switch_to(void **save, void *to) {
  asm volatile(
      "lea -128(%%rsp),%%rsp\npush %%rbp\npush %%rbx\nlea 1f(%%rip),%%rax\npush %%rax\n"
      "mov %%rsp,(%%rdi)\nmov %%rsi,%%rsp\npop %%rax\njmp *%%rax\n"
      "1: pop %%rbx\npop %%rbp\nlea 128(%%rsp),%%rsp\n"
      : "+D"(save), "+S"(to) : : "memory", "cc", "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
      "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#ifdef __AVX512F__
      , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31",
      "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#endif
  );
}

void entry();
// The thread whose turn is next, where it goes on or begins; without one, the scheduler.
inline void *next() {
  if (failure || ++turn >= last_turn) return scheduler;
  Fiber &f = fibers[current = turns[turn]];
  if (f.at) return f.at;
  if (free_stacks.empty()) {
    stacks.push_back((char *)aligned_alloc(64, stack_bytes));
    free_stacks.push_back(stacks.back());
  }
  f.stack = free_stacks.back();
  free_stacks.pop_back();
  void **top = (void **)(f.stack + stack_bytes - 64);
  top[0] = (void *)entry;
  return top;
}
__attribute__((noipa)) inline void leave(State s) {
  void **at = &fibers[current].at;
  if (s == AT_SHUFFLE) {
    Warp &w = warps[current >> 5];
    w.ready = ++w.shuffling == 32;
  } else (s == AT_BARRIER ? waiting : ended)++;
  switch_to(at, next());
}
inline void fail(const char *what) {
  failure = what;
  leave(ENDED);
  abort();
}
// Threads that end without having waited have one stack, which stays in the processor's cache.
inline void entry() {
  char *stack = fibers[current].stack;
  for (;;) {
    fibers[current].copies.clear();
    kernel->call(kernel->function, parameters);
    if (turn + 1 >= last_turn || fibers[turns[turn + 1]].at) break;
    ended++;
    current = turns[++turn];
    fibers[current].stack = stack;
  }
  free_stacks.push_back(stack);
  leave(ENDED);
  abort();
}

// run_block returns what is wrong with the block, or null.
__attribute__((noipa)) inline const char *run_block(int n) {
  static unsigned round = 0, block = 0;
  static char told[200];
  if (kernel->shared) memset(kernel->shared, 0xff, kernel->shared_end - kernel->shared);
  const int all = n / 32;
  for (int i = 0; i < n; i++) fibers[i].at = nullptr, odds[i] = false;
  if (free_stacks.size() < stacks.size()) free_stacks = stacks; // of a block that failed
  for (int w = 0; w < all; w++) warps[w] = {true, 0};
  failure = nullptr, waiting = ended = other_line = 0;
  // One warp, another in the next block, runs only where no other can, which are then as far ahead as
  // barriers let them be. The threads of a warp are ready together.
  const int slow = block++ % all;
  for (;;) {
    bool others = false;
    for (int w = 0; w < all; w++) others |= w != slow && warps[w].ready;
    // Forward, backward, and from the middle, by turns.
    const int order = ++round % 3;
    auto kth = [order](int k, int of) { return order == 0 ? k : order == 1 ? of - 1 - k : (k + of / 2) % of; };
    last_turn = 0;
    for (int q = 0; q < all; q++) {
      int w = kth(q, all);
      if (!warps[w].ready || (others && w == slow)) continue;
      warps[w] = {false, 0};
      for (int k = 0; k < 32; k++) turns[last_turn++] = w * 32 + kth(k, 32);
    }
    if (!last_turn) {
      snprintf(told, sizeof told, "%d of %d threads wait at the barrier of line %d, %d have ended: the others never come", waiting, n, line, ended);
      return told;
    }
    turn = -1;
    switch_to(&scheduler, next());
    if (failure) return failure;
    if (other_line) {
      snprintf(told, sizeof told, "threads of one block wait at the barriers of lines %d and %d", line, other_line);
      return told;
    }
    if (ended == n) return nullptr;
    if (waiting == n) {
      waiting = 0;
      for (int w = 0; w < all; w++) warps[w].ready = true;
    }
  }
}

// launch returns what is wrong, or null.
inline const char *launch(const Kernel *k, Grid g, void **p) {
  kernel = k, parameters = p, grid = g;
  for (by = 0; by < g.y; by++)
    for (bx = 0; bx < g.x; bx++)
      if (const char *wrong = run_block(g.threads)) return wrong;
  return nullptr;
}
inline int thread() { return current; }
inline Copies &copies() { return fibers[current].copies; }
inline void barrier_at(int at) {
  if (!waiting) line = at;
  else if (at != line) other_line = at;
  leave(AT_BARRIER);
}
inline void meet_warp() { leave(AT_SHUFFLE); }
inline bool odd() { return odds[current] ^= true; }

#else
} // namespace emulator
#include <deque>
#include <map>
#include <pthread.h>
#include <thread>
#define SHARED static
namespace emulator {
inline thread_local int current, bx, by;
inline Grid grid;
inline void fail(const char *what) { fprintf(stderr, "%s\n", what); _Exit(3); }
// A barrier whose uses are two in turn: a thread that the system lets go on late would else be taken, by the
// sanitizer, for one that has seen what the others did before they came to the next use.
struct Barrier {
  pthread_barrier_t turns[2];
  explicit Barrier(int threads) { for (auto &b : turns) pthread_barrier_init(&b, 0, threads); }
  void wait(unsigned &turn) { pthread_barrier_wait(&turns[turn++ % 2]); }
};
// The threads of a block, which are kept for the next launch of as many: the sanitizer takes long to begin one.
struct Team {
  Barrier block, launch; // launch: with who launches, at its begin and its end
  std::deque<Barrier> warps;
  unsigned turn = 0; // of who launches
  const Kernel *kernel;
  void **parameters;
  explicit Team(int threads) : block(threads), launch(threads + 1) {
    for (int w = 0; w < threads / 32; w++) warps.emplace_back(32);
    for (int i = 0; i < threads; i++) std::thread([=] { run(i); }).detach();
  }
  void run(int thread);
};
inline Team *team; // that runs
inline thread_local unsigned block_turn, warp_turn;
inline void Team::run(int thread) {
  current = thread;
  for (unsigned turn = 0;;) {
    launch.wait(turn);
    for (by = 0; by < grid.y; by++)
      for (bx = 0; bx < grid.x; bx++) {
        kernel->call(kernel->function, parameters);
        block.wait(block_turn);
      }
    launch.wait(turn);
  }
}
inline const char *launch(const Kernel *k, Grid g, void **p) {
  static std::map<int, Team *> teams;
  grid = g, team = teams[g.threads];
  if (!team) team = teams[g.threads] = new Team(g.threads);
  team->kernel = k, team->parameters = p;
  team->launch.wait(team->turn);
  team->launch.wait(team->turn);
  return nullptr;
}
inline int thread() { return current; }
inline Copies &copies() { static thread_local Copies c; return c; }
inline void barrier_at(int) { team->block.wait(block_turn); }
inline bool odd() { static thread_local bool o; return o ^= true; }
inline void meet_warp() { team->warps[current >> 5].wait(warp_turn); }
#endif

// What a warp's threads pass on lies in two places by turns: who is late to read one is not late to meet before it is written again.
inline unsigned exchange[2][1024];
inline unsigned shuffle(unsigned v, int from) {
  int t = current;
  unsigned *e = exchange[odd()];
  e[t] = v;
  meet_warp();
  return e[(t & ~31) | (from & 31)];
}
inline unsigned vote(bool v) {
  int t = current;
  unsigned r = 0, *e = exchange[odd()];
  e[t] = v;
  meet_warp();
  for (int l = 0; l < 32; l++) r |= e[(t & ~31) | l] << l;
  return r;
}

// A multiplication on tensor cores, with terms added in order; of factors in TF32 only the bits
// that those have count.
struct Factors { unsigned a[4], b[2]; };
inline Factors factors[2][1024];
template <int EACH> float factor(unsigned v, int e) {
  unsigned b = EACH == 1 ? v & 0xffffe000u : v >> 16 * e << 16;
  float f;
  memcpy(&f, &b, 4);
  return f;
}
template <int EACH> void multiply(float *d, Factors mine) {
  int t = current, warp = t & ~31, row = (t & 31) / 4, column = t % 4 * 2;
  Factors *all = factors[odd()];
  all[t] = mine;
  meet_warp();
  for (int i = 0; i < 4; i++)
    for (int h = 0; h < 2; h++)
      for (int l = 0; l < 4; l++)
        for (int e = 0; e < EACH; e++)
          d[i] = __builtin_fmaf(factor<EACH>(all[warp + row * 4 + l].a[i / 2 + 2 * h], e), factor<EACH>(all[warp + (column + i % 2) * 4 + l].b[h], e), d[i]);
}
} // namespace emulator

DEVICE int thread() { return emulator::thread(); }
DEVICE int threads() { return emulator::grid.threads; }
DEVICE int block_x() { return emulator::bx; }
DEVICE int block_y() { return emulator::by; }
DEVICE int blocks_x() { return emulator::grid.x; }
DEVICE int blocks_y() { return emulator::grid.y; }
#define barrier() emulator::barrier_at(__LINE__)
DEVICE void warp_barrier() { emulator::meet_warp(); }

struct alignas(16) float4 { float x, y, z, w; };
DEVICE float4 load4(const float *p) {
  if ((size_t)p % 16) emulator::fail("a float4 is read that is not aligned");
  return *(const float4 *)p;
}
DEVICE void store4(float *p, float4 v) {
  if ((size_t)p % 16) emulator::fail("a float4 is written that is not aligned");
  *(float4 *)p = v;
}

DEVICE float from_bits(u32 b) { float v; memcpy(&v, &b, 4); return v; }
DEVICE u32 to_bits(float v) { u32 b; memcpy(&b, &v, 4); return b; }
DEVICE double from_bits(u64 b) { double v; memcpy(&v, &b, 8); return v; }
DEVICE u64 to_bits(double v) { u64 b; memcpy(&b, &v, 8); return b; }
DEVICE int lane_down(int d) { int l = emulator::thread() & 31; return l + d < 32 ? l + d : l; }
DEVICE float shuffle_xor(float v, int mask) { return from_bits(emulator::shuffle(to_bits(v), (emulator::thread() & 31) ^ mask)); }
DEVICE float shuffle_down(float v, int down) { return from_bits(emulator::shuffle(to_bits(v), lane_down(down))); }
DEVICE float shuffle_from(float v, int lane) { return from_bits(emulator::shuffle(to_bits(v), lane)); }
DEVICE int shuffle_xor(int v, int mask) { return emulator::shuffle(v, (emulator::thread() & 31) ^ mask); }
DEVICE int shuffle_down(int v, int down) { return emulator::shuffle(v, lane_down(down)); }
DEVICE int shuffle_from(int v, int lane) { return emulator::shuffle(v, lane); }
DEVICE u32 vote(bool v) { return emulator::vote(v); }
DEVICE u64 atomic_cas(u64 *p, u64 expected, u64 v) {
  __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
DEVICE u32 atomic_add(u32 *p, u32 v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
DEVICE u64 atomic_load(const u64 *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
DEVICE void atomic_store(u64 *p, u64 v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
DEVICE void copy_async4(float *to, const float *from, bool given = true) { emulator::copies().begin(to, from, 4, given); }
DEVICE void copy_async16(float *to, const float *from, bool given = true) { emulator::copies().begin(to, from, 16, given); }
DEVICE void copy_commit() { emulator::copies().commit(); }
template <int N> DEVICE void copy_wait() { emulator::copies().wait(N); }
DEVICE u32 to_tf32(float v) { return v != v ? 0x7fffffffu : (to_bits(v) + 0x1000) & 0xffffe000u; }
DEVICE u32 nearest_bf16(float v) { u32 b = to_bits(v); return v != v ? 0x7fff : (b + 0x7fff + (b >> 16 & 1)) >> 16; }
DEVICE u32 to_bf16(float v, float next) { return nearest_bf16(next) << 16 | nearest_bf16(v); }
DEVICE void multiply_tf32(float *d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) { emulator::multiply<1>(d, {{a0, a1, a2, a3}, {b0, b1}}); }
DEVICE void multiply_bf16(float *d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) { emulator::multiply<2>(d, {{a0, a1, a2, a3}, {b0, b1}}); }
DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float square_root(float v) { return std::sqrt(v); }
DEVICE double square_root(double v) { return std::sqrt(v); }

// A libcuda.so.1 without a device: the part of the driver's API that compute/cuda calls,
// over the emulator. FAKE_KERNELS names the header that includes every .cu file.
//
// It is as strict as a device is, or stricter. The host cannot read or write device
// memory, whose pages it may not touch unless a kernel or a copy runs; kernels get no
// addresses but of memory that is allocated; what lies behind an allocation is watched.
// Streams do nothing until somebody waits for them, so that what is used too early is
// not there yet; then whoever waits does what is queued on that stream, in its order, and
// streams that several wait for run side by side, with kernels, which the emulator has one of,
// in turn. fake_watch is told of what begins, and may keep it. Everything that is made and not given back is counted (fake_count).
// fake_fail lets calls fail, fake_set sets what a device has. GNNACTOR_FAKE_MUTANT names the
// mutant whose kernels take the others' place, if the library has any.
#include FAKE_KERNELS
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sys/mman.h>
#define API extern "C" __attribute__((visibility("default"))) int

namespace {
enum {
  SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201, INVALID_PTX = 218, INVALID_HANDLE = 400, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719,
};

std::recursive_mutex mutex;          // of all that follows; not held while a stream's work is done
std::condition_variable_any changed; // something on a stream was done
std::mutex computing;                // held by the kernel that runs
std::string report; // of the emulator, on what failed last

struct Device {
  uint64_t base;
  uint64_t memory = 1ull << 30;
  uint64_t used = 0, end = 0; // bytes allocated, and the highest address so far
  int retained = 0;           // of the primary context
  int lost = 0;               // the error that every call of this device's context returns
  std::map<uint64_t, size_t> allocations;
};
const uint64_t first_base = 1ull << 36, base_step = 1ull << 34, page = 4096, alignment = 256;
const unsigned char canary = 0xa5;
Device devices[4];
int device_count = 1, driver_version = 13000, capability = 80;
bool initialized;
thread_local Device *current;

struct Stream {
  Device *device;
  int priority;
  std::deque<std::function<int()>> work;
  uint64_t queued = 0, done = 0;
  bool running = false; // somebody does what is first in work
};
struct Event {
  Device *device;
  std::weak_ptr<Stream> stream; // that it was recorded in last
  uint64_t position = 0;        // in it
  bool recorded = false;
  double time = -1;             // seconds, once that is done; below 0 until then
};
struct Module { Device *device; };
std::map<void *, std::shared_ptr<Stream>> streams;
std::map<void *, std::shared_ptr<Event>> events;
uint64_t to_device, to_host; // bytes that were copied
uint64_t bytes_most;         // of all devices that were allocated at one time
std::set<Module *> modules;
std::map<uint64_t, size_t> pinned;
std::map<uint64_t, std::pair<size_t, unsigned>> registered; // memory of the host's, and how
size_t pinned_most; // bytes of both at one time
void count_pinned() {
  size_t n = 0;
  for (auto &p : pinned) n += p.second;
  for (auto &p : registered) n += p.second.first;
  pinned_most = std::max(pinned_most, n);
}
FILE *recording; // of launches, for replay.cc; null: none
std::map<std::string, int> recorded;
std::map<std::string, std::pair<long, int>> failures; // of a function: how many calls pass before it fails, and its error
std::map<std::string, long> calls;

void allow(uint64_t from, uint64_t to, bool access) {
  if (to > from) mprotect((void *)from, to - from, access ? PROT_READ | PROT_WRITE : PROT_NONE);
}
struct Access { // to all devices' memory, for as long as any of them lasts
  static inline int held = 0;
  Access() { if (!held++) for (auto &d : devices) allow(d.base, d.end, true); }
  ~Access() { if (!--held) for (auto &d : devices) allow(d.base, d.end, false); }
};
struct PartAccess { // to one allocation's pages, where all are not
  uint64_t from, to;
  PartAccess(uint64_t at, size_t n) : from(at), to(at + n) { allow(from, to, true); }
  ~PartAccess() { if (!Access::held) allow(from, to, false); }
};

// enter counts a call and says how it fails before it begins, or 0.
int enter(const char *function, bool in_context = true) {
  calls[function]++;
  auto f = failures.find(function);
  if (f != failures.end() && f->second.first-- == 0) {
    int code = f->second.second;
    failures.erase(f);
    if (current && (code == ILLEGAL_ADDRESS || code == LAUNCH_FAILED)) current->lost = code;
    return code;
  }
  if (!initialized) return NOT_INITIALIZED;
  if (!in_context) return SUCCESS;
  if (!current) return INVALID_CONTEXT;
  return current->lost;
}
#define ENTER(...) \
  std::lock_guard<std::recursive_mutex> held(mutex); \
  if (int wrong = enter(__func__, ##__VA_ARGS__)) return wrong;

long handles_of_blas();           // that there are
void forget_blas(const Device *d); // of a device, or all

bool in(const std::map<uint64_t, size_t> &m, uint64_t p, size_t n) {
  auto i = m.upper_bound(p);
  return i != m.begin() && (--i, p + n <= i->first + i->second);
}

// shown reports whether p is memory of the host's that kernels may read.
bool shown(uint64_t p) {
  auto i = registered.upper_bound(p);
  return i != registered.begin() && (--i, p < i->first + i->second.first && i->second.second & 2);
}

int broken(Device *d, int code, const std::string &what) {
  std::lock_guard<std::recursive_mutex> held(mutex);
  report = what;
  fprintf(stderr, "fake libcuda: %s\n", what.c_str());
  return d->lost = code;
}

// intact reports an allocation behind which something was written.
bool intact(std::pair<const uint64_t, size_t> a) {
  for (uint64_t p = a.first + a.second; p % alignment; p++)
    if (*(unsigned char *)p != canary) return false;
  return true;
}

// A launch is recorded with the memory before and after it that its parameters point to,
// if that is little and the launch not one of many of its kernel: for replay.cc. What
// nobody has written, which is poison, is left out.
const int recorded_blocks = 6, recorded_launches = 3;
const size_t recorded_bytes = 1 << 20, recorded_piece = 1 << 10;
void put(const void *p, size_t n) { fwrite(p, 1, n, recording); }
void put(uint64_t v) { put(&v, 8); }
using Memory = std::vector<std::pair<uint64_t, size_t>>;
Memory written(const Memory &m) {
  Memory w;
  static const std::string poison(recorded_piece, (char)0xff);
  for (auto &a : m)
    for (size_t at = 0; at < a.second; at += recorded_piece) {
      size_t n = std::min(recorded_piece, a.second - at);
      if (memcmp((void *)(a.first + at), poison.data(), n)) w.push_back({a.first + at, n});
    }
  return w;
}
void put_memory(const Memory &m) {
  Memory w = written(m);
  put(w.size());
  for (auto &a : w) put(a.first), put(a.second), put((void *)a.first, a.second);
}
// record returns the memory that is to be recorded after the launch, too.
Memory record(Device *d, const emulator::Kernel *k, unsigned gx, unsigned gy, unsigned threads, const std::vector<std::string> &values) {
  std::lock_guard<std::recursive_mutex> held(mutex);
  if (!recording || gx * gy > recorded_blocks || recorded[k->name] >= recorded_launches) return {};
  std::map<uint64_t, size_t> touched;
  for (auto &v : values)
    for (size_t i = 0; i + 8 <= v.size(); i += 8) {
      uint64_t p;
      memcpy(&p, &v[i], 8);
      if (shown(p)) return {}; // whose memory a replay does not have
      auto a = d->allocations.upper_bound(p);
      if (a != d->allocations.begin() && (--a, p < a->first + a->second)) touched.insert(*a);
    }
  Memory m(touched.begin(), touched.end());
  if (written(m).size() * recorded_piece > recorded_bytes) return {};
  recorded[k->name]++;
  put(strlen(k->name)), put(k->name, strlen(k->name));
  put(gx), put(gy), put(threads), put(values.size());
  for (auto &v : values) put(v.size()), put(v.data(), v.size());
  put(m.size());
  for (auto &a : m) put(a.first), put(a.second);
  put_memory(m);
  return m;
}

// watcher is told of each kernel and copy before it is done: of its name, stream, and what a copy reads.
using Watcher = void (*)(const char *, const void *, const void *, size_t);
std::atomic<Watcher> watcher;
void begins(const char *what, const void *stream, const void *from = nullptr, size_t bytes = 0) {
  if (auto w = watcher.load()) w(what, stream, from, bytes);
}

// run does what is queued on s up to a position, or waits for who does it.
int run(std::shared_ptr<Stream> s, uint64_t position) {
  if (s->done >= position) return s->device->lost;
  Access access;
  while (s->done < position) {
    if (s->running) {
      changed.wait(mutex);
      continue;
    }
    auto f = std::move(s->work.front());
    s->work.pop_front();
    int code = s->device->lost;
    if (!code) {
      s->running = true;
      mutex.unlock();
      code = f();
      mutex.lock();
      s->running = false;
    }
    s->done++;
    changed.notify_all();
    if (code) return code;
  }
  return s->device->lost;
}
int all(std::shared_ptr<Stream> s) { return run(s, s->queued); }
int everything(Device *d) {
  auto now = streams; // which others may change meanwhile
  for (auto &s : now)
    if (s.second->device == d)
      if (int code = all(s.second)) return code;
  return d->lost;
}
int queue(void *stream, std::function<int()> f) {
  auto s = streams.find(stream);
  if (s == streams.end()) return INVALID_HANDLE;
  s->second->work.push_back(std::move(f));
  s->second->queued++;
  return SUCCESS;
}
} // namespace

API fake_fail(const char *function, long after, int code) { std::lock_guard<std::recursive_mutex> held(mutex); failures[function] = {after, code}; return 0; }
API fake_set(const char *what, long v) {
  std::lock_guard<std::recursive_mutex> held(mutex);
  std::string w = what;
  if (w == "forget") { // what is held
    for (auto m : modules) delete m;
    for (auto &p : pinned) free((void *)p.first);
    modules.clear(), streams.clear(), events.clear(), pinned.clear(), registered.clear(), forget_blas(nullptr);
    for (auto &d : devices) d.allocations.clear(), d.used = d.retained = d.lost = 0;
  } else if (w == "devices") device_count = v;
  else if (w == "version") driver_version = v;
  else if (w == "capability") capability = v;
  else if (w == "memory") for (auto &d : devices) d.memory = v;
  else if (w == "reset") { // to what it was at first; nothing may be held
    failures.clear(); calls.clear(); report.clear(); watcher = nullptr; to_device = to_host = bytes_most = pinned_most = 0;
    device_count = 1, driver_version = 13000, capability = 80, initialized = false;
    for (auto &d : devices) d.memory = 1ull << 30, d.lost = 0;
  } else return INVALID_VALUE;
  return 0;
}
// fake_record records launches in a file, until it is called with null.
API fake_record(const char *path) {
  std::lock_guard<std::recursive_mutex> held(mutex);
  if (recording) fclose(recording);
  recorded.clear();
  recording = path ? fopen(path, "wb") : nullptr;
  return 0;
}
// fake_watch has a function called before each kernel and copy is done, on the thread that does it; null: none.
API fake_watch(Watcher w) { watcher = w; return 0; }
// fake_count counts what is held, of all devices, or the calls of a function.
extern "C" __attribute__((visibility("default"))) long fake_count(const char *what) {
  std::lock_guard<std::recursive_mutex> held(mutex);
  std::string w = what;
  long n = 0;
  if (w == "contexts") for (auto &d : devices) n += d.retained;
  else if (w == "allocations") for (auto &d : devices) n += d.allocations.size();
  else if (w == "bytes") for (auto &d : devices) n += d.used;
  else if (w == "bytes at most") n = bytes_most;
  else if (w == "pinned") n = pinned.size() + registered.size();
  else if (w == "pinned at most") n = pinned_most;
  else if (w == "streams") n = streams.size();
  else if (w == "urgent streams") for (auto &s : streams) n += s.second->priority < 0;
  else if (w == "events") n = events.size();
  else if (w == "modules") n = modules.size();
  else if (w == "handles") n = handles_of_blas();
  else if (w == "to device") n = to_device;
  else if (w == "to host") n = to_host;
  else n = calls[w];
  return n;
}

API cuInit(unsigned) {
  std::lock_guard<std::recursive_mutex> held(mutex);
  bool was = initialized;
  initialized = true;
  if (int wrong = enter("cuInit", false)) { initialized = was; return wrong; }
  return device_count ? SUCCESS : NO_DEVICE;
}
API cuDriverGetVersion(int *v) { *v = driver_version; return SUCCESS; }
API cuDeviceGetCount(int *n) { ENTER(false) *n = device_count; return SUCCESS; }
API cuDeviceGet(int *d, int ordinal) { ENTER(false) if (ordinal < 0 || ordinal >= device_count) return INVALID_DEVICE; *d = ordinal; return SUCCESS; }
API cuDeviceGetName(char *name, int n, int) { ENTER(false) snprintf(name, n, "emulated device"); return SUCCESS; }
API cuDeviceTotalMem_v2(size_t *n, int d) { ENTER(false) *n = devices[d].memory; return SUCCESS; }
API cuDeviceGetAttribute(int *v, int attribute, int) {
  ENTER(false)
  switch (attribute) {
  case 16: *v = 4; break; // multiprocessors
  case 75: *v = capability / 10; break;
  case 76: *v = capability % 10; break;
  default: return INVALID_VALUE;
  }
  return SUCCESS;
}
API cuDevicePrimaryCtxRetain(void **c, int d) {
  ENTER(false)
  Device *dev = &devices[d];
  if (!dev->base) {
    // At the same address in each run, unless something else lies there: the heap of Go begins anywhere.
    void *at = mmap((void *)(first_base + d * base_step), base_step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return OUT_OF_MEMORY;
    dev->end = dev->base = (uint64_t)at;
  }
  dev->retained++;
  *c = dev;
  return SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(int d) {
  ENTER(false)
  Device *dev = &devices[d];
  if (!dev->retained) return INVALID_CONTEXT;
  if (--dev->retained == 0 && dev->lost) { // what a lost context had goes with it
    Access access;
    for (auto i = streams.begin(); i != streams.end();) i = i->second->device == dev ? streams.erase(i) : std::next(i);
    for (auto i = events.begin(); i != events.end();) i = i->second->device == dev ? events.erase(i) : std::next(i);
    for (auto i = modules.begin(); i != modules.end();) {
      auto m = *i;
      i = m->device == dev ? (delete m, modules.erase(i)) : std::next(i);
    }
    for (auto &p : pinned) free((void *)p.first);
    pinned.clear();
    registered.clear();
    forget_blas(dev);
    dev->allocations.clear();
    dev->used = dev->lost = 0;
  }
  return SUCCESS;
}
API cuCtxSetCurrent(void *c) { std::lock_guard<std::recursive_mutex> held(mutex); current = (Device *)c; return enter("cuCtxSetCurrent", false); }

API cuModuleLoadData(void **m, const void *ptx) {
  ENTER()
  if (!strstr((const char *)ptx, ".visible .entry")) return INVALID_PTX;
  Module *mod = new Module{current};
  modules.insert(mod);
  *m = mod;
  return SUCCESS;
}
API cuModuleUnload(void *m) { ENTER() if (!modules.erase((Module *)m)) return INVALID_HANDLE; delete (Module *)m; return SUCCESS; }
API cuModuleGetFunction(void **f, void *m, const char *name) {
  ENTER()
  if (!modules.count((Module *)m)) return INVALID_HANDLE;
  const char *mutant = getenv("GNNACTOR_FAKE_MUTANT");
  *f = nullptr;
  for (auto k : emulator::Kernel::all())
    if (!strcmp(k->name, name) && (k->mutant == 0 ? !*f : mutant && k->mutant == atoi(mutant))) *f = k;
  return *f ? SUCCESS : NOT_FOUND;
}

API cuFuncGetAttribute(int *v, int what, void *f) { ENTER() *v = what == 4 ? 32 : 0; return f ? SUCCESS : INVALID_HANDLE; } // registers

API cuMemAlloc_v2(uint64_t *p, size_t n) {
  ENTER()
  if (!n) return INVALID_VALUE;
  size_t room = (n + page - 1) / page * page;
  Device *d = current;
  if (d->used + room > d->memory) return OUT_OF_MEMORY;
  // The first gap that holds it and a page that nobody may touch on either side.
  uint64_t at = d->base + page;
  for (auto &a : d->allocations) {
    uint64_t begin = a.first / page * page, end = (a.first + a.second + page - 1) / page * page;
    if (at + room + page <= begin) break;
    at = end + page;
  }
  if (at + room + page > d->base + base_step) return OUT_OF_MEMORY;
  d->end = std::max(d->end, at + room + page);
  PartAccess access(at, room);
  *p = at + (room - n) / alignment * alignment; // its last byte is near its page's
  memset((void *)at, 0xff, room);
  memset((void *)(*p + n), canary, at + room - (*p + n));
  d->allocations[*p] = n;
  d->used += room;
  uint64_t all = 0;
  for (auto &each : devices) all += each.used;
  bytes_most = std::max(bytes_most, all);
  return SUCCESS;
}
API cuMemFree_v2(uint64_t p) {
  ENTER()
  Device *d = current;
  auto a = d->allocations.find(p);
  if (a == d->allocations.end()) return INVALID_VALUE;
  int code = everything(d);
  size_t n = a->second, room = (n + page - 1) / page * page;
  PartAccess access(p / page * page, room);
  bool ok = intact(*a);
  d->used -= room;
  d->allocations.erase(a);
  madvise((void *)(p / page * page), room, MADV_DONTNEED);
  if (!ok) return broken(d, ILLEGAL_ADDRESS, "something was written behind an allocation of " + std::to_string(n) + " bytes");
  return code;
}
API cuMemHostAlloc(void **p, size_t n, unsigned) { ENTER() *p = aligned_alloc(page, (n + page - 1) / page * page); pinned[(uint64_t)*p] = n; count_pinned(); return SUCCESS; }
API cuMemFreeHost(void *p) {
  ENTER()
  if (!pinned.erase((uint64_t)p)) return INVALID_VALUE;
  int code = everything(current);
  free(p);
  return code;
}
// Memory of the host's that is registered lies where it lies, as with unified addresses.
API cuMemHostRegister_v2(void *p, size_t n, unsigned flags) {
  ENTER()
  auto i = registered.lower_bound((uint64_t)p + n);
  if (!n || flags & ~15u) return INVALID_VALUE;
  if (i != registered.begin() && (--i, i->first + i->second.first > (uint64_t)p)) return 712; // it is registered already
  registered[(uint64_t)p] = {n, flags};
  count_pinned();
  return SUCCESS;
}
API cuMemHostUnregister(void *p) {
  ENTER()
  int code = everything(current);
  return registered.erase((uint64_t)p) ? code : 713;
}
API cuMemHostGetDevicePointer_v2(uint64_t *at, void *p, unsigned) {
  ENTER()
  auto i = registered.find((uint64_t)p);
  if (i == registered.end() || !(i->second.second & 2)) return INVALID_VALUE;
  *at = (uint64_t)p;
  return SUCCESS;
}

API cuStreamCreateWithPriority(void **s, unsigned, int priority) { ENTER() auto p = std::make_shared<Stream>(); p->device = current; p->priority = priority; streams[p.get()] = p; *s = p.get(); return SUCCESS; }
API cuStreamDestroy_v2(void *s) {
  ENTER()
  auto i = streams.find(s);
  if (i == streams.end()) return INVALID_HANDLE;
  int code = all(i->second);
  streams.erase(s);
  return code;
}
API cuStreamSynchronize(void *s) { ENTER() auto i = streams.find(s); return i == streams.end() ? INVALID_HANDLE : all(i->second); }

API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *s) {
  ENTER()
  if (!in(current->allocations, to, n)) return INVALID_VALUE;
  to_device += n;
  if (in(pinned, (uint64_t)from, n)) return queue(s, [=] { begins("to device", s, from, n); memcpy((void *)to, from, n); return SUCCESS; });
  auto copy = std::make_shared<std::string>((const char *)from, n); // as the driver does with memory that is not pinned
  return queue(s, [=] { begins("to device", s, copy->data(), n); memcpy((void *)to, copy->data(), n); return SUCCESS; });
}
API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *s) {
  ENTER()
  if (!in(current->allocations, from, n)) return INVALID_VALUE;
  to_host += n;
  int code = queue(s, [=] { begins("to host", s, (void *)from, n); memcpy(to, (void *)from, n); return SUCCESS; });
  if (code || in(pinned, (uint64_t)to, n)) return code;
  return all(streams[s]);
}
API cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **p, void **extra) {
  ENTER()
  auto k = (emulator::Kernel *)f;
  if (!gx || !gy || gz != 1 || gy > 65535 || !bx || bx > 1024 || bx % 32 || by != 1 || bz != 1 || shared || extra) return INVALID_VALUE;
  std::vector<std::string> values;
  for (size_t i = 0; i < k->sizes.size(); i++) {
    values.emplace_back((const char *)p[i], k->sizes[i] ? k->sizes[i] : 8);
    uint64_t at = 0;
    if (!k->sizes[i]) memcpy(&at, p[i], 8);
    if (at && !in(current->allocations, at, 1) && !shown(at)) {
      char what[200];
      snprintf(what, sizeof what, "kernel %s, parameter %zu: %#llx is no address of the device's memory", k->name, i, (unsigned long long)at);
      return broken(current, ILLEGAL_ADDRESS, what);
    }
  }
  Device *d = current;
  return queue(s, [=]() mutable {
    begins(k->name, s);
    std::lock_guard<std::mutex> alone(computing);
    std::vector<void *> pointers;
    for (auto &v : values) pointers.push_back(v.data());
    Memory kept = record(d, k, gx, gy, bx, values);
    const char *wrong = emulator::launch(k, {(int)gx, (int)gy, (int)bx}, pointers.data());
    if (!kept.empty()) put_memory(kept);
    if (wrong) return broken(d, LAUNCH_FAILED, std::string("kernel ") + k->name + ": " + wrong);
    return (int)SUCCESS;
  });
}

// An event is done when everything is that was in its stream before it.
API cuEventCreate(void **e, unsigned) { ENTER() auto p = std::make_shared<Event>(); p->device = current; events[p.get()] = p; *e = p.get(); return SUCCESS; }
API cuEventDestroy_v2(void *e) { ENTER() return events.erase(e) ? SUCCESS : INVALID_HANDLE; }
API cuEventRecord(void *e, void *s) {
  ENTER()
  auto i = events.find(e);
  auto in = streams.find(s);
  if (i == events.end() || in == streams.end()) return INVALID_HANDLE;
  auto event = i->second;
  event->time = -1;
  event->recorded = true;
  event->stream = in->second;
  event->position = in->second->queued + 1;
  return queue(s, [event, at = event->position] {
    std::lock_guard<std::recursive_mutex> held(mutex);
    if (event->position == at) event->time = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    return (int)SUCCESS;
  });
}
API cuEventSynchronize(void *e) {
  ENTER()
  auto i = events.find(e);
  if (i == events.end()) return INVALID_HANDLE;
  auto s = i->second->stream.lock();
  return s ? run(s, i->second->position) : current->lost;
}
API cuEventElapsedTime(float *milliseconds, void *from, void *to) {
  ENTER()
  auto a = events.find(from), b = events.find(to);
  if (a == events.end() || b == events.end()) return INVALID_HANDLE;
  if (!a->second->recorded || !b->second->recorded) return INVALID_HANDLE;
  if (a->second->time < 0 || b->second->time < 0) return 600; // CUDA_ERROR_NOT_READY
  *milliseconds = (b->second->time - a->second->time) * 1000;
  return SUCCESS;
}

#include "blas.cc"

API cuGetErrorName(int code, const char **s) {
  switch (code) {
  case OUT_OF_MEMORY: *s = "CUDA_ERROR_OUT_OF_MEMORY"; break;
  case NO_DEVICE: *s = "CUDA_ERROR_NO_DEVICE"; break;
  case INVALID_PTX: *s = "CUDA_ERROR_INVALID_PTX"; break;
  case ILLEGAL_ADDRESS: *s = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
  case LAUNCH_FAILED: *s = "CUDA_ERROR_LAUNCH_FAILED"; break;
  default: *s = "CUDA_ERROR_OF_THE_FAKE";
  }
  return SUCCESS;
}
API cuGetErrorString(int code, const char **s) {
  static std::string words;
  std::lock_guard<std::recursive_mutex> held(mutex);
  switch (code) {
  case OUT_OF_MEMORY: words = "out of memory"; break;
  case NO_DEVICE: words = "no CUDA-capable device is detected"; break;
  case INVALID_PTX: words = "a PTX JIT compilation failed"; break;
  case ILLEGAL_ADDRESS: words = "an illegal memory access was encountered"; break;
  case LAUNCH_FAILED: words = "unspecified launch failure"; break;
  default: words = "error " + std::to_string(code); break;
  }
  if (!report.empty() && (code == ILLEGAL_ADDRESS || code == LAUNCH_FAILED)) words += " (" + report + ")";
  *s = words.c_str();
  return SUCCESS;
}

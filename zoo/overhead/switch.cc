// A profiler plugin in front of others, to measure one process with each of them in turn. Differences from process to process
// (cores, memory, clocks), 30 % at small operations, then affect all alike.
//
//   g++ -O2 -fPIC -shared switch.cc -o libswitch.so
//   OVERHEAD_VARIANTS='none=;ours=/path/libringleader_nccl.so@RINGLEADER_RING_DIR=/tmp/a;calls=0x600' NCCL_PROFILER_PLUGIN=...
//
// A variant has a name and a value: nothing (NCCL is asked for no event), a mask (NCCL is asked for these events, which are
// ignored: NCCL's own cost), or a library of interface 5 with variables for its start. `overhead_use(n)` switches to the n-th;
// the caller ensures that nothing is in flight. NCCL calls through the table below, so a library's own functions are called
// as without the switch. Only the start of an event first looks up the context: a nanosecond.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
struct Profiler {
  const char *name;
  int (*init)(void **, uint64_t, int *, const char *, int, int, int, void *);
  int (*start)(void *, void **, void *);
  int (*stop)(void *);
  int (*record)(void *, int, void *);
  int (*finalize)(void *);
};
int overhead_use(int variant);
}

namespace {

struct Variant {
  std::string name;
  Profiler *library = nullptr;
  std::vector<std::string> variables;  // KEY=VALUE
  int mask = 0;
};

std::vector<Variant> variants;
int current = 0;
int *nccl_mask = nullptr;

int start_nothing(void *, void **handle, void *) {
  *handle = reinterpret_cast<void *>(8);
  return 0;
}
int stop_nothing(void *) { return 0; }
int record_nothing(void *, int, void *) { return 0; }

int start(void *contexts, void **handle, void *descriptor) {
  *handle = nullptr;  // NCCL keeps the last handle, maybe another variant's, and not every library sets it
  return variants[current].library->start(static_cast<void **>(contexts)[current], handle, descriptor);
}

void read_variants() {
  const char *told = std::getenv("OVERHEAD_VARIANTS");
  std::stringstream list(told ? told : "none=");
  for (std::string item; std::getline(list, item, ';');) {
    size_t equals = item.find('=');
    if (equals == std::string::npos) continue;
    Variant variant;
    variant.name = item.substr(0, equals);
    std::stringstream parts(item.substr(equals + 1));
    std::string what;
    std::getline(parts, what, '@');
    for (std::string variable; std::getline(parts, variable, '@');) variant.variables.push_back(variable);
    if (what.rfind("0x", 0) == 0) {
      variant.mask = static_cast<int>(std::strtol(what.c_str(), nullptr, 16));
    } else if (!what.empty()) {
      void *library = dlopen(what.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library) variant.library = static_cast<Profiler *>(dlsym(library, "ncclProfiler_v5"));
      if (!variant.library) {
        std::fprintf(stderr, "switch: %s: %s\n", what.c_str(), dlerror());
        std::exit(1);
      }
    }
    variants.push_back(variant);
  }
}

int init(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, void *log) {
  if (variants.empty()) read_variants();
  bool is_first = nccl_mask == nullptr;
  if (!is_first) variants[current].mask = *mask;
  nccl_mask = mask;
  void **contexts = new void *[variants.size()]();
  for (size_t i = 0; i < variants.size(); i++) {
    Variant &variant = variants[i];
    if (!variant.library) continue;
    for (const std::string &variable : variant.variables) {
      size_t equals = variable.find('=');
      setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
    }
    *mask = 0;
    variant.library->init(&contexts[i], id, mask, name, nodes, ranks, rank, log);
    variant.mask = *mask;
    for (const std::string &variable : variant.variables) unsetenv(variable.substr(0, variable.find('=')).c_str());
  }
  *context = contexts;
  *mask = variants[current].mask;
  return 0;
}

int finalize(void *contexts) {
  for (size_t i = 0; i < variants.size(); i++)
    if (variants[i].library) variants[i].library->finalize(static_cast<void **>(contexts)[i]);
  return 0;
}

}  // namespace

extern "C" {

Profiler ncclProfiler_v5 = {"switch", init, start_nothing, stop_nothing, record_nothing, finalize};

// Returns the number of variants; none if there is no communicator yet. A library keeps the mask that it has set itself.
int overhead_use(int variant) {
  int count = static_cast<int>(variants.size());
  if (!nccl_mask || variant < 0 || variant >= count) return nccl_mask ? count : 0;
  variants[current].mask = *nccl_mask;
  __atomic_store_n(nccl_mask, 0, __ATOMIC_SEQ_CST);
  current = variant;
  Profiler *library = variants[variant].library;
  ncclProfiler_v5.start = library ? start : start_nothing;
  ncclProfiler_v5.stop = library ? library->stop : stop_nothing;
  ncclProfiler_v5.record = library ? library->record : record_nothing;
  __atomic_store_n(nccl_mask, variants[variant].mask, __ATOMIC_SEQ_CST);
  return count;
}
}

/* A second profiler plugin, for the tests of `next`: it follows the pointers that it is given, so a handle that is not its own
 * ends the process, and counts what it sees. VERSION is its interface (5 or 6). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x5ec0ed01u

struct object { uint32_t magic; uint32_t is_open; uint64_t type; struct object *next; };
struct descriptor {
  uint64_t type;
  void *parent;
  int rank;
  union { uint8_t bytes[112]; struct { uint8_t before[80]; void *group; } coll; struct { uint8_t before[40]; void *group; } p2p; } of;
};

static struct { uint64_t inits, ends, starts, stops, records, wrong, types; } counts;
static struct object *unused;
static volatile int lock;

static void enter(void) { while (__sync_lock_test_and_set(&lock, 1)) {} }
static void leave(void) { __sync_lock_release(&lock); }

/* A pointer of ours, or null. */
static void check(void *handle) {
  struct object *object = handle;
  if (object != NULL && object->magic != MAGIC) counts.wrong++;
}

static struct object *make(uint64_t type) {
  struct object *object = unused;
  if (object) unused = object->next; else object = malloc(sizeof *object);
  memset(object, 0, sizeof *object);
  object->magic = MAGIC;
  object->is_open = 1;
  object->type = type;
  return object;
}

static int init(void **context, uint64_t id, int *mask, const char *name, int nodes, int size, int rank, void *logger) {
  const char *asked = getenv("SECOND_MASK");
  (void)id; (void)name; (void)nodes; (void)size; (void)rank; (void)logger;
  if (getenv("SECOND_FAILS")) return 3;
  enter();
  counts.inits++;
  *context = make(0);
  *mask = asked ? (int)strtol(asked, NULL, 0) : 0;
  leave();
  return 0;
}

static int start(void *context, void **handle, struct descriptor *d) {
  enter();
  check(context);
  check(d->parent);
  if (d->type == 2) check(d->of.coll.group);
  if (d->type == 4) check(d->of.p2p.group);
  counts.starts++;
  counts.types |= d->type;
  /* Like Inspector it has no use for groups. */
  *handle = d->type == 1 ? NULL : make(d->type);
  leave();
  return 0;
}

static int stop(void *handle) {
  struct object *object = handle;
  enter();
  check(object);
  counts.stops++;
  /* Kernels and steps are nobody's parents: their addresses are given out again. */
  if (!object->is_open) counts.wrong++;
  else if (object->type == 64 || object->type == 16) { object->next = unused; unused = object; }
  object->is_open = 0;
  leave();
  return 0;
}

static int record(void *handle, int state, void *args) {
  (void)state; (void)args;
  enter();
  check(handle);
  if (!((struct object *)handle)->is_open) counts.wrong++;
  counts.records++;
  leave();
  return 0;
}

static int finalize(void *context) {
  enter();
  check(context);
  counts.ends++;
  leave();
  return 0;
}

struct table { const char *name; void *init, *start, *stop, *record, *finalize; };
#define NAME_(version) ncclProfiler_v##version
#define NAME(version) NAME_(version)
struct table NAME(VERSION) = { "second", init, start, stop, record, finalize };

void second_counts(uint64_t *to) { memcpy(to, &counts, sizeof counts); }

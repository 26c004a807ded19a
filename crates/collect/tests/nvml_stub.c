/* A stand-in for NVIDIA's NVML library: answers like a node with two H200 GPUs, as recorded by nvidia-smi -q.
 * Compiled with -DFAULT="..." for one fault: hang-init, hang-gpu, mismatch, not-loaded, lost, faults. Signatures are
 * those of nvml.h. */
#ifndef FAULT
#define FAULT ""
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, SIZE = 7, NOT_LOADED = 9, LOST = 15, MISMATCH = 18, VERSION = 25 };
enum { N_GPUS = 2, N_LINKS = 18 };
typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { u32 index; } *device;
static struct { u32 index; } gpus[N_GPUS] = { { 0 }, { 1 } };

static int is(const char *fault) { return !strcmp(FAULT, fault); }
static void hang(void) { for (;;) pause(); }
static int text(char *to, u32 size, const char *from) {
    if (strlen(from) + 1 > size) return SIZE;
    strcpy(to, from);
    return OK;
}

int nvmlInit_v2(void) {
    if (is("hang-init")) hang();
    return is("mismatch") ? MISMATCH : is("not-loaded") ? NOT_LOADED : OK;
}
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *v, u32 n) { return text(v, n, "580.159.04"); }
int nvmlSystemGetNVMLVersion(char *v, u32 n) { return text(v, n, "13.580.159.04"); }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return OK; }
int nvmlDeviceGetCount_v2(u32 *n) { *n = N_GPUS; return OK; }
int nvmlDeviceGetHandleByIndex_v2(u32 i, device *d) {
    if (i >= N_GPUS) return INVALID;
    if (i == 1 && is("lost")) return LOST;
    *d = (device)&gpus[i];
    return OK;
}

typedef struct {
    char legacy[16];
    u32 domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} pci_info;
int nvmlDeviceGetPciInfo_v3(device d, pci_info *p) {
    memset(p, 0, sizeof *p);
    p->device = 6 + d->index;
    snprintf(p->busId, sizeof p->busId, "00000000:00:%02X.0", p->device);
    return OK;
}
int nvmlDeviceGetUUID(device d, char *v, u32 n) {
    return text(v, n, d->index ? "GPU-cdfc3eb6-7b0c-8315-a53d-8417923ab1df" : "GPU-fc51bf99-dcae-36ea-0335-328363b23d48");
}
int nvmlDeviceGetName(device d, char *v, u32 n) { return text(v, n, "NVIDIA H200"); }
int nvmlDeviceGetSerial(device d, char *v, u32 n) { return text(v, n, "1650000000000"); }
int nvmlDeviceGetVbiosVersion(device d, char *v, u32 n) { return text(v, n, "96.00.A5.00.01"); }
int nvmlDeviceGetPowerUsage(device d, u32 *v) {
    if (d->index == 1 && is("hang-gpu")) hang();
    *v = 77030;
    return OK;
}
int nvmlDeviceGetEnforcedPowerLimit(device d, u32 *v) { *v = 700000; return OK; }
int nvmlDeviceGetPowerManagementDefaultLimit(device d, u32 *v) { *v = 700000; return OK; }
int nvmlDeviceGetTemperature(device d, int sensor, u32 *v) { *v = 34; return OK; }
int nvmlDeviceGetTemperatureThreshold(device d, int kind, u32 *v) { return NOT_SUPPORTED; }
typedef struct { u32 version; int margin; } margin;
int nvmlDeviceGetMarginTemperature(device d, margin *m) {
    if (m->version != (sizeof *m | 1u << 24)) return VERSION;
    m->margin = 51;
    return OK;
}
typedef struct { u32 gpu, memory; } utilization;
int nvmlDeviceGetUtilizationRates(device d, utilization *v) { v->gpu = 0; v->memory = 0; return OK; }
int nvmlDeviceGetClockInfo(device d, int kind, u32 *v) { *v = kind == 2 ? 3201 : 1980; return OK; }
int nvmlDeviceGetMaxClockInfo(device d, int kind, u32 *v) { *v = 1980; return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(device d, u64 *v) { *v = is("faults") && d->index ? 0x48 : 1; return OK; }
int nvmlDeviceGetPerformanceState(device d, int *v) { *v = 0; return OK; }
int nvmlDeviceGetPersistenceMode(device d, int *v) { *v = 1; return OK; }
int nvmlDeviceGetComputeMode(device d, int *v) { *v = 0; return OK; }
int nvmlDeviceGetMigMode(device d, u32 *now, u32 *pending) { *now = *pending = 0; return OK; }
typedef struct { u32 version; u64 total, reserved, free, used; } memory;
int nvmlDeviceGetMemoryInfo_v2(device d, memory *m) {
    if (m->version != (sizeof *m | 2u << 24)) return VERSION;
    m->total = 143771ull << 20; m->reserved = 612ull << 20; m->used = 0; m->free = m->total - m->reserved;
    return OK;
}
int nvmlDeviceGetEccMode(device d, int *now, int *pending) { *now = *pending = 1; return OK; }
static u64 errors(device d, int error, int counter) { return is("faults") && d->index && error == 1 && counter == 0 ? 2 : 0; }
int nvmlDeviceGetMemoryErrorCounter(device d, int error, int counter, int at, u64 *v) {
    *v = at == 2 ? errors(d, error, counter) : 0;
    return OK;
}
int nvmlDeviceGetTotalEccErrors(device d, int error, int counter, u64 *v) { *v = errors(d, error, counter); return OK; }
int nvmlDeviceGetRemappedRows(device d, u32 *c, u32 *u, u32 *pending, u32 *failed) {
    *c = *failed = 0;
    *u = *pending = is("faults") && d->index;
    return OK;
}
typedef struct { u32 max, high, partial, low, none; } histogram;
int nvmlDeviceGetRowRemapperHistogram(device d, histogram *h) {
    *h = (histogram){ 3072, 0, 0, 0, 0 };
    return OK;
}
int nvmlDeviceGetCurrPcieLinkGeneration(device d, u32 *v) { *v = 5; return OK; }
int nvmlDeviceGetMaxPcieLinkGeneration(device d, u32 *v) { *v = 5; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(device d, u32 *v) { *v = 16; return OK; }
int nvmlDeviceGetMaxPcieLinkWidth(device d, u32 *v) { *v = 16; return OK; }
int nvmlDeviceGetPcieReplayCounter(device d, u32 *v) { *v = 0; return OK; }
typedef struct {
    u32 version;
    unsigned char cluster[16];
    u32 status, clique;
    unsigned char state;
    u32 health;
} fabric_v2;
/* This library knows version 2 of the answer alone. */
int nvmlDeviceGetGpuFabricInfoV(device d, fabric_v2 *f) {
    if (f->version != (sizeof *f | 2u << 24)) return VERSION;
    f->status = 0; f->clique = 0; f->state = 3; f->health = 0;
    memset(f->cluster, 0, sizeof f->cluster);
    return OK;
}
typedef struct { u32 pid; u64 memory; u32 gi, ci; } process;
int nvmlDeviceGetComputeRunningProcesses_v3(device d, u32 *n, process *p) {
    if (d->index) { *n = 0; return OK; }
    if (*n < 1 || !p) { *n = 1; return SIZE; }
    *n = 1;
    *p = (process){ 4711, 512ull << 20, 0xffffffffu, 0xffffffffu };
    return OK;
}

int nvmlDeviceGetNvLinkState(device d, u32 link, int *up) {
    if (link >= N_LINKS) return INVALID;
    *up = !(is("faults") && d->index && link == 7);
    return OK;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(device d, u32 link, pci_info *p) {
    memset(p, 0, sizeof *p);
    strcpy(p->busId, "00000000:05:00.0");
    return OK;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(device d, u32 link, u32 *kind) { *kind = 2; return OK; }
typedef struct {
    u32 id, scope;
    long long timestamp, latency;
    u32 type, result;
    union { u32 ui; int si; u64 ull; } value;
} field;
int nvmlDeviceGetFieldValues(device d, int n, field *f) {
    static u64 looks;
    for (; n--; f++) {
        f->result = OK;
        f->type = 1;
        f->value.ull = 0;
        switch (f->id) {
        case 82: f->value.ui = 42; break;
        case 91: f->value.ui = N_LINKS; break;
        case 194: f->type = 5; f->value.si = -2; break;
        case 230: f->value.ui = is("faults") && d->index ? 1 : 0; break;
        case 161: case 162: case 163:
            f->type = 3;
            if (is("faults") && d->index && f->id == 162 && f->scope == 3) f->value.ull = ++looks;
            break;
        default: f->result = NOT_SUPPORTED;
        }
    }
    return OK;
}

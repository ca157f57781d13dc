/* A stand-in for libnvidia-ml.so.1: the real bindings call it through the real ABI.
 *
 * What it answers comes from FAKE_NVML, or from the file "scenario" beside the library:
 * words "key=value" separated by ';' or newlines. A key may begin with "gpu3." for one GPU.
 *   gpus=8  init_ret=18  init_ms=300  ret.nvmlDeviceGetRemappedRows=999  gpu3.ret_all=15
 *   gpu2.hang_ms=60000 (every call on that GPU)  gpu5.remap_pending=1  gpu4.fi230=2
 * With -DOLD_DRIVER the newer calls do not exist. A structure of an unknown version gets 25.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GPUS 64
typedef struct { int index; } gpu_t;
typedef unsigned int uint;
typedef unsigned long long u64;
static gpu_t gpus[GPUS];
static char scenario[16384];

static void load(void) {
    Dl_info here;
    char path[4096];
    const char *text = getenv("FAKE_NVML");
    if (text) { snprintf(scenario, sizeof scenario, ";%s;", text); return; }
    if (!dladdr((void *)load, &here) || !here.dli_fname) return;
    snprintf(path, sizeof path - 16, "%s", here.dli_fname);
    char *slash = strrchr(path, '/');
    strcpy(slash ? slash + 1 : path, "scenario");
    FILE *file = fopen(path, "r");
    if (!file) return;
    scenario[0] = ';';
    size_t got = fread(scenario + 1, 1, sizeof scenario - 3, file);
    scenario[got + 1] = ';';
    fclose(file);
    for (char *at = scenario; *at; at++) if (*at == '\n') *at = ';';
}

static const char *word(const char *key) {
    char wanted[160];
    snprintf(wanted, sizeof wanted, ";%s=", key);
    const char *at = strstr(scenario, wanted);
    return at ? at + strlen(wanted) : NULL;
}

static long long get(const gpu_t *gpu, const char *key, long long fallback) {
    char own[160];
    const char *at = NULL;
    if (gpu) { snprintf(own, sizeof own, "gpu%d.%s", gpu->index, key); at = word(own); }
    if (!at) at = word(key);
    return at ? strtoll(at, NULL, 0) : fallback;
}

static void text(const gpu_t *gpu, const char *key, const char *fallback, char *into, uint length) {
    char own[160];
    const char *at = NULL;
    if (gpu) { snprintf(own, sizeof own, "gpu%d.%s", gpu->index, key); at = word(own); }
    if (!at) at = word(key);
    if (at) snprintf(into, length, "%.*s", (int)strcspn(at, ";"), at);
    else snprintf(into, length, fallback, gpu ? gpu->index : 0);
}

static void pause_ms(long long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    if (ms > 0) nanosleep(&t, NULL);
}

/* the code that the scenario forces on this call, or 0 */
static int forced(const gpu_t *gpu, const char *name) {
    char key[128];
    if (gpu) {
        if (gpu < gpus || gpu >= gpus + GPUS) return 2;
        pause_ms(get(gpu, "hang_ms", 0));
        int all = (int)get(gpu, "ret_all", 0);
        if (all) return all;
    }
    snprintf(key, sizeof key, "ret.%s", name);
    return (int)get(gpu, key, 0);
}
#define CALL(gpu) do { int code = forced(gpu, __func__); if (code) return code; } while (0)
#define NUMBER(name, key, fallback) \
    int name(gpu_t *gpu, uint *out) { CALL(gpu); *out = (uint)get(gpu, key, fallback); return 0; }

int nvmlInitWithFlags(uint flags) {
    (void)flags;
    load();
    for (int i = 0; i < GPUS; i++) gpus[i].index = i;
    pause_ms(get(NULL, "init_ms", 0));
    return (int)get(NULL, "init_ret", 0);
}
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { (void)code; return "as the scenario wanted"; }
int nvmlSystemGetDriverVersion(char *into, uint n) { CALL(NULL); text(NULL, "driver", "570.172.08", into, n); return 0; }
int nvmlSystemGetNVMLVersion(char *into, uint n) { CALL(NULL); text(NULL, "nvml", "12.570.172.08", into, n); return 0; }
int nvmlSystemGetCudaDriverVersion(int *out) { CALL(NULL); *out = (int)get(NULL, "cuda", 12080); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { CALL(NULL); *out = (int)get(NULL, "cuda", 12080); return 0; }
int nvmlDeviceGetCount_v2(uint *out) { CALL(NULL); *out = (uint)get(NULL, "gpus", 8); return 0; }
int nvmlDeviceGetHandleByIndex_v2(uint index, gpu_t **out) {
    if (index >= GPUS || index >= (uint)get(NULL, "gpus", 8)) return 2;
    CALL(&gpus[index]);
    *out = &gpus[index];
    return 0;
}
int nvmlDeviceGetName(gpu_t *gpu, char *into, uint n) { CALL(gpu); text(gpu, "name", "NVIDIA H100 80GB HBM3", into, n); return 0; }
int nvmlDeviceGetUUID(gpu_t *gpu, char *into, uint n) {
    CALL(gpu); text(gpu, "uuid", "GPU-00000000-0000-0000-0000-00000000000%d", into, n); return 0;
}
int nvmlDeviceGetSerial(gpu_t *gpu, char *into, uint n) { CALL(gpu); text(gpu, "serial", "165000000000%d", into, n); return 0; }
int nvmlDeviceGetVbiosVersion(gpu_t *gpu, char *into, uint n) { CALL(gpu); text(gpu, "vbios", "96.00.A5.00.01", into, n); return 0; }
NUMBER(nvmlDeviceGetMinorNumber, "minor", gpu->index)

struct pci { char legacy[16]; uint domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(gpu_t *gpu, struct pci *out) {
    CALL(gpu);
    memset(out, 0, sizeof *out);
    out->bus = 0x53 + 0x10 * gpu->index;
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", out->bus);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    return 0;
}

int nvmlDeviceGetRemappedRows(gpu_t *gpu, uint *cor, uint *unc, uint *pending, uint *failure) {
    CALL(gpu);
    *cor = (uint)get(gpu, "remap_cor", 0);
    *unc = (uint)get(gpu, "remap_unc", 0);
    *pending = (uint)get(gpu, "remap_pending", 0);
    *failure = (uint)get(gpu, "remap_failure", 0);
    return 0;
}
int nvmlDeviceGetRowRemapperHistogram(gpu_t *gpu, uint out[5]) {
    CALL(gpu);
    uint none = (uint)get(gpu, "hist_none", 0);
    out[0] = 640 - none; out[1] = out[2] = out[3] = 0; out[4] = none;
    return 0;
}
int nvmlDeviceGetEccMode(gpu_t *gpu, uint *now, uint *next) {
    CALL(gpu);
    *now = (uint)get(gpu, "ecc_mode", 1);
    *next = (uint)get(gpu, "ecc_next", *now);
    return 0;
}
int nvmlDeviceGetTotalEccErrors(gpu_t *gpu, uint kind, uint life, u64 *out) {
    static const char *keys[2][2] = {{"ecc_vc", "ecc_ac"}, {"ecc_vu", "ecc_au"}};
    CALL(gpu);
    if (kind > 1 || life > 1) return 2;
    *out = (u64)get(gpu, keys[kind][life], 0);
    return 0;
}
/* Before Ampere only: elsewhere not supported */
int nvmlDeviceGetRetiredPages(gpu_t *gpu, uint cause, uint *count, u64 *pages) {
    CALL(gpu);
    long long there = get(gpu, cause ? "retired_double" : "retired_single", -1);
    if (there < 0) return 3;
    if (!pages) { *count = (uint)there; return there ? 7 : 0; }
    if (*count < there) return 7;
    for (long long i = 0; i < there; i++) pages[i] = 0x1000 * (u64)(i + 1);
    *count = (uint)there;
    return 0;
}
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending", 0)

int nvmlDeviceGetNvLinkState(gpu_t *gpu, uint link, uint *out) {
    CALL(gpu);
    if (link >= get(gpu, "links", 18)) return 2;
    *out = !(get(gpu, "nvlink_down_mask", 0) >> link & 1);
    return 0;
}
int nvmlDeviceGetNvLinkErrorCounter(gpu_t *gpu, uint link, uint counter, u64 *out) {
    static const char *keys[] = {"link_replay", "link_recovery", "link_crc", "link_crc_data"};
    CALL(gpu);
    if (link >= get(gpu, "links", 18) || counter > 3) return 2;
    *out = link == get(gpu, "bad_link", 0) ? (u64)get(gpu, keys[counter], 0) : 0;
    return 0;
}
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, "clocks", 1)
int nvmlDeviceGetUtilizationRates(gpu_t *gpu, uint *out) {
    CALL(gpu); out[0] = (uint)get(gpu, "use", 0); out[1] = 0; return 0;
}
NUMBER(nvmlDeviceGetPowerUsage, "power", 71000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit", 700000)
int nvmlDeviceGetMemoryInfo(gpu_t *gpu, u64 *out) {
    CALL(gpu); out[0] = 80ULL << 30; out[2] = (u64)get(gpu, "memory_used", 4) << 20; out[1] = out[0] - out[2]; return 0;
}
int nvmlDeviceGetClockInfo(gpu_t *gpu, uint type, uint *out) {
    CALL(gpu); (void)type; *out = (uint)get(gpu, "sm_clock", 345); return 0;
}
int nvmlDeviceGetTemperature(gpu_t *gpu, uint sensor, uint *out) {
    CALL(gpu); (void)sensor; *out = (uint)get(gpu, "temperature", 34); return 0;
}
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen", 5)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max", 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", 16)
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie_replay", 0)
NUMBER(nvmlDeviceGetPersistenceMode, "persistence", 1)
int nvmlDeviceGetMigMode(gpu_t *gpu, uint *now, uint *next) {
    CALL(gpu);
    *now = (uint)get(gpu, "mig", 0);
    *next = *now;
    return 0;
}

struct process { uint pid; u64 memory; uint gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(gpu_t *gpu, uint *count, struct process *out) {
    CALL(gpu);
    uint pid = (uint)get(gpu, "pid", 0);
    if (!pid) { *count = 0; return 0; }
    if (!out || !*count) { *count = 1; return 7; }
    memset(out, 0, sizeof *out);
    out->pid = pid;
    *count = 1;
    return 0;
}

struct field { uint id, scope; long long timestamp, latency; uint type, code; union { double d; uint u; u64 ull; } value; };
int nvmlDeviceGetFieldValues(gpu_t *gpu, int count, struct field *out) {
    CALL(gpu);
    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "fi%u", out[i].id);
        long long links = get(gpu, "links", 18);
        long long fallback = out[i].id == 91 ? links : out[i].id == 90 ? 26562 : out[i].id == 230 ? 0 : -1;
        long long value = get(gpu, key, fallback);
        snprintf(key, sizeof key, "fi%u_ret", out[i].id);
        out[i].code = (uint)get(gpu, key, value < 0 ? 3 : 0);
        out[i].type = out[i].id == 90 || out[i].id == 91 || out[i].id == 230 ? 1 : 3;
        if (out[i].type == 1) out[i].value.u = (uint)value; else out[i].value.ull = (u64)value;
    }
    return 0;
}

#ifndef OLD_DRIVER
struct sram { uint version; u64 counts[11]; uint exceeded; };
int nvmlDeviceGetSramEccErrorStatus(gpu_t *gpu, struct sram *out) {
    CALL(gpu);
    if (out->version != 0x01000068 || sizeof *out != 104) return 25;
    out->exceeded = (uint)get(gpu, "sram_exceeded", 0);
    return 0;
}
struct fabric { uint version; unsigned char cluster[16]; uint status, clique, state, mask; unsigned char summary; };
int nvmlDeviceGetGpuFabricInfoV(gpu_t *gpu, struct fabric *out) {
    CALL(gpu);
    uint newest = (uint)get(NULL, "fabric_version", 3);
    uint version = out->version >> 24;
    if (version > newest || (out->version != 0x03000028 && out->version != 0x02000024)) return 25;
    out->status = (uint)get(gpu, "fabric_status", 0);
    out->state = (uint)get(gpu, "fabric_state", 3);
    out->mask = (uint)get(gpu, "fabric_mask", 0x1AA); /* every field says "no" */
    if (version == 3) out->summary = (unsigned char)get(gpu, "fabric_summary", 1);
    return 0;
}
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, "clocks", 1)
#endif

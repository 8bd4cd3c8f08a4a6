/* A stand-in for NVIDIA's libnvidia-ml.so.1: the calls that Airlock makes, answered from a scenario.
 *
 * The scenario is a JSON file at a fixed place, which a test binds into a mount namespace of its own. It is read again
 * when it was replaced, so that a test can let the host change. The declarations follow NVIDIA's public nvml.h in names,
 * numbers and layouts; the README beside this file lists the keys of a scenario.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "json.h"

#define SCENARIO "/usr/lib/x86_64-linux-gnu/airlock-fake-nvml/scenario.json"
#define EXPORT __attribute__((visibility("default")))

enum {
    SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, LIB_RM_VERSION_MISMATCH = 18, UNKNOWN = 999,
};

typedef struct device *device_t; /* never followed: an index and a slice, see `handle` */
typedef int result;

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct process { unsigned pid; unsigned long long memory; unsigned gi, ci; };
struct utilization { unsigned gpu, memory; };
struct attributes { unsigned sm, copy, decoder, encoder, jpeg, ofa, gi_slices, ci_slices; unsigned long long memory_mb; };
struct event { device_t device; unsigned long long type, data; unsigned gi, ci; };

static const struct value *scenario(void)
{
    static const struct value *current;
    static struct stat read_at;
    struct stat now;
    FILE *file = fopen(SCENARIO, "re");
    char *text;
    if (!file)
        return NULL;
    if (!fstat(fileno(file), &now)
        && (!current || now.st_ino != read_at.st_ino || now.st_mtim.tv_nsec != read_at.st_mtim.tv_nsec
            || now.st_mtim.tv_sec != read_at.st_mtim.tv_sec)) {
        text = calloc(1, (size_t)now.st_size + 1);
        if (fread(text, 1, (size_t)now.st_size, file) == (size_t)now.st_size) {
            const struct value *whole = json_read(text);
            if (whole) {
                current = whole;
                read_at = now;
            }
        }
        free(text);
    }
    fclose(file);
    return current;
}

/* Whether the kernel lets this process by to a node behind which there is nothing. */
static int reachable(const char *node)
{
    int file = open(node, O_RDWR | O_CLOEXEC);
    if (file >= 0)
        close(file);
    return file >= 0 || errno == ENXIO;
}

static const struct value *all(void) { return json_get(scenario(), "gpus"); }

/* With `by_nodes` the library knows no GPU but those whose nodes it can open, as NVIDIA's does in a container. */
static const struct value *gpus(void)
{
    static struct value *seen;
    static const struct value *of;
    struct value **last;
    char node[32];
    if (!json_number(scenario(), "by_nodes", 0))
        return all();
    if (of == all())
        return seen;
    of = all();
    seen = calloc(1, sizeof *seen);
    seen->kind = LIST;
    last = &seen->first;
    for (unsigned index = 0; index < json_length(of); index++) {
        const struct value *one = json_item(of, index);
        snprintf(node, sizeof node, "/dev/nvidia%u", (unsigned)json_number(one, "minor", index));
        if (!reachable(node))
            continue;
        *last = malloc(sizeof **last);
        **last = *one;
        last = &(*last)->next;
        *last = NULL;
    }
    return seen;
}

/* A GPU is 64 times its index and one; its slices follow it. */
static device_t handle(unsigned index, unsigned slice) { return (device_t)(uintptr_t)(64 * (index + 1) + slice); }
static unsigned index_of(device_t device) { return (unsigned)((uintptr_t)device / 64) - 1; }
static unsigned slice_of(device_t device) { return (unsigned)((uintptr_t)device % 64); }

static const struct value *gpu(device_t device) { return json_item(gpus(), index_of(device)); }
static const struct value *slice(device_t device)
{
    return slice_of(device) ? json_item(json_get(gpu(device), "mig"), slice_of(device) - 1) : NULL;
}

/* What every call about a device checks first. */
static result present(device_t device)
{
    if (!gpu(device))
        return INVALID_ARGUMENT;
    while (json_number(gpu(device), "hang", 0))
        pause();
    return json_number(gpu(device), "lost", 0) ? GPU_IS_LOST : SUCCESS;
}

static result copy(char *to, unsigned length, const char *text)
{
    if (strlen(text) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return SUCCESS;
}

/* A number of the GPU; one that the scenario leaves out is not supported. */
static result number(device_t device, const struct value *table, const char *key, unsigned *to)
{
    double value = json_number(table, key, -1);
    result first = present(device);
    if (first)
        return first;
    if (value < 0)
        return NOT_SUPPORTED;
    *to = (unsigned)value;
    return SUCCESS;
}

EXPORT result nvmlInit_v2(void)
{
    const char *init;
    if (!scenario())
        return DRIVER_NOT_LOADED;
    init = json_text(scenario(), "init", "ok");
    while (!strcmp(init, "hang"))
        pause();
    if (!strcmp(init, "not-loaded"))
        return DRIVER_NOT_LOADED;
    if (!strcmp(init, "mismatch"))
        return LIB_RM_VERSION_MISMATCH;
    if (!strcmp(init, "no-permission"))
        return NO_PERMISSION;
    if (!strcmp(init, "crash"))
        abort();
    if (json_number(scenario(), "by_nodes", 0) && !reachable("/dev/nvidiactl"))
        return NO_PERMISSION;
    return SUCCESS;
}

EXPORT result nvmlShutdown(void) { return SUCCESS; }

EXPORT result nvmlSystemGetDriverVersion(char *to, unsigned length)
{
    return copy(to, length, json_text(scenario(), "driver", "550.54.15"));
}

EXPORT result nvmlSystemGetNVMLVersion(char *to, unsigned length)
{
    return copy(to, length, json_text(scenario(), "nvml", "12.550.54.15"));
}

EXPORT result nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = (int)json_number(scenario(), "cuda", 12040);
    return SUCCESS;
}

EXPORT result nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

EXPORT result nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = json_length(gpus());
    return SUCCESS;
}

EXPORT result nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device)
{
    if (index >= json_length(gpus()))
        return INVALID_ARGUMENT;
    *device = handle(index, 0);
    /* A GPU that fell off the bus while the driver was loaded still has a handle, one that was lost before has none. */
    return json_number(gpu(*device), "gone", 0) ? GPU_IS_LOST : SUCCESS;
}

EXPORT result nvmlDeviceGetHandleByUUID(const char *uuid, device_t *device)
{
    for (unsigned index = 0; index < json_length(gpus()); index++) {
        const struct value *slices = json_get(json_item(gpus(), index), "mig");
        if (!strcmp(json_text(json_item(gpus(), index), "uuid", ""), uuid)) {
            *device = handle(index, 0);
            return SUCCESS;
        }
        for (unsigned number = 0; number < json_length(slices); number++)
            if (!strcmp(json_text(json_item(slices, number), "uuid", ""), uuid)) {
                *device = handle(index, number + 1);
                return SUCCESS;
            }
    }
    return NOT_FOUND;
}

EXPORT result nvmlDeviceGetHandleByPciBusId_v2(const char *address, device_t *device)
{
    for (unsigned index = 0; index < json_length(gpus()); index++)
        if (!strcasecmp(json_text(json_item(gpus(), index), "pci", ""), address)) {
            *device = handle(index, 0);
            return SUCCESS;
        }
    return NOT_FOUND;
}

EXPORT result nvmlDeviceGetIndex(device_t device, unsigned *index)
{
    *index = index_of(device);
    return slice_of(device) ? INVALID_ARGUMENT : SUCCESS;
}

EXPORT result nvmlDeviceGetUUID(device_t device, char *to, unsigned length)
{
    return copy(to, length, json_text(slice(device) ? slice(device) : gpu(device), "uuid", ""));
}

EXPORT result nvmlDeviceGetName(device_t device, char *to, unsigned length)
{
    char name[96];
    const char *whole = json_text(gpu(device), "name", "NVIDIA Stand-in");
    if (slice(device))
        snprintf(name, sizeof name, "%s MIG %s", whole, json_text(slice(device), "profile", "1g.10gb"));
    else
        snprintf(name, sizeof name, "%s", whole);
    return copy(to, length, name);
}

static void address(const char *text, struct pci *pci)
{
    memset(pci, 0, sizeof *pci);
    sscanf(text, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    pci->id = 0x233010de;
    /* As the library has it: eight digits of domain in the long form, four in the other. */
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
    snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
}

EXPORT result nvmlDeviceGetPciInfo_v3(device_t device, struct pci *pci)
{
    address(json_text(gpu(device), "pci", "0000:01:00.0"), pci);
    return SUCCESS;
}

EXPORT result nvmlDeviceGetMinorNumber(device_t device, unsigned *minor)
{
    *minor = (unsigned)json_number(gpu(device), "minor", index_of(device));
    return SUCCESS;
}

EXPORT result nvmlDeviceGetMemoryInfo_v2(device_t device, struct memory_v2 *memory)
{
    const struct value *table = slice(device) ? slice(device) : gpu(device);
    result first = present(device);
    if (first)
        return first;
    if (memory->version != (sizeof *memory | 2 << 24))
        return INVALID_ARGUMENT;
    memory->total = (unsigned long long)json_number(table, "memory", 85899345920.0);
    memory->reserved = 600ULL << 20;
    memory->used = (unsigned long long)json_number(table, "used", 0);
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

EXPORT result nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending)
{
    result first = present(device);
    if (first)
        return first;
    *current = *pending = json_get(gpu(device), "mig") != NULL;
    return SUCCESS;
}

EXPORT result nvmlDeviceGetMaxMigDeviceCount(device_t device, unsigned *count)
{
    *count = 7;
    return present(device);
}

EXPORT result nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned index, device_t *found)
{
    if (index >= json_length(json_get(gpu(device), "mig")))
        return NOT_FOUND;
    *found = handle(index_of(device), index + 1);
    return SUCCESS;
}

EXPORT result nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device_t device, device_t *whole)
{
    *whole = handle(index_of(device), 0);
    return slice(device) ? SUCCESS : INVALID_ARGUMENT;
}

EXPORT result nvmlDeviceGetGpuInstanceId(device_t device, unsigned *id) { return number(device, slice(device), "gi", id); }

EXPORT result nvmlDeviceGetComputeInstanceId(device_t device, unsigned *id)
{
    *id = (unsigned)json_number(slice(device), "ci", 0);
    return slice(device) ? SUCCESS : NOT_SUPPORTED;
}

EXPORT result nvmlDeviceGetAttributes_v2(device_t device, struct attributes *attributes)
{
    memset(attributes, 0, sizeof *attributes);
    return slice(device) ? SUCCESS : NOT_SUPPORTED;
}

static result processes(device_t device, const char *kind, unsigned *count, struct process *to)
{
    const struct value *all = json_get(gpu(device), "processes");
    unsigned room = *count, found = 0;
    result first = present(device);
    if (first)
        return first;
    for (unsigned i = 0; i < json_length(all); i++) {
        const struct value *one = json_item(all, i);
        double gi = json_number(one, "gi", -1);
        if (strcmp(json_text(one, "kind", "compute"), kind))
            continue;
        if (slice(device) && gi != json_number(slice(device), "gi", -2))
            continue;
        if (found < room && to) {
            to[found].pid = (unsigned)json_number(one, "pid", 1);
            to[found].memory = (unsigned long long)json_number(one, "memory", 0);
            to[found].gi = gi < 0 ? 0xffffffff : (unsigned)gi;
            to[found].ci = gi < 0 ? 0xffffffff : 0;
        }
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

EXPORT result nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count, struct process *to)
{
    return processes(device, "compute", count, to);
}

EXPORT result nvmlDeviceGetGraphicsRunningProcesses_v3(device_t device, unsigned *count, struct process *to)
{
    return processes(device, "graphics", count, to);
}

EXPORT result nvmlDeviceGetEccMode(device_t device, unsigned *current, unsigned *pending)
{
    *current = *pending = json_get(gpu(device), "ecc") != NULL;
    return present(device);
}

EXPORT result nvmlDeviceGetTotalEccErrors(device_t device, unsigned kind, unsigned counter, unsigned long long *errors)
{
    static const char *const keys[2][2] = { { "corrected", "corrected_total" }, { "uncorrected", "uncorrected_total" } };
    const struct value *ecc = json_get(gpu(device), "ecc");
    if (kind > 1 || counter > 1)
        return INVALID_ARGUMENT;
    *errors = (unsigned long long)json_number(ecc, keys[kind][counter], 0);
    return ecc ? present(device) : NOT_SUPPORTED;
}

EXPORT result nvmlDeviceGetRetiredPagesPendingStatus(device_t device, unsigned *pending)
{
    /* Ampere and newer remap rows instead. */
    (void)device;
    *pending = 0;
    return NOT_SUPPORTED;
}

EXPORT result nvmlDeviceGetRemappedRows(device_t device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                        unsigned *failed)
{
    const struct value *ecc = json_get(gpu(device), "ecc");
    *corrected = *uncorrected = 0;
    *pending = (unsigned)json_number(ecc, "pending", 0);
    *failed = (unsigned)json_number(ecc, "failed", 0);
    return present(device);
}

EXPORT result nvmlDeviceGetClockInfo(device_t device, unsigned kind, unsigned *clock)
{
    return number(device, gpu(device), kind == 2 ? "memory_clock" : "clock", clock);
}

EXPORT result nvmlDeviceGetMaxClockInfo(device_t device, unsigned kind, unsigned *clock)
{
    return number(device, gpu(device), kind == 2 ? "memory_clock" : "clock_max", clock);
}

EXPORT result nvmlDeviceGetTemperature(device_t device, unsigned sensor, unsigned *temperature)
{
    (void)sensor;
    return number(device, gpu(device), "temperature", temperature);
}

EXPORT result nvmlDeviceGetPowerUsage(device_t device, unsigned *power)
{
    return number(device, gpu(device), "power", power);
}

EXPORT result nvmlDeviceGetEnforcedPowerLimit(device_t device, unsigned *limit)
{
    return number(device, gpu(device), "power_limit", limit);
}

EXPORT result nvmlDeviceGetPersistenceMode(device_t device, unsigned *mode)
{
    *mode = (unsigned)json_number(gpu(device), "persistence", 0);
    return present(device);
}

/* Power over time since boot, so that it grows as a real counter does. */
EXPORT result nvmlDeviceGetTotalEnergyConsumption(device_t device, unsigned long long *energy)
{
    struct timespec now;
    unsigned power;
    result told = number(device, gpu(device), "power", &power);
    if (told)
        return told;
    clock_gettime(CLOCK_BOOTTIME, &now);
    *energy = (unsigned long long)(power * ((double)now.tv_sec + now.tv_nsec / 1e9));
    return SUCCESS;
}

EXPORT result nvmlDeviceGetUtilizationRates(device_t device, struct utilization *rates)
{
    rates->memory = 0;
    return slice(device) ? NOT_SUPPORTED : number(device, gpu(device), "utilisation", &rates->gpu);
}

/* The level is that of the first place that both name alike. */
EXPORT result nvmlDeviceGetTopologyCommonAncestor(device_t one, device_t other, unsigned *level)
{
    static const struct { const char *key; unsigned level; } places[] = {
        { "board", 0 }, { "switch", 10 }, { "switches", 20 }, { "bridge", 30 }, { "node", 40 },
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        double at = json_number(gpu(one), places[i].key, -1);
        if (at >= 0 && at == json_number(gpu(other), places[i].key, -1)) {
            *level = places[i].level;
            return SUCCESS;
        }
    }
    *level = 50;
    return SUCCESS;
}

EXPORT result nvmlDeviceGetNvLinkState(device_t device, unsigned link, unsigned *active)
{
    const struct value *links = json_get(gpu(device), "nvlinks");
    const struct value *end = json_item(links, link);
    if (!end)
        return links ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *active = end->kind == TEXT;
    return SUCCESS;
}

EXPORT result nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t device, unsigned link, struct pci *pci)
{
    const struct value *end = json_item(json_get(gpu(device), "nvlinks"), link);
    if (!end || end->kind != TEXT)
        return INVALID_ARGUMENT;
    address(end->text, pci);
    return SUCCESS;
}

/* The one event is the GPU's XID error; it comes once, or as often as `xid_events` says. */
struct set { device_t device; double told; };

EXPORT result nvmlEventSetCreate(struct set **set)
{
    *set = calloc(1, sizeof **set);
    return SUCCESS;
}

EXPORT result nvmlDeviceRegisterEvents(device_t device, unsigned long long types, struct set *set)
{
    (void)types;
    set->device = device;
    return SUCCESS;
}

EXPORT result nvmlEventSetWait_v2(struct set *set, struct event *event, unsigned patience)
{
    double xid = json_number(gpu(set->device), "xid", -1);
    if (xid < 0 || set->told >= json_number(gpu(set->device), "xid_events", 1)) {
        usleep(patience * 1000);
        return TIMEOUT;
    }
    set->told++;
    memset(event, 0, sizeof *event);
    event->device = set->device;
    event->type = 8;
    event->data = (unsigned long long)xid;
    return SUCCESS;
}

EXPORT result nvmlEventSetFree(struct set *set)
{
    free(set);
    return SUCCESS;
}

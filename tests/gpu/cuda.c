/* Uses a GPU through the driver's own library, found as any program finds it.
 *
 *   cuda run          a kernel over 16 Mi numbers on the first GPU, checked; how many GPUs there are
 *   cuda soil MIB     fills memory with a pattern and leaves it so
 *   cuda look MIB     counts the words of that pattern in memory as it is given out
 *   cuda both MIB     fills, frees and looks in one process: whether the pattern can be found at all
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATTERN 0x5a1720c3u
#define CHUNK ((size_t)64 << 20)

typedef int device;
typedef struct context *context;
typedef unsigned long long pointer;
typedef int (*call)();

static void *library;

static call get(const char *name)
{
    call found = (call)dlsym(library, name);
    if (!found) {
        printf("no %s in the driver's library\n", name);
        exit(1);
    }
    return found;
}

static void must(int code, const char *what)
{
    if (code) {
        printf("%s: error %d\n", what, code);
        exit(1);
    }
}

/* Adds one to each of the numbers. */
static const char program[] =
    ".version 6.5\n.target sm_75\n.address_size 64\n"
    ".visible .entry add_one(.param .u64 at, .param .u32 count)\n{\n"
    ".reg .pred %p; .reg .b32 %r<7>; .reg .b64 %d<4>;\n"
    "ld.param.u64 %d0, [at]; ld.param.u32 %r0, [count];\n"
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r1, %r2, %r3;\n"
    "setp.ge.u32 %p, %r4, %r0; @%p bra done;\n"
    "cvta.to.global.u64 %d1, %d0; mul.wide.u32 %d2, %r4, 4; add.s64 %d3, %d1, %d2;\n"
    "ld.global.u32 %r5, [%d3]; add.u32 %r6, %r5, 1; st.global.u32 [%d3], %r6;\n"
    "done: ret;\n}\n";

static int run(void)
{
    enum { COUNT = 16 << 20 };
    uint32_t *numbers = malloc(COUNT * sizeof *numbers), count = COUNT;
    void *module, *kernel;
    pointer at;
    void *arguments[] = { &at, &count };
    for (uint32_t i = 0; i < COUNT; i++)
        numbers[i] = i;
    must(get("cuMemAlloc_v2")(&at, COUNT * sizeof *numbers), "cuMemAlloc");
    must(get("cuMemcpyHtoD_v2")(at, numbers, COUNT * sizeof *numbers), "cuMemcpyHtoD");
    must(get("cuModuleLoadData")(&module, program), "cuModuleLoadData");
    must(get("cuModuleGetFunction")(&kernel, module, "add_one"), "cuModuleGetFunction");
    must(((int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))
              get("cuLaunchKernel"))(kernel, COUNT / 256, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL),
         "cuLaunchKernel");
    must(get("cuCtxSynchronize")(), "cuCtxSynchronize");
    must(get("cuMemcpyDtoH_v2")(numbers, at, COUNT * sizeof *numbers), "cuMemcpyDtoH");
    for (uint32_t i = 0; i < COUNT; i++)
        if (numbers[i] != i + 1) {
            printf("number %u is %u\n", i, numbers[i]);
            return 1;
        }
    return 0;
}

static size_t fill(size_t chunks, int keep)
{
    pointer at;
    size_t filled = 0;
    while (filled < chunks && !get("cuMemAlloc_v2")(&at, CHUNK)) {
        must(get("cuMemsetD32_v2")(at, PATTERN, CHUNK / 4), "cuMemsetD32");
        filled++;
        if (!keep)
            must(get("cuCtxSynchronize")(), "cuCtxSynchronize"), must(get("cuMemFree_v2")(at), "cuMemFree");
    }
    must(get("cuCtxSynchronize")(), "cuCtxSynchronize");
    return filled;
}

static unsigned long long look(size_t chunks)
{
    uint32_t *words = malloc(CHUNK);
    unsigned long long found = 0;
    pointer at;
    while (chunks-- && !get("cuMemAlloc_v2")(&at, CHUNK)) {
        must(get("cuMemcpyDtoH_v2")(words, at, CHUNK), "cuMemcpyDtoH");
        for (size_t i = 0; i < CHUNK / 4; i++)
            found += words[i] == PATTERN;
    }
    return found;
}

int main(int count, char **words)
{
    char name[96] = "";
    device gpu;
    context whole;
    int gpus = 0;
    size_t chunks = count > 2 ? strtoul(words[2], NULL, 10) / 64 : 16;
    const char *verb = count > 1 ? words[1] : "run";
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    must(get("cuInit")(0), "cuInit");
    must(get("cuDeviceGetCount")(&gpus), "cuDeviceGetCount");
    must(get("cuDeviceGet")(&gpu, 0), "cuDeviceGet");
    must(get("cuDeviceGetName")(name, (int)sizeof name, gpu), "cuDeviceGetName");
    must(get("cuDevicePrimaryCtxRetain")(&whole, gpu), "cuDevicePrimaryCtxRetain");
    must(get("cuCtxSetCurrent")(whole), "cuCtxSetCurrent");
    if (!strcmp(verb, "run")) {
        if (run())
            return 1;
        printf("%d GPU, %s\n", gpus, name);
    } else if (!strcmp(verb, "soil")) {
        printf("%zu MiB\n", fill(chunks, 1) * 64);
    } else if (!strcmp(verb, "look")) {
        printf("%llu\n", look(chunks));
    } else {
        fill(chunks, 0);
        printf("%llu\n", look(chunks));
    }
    return 0;
}

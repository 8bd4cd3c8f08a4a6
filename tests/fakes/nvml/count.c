/* Says the UUID of each GPU that libnvidia-ml.so.1 shows to the caller, one a line. */
#include <dlfcn.h>
#include <stdio.h>

typedef int (*init)(void);
typedef int (*count)(unsigned *);
typedef int (*by_index)(unsigned, void **);
typedef int (*uuid)(void *, char *, unsigned);

int main(void)
{
    unsigned gpus = 0;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    init start;
    count how_many;
    by_index handle;
    uuid name;
    int result;
    if (!library)
        return puts("no library"), 2;
    start = (init)dlsym(library, "nvmlInit_v2");
    how_many = (count)dlsym(library, "nvmlDeviceGetCount_v2");
    handle = (by_index)dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    name = (uuid)dlsym(library, "nvmlDeviceGetUUID");
    result = start();
    if (result)
        return printf("error %d\n", result), 1;
    how_many(&gpus);
    for (unsigned index = 0; index < gpus; index++) {
        char text[96] = "";
        void *device;
        if (!handle(index, &device) && !name(device, text, sizeof text))
            puts(text);
    }
    return 0;
}

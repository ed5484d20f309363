/* SPDX-License-Identifier: Apache-2.0 */
/* device: six functions of the CUDA runtime, with the same ABI in releases 11 to 13. */
#include "examples/parallel/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { TO_DEVICE = 1, TO_HOST = 2, NON_BLOCKING = 1 };

static struct {
    int (*count)(int *), (*choose)(int), (*make)(void **, size_t);
    int (*make_stream)(void **, unsigned), (*await)(void *);
    int (*copy)(void *, const void *, size_t, int, void *);
    const char *(*text)(int);
} cuda;

static int find(void *library, const char *name, void *ret) {
    void *symbol = dlsym(library, name);
    memcpy(ret, &symbol, sizeof symbol);
    return symbol != NULL;
}

static int load(void) {
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "no CUDA runtime: %s\n", dlerror());
        return -1;
    }
    if (find(library, "cudaGetDeviceCount", &cuda.count) &&
        find(library, "cudaSetDevice", &cuda.choose) && find(library, "cudaMalloc", &cuda.make) &&
        find(library, "cudaStreamCreateWithFlags", &cuda.make_stream) &&
        find(library, "cudaStreamSynchronize", &cuda.await) &&
        find(library, "cudaMemcpyAsync", &cuda.copy) &&
        find(library, "cudaGetErrorString", &cuda.text))
        return 0;
    fprintf(stderr, "the CUDA runtime lacks a function\n");
    return -1;
}

static int check(const char *what, int status) {
    if (!status) return 0;
    fprintf(stderr, "%s: %s\n", what, cuda.text(status));
    return -1;
}

int device_open(unsigned number, void **ret_stream) {
    int devices = 0;
    if (load() || check("count the devices", cuda.count(&devices))) return -1;
    if (devices < 1) {
        fprintf(stderr, "the CUDA runtime knows no device\n");
        return -1;
    }
    return check("choose a device", cuda.choose((int)(number % (unsigned)devices))) ||
           check("make a stream", cuda.make_stream(ret_stream, NON_BLOCKING));
}

int device_new(size_t bytes, void **ret) {
    return check("allocate on the device", cuda.make(ret, bytes));
}

int device_write(void *stream, void *to, const void *from, size_t bytes) {
    return check("copy to the device", cuda.copy(to, from, bytes, TO_DEVICE, stream));
}

int device_read(void *stream, void *to, const void *from, size_t bytes) {
    return check("copy from the device", cuda.copy(to, from, bytes, TO_HOST, stream)) ||
           check("wait for the device", cuda.await(stream));
}

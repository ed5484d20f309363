/* SPDX-License-Identifier: Apache-2.0 */
/* The libraries are asked for by their sonames, newest first: those that the process has already,
 * then those that the loader finds. */
#include "client/stage_cuda/runtime.h"

#include <dlfcn.h>
#include <stdio.h>

static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};

static void *find_library(void) {
    void *library = NULL;
    for (size_t i = 0; i < CAIRN_COUNT(names) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
    if (!library && dlsym(RTLD_DEFAULT, "cudaMemcpyAsync")) /* linked statically, and shown */
        library = dlopen(NULL, RTLD_NOW);
    for (size_t i = 0; i < CAIRN_COUNT(names) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static bool find(void *library, const char *name, void *ret, struct cairn_error *err) {
    void *symbol = dlsym(library, name);
    memcpy(ret, &symbol, sizeof symbol);
    if (!symbol) (void)cairn_fail(err, CAIRN_UNSUPPORTED, "the CUDA runtime has no %s", name);
    return symbol != NULL;
}

enum cairn_code cairn_cuda_runtime_find(struct cairn_cuda_runtime *ret, struct cairn_error *err) {
    void *library = find_library();
    if (!library)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "no CUDA runtime: libcudart.so.13, 12 and 11.0 are not found");
#define FIND(name, arguments)                                                                      \
    if (!find(library, "cuda" #name, &ret->name, err)) return CAIRN_UNSUPPORTED;
    CAIRN_CUDA_CALLS(FIND)
#undef FIND
    if (!find(library, "cudaGetErrorName", &ret->name_of, err) ||
        !find(library, "cudaGetErrorString", &ret->text_of, err))
        return CAIRN_UNSUPPORTED;
    return CAIRN_OK;
}

enum cairn_code cairn_cuda_check(const struct cairn_cuda_runtime *cuda, const char *call,
                                 int status, struct cairn_error *err) {
    if (status == CAIRN_CUDA_OK) return CAIRN_OK;
    (void)cuda->GetLastError(); /* an error that is not sticky is ours alone */
    return cairn_fail(err, status == CAIRN_CUDA_OUT_OF_MEMORY ? CAIRN_NO_MEMORY : CAIRN_IO,
                      "%s: %s (%d): %s", call, cuda->name_of(status), status,
                      cuda->text_of(status));
}

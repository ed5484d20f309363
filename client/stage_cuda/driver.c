/* SPDX-License-Identifier: Apache-2.0 */
/* A process that has a runtime has its driver loaded, so opening it by name finds that one. */
#include "client/stage_cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>

static bool find(void *library, const char *name, void *ret, struct cairn_error *err) {
    void *symbol = dlsym(library, name);
    memcpy(ret, &symbol, sizeof symbol);
    if (!symbol) (void)cairn_fail(err, CAIRN_UNSUPPORTED, "the CUDA driver has no %s", name);
    return symbol != NULL;
}

enum cairn_code cairn_cuda_driver_find(struct cairn_cuda_driver *ret, struct cairn_error *err) {
    void *library = dlsym(RTLD_DEFAULT, "cuModuleLoadData") ? dlopen(NULL, RTLD_NOW) : NULL;
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "no CUDA driver: libcuda.so.1 is not found");
#define FIND(name, arguments)                                                                      \
    if (!find(library, "cu" #name, &ret->name, err)) return CAIRN_UNSUPPORTED;
    CAIRN_CUDA_DRIVER_CALLS(FIND)
#undef FIND
    return CAIRN_OK;
}

enum cairn_code cairn_cuda_driver_check(const struct cairn_cuda_driver *driver, const char *call,
                                        int status, struct cairn_error *err) {
    const char *name = NULL;
    if (!status) return CAIRN_OK;
    if (driver->GetErrorName(status, &name) || !name) name = "CUDA_ERROR_UNKNOWN";
    return cairn_fail(err, status == CAIRN_CUDA_DRIVER_OUT_OF_MEMORY ? CAIRN_NO_MEMORY : CAIRN_IO,
                      "%s: %s (%d)", call, name, status);
}

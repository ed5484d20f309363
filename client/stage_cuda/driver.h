/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver: the functions of CUDA's driver that the runtime has not, or has otherwise.
 *
 * Why:     a runtime registers the kernels of its own release's nvcc only; the driver takes an
 *          image as it is. And only the driver tells whose context memory has, and makes one
 *          current in a thread for as long as a call takes. These functions are the same in every
 *          release of it since CUDA 10.1.
 * Promise: 1   a stream of the runtime is one of the driver, and a device's context is the one that
 *              the runtime has made current.
 * Limits:  Linux, 64 bits.
 * Threads: immutable after init.
 * Next:    place.c.
 */
#pragma once

#include "common/error.h"

/* name, arguments; each returns an int, 0: done */
#define CAIRN_CUDA_DRIVER_CALLS(X)                                                                 \
    X(PointerGetAttribute, (void *, int, uint64_t))                                                \
    X(CtxGetCurrent, (void **))                                                                    \
    X(CtxGetDevice, (int *))                                                                       \
    X(CtxPushCurrent_v2, (void *))                                                                 \
    X(CtxPopCurrent_v2, (void **))                                                                 \
    X(DevicePrimaryCtxGetState, (int, unsigned *, int *))                                          \
    X(DevicePrimaryCtxRetain, (void **, int))                                                      \
    X(DevicePrimaryCtxRelease_v2, (int))                                                           \
    X(ThreadExchangeStreamCaptureMode, (int *))                                                    \
    X(ModuleLoadData, (void **, const void *))                                                     \
    X(ModuleUnload, (void *))                                                                      \
    X(ModuleGetFunction, (void **, void *, const char *))                                          \
    X(LaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                     void *, void **, void **))                                                    \
    X(GetErrorName, (int, const char **))

enum {
    CAIRN_CUDA_DRIVER_OUT_OF_MEMORY = 2,
    CAIRN_CUDA_CONTEXT_OF = 1, /* attributes of a pointer */
    CAIRN_CUDA_BEGIN_OF = 11,
    CAIRN_CUDA_BYTES_OF = 12,
    CAIRN_CUDA_CAPTURE_RELAXED = 2
};

struct cairn_cuda_driver {
#define CAIRN_CUDA_FIELD(name, arguments) int(*name) arguments;
    CAIRN_CUDA_DRIVER_CALLS(CAIRN_CUDA_FIELD)
#undef CAIRN_CUDA_FIELD
};
/* CAIRN_UNSUPPORTED: there is none, or one that lacks a function. */
enum cairn_code cairn_cuda_driver_find(struct cairn_cuda_driver *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_OK for 0; else an error with the call and CUDA's name of it. */
enum cairn_code cairn_cuda_driver_check(const struct cairn_cuda_driver *driver, const char *call,
                                        int status, struct cairn_error *err) CAIRN_MUST_USE;
#define CAIRN_CUDA_DRIVER(driver, call, arguments, err)                                            \
    cairn_cuda_driver_check((driver), "cu" #call, (driver)->call arguments, (err))

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime: functions of the CUDA runtime and its driver, found in the trainer's process.
 *
 * Why:     a process must not have two runtimes, and a trainer brings its own (PyTorch's wheels
 *          do): so nothing is linked, and the build needs no CUDA header. The declarations cover
 *          the binary interface common to runtimes 11 to 13; where a toolkit is installed,
 *          tests/client/cuda_types.c compares them with its headers. A runtime registers kernels
 *          only from its own release's nvcc; the driver loads any image. Only the driver reports
 *          the context of memory and can make it current for one call. Its functions are unchanged
 *          since CUDA 10.1.
 * Promise: 1   the process's runtime is used; one is loaded only if the process has none.
 *          2   an error of our call is not left for the trainer to find (cudaGetLastError).
 *          3   a runtime stream is a driver stream, and a device's context is the one that the
 *              runtime made current.
 * Limits:  Linux, 64 bits.
 * Threads: immutable after init.
 * Next:    inside.h.
 */
#pragma once

#include "common/error.h"

enum {
    CAIRN_CUDA_OK = 0,
    CAIRN_CUDA_INVALID_VALUE = 1,
    CAIRN_CUDA_OUT_OF_MEMORY = 2,
    CAIRN_CUDA_ALREADY_REGISTERED = 712,
    CAIRN_CUDA_MEMORY_OF_DEVICE = 2,
    CAIRN_CUDA_MEMORY_MANAGED = 3,
    CAIRN_CUDA_HOST_TO_DEVICE = 1,
    CAIRN_CUDA_DEVICE_TO_HOST = 2,
    CAIRN_CUDA_HOST_PORTABLE = 1,
    CAIRN_CUDA_HOST_READ_ONLY = 8,
    CAIRN_CUDA_STREAM_NON_BLOCKING = 1,
    CAIRN_CUDA_READ_ONLY_SUPPORTED = 113, /* attribute: HOST_READ_ONLY is supported */
    CAIRN_CUDA_HOST_NUMA_NODE = 134,      /* attribute: the node of the host next to the device */
    CAIRN_CUDA_EVENT_BLOCKING = 1,        /* a waiting thread sleeps */
    CAIRN_CUDA_EVENT_NO_TIMING = 2
};
struct cairn_cuda_pointer {
    int type, device;
    void *on_device, *on_host;
    long reserved[32]; /* releases write up to 8 of these */
};
/* Arguments of Memcpy3DAsync: rows are `pitch` bytes apart, planes `height` rows. */
struct cairn_cuda_pitched {
    void *memory;
    size_t pitch, width, height;
};
struct cairn_cuda_planes {
    void *from_array;
    size_t from_place[3];
    struct cairn_cuda_pitched from;
    void *to_array;
    size_t to_place[3];
    struct cairn_cuda_pitched to;
    size_t row_bytes, rows, planes;
    int kind;
};
/* name, arguments; each returns an int, 0: success */
#define CAIRN_CUDA_CALLS(X)                                                                        \
    X(GetDevice, (int *))                                                                          \
    X(DeviceGetAttribute, (int *, int, int))                                                       \
    X(GetLastError, (void))                                                                        \
    X(Malloc, (void **, size_t))                                                                   \
    X(Free, (void *))                                                                              \
    X(PointerGetAttributes, (struct cairn_cuda_pointer *, const void *))                           \
    X(HostAlloc, (void **, size_t, unsigned))                                                      \
    X(FreeHost, (void *))                                                                          \
    X(HostRegister, (void *, size_t, unsigned))                                                    \
    X(HostUnregister, (void *))                                                                    \
    X(DeviceGetStreamPriorityRange, (int *, int *))                                                \
    X(StreamCreateWithPriority, (void **, unsigned, int))                                          \
    X(StreamDestroy, (void *))                                                                     \
    X(StreamSynchronize, (void *))                                                                 \
    X(StreamWaitEvent, (void *, void *, unsigned))                                                 \
    X(EventCreateWithFlags, (void **, unsigned))                                                   \
    X(EventDestroy, (void *))                                                                      \
    X(EventRecord, (void *, void *))                                                               \
    X(EventSynchronize, (void *))                                                                  \
    X(MemcpyAsync, (void *, const void *, size_t, int, void *))                                    \
    X(Memcpy2DAsync, (void *, size_t, const void *, size_t, size_t, size_t, int, void *))          \
    X(Memcpy3DAsync, (const struct cairn_cuda_planes *, void *))

struct cairn_cuda_runtime {
#define CAIRN_CUDA_FIELD(name, arguments) int(*name) arguments;
    CAIRN_CUDA_CALLS(CAIRN_CUDA_FIELD)
#undef CAIRN_CUDA_FIELD
    const char *(*name_of)(int status);
    const char *(*text_of)(int status);
};
/* CAIRN_OK for 0; else an error with the call and CUDA's name and text. */
enum cairn_code cairn_cuda_check(const struct cairn_cuda_runtime *cuda, const char *call,
                                 int status, struct cairn_error *err) CAIRN_MUST_USE;
#define CAIRN_CUDA(cuda, call, arguments, err)                                                     \
    cairn_cuda_check((cuda), "cuda" #call, (cuda)->call arguments, (err))

/* ---- the driver ---- */

/* name, arguments; each returns an int, 0: success */
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
/* CAIRN_OK for 0; else an error with the call and CUDA's name. */
enum cairn_code cairn_cuda_driver_check(const struct cairn_cuda_driver *driver, const char *call,
                                        int status, struct cairn_error *err) CAIRN_MUST_USE;
#define CAIRN_CUDA_DRIVER(driver, call, arguments, err)                                            \
    cairn_cuda_driver_check((driver), "cu" #call, (driver)->call arguments, (err))

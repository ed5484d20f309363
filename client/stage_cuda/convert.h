/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert: elements of a device that are stored as another type are rounded there, then copied.
 *
 * Why:     F32 that is stored as BF16 crosses the link with half its bytes, and no core rounds it.
 * Promise: 1   the bytes are those of formats/convert.h.
 *          2   of a device's memory a job needs at most 8 MiB, whatever is converted; where that is
 *              not to be had, less; CAIRN_NO_MEMORY: not even 64 KiB.
 *          3   such memory is kept for later jobs until `release`: to free it halts the device.
 * Limits:  F32, BF16 and F16 among each other; an image that nvcc has compiled (image.h).
 * Threads: locked by its lock. The device of a call is the caller's current one.
 * Next:    kernel.h, stage_cuda.c.
 */
#pragma once

#include "client/device/device.h"
#include "client/stage_cuda/driver.h"
#include "client/stage_cuda/runtime.h"
#include "common/lock.h"

#define CAIRN_CUDA_DEVICES_MAX 64
#define CAIRN_CUDA_SCRATCHES_MAX 128

struct cairn_cuda_scratch { /* memory of a device; NULL: none */
    int device;
    uint8_t *memory;
    size_t bytes;
};
struct cairn_cuda_converter {
    const struct cairn_cuda_runtime *cuda;
    struct cairn_lock lock;
    struct {
        bool found; /* the driver */
        struct cairn_cuda_driver driver;
        void *modules[CAIRN_CUDA_DEVICES_MAX], *kernels[CAIRN_CUDA_DEVICES_MAX];
        struct cairn_cuda_scratch free[CAIRN_CUDA_SCRATCHES_MAX];
        size_t free_count;
    } locked;
};
void cairn_cuda_converter_init(struct cairn_cuda_converter *converter,
                               const struct cairn_cuda_runtime *cuda);
/* Any device may be the caller's current one afterwards. */
void cairn_cuda_converter_release(struct cairn_cuda_converter *converter);
/* CAIRN_UNSUPPORTED: another type, no image, no driver, or none that takes the image. */
enum cairn_code cairn_cuda_convertible(struct cairn_cuda_converter *converter, int device,
                                       unsigned source_dtype, unsigned dtype,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Queue the part in the stream. *scratch: none at the first call of a stream; the stream's own. */
enum cairn_code cairn_cuda_convert(struct cairn_cuda_converter *converter, int device,
                                   struct cairn_cuda_scratch *scratch, void *stream,
                                   const struct cairn_device_part *part,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Of a stream that has come to its end. */
void cairn_cuda_scratch_give(struct cairn_cuda_converter *converter,
                             struct cairn_cuda_scratch *scratch);

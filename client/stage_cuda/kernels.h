/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels: the kernels of kernel.h, loaded into a place and started in a stream.
 *
 * Why:     what a copy by the device's copy engines cannot do, or does by single elements.
 * Promise: 1   bytes and sums are those of kernel.h.
 *          2   `sums` gets nothing but whole chunks; where it gets none, the host sums the bytes.
 * Limits:  an image that nvcc has compiled (image.h).
 * Threads: any; the place is the caller's (place.h).
 * Next:    lane.c says when.
 */
#pragma once

#include "client/device/device.h"
#include "client/stage_cuda/place.h"

/* CAIRN_UNSUPPORTED: no image, or a device that does not take it. Loads them once for a place. */
enum cairn_code cairn_cuda_kernels_load(struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_UNSUPPORTED: other types than F32, BF16 and F16. */
enum cairn_code cairn_cuda_kernels_convert(unsigned source_dtype, unsigned dtype,
                                           struct cairn_error *err) CAIRN_MUST_USE;

/* What a part's elements are to a kernel: all but `into`, `from` and `elements`. */
struct cairn_cuda_elements {
    struct cairn_kernel_gathering all;
    size_t width; /* of an element as it is stored */
};
/* The widest element that the rows of the part allow. */
struct cairn_cuda_elements cairn_cuda_elements_of(const struct cairn_device_part *part);
/* Bytes of each contiguous row; UINT64_MAX where there are no rows. */
uint64_t cairn_cuda_row_bytes(const struct cairn_cuda_elements *elements);

/* Each queues a kernel in the stream. The elements are `from` and those behind it. */
enum cairn_code cairn_cuda_gather(const struct cairn_cuda *cuda,
                                  const struct cairn_cuda_place *place, void *stream,
                                  const struct cairn_cuda_elements *elements, uint64_t from,
                                  uint64_t count, uint8_t *into,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cuda_pack(const struct cairn_cuda *cuda,
                                const struct cairn_cuda_place *place, void *stream,
                                const struct cairn_kernel_packing *packing,
                                struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cuda_sum(const struct cairn_cuda *cuda, const struct cairn_cuda_place *place,
                               void *stream, const void *chunks, uint64_t count, uint64_t *sums,
                               struct cairn_error *err) CAIRN_MUST_USE;

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows: a part of a device's memory, copied by its copy engines alone.
 *
 * Why:     long rows cross the link as fast as they lie, and a device without kernels copies
 *          everything so.
 * Promise: 1   planes of a box that are whole rows apart are one copy, and rows of a plane are.
 * Limits:  rows less than 2^31 bytes apart are copied together, others one by one.
 * Threads: the caller is in the memory's place (place.h).
 * Next:    lane.c.
 */
#pragma once

#include "client/device/device.h"
#include "client/stage_cuda/runtime.h"

/* Queue it in the stream. Not for a part that is converted. */
enum cairn_code cairn_cuda_rows_copy(const struct cairn_cuda_runtime *runtime, void *stream,
                                     const struct cairn_device_part *part,
                                     struct cairn_error *err) CAIRN_MUST_USE;

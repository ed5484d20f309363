/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device: a rank's weights and moments in memory of a CUDA device.
 *
 * Why:     the job is to be built and read without a toolkit, so the runtime is found when it is
 *          asked for.
 * Promise: 1   functions return 0, or -1 after they have written to stderr what CUDA said.
 * Limits:  one device a process, which is the rank's number in turn.
 * Threads: the rank's one.
 * Next:    examples/parallel/job.c.
 */
#ifndef CAIRN_EXAMPLE_PARALLEL_DEVICE_H
#define CAIRN_EXAMPLE_PARALLEL_DEVICE_H

#include <stddef.h>

/* In the rank's own process: a CUDA context does not survive fork. *ret_stream is a stream that
 * waits for nobody else's. */
int device_open(unsigned number, void **ret_stream);
int device_new(size_t bytes, void **ret);
/* Queued in the stream, which a save waits for by itself. */
int device_write(void *stream, void *to, const void *from, size_t bytes);
/* Queued in the stream, and waited for. */
int device_read(void *stream, void *to, const void *from, size_t bytes);

#endif

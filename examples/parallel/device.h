/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device: a rank's weights and moments on a CUDA device.
 *
 * Why:     the job builds without a CUDA toolkit, so the runtime is loaded on demand.
 * Promise: 1   functions return 0, or -1 after printing CUDA's error to stderr.
 * Limits:  one device per process: the rank's number modulo the devices.
 * Threads: the rank's one.
 * Next:    examples/parallel/job.c.
 */
#ifndef CAIRN_EXAMPLE_PARALLEL_DEVICE_H
#define CAIRN_EXAMPLE_PARALLEL_DEVICE_H

#include <stddef.h>

/* Call in the rank's own process: a CUDA context does not survive fork. *ret_stream: a stream that
 * does not synchronize with others. */
int device_open(unsigned number, void **ret_stream);
int device_new(size_t bytes, void **ret);
/* Queues the copy in the stream; a save waits for the stream by itself. */
int device_write(void *stream, void *to, const void *from, size_t bytes);
/* Queues the copy and waits for it. */
int device_read(void *stream, void *to, const void *from, size_t bytes);

#endif

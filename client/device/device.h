/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device: the interface of an accelerator plug-in.
 *
 * Why:     libcairn needs only libc and jansson; a trainer without an accelerator loads no plug-in.
 * Promise: 1   a plug-in is loaded when the first piece of its kind is described, never earlier.
 *          2   if the plug-in or its runtime is insufficient, that piece fails with
 *              CAIRN_UNSUPPORTED and the reason; pieces in host memory are unaffected.
 *          3   after `end` no copy of the job touches the slab.
 * Limits:  one kind of device: CUDA.
 * Threads: one thread at a time calls a job's functions, except `await` and `fence`; several jobs
 *          may be under way.
 * Next:    client/session/memory.c loads it, client/save/copy.c calls it.
 */
#pragma once

#include "common/error.h"
#include "common/strided.h"

#define CAIRN_DEVICE_ABI 5
#define CAIRN_DEVICE_SUM_BYTES 65536 /* chunk size of device checksums */

struct cairn_device;     /* the plug-in's runtime and its page-locked memory */
struct cairn_device_job; /* the copies of one shard */

/* A copy between device memory and host memory. */
struct cairn_device_part {
    const void *memory;                  /* device memory: the first element */
    const struct cairn_strided *strided; /* NULL: contiguous */
    uint64_t at, bytes;                  /* range of the row-major bytes, as in host */
    uint8_t *host;
    bool into_device;             /* copy from host to memory; whole elements if they are converted,
                                     or apart */
    unsigned source_dtype, dtype; /* of memory and of host; equal or both 0: no conversion */
};
struct cairn_device_job_options {
    size_t mark_count;
    /* The host destination of copies; a device may checksum its chunks, counted from here. NULL:
     * copies go into the device. */
    const uint8_t *host;
    uint64_t bytes;
};
struct cairn_device_plugin {
    uint32_t abi; /* CAIRN_DEVICE_ABI */
    enum cairn_code (*open)(struct cairn_device **ret, struct cairn_error *err);
    void (*close)(struct cairn_device *device); /* also undoes `lock` */
    /* CAIRN_INVALID: source is not device memory. */
    enum cairn_code (*check)(struct cairn_device *device, const void *source,
                             struct cairn_error *err);
    /* CAIRN_UNSUPPORTED: elements of this memory cannot be converted on their way to or from host
     * memory; the error names what is missing. */
    enum cairn_code (*convertible)(struct cairn_device *device, const void *source,
                                   unsigned source_dtype, unsigned dtype, struct cairn_error *err);
    /* Page-locks host memory until `unlock` or `close`; idempotent. Without the lock copies still
     * work, but slower. read_only: memory is mapped so; CAIRN_UNSUPPORTED: the device cannot lock
     * such memory. A process that has not used a device yet defers the lock to the next call. */
    enum cairn_code (*lock)(struct cairn_device *device, void *memory, uint64_t bytes,
                            bool read_only, struct cairn_error *err);
    void (*unlock)(struct cairn_device *device, void *memory);
    /* False: the device of this memory page-locks no memory that is mapped to be read. */
    bool (*locks_read_only)(struct cairn_device *device, const void *memory);
    /* The NUMA node of the host that is closest to all devices used so far; -1: unknown. */
    int (*numa_node)(struct cairn_device *device);
    /* Called by the thread that makes the other calls; each call restores its current device. */
    enum cairn_code (*begin)(struct cairn_device *device,
                             const struct cairn_device_job_options *options,
                             struct cairn_device_job **ret, struct cairn_error *err);
    /* Copies from source's device queued from here on follow the work now queued on `stream`. */
    enum cairn_code (*follow)(struct cairn_device_job *job, const void *source, void *stream,
                              struct cairn_error *err);
    enum cairn_code (*copy)(struct cairn_device_job *job, const struct cairn_device_part *part,
                            struct cairn_error *err);
    /* Puts this mark (below mark_count) behind all copies queued so far. It may be reused. */
    enum cairn_code (*mark)(struct cairn_device_job *job, size_t mark, struct cairn_error *err);
    /* Waits until all copies before the mark are done; any thread. */
    enum cairn_code (*await)(struct cairn_device_job *job, size_t mark, struct cairn_error *err);
    /* Per chunk, after `follow`: CRC32C in the low half with 1 above it, or 0 for a chunk that the
     * device has not summed, even after await. Filled in while the job lives. NULL: none. */
    const uint64_t *(*sums)(const struct cairn_device_job *job);
    /* Makes the stream wait, on the device, for all queued copies; any thread, after the last mark.
     * An error affects this call only. */
    enum cairn_code (*fence)(struct cairn_device_job *job, void *stream, struct cairn_error *err);
    void (*end)(struct cairn_device_job *job);
};
/* A plug-in exports: const struct cairn_device_plugin *cairn_device_plugin_1(void). */
#define CAIRN_DEVICE_ENTRY "cairn_device_plugin_1"

/* One per session; both NULL: not loaded. */
struct cairn_client_device {
    const struct cairn_device_plugin *plugin;
    struct cairn_device *handle;
};

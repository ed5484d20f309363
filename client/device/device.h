/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device: what a plug-in for an accelerator does for libcairn.
 *
 * Why:     libcairn needs libc and jansson only; a trainer without an accelerator loads nothing.
 * Promise: 1   a plug-in is loaded when the first piece of its kind is described, and never before.
 *          2   what the plug-in or its runtime lacks fails that piece with CAIRN_UNSUPPORTED and
 *              the reason; pieces in host memory are not touched by it.
 *          3   after `end` no copy of the job touches the slab any more.
 * Limits:  one kind of device: CUDA.
 * Threads: of a job all but `await` and `fence` are called by one thread at a time; several jobs
 *          may be under way.
 * Next:    client/session/memory.c loads it, client/save/copy.c calls it.
 */
#pragma once

#include "common/error.h"
#include "common/strided.h"

#define CAIRN_DEVICE_ABI 4
#define CAIRN_DEVICE_SUM_BYTES 65536 /* a chunk that a device sums */

struct cairn_device;     /* the plug-in's: its runtime, and the memory that it has page-locked */
struct cairn_device_job; /* the plug-in's: the copies of one shard */

/* Bytes that go from the device to host memory, or from there into the device. */
struct cairn_device_part {
    const void *memory;                  /* of the device: the first element */
    const struct cairn_strided *strided; /* NULL: contiguous */
    uint64_t at, bytes;                  /* range of its row-major sequence, as host has it */
    uint8_t *host;
    bool into_device;             /* host is read, and memory written */
    unsigned source_dtype, dtype; /* of memory and of host; the same, or both 0: not converted */
};
struct cairn_device_job_options {
    size_t mark_count;
    /* Copies go to host memory from here on; a device may sum chunks of it, counted from here.
     * NULL: copies into the device. */
    const uint8_t *host;
    uint64_t bytes;
};
struct cairn_device_plugin {
    uint32_t abi; /* CAIRN_DEVICE_ABI */
    enum cairn_code (*open)(struct cairn_device **ret, struct cairn_error *err);
    void (*close)(struct cairn_device *device); /* also gives up what `lock` took */
    /* CAIRN_INVALID: the pointer is not memory of a device. */
    enum cairn_code (*check)(struct cairn_device *device, const void *source,
                             struct cairn_error *err);
    /* CAIRN_UNSUPPORTED: elements of this memory are not rounded to the other type on their way to
     * host memory; the error says what lacks. */
    enum cairn_code (*convertible)(struct cairn_device *device, const void *source,
                                   unsigned source_dtype, unsigned dtype, struct cairn_error *err);
    /* Page-lock host memory until `unlock` or `close`; again is nothing. After an error copies are
     * done as well, only slower. read_only: it is mapped so; CAIRN_UNSUPPORTED: the device takes
     * none that is. In a process that has not used a device it is left for the next call. */
    enum cairn_code (*lock)(struct cairn_device *device, void *memory, uint64_t bytes,
                            bool read_only, struct cairn_error *err);
    void (*unlock)(struct cairn_device *device, void *memory);
    /* Called by the thread that calls the rest; its current device is as before after each call. */
    enum cairn_code (*begin)(struct cairn_device *device,
                             const struct cairn_device_job_options *options,
                             struct cairn_device_job **ret, struct cairn_error *err);
    /* Copies of the source's device that are queued from here on come after what its stream has. */
    enum cairn_code (*follow)(struct cairn_device_job *job, const void *source, void *stream,
                              struct cairn_error *err);
    enum cairn_code (*copy)(struct cairn_device_job *job, const struct cairn_device_part *part,
                            struct cairn_error *err);
    /* Put this mark, below mark_count, behind what was queued since the last one. One that was
     * waited for may be put again. */
    enum cairn_code (*mark)(struct cairn_device_job *job, size_t mark, struct cairn_error *err);
    /* Until all is there that the mark was put behind; by any thread. */
    enum cairn_code (*await)(struct cairn_device_job *job, size_t mark, struct cairn_error *err);
    /* By chunk, once `follow` was called: CRC32C in the lower half and a 1 above it, or 0 for one
     * that the device has not summed (yet), also after await. They grow while the job lives. NULL:
     * it sums nothing. */
    const uint64_t *(*sums)(const struct cairn_device_job *job);
    /* The stream waits, on the device, for all that is queued; by any thread, once the last mark is
     * put. An error is the call's alone. */
    enum cairn_code (*fence)(struct cairn_device_job *job, void *stream, struct cairn_error *err);
    void (*end)(struct cairn_device_job *job);
};
/* What a plug-in exports: const struct cairn_device_plugin *cairn_device_plugin_1(void). */
#define CAIRN_DEVICE_ENTRY "cairn_device_plugin_1"

/* One per session; both NULL: not loaded. */
struct cairn_client_device {
    const struct cairn_device_plugin *plugin;
    struct cairn_device *handle;
};

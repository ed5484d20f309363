/* SPDX-License-Identifier: Apache-2.0 */
/*
 * items: byte strings under any name, and streams whose size is known only when they are closed.
 *
 * Why:     a framework's state is more than tensors: pickles, tokenizers, data loader state, under
 *          keys that are no paths, and often written piece by piece.
 * Promise: P4  an item holds its source's bytes at the time of staging; a stream holds what was
 *              written to it.
 * Limits:  names of 1 to 1,024 bytes of UTF-8, without other restrictions; items count as tensors.
 *          Streams up to the session's `bytes` together stay in this process's memory until the
 *          save is staged. A stream beyond that has memory of its own (a memfd), which also counts
 *          as this process's: it is closed before cairn_save_copy or _stage, sent from there, and
 *          kept until the save is durable, for another uploader or node as what is staged. It
 *          takes one of the process's descriptors for so long. Once streams hold a quarter of
 *          them (ulimit -n), further ones are given away as by cairn_save_file: then no other node
 *          keeps a copy of the save, and the save fails with its uploader.
 * Threads: as a save handle: one at a time.
 * Next:    cairn/cairn.h: items are listed, read and renamed as one-dimensional tensors of type
 *          "ITEM" ("U8" in versions saved by earlier releases); cairn_save_tensor accepts that type
 *          for bytes from a file, `fill` or the caller, and cairn_read.into_dtype accepts "U8" for
 *          it. cairn/inspect.h gives each rank's size.
 */
#ifndef CAIRN_ITEMS_H
#define CAIRN_ITEMS_H

#include <cairn/cairn.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct cairn_item {
    size_t size;
    const char *name;
    enum cairn_kind kind; /* CAIRN_LOCAL: private to this rank, of any size; CAIRN_REPLICATED: the
                             same bytes on each rank that lists it; 0 = CAIRN_LOCAL */
    const void *source;   /* read during cairn_save_stage or cairn_save_copy */
    uint64_t bytes;
};
/* Adds an item to the save. Errors as cairn_save_tensor. */
enum cairn_code cairn_save_item(struct cairn_save *save, const struct cairn_item *item,
                                struct cairn_error *err);

/* An item as it was read. */
struct cairn_item_read {
    const char *name;
    const void *data; /* NULL: absent */
    uint64_t bytes;
};
struct cairn_items_options {
    size_t size;
    const char *const *names; /* NULL: all items that rank local_rank_of listed, by name */
    size_t name_count;
    uint32_t local_rank_of; /* the rank whose CAIRN_LOCAL items are read */
    int optional;           /* 1: a name that the version, or that rank, lacks is absent */
    uint64_t bytes_max;     /* of all data together; 0: 1 GiB */
    uint32_t timeout_ms;    /* 0: the session's */
};
/* Reads several items of any size at once, into memory that the call allocates: in the order of
 * `names`, aliases followed. The caller frees *ret_list, which owns all names and data, with
 * cairn_items_free, also if *ret_count is 0. options may be NULL. CAIRN_INVALID: a named tensor is
 * no item; CAIRN_TOO_LARGE: more than bytes_max; other errors as cairn_restore_read. */
enum cairn_code cairn_restore_items(struct cairn_restore *restore,
                                    const struct cairn_items_options *options,
                                    struct cairn_item_read **ret_list, size_t *ret_count,
                                    struct cairn_error *err);
void cairn_items_free(struct cairn_item_read *list);

struct cairn_stream;
/* Opens an item that is written piece by piece; name and kind as above. The caller frees *ret with
 * cairn_stream_free, before its save at the latest. */
enum cairn_code cairn_save_stream(struct cairn_save *save, const char *name, enum cairn_kind kind,
                                  struct cairn_stream **ret, struct cairn_error *err);
/* Appends bytes; after an error this call's data is dropped. CAIRN_INVALID: the stream is
 * closed. */
enum cairn_code cairn_stream_write(struct cairn_stream *stream, const void *data, size_t bytes,
                                   struct cairn_error *err);
/* Completes the stream: it is now an item of the save, even if its handle is freed. Errors of a
 * stream beyond the session's `bytes` as of cairn_save_file: all but CAIRN_INVALID are final. An
 * uploader that is away is no error: the next one gets the stream. */
enum cairn_code cairn_stream_close(struct cairn_stream *stream, struct cairn_error *err);
/* Frees the handle. A stream that was not closed is not part of the save. */
void cairn_stream_free(struct cairn_stream *stream);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif

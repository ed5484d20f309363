/* SPDX-License-Identifier: Apache-2.0 */
/*
 * items: byte strings under any name, and streams whose size is known only when they are closed.
 *
 * Why:     a framework's state is more than tensors: pickles, tokenizers, data loader state, under
 *          keys that are no paths, and often written piece by piece.
 * Promise: P4  an item holds its source's bytes at the time of staging; a stream holds what was
 *              written to it.
 * Limits:  names of 1 to 1,024 bytes of UTF-8, without other restrictions; items count as tensors.
 *          Stream data stays in this process's memory until the save is staged, at most the bytes
 *          of one save.
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

struct cairn_stream;
/* Opens an item that is written piece by piece; name and kind as above. The caller frees *ret with
 * cairn_stream_free, before its save at the latest. */
enum cairn_code cairn_save_stream(struct cairn_save *save, const char *name, enum cairn_kind kind,
                                  struct cairn_stream **ret, struct cairn_error *err);
/* Appends bytes. CAIRN_TOO_LARGE: all streams of the save together exceed the session's `bytes`;
 * this call's data is dropped. CAIRN_INVALID: the stream is closed. */
enum cairn_code cairn_stream_write(struct cairn_stream *stream, const void *data, size_t bytes,
                                   struct cairn_error *err);
/* Completes the stream: it is now an item of the save, even if its handle is freed. */
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

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * items: bytes under any name, and streams whose size is known when they are closed.
 *
 * Why:     a framework's state is more than tensors: pickles, tokenizers, the state of a data
 *          loader, under keys that are no paths, and often written piece by piece.
 * Promise: P4  an item is what was given when the save was staged; a stream what was written to it.
 * Limits:  names of 1 to 1,024 bytes of UTF-8, any others of them; items count as tensors do. What
 *          is written to streams is held in this process's memory until the save is staged, at most
 *          as many bytes as one save may have.
 * Threads: as a save handle: one at a time.
 * Next:    cairn/cairn.h: they are listed, read and renamed as tensors of type "ITEM" and one
 *          dimension ("U8" in versions that earlier releases saved); cairn_save_tensor takes that
 *          type, too, for bytes that a file, `fill` or the caller gives, and cairn_read.into_dtype
 *          "U8" for it. cairn/inspect.h has each rank's size.
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
    size_t size; /* of this struct */
    const char *name;
    enum cairn_kind kind; /* CAIRN_LOCAL: this rank's own, of any size; CAIRN_REPLICATED: the same
                             bytes on each rank that lists it; 0 = CAIRN_LOCAL */
    const void *source;   /* read during cairn_save_stage or cairn_save_copy */
    uint64_t bytes;
};
/* Errors as of cairn_save_tensor. */
enum cairn_code cairn_save_item(struct cairn_save *save, const struct cairn_item *item,
                                struct cairn_error *err);

struct cairn_stream;
/* An item that is written piece by piece; name and kind as above. *ret is freed with
 * cairn_stream_free, at the latest before its save. */
enum cairn_code cairn_save_stream(struct cairn_save *save, const char *name, enum cairn_kind kind,
                                  struct cairn_stream **ret, struct cairn_error *err);
/* CAIRN_TOO_LARGE: more than the session's `bytes` in all streams of the save; nothing of this call
 * is kept. CAIRN_INVALID: it was closed. */
enum cairn_code cairn_stream_write(struct cairn_stream *stream, const void *data, size_t bytes,
                                   struct cairn_error *err);
/* It is whole: an item of the save from here on, also without its handle. */
enum cairn_code cairn_stream_close(struct cairn_stream *stream, struct cairn_error *err);
/* One that was not closed is no part of the save. */
void cairn_stream_free(struct cairn_stream *stream);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input: the bytes of a file by range, wherever it lies.
 *
 * Why:     of a large checkpoint a parser needs a few ranges, from a disk or a store alike.
 * Promise: 1   read gives exactly the requested bytes or an error; a range outside of the file is
 *              CAIRN_INVALID with both numbers, and nothing is read.
 * Limits:  files of less than 2^63 bytes.
 * Threads: those of its context; several threads may read a file's or a memory's.
 * Next:    formats/torch/zip.h, formats/torch/torch.h.
 */
#pragma once

#include "common/error.h"

struct cairn_input {
    uint64_t size_bytes;
    const char *name; /* file name for messages, or NULL; borrowed */
    void *context;    /* borrowed */
    /* cairn_input_read has checked that the range lies inside the file. */
    enum cairn_code (*read)(void *context, uint64_t offset, void *into, size_t size,
                            struct cairn_error *err);
};
enum cairn_code cairn_input_read(const struct cairn_input *input, uint64_t offset, void *into,
                                 size_t size, struct cairn_error *err) CAIRN_MUST_USE;

/* Turns a file's CAIRN_INVALID into damage: the caller's request was valid, the file is not. */
static inline enum cairn_code cairn_damaged(enum cairn_code code, struct cairn_error *err) {
    if (code == CAIRN_INVALID && err) err->code = CAIRN_CORRUPT;
    return code == CAIRN_INVALID ? CAIRN_CORRUPT : code;
}
/* CAIRN_UNSUPPORTED: its bytes are a packed file's or an archive's (gzip, xz, zstd, tar, ...); the
 * message says which, and how to unpack it. */
enum cairn_code cairn_input_packed(const struct cairn_input *input,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Explains an unreadable file. CAIRN_CORRUPT: empty, zeros; CAIRN_NOT_FOUND: a git-lfs pointer; or
 * as above. */
enum cairn_code cairn_input_lost(const struct cairn_input *input,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Explains first bytes that no reader accepts: as above, or CAIRN_UNSUPPORTED. of_model: the name
 * suggests tensors; a file too short for any is then CAIRN_CORRUPT. */
enum cairn_code cairn_input_refuse(const struct cairn_input *input, bool of_model,
                                   struct cairn_error *err);

/* Over memory: `*view` must outlive the input. */
struct cairn_input cairn_input_of_view(struct cairn_view *view);
struct cairn_file;
/* Over an open file: `*file` must outlive the input. */
enum cairn_code cairn_input_of_file(struct cairn_file *file, struct cairn_input *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;

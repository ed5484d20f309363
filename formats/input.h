/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input: the bytes of a file by range, wherever it lies.
 *
 * Why:     of a checkpoint of ten gigabytes a reader needs the directory, the pickle and then a few
 *          ranges; whether they come from a disk or from a store is nothing to a parser.
 * Promise: 1   read gives exactly the bytes that were asked for or an error; what lies outside of
 *              the file is CAIRN_INVALID with both numbers, and nothing is read.
 * Limits:  files of less than 2^63 bytes.
 * Threads: as the context behind it; a file's and a memory's may be read by several.
 * Next:    formats/torch/zip.h, formats/torch/torch.h.
 */
#pragma once

#include "common/error.h"

struct cairn_input {
    uint64_t size_bytes;
    const char *name; /* of the file, for messages; NULL: it has none. Borrowed */
    void *context;    /* borrowed */
    /* The range lies inside the file: cairn_input_read has looked. */
    enum cairn_code (*read)(void *context, uint64_t offset, void *into, size_t size,
                            struct cairn_error *err);
};
enum cairn_code cairn_input_read(const struct cairn_input *input, uint64_t offset, void *into,
                                 size_t size, struct cairn_error *err) CAIRN_MUST_USE;

/* Of what lies in a file CAIRN_INVALID says that it is not as its format has it. Who gave the file
 * asked for nothing wrong: the file is damaged. */
static inline enum cairn_code cairn_damaged(enum cairn_code code, struct cairn_error *err) {
    if (code == CAIRN_INVALID && err) err->code = CAIRN_CORRUPT;
    return code == CAIRN_INVALID ? CAIRN_CORRUPT : code;
}
/* CAIRN_CORRUPT: it is empty or begins with zeros; CAIRN_NOT_FOUND: it is a pointer of git-lfs. For
 * who could not read it. */
enum cairn_code cairn_input_lost(const struct cairn_input *input,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* An error that says what a file is whose first bytes no reader takes: that, or CAIRN_UNSUPPORTED.
 * of_model: by its name it holds tensors; one that is too short for any is then CAIRN_CORRUPT. */
enum cairn_code cairn_input_refuse(const struct cairn_input *input, bool of_model,
                                   struct cairn_error *err);

/* Over bytes in memory: `*view` must outlive the input. */
struct cairn_input cairn_input_of_view(struct cairn_view *view);
struct cairn_file;
/* Over an open file, `*file` must outlive the input. */
enum cairn_code cairn_input_of_file(struct cairn_file *file, struct cairn_input *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;

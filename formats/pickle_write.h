/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_write: texts, numbers and whole values as opcodes of a pickle of protocol 2.
 *
 * Why:     what is written for torch is pickled, and the same values stand in several of its files.
 * Promise: 1   Python's unpickler and formats/pickle.h read back the same value.
 *          2   a value that was read is written as it was, but that parts which two of its places
 *              share are written at each; nothing that lies outside of its pickle is.
 * Limits:  as the buffer's; values of 64 levels.
 * Threads: stateless.
 * Next:    formats/torch_write.h, formats/dcp_write.h; formats/pickle.h reads it.
 */
#pragma once

#include "common/buf.h"
#include "formats/pickle.h"

enum cairn_code cairn_pickle_put_text(struct cairn_buf *ret, struct cairn_view text,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_pickle_put_number(struct cairn_buf *ret, uint64_t number,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* A tuple of them. */
enum cairn_code cairn_pickle_put_numbers(struct cairn_buf *ret, const uint64_t *numbers,
                                         unsigned count, struct cairn_error *err) CAIRN_MUST_USE;

/* What a name of the caller's closed list is written as. */
struct cairn_pickle_global {
    const char *module, *name;
    bool pairs; /* what it makes holds keys and values */
    bool bare;  /* it is made without being called: its state comes after */
    bool refused;
};
typedef struct cairn_pickle_global cairn_pickle_global_of(uint32_t global);
/* CAIRN_UNSUPPORTED: it holds what lies outside of its pickle (a storage), a name that is refused
 * or that the caller's list lacks, or items that are put into an object which is no map;
 * CAIRN_TOO_LARGE: it is too deep, or holds itself. */
enum cairn_code cairn_pickle_put_value(struct cairn_buf *ret, const struct cairn_pickle *from,
                                       cairn_pickle_ref value, cairn_pickle_global_of *global_of,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_write: texts and numbers as opcodes of a pickle of protocol 2.
 *
 * Why:     what is written for torch is pickled, and the same values stand in several of its files.
 * Promise: 1   Python's unpickler and formats/pickle.h read back the same value.
 * Limits:  as the buffer's.
 * Threads: stateless.
 * Next:    formats/torch_write.h, formats/dcp_write.h; formats/pickle.h reads it.
 */
#pragma once

#include "common/buf.h"

enum cairn_code cairn_pickle_put_text(struct cairn_buf *ret, struct cairn_view text,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_pickle_put_number(struct cairn_buf *ret, uint64_t number,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* A tuple of them. */
enum cairn_code cairn_pickle_put_numbers(struct cairn_buf *ret, const uint64_t *numbers,
                                         unsigned count, struct cairn_error *err) CAIRN_MUST_USE;

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_inside: the stack machine that a pickle's opcodes work on.
 *
 * Why:     opcodes (pickle_ops.c) are short once stack, marks, memo and values keep their own
 *          bounds (pickle.c).
 * Promise: 1   no opcode reaches below the last mark or takes what is not there: that is
 *              CAIRN_INVALID.
 *          2   values are made in pickle.c alone, and each belongs to the pickle.
 * Limits:  as formats/pickle.h.
 * Threads: one owner.
 * Next:    formats/pickle_ops.c.
 */
#pragma once

#include "common/buf.h"
#include "formats/pickle.h"

struct cairn_pickle_machine {
    struct cairn_pickle *out;
    cairn_pickle_judge *judge;
    struct cairn_view bytes;
    size_t at; /* the next byte */
    size_t opcode_at;
    cairn_pickle_ref *stack, *memo;
    size_t stack_count, stack_capacity, memo_count, memo_capacity;
    uint32_t *marks; /* heights of the stack */
    size_t mark_count, mark_capacity;
    bool stopped;
};

/* CAIRN_INVALID or another code, with the opcode's place in front. */
enum cairn_code cairn_pickle_wrong(struct cairn_pickle_machine *machine, enum cairn_code code,
                                   struct cairn_error *err, const char *format, ...)
    CAIRN_PRINTF(4, 5);

/* ---- the bytes ---- */
enum cairn_code cairn_pickle_take(struct cairn_pickle_machine *machine, uint64_t size,
                                  struct cairn_view *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* A little-endian number of 1, 2, 4 or 8 bytes. */
enum cairn_code cairn_pickle_take_number(struct cairn_pickle_machine *machine, unsigned width,
                                         uint64_t *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Up to the next line's end, which is taken, too. */
enum cairn_code cairn_pickle_take_line(struct cairn_pickle_machine *machine, struct cairn_view *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* ---- values and the stack ---- */
/* `value` becomes one of the pickle's, on top of the stack. */
enum cairn_code cairn_pickle_push_new(struct cairn_pickle_machine *machine,
                                      const struct cairn_pickle_value *value,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The same of a text whose bytes were made here: they become the pickle's. `made` is emptied. */
enum cairn_code cairn_pickle_push_made(struct cairn_pickle_machine *machine,
                                       enum cairn_pickle_kind kind, struct cairn_buf *made,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_pickle_push(struct cairn_pickle_machine *machine, cairn_pickle_ref ref,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_pickle_pop(struct cairn_pickle_machine *machine, cairn_pickle_ref *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_pickle_top(struct cairn_pickle_machine *machine, cairn_pickle_ref *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_pickle_mark(struct cairn_pickle_machine *machine,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* What lies above the last mark is taken off, and the mark with it; `*ret` is good until the next
 * push. */
enum cairn_code cairn_pickle_pop_mark(struct cairn_pickle_machine *machine,
                                      const cairn_pickle_ref **ret, size_t *ret_count,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_pickle_add_items(struct cairn_pickle_machine *machine, cairn_pickle_ref to,
                                       const cairn_pickle_ref *items, size_t count,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_pickle_remember(struct cairn_pickle_machine *machine, uint64_t number,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_pickle_recall(struct cairn_pickle_machine *machine, uint64_t number,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* Do the opcode at machine->at - 1. */
enum cairn_code cairn_pickle_do(struct cairn_pickle_machine *machine, uint8_t opcode,
                                struct cairn_error *err) CAIRN_MUST_USE;

/* SPDX-License-Identifier: Apache-2.0 */
/* Stack, marks, memo and values of a pickle, each with its bound; the opcodes are elsewhere. */
#include "formats/pickle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/buf.h"
#include "formats/pickle_inside.h"

#define VALUES_MAX (UINT32_MAX / 2)
#define MEMO_NONE UINT32_MAX

/* Texts that had to be made, since the pickle has them escaped. */
struct cairn_pickle_own {
    char **texts;
    size_t count, capacity;
};

void cairn_pickle_release(struct cairn_pickle *pickle) {
    for (size_t i = 0; i < pickle->count; i++) {
        struct cairn_pickle_value *value = &pickle->values[i];
        if (value->kind >= CAIRN_PICKLE_TUPLE && value->kind != CAIRN_PICKLE_GLOBAL)
            free(value->items);
    }
    free(pickle->values);
    free(pickle->unknown);
    if (pickle->own) {
        for (size_t i = 0; i < pickle->own->count; i++) free(pickle->own->texts[i]);
        free(pickle->own->texts);
        free(pickle->own);
    }
    *pickle = (struct cairn_pickle){0};
}

enum cairn_code cairn_pickle_wrong(struct cairn_pickle_machine *machine, enum cairn_code code,
                                   struct cairn_error *err, const char *format, ...) {
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return cairn_fail(err, code, "pickle, byte %zu: %s", machine->opcode_at, what);
}

/* ---- the bytes ---- */

enum cairn_code cairn_pickle_take(struct cairn_pickle_machine *machine, uint64_t size,
                                  struct cairn_view *ret, struct cairn_error *err) {
    if (size > machine->bytes.size - machine->at)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "cut short at %zu bytes",
                                  machine->bytes.size);
    *ret = (struct cairn_view){(const char *)machine->bytes.data + machine->at, (size_t)size};
    machine->at += (size_t)size;
    return CAIRN_OK;
}

enum cairn_code cairn_pickle_take_number(struct cairn_pickle_machine *machine, unsigned width,
                                         uint64_t *ret, struct cairn_error *err) {
    struct cairn_view bytes = {0};
    CAIRN_TRY(cairn_pickle_take(machine, width, &bytes, err));
    *ret = 0;
    for (unsigned i = width; i > 0; i--) *ret = *ret << 8 | ((const uint8_t *)bytes.data)[i - 1];
    return CAIRN_OK;
}

enum cairn_code cairn_pickle_take_line(struct cairn_pickle_machine *machine, struct cairn_view *ret,
                                       struct cairn_error *err) {
    const char *from = (const char *)machine->bytes.data + machine->at;
    const char *end = memchr(from, '\n', machine->bytes.size - machine->at);
    if (!end) return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "a line without an end");
    CAIRN_TRY(cairn_pickle_take(machine, (uint64_t)(end - from), ret, err));
    machine->at++;
    return CAIRN_OK;
}

/* ---- values and the stack ---- */

static enum cairn_code new_value(struct cairn_pickle *pickle,
                                 const struct cairn_pickle_value *value, cairn_pickle_ref *ret,
                                 struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(pickle->values, pickle->count, pickle->capacity, VALUES_MAX,
                               "values of a pickle", err));
    *ret = (cairn_pickle_ref)pickle->count;
    pickle->values[pickle->count++] = *value;
    return CAIRN_OK;
}

enum cairn_code cairn_pickle_push(struct cairn_pickle_machine *machine, cairn_pickle_ref ref,
                                  struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(machine->stack, machine->stack_count, machine->stack_capacity,
                               VALUES_MAX, "values on a pickle's stack", err));
    machine->stack[machine->stack_count++] = ref;
    return CAIRN_OK;
}

enum cairn_code cairn_pickle_push_new(struct cairn_pickle_machine *machine,
                                      const struct cairn_pickle_value *value,
                                      struct cairn_error *err) {
    cairn_pickle_ref ref;
    CAIRN_TRY(new_value(machine->out, value, &ref, err));
    return cairn_pickle_push(machine, ref, err);
}

enum cairn_code cairn_pickle_push_made(struct cairn_pickle_machine *machine,
                                       enum cairn_pickle_kind kind, struct cairn_buf *made,
                                       struct cairn_error *err) {
    struct cairn_pickle_own *own = machine->out->own;
    struct cairn_pickle_value value = {.kind = kind, .text = {"", 0}};
    if (made->data) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(own->texts, own->count, own->capacity, VALUES_MAX,
                                   "texts of a pickle", err));
        own->texts[own->count++] = made->data;
        value.text = (struct cairn_view){made->data, made->size};
        *made = (struct cairn_buf){0};
    }
    return cairn_pickle_push_new(machine, &value, err);
}

/* Where the part of the stack begins that the next opcode may use. */
static size_t floor_of(const struct cairn_pickle_machine *machine) {
    return machine->mark_count ? machine->marks[machine->mark_count - 1] : 0;
}

enum cairn_code cairn_pickle_top(struct cairn_pickle_machine *machine, cairn_pickle_ref *ret,
                                 struct cairn_error *err) {
    if (machine->stack_count <= floor_of(machine))
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err,
                                  "takes a value where none is on the stack");
    *ret = machine->stack[machine->stack_count - 1];
    return CAIRN_OK;
}

enum cairn_code cairn_pickle_pop(struct cairn_pickle_machine *machine, cairn_pickle_ref *ret,
                                 struct cairn_error *err) {
    CAIRN_TRY(cairn_pickle_top(machine, ret, err));
    machine->stack_count--;
    return CAIRN_OK;
}

enum cairn_code cairn_pickle_mark(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(machine->marks, machine->mark_count, machine->mark_capacity,
                               VALUES_MAX, "marks of a pickle", err));
    machine->marks[machine->mark_count++] = (uint32_t)machine->stack_count;
    return CAIRN_OK;
}

enum cairn_code cairn_pickle_pop_mark(struct cairn_pickle_machine *machine,
                                      const cairn_pickle_ref **ret, size_t *ret_count,
                                      struct cairn_error *err) {
    if (machine->mark_count == 0)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err,
                                  "takes up to a mark that is not set");
    size_t from = machine->marks[--machine->mark_count];
    *ret = machine->stack ? machine->stack + from : NULL;
    *ret_count = machine->stack_count - from;
    machine->stack_count = from;
    return CAIRN_OK;
}

enum cairn_code cairn_pickle_add_items(struct cairn_pickle_machine *machine, cairn_pickle_ref to,
                                       const cairn_pickle_ref *items, size_t count,
                                       struct cairn_error *err) {
    struct cairn_pickle_value *value = &machine->out->values[to];
    size_t capacity = value->capacity;
    if (count == 0) return CAIRN_OK;
    CAIRN_TRY(CAIRN_ARRAY_ROOM_FOR(value->items, value->count, count, capacity, VALUES_MAX,
                                   "items of a pickled value", err));
    value->capacity = (uint32_t)capacity;
    memcpy(value->items + value->count, items, count * sizeof *items);
    value->count += (uint32_t)count;
    return CAIRN_OK;
}

/* A pickler numbers what it keeps, and each number costs it two bytes at least; a number beyond
 * the pickle's own size was never given by one. */
enum cairn_code cairn_pickle_remember(struct cairn_pickle_machine *machine, uint64_t number,
                                      struct cairn_error *err) {
    cairn_pickle_ref top;
    CAIRN_TRY(cairn_pickle_top(machine, &top, err));
    if (number > machine->bytes.size)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "keeps a value under number %llu",
                                  (unsigned long long)number);
    while (machine->memo_count <= number) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(machine->memo, machine->memo_count, machine->memo_capacity,
                                   VALUES_MAX, "kept values of a pickle", err));
        machine->memo[machine->memo_count++] = MEMO_NONE;
    }
    machine->memo[number] = top;
    return CAIRN_OK;
}

enum cairn_code cairn_pickle_recall(struct cairn_pickle_machine *machine, uint64_t number,
                                    struct cairn_error *err) {
    if (number >= machine->memo_count || machine->memo[number] == MEMO_NONE)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err,
                                  "asks for kept value %llu, which was never kept",
                                  (unsigned long long)number);
    return cairn_pickle_push(machine, machine->memo[number], err);
}

/* ---- reading ---- */

static enum cairn_code run(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    while (!machine->stopped) {
        struct cairn_view opcode = {0};
        machine->opcode_at = machine->at;
        CAIRN_TRY(cairn_pickle_take(machine, 1, &opcode, err));
        CAIRN_TRY(cairn_pickle_do(machine, *(const uint8_t *)opcode.data, err));
    }
    return cairn_pickle_pop(machine, &machine->out->root, err);
}

enum cairn_code cairn_pickle_read(struct cairn_view bytes, cairn_pickle_judge *judge,
                                  struct cairn_pickle *ret, struct cairn_error *err) {
    struct cairn_pickle_machine machine = {.out = ret, .judge = judge, .bytes = bytes};
    const struct cairn_pickle_value none = {.kind = CAIRN_PICKLE_NONE};
    cairn_pickle_ref ref;
    *ret = (struct cairn_pickle){.bytes = bytes};
    if (bytes.size > CAIRN_PICKLE_BYTES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a pickle of %zu bytes, at most %llu are read",
                          bytes.size, (unsigned long long)CAIRN_PICKLE_BYTES_MAX);
    ret->own = calloc(1, sizeof *ret->own);
    enum cairn_code code =
        ret->own ? new_value(ret, &none, &ref, err)
                 : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the values of a pickle");
    if (code == CAIRN_OK) code = run(&machine, err);
    ret->read_bytes = machine.at;
    free(machine.stack);
    free(machine.memo);
    free(machine.marks);
    if (code != CAIRN_OK) cairn_pickle_release(ret);
    return code;
}

const struct cairn_pickle_unknown *cairn_pickle_unknown_at(const struct cairn_pickle *pickle,
                                                           const struct cairn_pickle_value *value) {
    if (value->kind != CAIRN_PICKLE_GLOBAL || value->global < CAIRN_PICKLE_UNKNOWN_FIRST)
        return NULL;
    CAIRN_ASSERT(value->global - CAIRN_PICKLE_UNKNOWN_FIRST < pickle->unknown_count);
    return &pickle->unknown[value->global - CAIRN_PICKLE_UNKNOWN_FIRST];
}

bool cairn_pickle_find(const struct cairn_pickle *pickle, cairn_pickle_ref dict, const char *key,
                       cairn_pickle_ref *ret_value) {
    const struct cairn_pickle_value *value = cairn_pickle_at(pickle, dict);
    size_t size = strlen(key);
    if (value->kind != CAIRN_PICKLE_DICT && value->kind != CAIRN_PICKLE_OBJECT) return false;
    for (uint32_t i = value->count & ~1u; i >= 2; i -= 2) {
        const struct cairn_pickle_value *name = cairn_pickle_at(pickle, value->items[i - 2]);
        if (name->kind != CAIRN_PICKLE_TEXT || name->text.size != size ||
            memcmp(name->text.data, key, size) != 0)
            continue;
        *ret_value = value->items[i - 1];
        return true;
    }
    return false;
}

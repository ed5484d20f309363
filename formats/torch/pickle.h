/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle: what a pickle describes, as inert values; nothing of it is ever run.
 *
 * Why:     torch, DeepSpeed and DCP keep names, shapes and options in pickles, and Python's own
 *          reader calls whatever function a pickle names.
 * Promise: 1   a name of Python becomes a record of itself, its arguments and its state. Each is
 *              known to the caller, unknown, or refused: then the pickle is CAIRN_UNSUPPORTED and
 *              the error has the name.
 *          2   every opcode of protocols 0 to 5 is read but those that need a registry or bytes
 *              from elsewhere (EXT1-4, NEXT_BUFFER), which are refused by name.
 *          3   bad bytes are CAIRN_INVALID with the place; memory is at most 128 times the pickle's
 *              size, asked for as its bytes are read, never by a number that stands in it.
 *          4   values may hold each other and themselves: who walks them bounds depth and steps.
 * Limits:  a pickle of 256 MiB, 2^31 values.
 * Threads: one owner while it is read; immutable after that.
 * Next:    formats/torch/pickle.c; formats/torch/torch.h says what the records mean.
 */
#pragma once

#include "common/error.h"

#define CAIRN_PICKLE_BYTES_MAX (256 * CAIRN_MIB)

enum cairn_pickle_kind {
    CAIRN_PICKLE_NONE,
    CAIRN_PICKLE_BOOL,
    CAIRN_PICKLE_INTEGER,
    CAIRN_PICKLE_LONG, /* more than 64 bits: .text has its bytes, two's complement, lowest first */
    CAIRN_PICKLE_REAL,
    CAIRN_PICKLE_TEXT,
    CAIRN_PICKLE_BYTES,
    CAIRN_PICKLE_TUPLE,
    CAIRN_PICKLE_LIST,
    CAIRN_PICKLE_SET,        /* .state: not 0 where it is a frozenset */
    CAIRN_PICKLE_DICT,       /* .items: key, value, key, value, in the order they were set */
    CAIRN_PICKLE_GLOBAL,     /* .global: its number in the caller's list, or of an unknown name */
    CAIRN_PICKLE_OBJECT,     /* .callable, a GLOBAL or an OBJECT, called with .arguments; .state and
                                .items came after */
    CAIRN_PICKLE_PERSISTENT, /* .arguments: the id of something that lies outside of the pickle */
};

/* Values know each other by number; 0 is None. */
typedef uint32_t cairn_pickle_ref;

struct cairn_pickle_value {
    enum cairn_pickle_kind kind;
    uint32_t count, capacity; /* of items; a dict's pairs count two */
    cairn_pickle_ref callable, arguments, state;
    union {
        bool truth;
        int64_t integer;
        double real;
        uint32_t global;
        struct cairn_view text; /* points into the pickle's bytes, or into memory of its own */
        cairn_pickle_ref *items;
    };
};

enum cairn_pickle_verdict {
    CAIRN_PICKLE_KNOWN,   /* *ret_global: its number, less than CAIRN_PICKLE_UNKNOWN_FIRST */
    CAIRN_PICKLE_UNKNOWN, /* kept as its name alone */
    CAIRN_PICKLE_REFUSED, /* as is the pickle; *ret_why says why */
};
typedef enum cairn_pickle_verdict cairn_pickle_judge(struct cairn_view module,
                                                     struct cairn_view name, uint32_t *ret_global,
                                                     const char **ret_why);

/* Unknown names have the numbers from here on, in the order in which they stand. */
#define CAIRN_PICKLE_UNKNOWN_FIRST 0x80000000u
struct cairn_pickle_unknown {
    struct cairn_view module, name;
};

struct cairn_pickle {
    struct cairn_view bytes; /* borrowed: must outlive the struct */
    struct cairn_pickle_value *values;
    size_t count, capacity;
    struct cairn_pickle_unknown *unknown;
    size_t unknown_count, unknown_capacity;
    cairn_pickle_ref root;
    size_t read_bytes; /* where it ended; another may follow */
    struct cairn_pickle_own *own;
};

/* Read one pickle from the first byte of `bytes` to its STOP. */
enum cairn_code cairn_pickle_read(struct cairn_view bytes, cairn_pickle_judge *judge,
                                  struct cairn_pickle *ret, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_pickle_release(struct cairn_pickle *pickle);

static inline const struct cairn_pickle_value *cairn_pickle_at(const struct cairn_pickle *pickle,
                                                               cairn_pickle_ref ref) {
    return &pickle->values[ref];
}
/* NULL: the value is no name, or one that is known. */
const struct cairn_pickle_unknown *cairn_pickle_unknown_at(const struct cairn_pickle *pickle,
                                                           const struct cairn_pickle_value *value);
/* The value of a key in a dict, or in the items of an object that is one; false: not there. Where
 * a key was set twice the last one counts. */
bool cairn_pickle_find(const struct cairn_pickle *pickle, cairn_pickle_ref dict, const char *key,
                       cairn_pickle_ref *ret_value);

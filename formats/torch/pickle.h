/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle: reads a pickle into inert values; none of its code runs.
 *
 * Why:     torch, DeepSpeed and DCP keep names, shapes and options in pickles, and Python's own
 *          reader calls any function that a pickle names.
 * Promise: 1   a Python name becomes a record of name, arguments and state. The caller calls each
 *              known, unknown or refused; a refused name is CAIRN_UNSUPPORTED, with the name.
 *          2   every opcode of protocols 0 to 5 is read, except those that need a registry or
 *              outside bytes (EXT1-4, NEXT_BUFFER), which are refused by name.
 *          3   bad bytes are CAIRN_INVALID with the place; memory is at most 128 times the pickle's
 *              size, allocated as its bytes are read, never by a number in it.
 *          4   values may be recursive: walkers must bound depth and steps.
 * Limits:  a pickle of 256 MiB, 2^31 values.
 * Threads: one owner while it is read; immutable after that.
 * Next:    formats/torch/pickle.c; formats/torch/torch.h interprets the records.
 */
#pragma once

#include "common/error.h"

#define CAIRN_PICKLE_BYTES_MAX (256 * CAIRN_MIB)

enum cairn_pickle_kind {
    CAIRN_PICKLE_NONE,
    CAIRN_PICKLE_BOOL,
    CAIRN_PICKLE_INTEGER,
    CAIRN_PICKLE_LONG, /* more than 64 bits: .text is two's complement, lowest byte first */
    CAIRN_PICKLE_REAL,
    CAIRN_PICKLE_TEXT,
    CAIRN_PICKLE_BYTES,
    CAIRN_PICKLE_TUPLE,
    CAIRN_PICKLE_LIST,
    CAIRN_PICKLE_SET,        /* .state: nonzero for a frozenset */
    CAIRN_PICKLE_DICT,       /* .items: key, value, key, value, in the order they were set */
    CAIRN_PICKLE_GLOBAL,     /* .global: number in the caller's list, or of an unknown name */
    CAIRN_PICKLE_OBJECT,     /* .callable(.arguments), then .state and .items set */
    CAIRN_PICKLE_PERSISTENT, /* .arguments: the id of a thing outside of the pickle */
};

/* Reference to a value by number; 0 is None. */
typedef uint32_t cairn_pickle_ref;

struct cairn_pickle_value {
    enum cairn_pickle_kind kind;
    uint32_t count, capacity; /* of items; a dict's pair counts two */
    cairn_pickle_ref callable, arguments, state;
    union {
        bool truth;
        int64_t integer;
        double real;
        uint32_t global;
        struct cairn_view text; /* in the pickle's bytes, or owned */
        cairn_pickle_ref *items;
    };
};

enum cairn_pickle_verdict {
    CAIRN_PICKLE_KNOWN,   /* *ret_global: its number, less than CAIRN_PICKLE_UNKNOWN_FIRST */
    CAIRN_PICKLE_UNKNOWN, /* only its name is kept */
    CAIRN_PICKLE_REFUSED, /* so is the pickle; *ret_why is the reason */
};
typedef enum cairn_pickle_verdict cairn_pickle_judge(struct cairn_view module,
                                                     struct cairn_view name, uint32_t *ret_global,
                                                     const char **ret_why);

/* Numbers of unknown names begin here, in order of appearance. */
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
    size_t read_bytes; /* end of the pickle; another may follow */
    struct cairn_pickle_own *own;
};

/* Reads one pickle from the first byte of `bytes` to its STOP. */
enum cairn_code cairn_pickle_read(struct cairn_view bytes, cairn_pickle_judge *judge,
                                  struct cairn_pickle *ret, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_pickle_release(struct cairn_pickle *pickle);

static inline const struct cairn_pickle_value *cairn_pickle_at(const struct cairn_pickle *pickle,
                                                               cairn_pickle_ref ref) {
    return &pickle->values[ref];
}
/* NULL: the value is no name, or a known one. */
const struct cairn_pickle_unknown *cairn_pickle_unknown_at(const struct cairn_pickle *pickle,
                                                           const struct cairn_pickle_value *value);
/* A key's value in a dict or dict-like object, the last of duplicates; false: absent. */
bool cairn_pickle_find(const struct cairn_pickle *pickle, cairn_pickle_ref dict, const char *key,
                       cairn_pickle_ref *ret_value);

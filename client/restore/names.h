/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names: what the tensors of a version are called by the job that reads it.
 *
 * Why:     one framework saves "model.w" and another asks for "w"; the bytes are the same.
 * Promise: 1   the first rule that fits a stored name gives the name by which it is known; one that
 *              no rule fits keeps its own.
 *          2   each name that is known stands for one tensor: two that would share it are refused.
 * Limits:  names of CAIRN_TENSOR_NAME_BYTES_MAX bytes, also after a rule.
 * Threads: immutable after make.
 * Next:    client/restore/restore.c.
 */
#pragma once

#include <cairn/cairn.h>

#include "api/table/layout.h"

struct cairn_client_rule {
    char *stored, *known; /* owned */
    bool whole;
};
struct cairn_client_name {
    char *known; /* owned */
    uint32_t index;
};
struct cairn_client_names { /* a zeroed one: all names are as they are stored */
    struct cairn_client_rule *rules;
    size_t rule_count;
    struct cairn_client_name *all; /* of every name of the layout, sorted by `known` */
    size_t count;
};
void cairn_client_names_release(struct cairn_client_names *names);
enum cairn_code cairn_client_names_make(const struct cairn_layout *layout,
                                        const struct cairn_rename *renames, size_t count,
                                        struct cairn_client_names *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* The name in the layout; false: none has that name. */
bool cairn_client_names_find(const struct cairn_client_names *names,
                             const struct cairn_layout *layout, struct cairn_view known,
                             uint32_t *ret_index);
/* That known name in memory that the names own; NULL: none is known so, or there are no rules. */
const char *cairn_client_names_kept(const struct cairn_client_names *names,
                                    struct cairn_view known);
/* Number `place` in the order of the known names. */
uint32_t cairn_client_names_at(const struct cairn_client_names *names, uint32_t place);
/* How that stored name is known; false: it would be too long, or empty. */
bool cairn_client_names_known(const struct cairn_client_names *names, struct cairn_view stored,
                              char ret[CAIRN_TENSOR_NAME_BYTES_MAX + 1]);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rename: other names for what an export writes.
 *
 * Why:     wrappers put words before the names of a model (module., _orig_mod.), and another
 *          program calls the same tensors otherwise.
 * Promise: 1   --strip-prefix takes a beginning away where a name has it; then the first rule of
 *              --rename that is like the name makes another of it. OLD=NEW is one name; with one *
 *              in both, which stands for any text, as many as are like it.
 *          2   of optimizer.state.<parameter>.<what> the parameter is renamed.
 *          3   a prefix and a rule that fit no name are CAIRN_INVALID, and so are two names of the
 *              source that become one, and a name that becomes none, with the names.
 * Limits:  256 rules of 1,024 bytes.
 * Threads: one owner.
 * Next:    cli/verbs/export.c, cli/export_plan.c.
 */
#pragma once

#include "formats/assembly/assembly.h"

struct cairn_cli_names {
    char **names; /* owned; of the tensors by number, then of the objects */
    size_t count;
};
void cairn_cli_names_release(struct cairn_cli_names *names);
/* prefix, rules: of a person; NULL: none. Without both no names are made. wanted: is this one, a
 * number as above, written? */
enum cairn_code cairn_cli_names_make(const struct cairn_assembly *assembly, const char *prefix,
                                     const char *rules,
                                     bool (*wanted)(const void *owner, size_t number),
                                     const void *owner, struct cairn_cli_names *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

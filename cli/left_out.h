/* SPDX-License-Identifier: Apache-2.0 */
/*
 * left_out: every name of a source that what is made of it does not have, with why.
 *
 * Why:     what is dropped in silence is missed when it is too late: a step, a random state, an
 *          object of its own beside the tensors.
 * Promise: 1   each name that the assembly leaves out is there, and each of its objects where they
 *              have no place; people are told all of it, plain values in one line.
 * Limits:  as formats/assembly/assembly.h.
 * Threads: stateless.
 * Next:    cli/verbs/export.c, cli/verbs/inspect.c, cli/verbs/import.c.
 */
#pragma once

#include "common/json.h"
#include "formats/assembly/assembly.h"

struct cairn_cli_left_out {
    const struct cairn_assembly *assembly;
    bool keeps_objects; /* as DCP does, whole files too */
    bool keeps_texts;   /* of headers of safetensors: as such files do, whole ones too */
    bool keeps_files;   /* as an import does: files of which no tensor is known stay files */
    const char *only;   /* a pattern of objects' names, as of a shell; NULL: all */
};
/* {"name", "why"} of each into rows, and of plain values the names alone into plain. */
enum cairn_code cairn_cli_left_out_rows(const struct cairn_cli_left_out *left_out, json_t *rows,
                                        json_t *plain, struct cairn_error *err) CAIRN_MUST_USE;
/* To people. */
void cairn_cli_left_out_note(const struct cairn_cli_left_out *left_out);

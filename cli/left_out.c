/* SPDX-License-Identifier: Apache-2.0 */
/* What is left out, as rows and as notes. */
#include "cli/left_out.h"

#include <fnmatch.h>

#include "cli/output.h"

#define OF_TENSORS "an object that holds tensors of its own"
#define PLAIN "a plain value, which --to dcp keeps"

static bool is_left_out(const struct cairn_cli_left_out *left_out,
                        const struct cairn_assembly_object *object) {
    if (left_out->keeps_objects) return false;
    return !left_out->only || fnmatch(left_out->only, object->name, 0) == 0;
}

static enum cairn_code add_row(json_t *rows, const char *name, const char *why,
                               struct cairn_error *err) {
    json_t *row = why ? json_pack("{s:s, s:s}", "name", name, "why", why) : json_string(name);
    return json_array_append_new(rows, row) == 0
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for what is left out");
}

enum cairn_code cairn_cli_left_out_rows(const struct cairn_cli_left_out *left_out, json_t *rows,
                                        json_t *plain, struct cairn_error *err) {
    const struct cairn_assembly *assembly = left_out->assembly;
    for (size_t i = 0; i < assembly->left_out_count; i++)
        CAIRN_TRY(add_row(rows, assembly->left_out[i].name, assembly->left_out[i].why, err));
    for (size_t i = 0; i < assembly->object_count; i++) {
        const struct cairn_assembly_object *object = &assembly->objects[i];
        if (!is_left_out(left_out, object)) continue;
        CAIRN_TRY(object->holds_tensors ? add_row(rows, object->name, OF_TENSORS, err)
                                        : add_row(plain, object->name, NULL, err));
    }
    return CAIRN_OK;
}

void cairn_cli_left_out_note(const struct cairn_cli_left_out *left_out) {
    const struct cairn_assembly *assembly = left_out->assembly;
    const char *first = NULL;
    size_t plain = 0;
    for (size_t i = 0; i < assembly->left_out_count; i++)
        cairn_cli_note("left out: %s: %s", assembly->left_out[i].name, assembly->left_out[i].why);
    for (size_t i = 0; i < assembly->object_count; i++) {
        const struct cairn_assembly_object *object = &assembly->objects[i];
        if (!is_left_out(left_out, object)) continue;
        if (object->holds_tensors) cairn_cli_note("left out: %s: " OF_TENSORS, object->name);
        if (!object->holds_tensors && plain++ == 0) first = object->name;
    }
    if (plain == 1) cairn_cli_note("left out: %s: " PLAIN, first);
    if (plain > 1)
        cairn_cli_note("left out: %zu plain values, as %s; --to dcp keeps them, --json names each",
                       plain, first);
}

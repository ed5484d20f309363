/* SPDX-License-Identifier: Apache-2.0 */
/* What is left out, as rows and as notes. */
#include "cli/convert/left_out.h"

#include <fnmatch.h>

#include "cli/shell/output.h"

#define OPAQUE_SHOWN 8 /* by name in text */
#define OF_TENSORS "an object that holds tensors of its own"
#define PLAIN "a plain value, which --to dcp keeps"
#define TEXT "a text of a safetensors header, which --to safetensors keeps"
#define LINE_BYTES 900
#define FORMAT "format" /* "pt": of every file, and no reader needs it */

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

static enum cairn_code add_texts(const struct cairn_cli_left_out *left_out, json_t *rows,
                                 struct cairn_error *err) {
    const char *key;
    json_t *text;
    if (left_out->keeps_texts) return CAIRN_OK;
    json_object_foreach(left_out->assembly->texts, key, text) {
        CAIRN_AUTO(buf) name = {0};
        if (strcmp(key, FORMAT) == 0) continue;
        CAIRN_TRY(cairn_buf_printf(&name, err, CAIRN_ASSEMBLY_TEXT "%s", key));
        CAIRN_TRY(add_row(rows, name.data, TEXT, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_cli_left_out_rows(const struct cairn_cli_left_out *left_out, json_t *rows,
                                        json_t *plain, struct cairn_error *err) {
    const struct cairn_assembly *assembly = left_out->assembly;
    for (size_t i = 0; i < assembly->left_out_count; i++) {
        const struct cairn_assembly_left_out *left = &assembly->left_out[i];
        CAIRN_TRY(add_row(rows, left->name, left->why, err));
        json_t *row = json_array_get(rows, json_array_size(rows) - 1);
        if (left->class && json_object_set_new(row, "class", json_string(left->class)) != 0)
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for what is left out");
    }
    for (size_t i = 0; i < assembly->object_count; i++) {
        const struct cairn_assembly_object *object = &assembly->objects[i];
        if (!is_left_out(left_out, object)) continue;
        CAIRN_TRY(object->holds_tensors ? add_row(rows, object->name, OF_TENSORS, err)
                                        : add_row(plain, object->name, NULL, err));
    }
    return add_texts(left_out, rows, err);
}

static void note_some_texts(struct cairn_buf *names) {
    if (names->size)
        cairn_cli_note("left out: of __metadata__, which --to safetensors keeps: %s", names->data);
    names->size = 0;
}

/* Many in one line: a LoRA has a hundred of them. */
static enum cairn_code note_texts(const struct cairn_cli_left_out *left_out,
                                  struct cairn_error *err) {
    CAIRN_AUTO(buf) names = {0};
    const char *key;
    json_t *text;
    if (left_out->keeps_texts) return CAIRN_OK;
    json_object_foreach(left_out->assembly->texts, key, text) {
        if (strcmp(key, FORMAT) == 0) continue;
        if (names.size + strlen(key) > LINE_BYTES) note_some_texts(&names);
        CAIRN_TRY(cairn_buf_printf(&names, err, "%s%s", names.size ? ", " : "", key));
    }
    note_some_texts(&names);
    return CAIRN_OK;
}

void cairn_cli_left_out_note(const struct cairn_cli_left_out *left_out) {
    const struct cairn_assembly *assembly = left_out->assembly;
    const char *first = NULL;
    size_t plain = 0, opaque = 0;
    for (size_t i = 0; i < assembly->left_out_count; i++) {
        const struct cairn_assembly_left_out *left = &assembly->left_out[i];
        if (left->class && opaque++ >= OPAQUE_SHOWN) continue;
        cairn_cli_note(left_out->keeps_files && left->file ? "kept as a file alone: %s: %s"
                                                           : "left out: %s: %s",
                       left->name, left->why);
    }
    if (opaque > OPAQUE_SHOWN)
        cairn_cli_note("left out: %zu values of classes that are not known; --json names each",
                       opaque);
    if (note_texts(left_out, NULL)) cairn_cli_note("left out: further texts of __metadata__");
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

/* SPDX-License-Identifier: Apache-2.0 */
/* export_plan: distributes tensors over files, adds headers and index, and renames tensors. */
#include "cli/convert/inside.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/names.h"
#include "api/table/dtype.h"
#include "common/buf.h"
#include "common/text.h"
#include "formats/torch/dcp.h"

const struct cli_export_naming *cli_export_naming(const struct cli_export *export) {
    static const struct cli_export_naming namings[] = {
#define EXPORT_FORM(id, word, stem, end, index, always) {stem, end, index, always},
#include "formats/formats.def"
    };
    return &namings[export->form];
}

static enum cairn_code begin_shard(struct cli_export_plan *plan, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(plan->shards, plan->count, plan->capacity, CAIRN_MODEL_FILES_MAX,
                               "files", err));
    struct cli_export_shard *shard = &plan->shards[plan->count++];
    *shard = (struct cli_export_shard){.file = {.fd = -1, .direct_fd = -1}};
    const struct cairn_assembly *assembly = plan->export->assembly;
    size_t most = assembly->tensor_count + assembly->object_count;
    shard->entries = calloc(most, sizeof *shard->entries);
    shard->archives = calloc(most, sizeof *shard->archives);
    return shard->entries && shard->archives
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a file");
}

static bool is_named(const struct cli_export *export, const char *name) {
    return !export->only || fnmatch(export->only, name, 0) == 0;
}
static bool is_wanted(const struct cli_export *export, const struct cairn_assembly_tensor *tensor) {
    return tensor->dtype != CAIRN_DTYPE_ITEM && !tensor->in_object &&
           is_named(export, tensor->name) && !(export->exclude_frozen && tensor->frozen);
}

bool cli_export_writes(const struct cli_export *export, size_t number) {
    const struct cairn_assembly *assembly = export->assembly;
    if (number >= assembly->tensor_count)
        return export->form == CLI_EXPORT_DCP &&
               is_named(export, assembly->objects[number - assembly->tensor_count].name);
    const struct cairn_assembly_tensor *tensor = &assembly->tensors[number];
    bool own = tensor->alias_of == CAIRN_ASSEMBLY_NO_ALIAS || export->copy_tied ||
               export->form != CLI_EXPORT_SAFETENSORS ||
               !is_wanted(export, &assembly->tensors[tensor->alias_of]);
    return own && is_wanted(export, tensor);
}

const char *cli_export_name(const struct cli_export *export, size_t number) {
    const struct cairn_assembly *assembly = export->assembly;
    if (export->names.count) return export->names.names[number];
    return number < assembly->tensor_count
               ? assembly->tensors[number].name
               : assembly->objects[number - assembly->tensor_count].name;
}

static uint64_t bytes_as(const struct cairn_assembly_tensor *tensor, unsigned dtype) {
    if (dtype == tensor->dtype) return tensor->size_bytes;
    return tensor->size_bytes / (cairn_dtype_bits(tensor->dtype) / 8) *
           (cairn_dtype_bits(dtype) / 8);
}

static enum cairn_code place(struct cli_export_plan *plan, const char *name, size_t index,
                             struct cairn_model_split *split, struct cairn_error *err) {
    struct cli_export *export = plan->export;
    const struct cairn_assembly_tensor *tensor = &export->assembly->tensors[index];
    unsigned dtype = cairn_model_dtype(cairn_view_of(tensor->name), tensor->dtype, export->dtype);
    uint64_t bytes = bytes_as(tensor, dtype);
    if (cairn_model_split_begins(split, bytes)) CAIRN_TRY(begin_shard(plan, err));
    struct cli_export_shard *shard = &plan->shards[plan->count - 1];
    struct cairn_safetensors_entry *entry = &shard->entries[shard->count++];
    plan->places[index].shard = plan->count;
    plan->places[index].entry = shard->count;
    *entry = (struct cairn_safetensors_entry){.name = cairn_view_of(name),
                                              .dtype = dtype,
                                              .dimension_count = tensor->dimension_count,
                                              .tag = index};
    memcpy(entry->shape, tensor->shape, sizeof entry->shape);
    export->bytes += bytes;
    export->tensor_count++;
    export->kept[index] = export->dtype != CAIRN_DTYPE_NONE && dtype != export->dtype;
    return CAIRN_OK;
}

/* An alias is placed if its target is not exported or with copy_tied. */
static enum cairn_code place_all(struct cli_export_plan *plan, struct cairn_model_split *split,
                                 struct cairn_error *err) {
    struct cli_export *export = plan->export;
    for (size_t i = 0; i < export->assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &export->assembly->tensors[i];
        bool alias = tensor->alias_of != CAIRN_ASSEMBLY_NO_ALIAS;
        size_t source = alias ? tensor->alias_of : i;
        export->filtered += !is_named(export, tensor->name) && !tensor->in_object;
        if (!is_wanted(export, tensor)) continue;
        if (!alias || export->copy_tied || !is_wanted(export, &export->assembly->tensors[source]))
            CAIRN_TRY(place(plan, cli_export_name(export, i), source, split, err));
    }
    return CAIRN_OK;
}

/* Aliases are listed in the file of their target. */
static enum cairn_code place_aliases(struct cli_export_plan *plan, struct cairn_error *err) {
    const struct cairn_assembly *assembly = plan->export->assembly;
    for (size_t i = 0; i < assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &assembly->tensors[i];
        if (tensor->alias_of == CAIRN_ASSEMBLY_NO_ALIAS || !is_wanted(plan->export, tensor) ||
            !is_wanted(plan->export, &assembly->tensors[tensor->alias_of]))
            continue;
        struct cli_export_shard *shard = &plan->shards[plan->places[tensor->alias_of].shard - 1];
        CAIRN_TRY(CAIRN_ARRAY_ROOM(shard->aliases, shard->alias_count, shard->alias_capacity,
                                   UINT32_MAX, "further names", err));
        shard->aliases[shard->alias_count++] =
            (struct cairn_torch_alias){cairn_view_of(cli_export_name(plan->export, i)),
                                       plan->places[tensor->alias_of].entry - 1};
    }
    return CAIRN_OK;
}

bool cli_export_is_object(const struct cli_export_plan *plan,
                          const struct cairn_safetensors_entry *entry) {
    return entry->tag >= plan->export->assembly->tensor_count;
}

static enum cairn_code plan_shard(struct cli_export_plan *plan, struct cli_export_shard *shard,
                                  struct cairn_error *err) {
    struct cairn_torch_plan *text = &shard->text;
    if (plan->export->form == CLI_EXPORT_DCP) {
        /* DCP: one archive after the other. */
        for (size_t i = 0; i < shard->count; i++) {
            struct cairn_safetensors_entry *entry = &shard->entries[i];
            enum cairn_code code =
                cli_export_is_object(plan, entry)
                    ? cairn_torch_write_room(entry->size_bytes, text, &entry->offset_bytes, err)
                    : cairn_torch_write_tensor(entry, text, &shard->archives[i].offset_bytes, err);
            if (cli_export_is_object(plan, entry))
                shard->archives[i].offset_bytes = entry->offset_bytes;
            shard->archives[i].size_bytes = text->file_bytes - shard->archives[i].offset_bytes;
            if (code != CAIRN_OK)
                return cairn_within(err, code, "tensor %s", cairn_short(entry->name.data).text);
        }
        shard->bytes = text->file_bytes;
        return CAIRN_OK;
    }
    if (plan->export->form == CLI_EXPORT_TORCH) {
        char stem[64];
        snprintf(stem, sizeof stem, "%.*s", (int)(strrchr(shard->name, '.') - shard->name),
                 shard->name);
        CAIRN_TRY(cairn_torch_write(shard->entries, shard->count, shard->aliases,
                                    shard->alias_count, stem, &shard->text, err));
        shard->bytes = shard->text.file_bytes;
        return CAIRN_OK;
    }
    CAIRN_TRY(cairn_safetensors_write(shard->entries, shard->count, plan->export->assembly->texts,
                                      &text->head, &shard->bytes, err));
    text->texts = calloc(1, sizeof *text->texts);
    if (!text->texts) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a header");
    text->texts[0].size = text->head.size;
    text->text_count = 1;
    return CAIRN_OK;
}

static enum cairn_code refuse_empty(const struct cli_export *export, struct cairn_error *err) {
    const struct cairn_assembly *assembly = export->assembly;
    const char *source = export->cli->arguments[0];
    if (export->only)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s: no tensor has a name like %s", source,
                          export->only);
    if (!assembly->left_out_count)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s: there is no tensor", source);
    const struct cairn_assembly_left_out *first = &assembly->left_out[0]; /* "": the whole file */
    return cairn_fail(err, CAIRN_NOT_FOUND, "%s: there is no tensor; left out: %s%s%s", source,
                      cairn_short(first->name).text, *first->name ? ": " : "", first->why);
}

enum cairn_code cli_export_plan_make(struct cli_export *export, struct cli_export_plan *plan,
                                     struct cairn_error *err) {
    struct cairn_model_split split = {.file_bytes_max = export->shard_bytes_max};
    *plan = (struct cli_export_plan){.export = export};
    plan->places = calloc(export->assembly->tensor_count + 1, sizeof *plan->places);
    if (!plan->places) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the tensors' places");
    CAIRN_TRY(place_all(plan, &split, err));
    if (export->form != CLI_EXPORT_SAFETENSORS && !export->copy_tied)
        CAIRN_TRY(place_aliases(plan, err));
    if (export->form == CLI_EXPORT_DCP) {
        /* Objects are copied unchanged into the last file; those with tensors fill files, too. */
        const struct cairn_assembly *assembly = plan->export->assembly;
        for (size_t i = 0; i < assembly->object_count; i++) {
            const struct cairn_assembly_object *object = &assembly->objects[i];
            if (!is_named(plan->export, object->name)) continue;
            bool fills = object->holds_tensors || plan->count == 0;
            uint64_t bytes = object->holds_tensors ? object->size_bytes : 0;
            if (fills && cairn_model_split_begins(&split, bytes)) CAIRN_TRY(begin_shard(plan, err));
            struct cli_export_shard *shard = &plan->shards[plan->count - 1];
            shard->entries[shard->count++] = (struct cairn_safetensors_entry){
                .name = cairn_view_of(cli_export_name(plan->export, assembly->tensor_count + i)),
                .size_bytes = object->size_bytes,
                .tag = assembly->tensor_count + i};
        }
    }
    if (plan->count == 0) return refuse_empty(export, err);
    for (size_t i = 0; i < plan->count; i++) {
        struct cli_export_shard *shard = &plan->shards[i];
        const struct cli_export_naming *naming = cli_export_naming(plan->export);
        if (plan->export->form == CLI_EXPORT_DCP)
            snprintf(shard->name, sizeof shard->name, "%s%zu.%s", naming->stem, i, naming->end);
        else
            cairn_model_file_name(naming->stem, naming->end, i, plan->count, shard->name);
        CAIRN_TRY(plan_shard(plan, &plan->shards[i], err));
    }
    uint64_t windows = 0;
    for (size_t i = 0; i < plan->count; i++) {
        plan->shards[i].first_window = windows;
        windows += cairn_round_up(plan->shards[i].bytes, CLI_EXPORT_WINDOW_BYTES) /
                   CLI_EXPORT_WINDOW_BYTES;
    }
    plan->window_count = windows;
    export->file_count = plan->count;
    return CAIRN_OK;
}

void cli_export_plan_release(struct cli_export_plan *plan) {
    for (size_t i = 0; i < plan->count; i++) {
        struct cli_export_shard *shard = &plan->shards[i];
        cairn_file_release(&shard->file);
        cairn_torch_plan_release(&shard->text);
        free(shard->aliases);
        free(shard->archives);
        free(shard->entries);
    }
    free(plan->shards);
    free(plan->places);
    *plan = (struct cli_export_plan){0};
}

/* An entry's archive, under the entry's name or an alias. */
static struct cairn_dcp_item item_of(const struct cli_export_plan *plan,
                                     const struct cli_export_shard *shard, size_t e,
                                     struct cairn_view name) {
    const struct cairn_safetensors_entry *entry = &shard->entries[e];
    return (struct cairn_dcp_item){.name = name,
                                   .object = cli_export_is_object(plan, entry),
                                   .dtype = entry->dtype,
                                   .dimension_count = entry->dimension_count,
                                   .shape = entry->shape,
                                   .file = shard->name,
                                   .offset_bytes = shard->archives[e].offset_bytes,
                                   .size_bytes = shard->archives[e].size_bytes};
}

static enum cairn_code make_metadata(const struct cli_export_plan *plan, struct cairn_buf *ret,
                                     struct cairn_error *err) {
    size_t count = 0;
    for (size_t i = 0; i < plan->count; i++)
        count += plan->shards[i].count + plan->shards[i].alias_count;
    CAIRN_AUTO_HEAP struct cairn_dcp_item *items = calloc(count, sizeof *items);
    if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the index");
    count = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct cli_export_shard *shard = &plan->shards[i];
        for (size_t e = 0; e < shard->count; e++)
            items[count++] = item_of(plan, shard, e, shard->entries[e].name);
        for (size_t a = 0; a < shard->alias_count; a++)
            items[count++] = item_of(plan, shard, shard->aliases[a].of, shard->aliases[a].name);
    }
    return cairn_dcp_write(items, count, ret, err);
}

static enum cairn_code make_index(const struct cli_export_plan *plan, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *map = json_object();
    bool whole = map != NULL;
    for (size_t i = 0; whole && i < plan->count; i++) {
        const struct cli_export_shard *shard = &plan->shards[i];
        for (size_t e = 0; e < shard->count + shard->alias_count; e++) {
            struct cairn_view name =
                e < shard->count ? shard->entries[e].name : shard->aliases[e - shard->count].name;
            whole &= cairn_model_index_add(map, name, shard->name);
        }
    }
    CAIRN_AUTO_JSON json_t *index = whole ? cairn_model_index(map, plan->export->bytes) : NULL;
    if (!index) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the index");
    CAIRN_TRY(cairn_json_dump_pretty(index, ret, err));
    return cairn_buf_append_text(ret, "\n", err);
}

enum cairn_code cli_export_plan_index(const struct cli_export_plan *plan, struct cairn_buf *ret,
                                      struct cairn_error *err) {
    return plan->export->form == CLI_EXPORT_DCP ? make_metadata(plan, ret, err)
                                                : make_index(plan, ret, err);
}

enum cairn_code cli_export_already(const char *place, const char *name, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_CONFLICT,
                      "%s has a file %s already: name another folder, or remove it", place, name);
}

bool cli_export_has_index(const struct cli_export_plan *plan) {
    return plan->count > 1 || cli_export_naming(plan->export)->always;
}

/* ---- digest of the plan ---- */

void cli_export_plan_digest(const struct cli_export_plan *plan, uint8_t ret[CAIRN_SHA256_BYTES]) {
    const uint64_t numbers[] = {plan->export->form, CLI_EXPORT_WINDOW_BYTES, plan->count};
    struct cairn_sha256 sha;
    cairn_sha256_init(&sha);
    cairn_sha256_update(&sha, numbers, sizeof numbers);
    for (size_t i = 0; i < plan->count; i++) {
        const struct cli_export_shard *shard = &plan->shards[i];
        const struct cairn_torch_plan *text = &shard->text;
        const uint64_t sizes[] = {shard->bytes, shard->count, shard->alias_count, text->head.size};
        cairn_sha256_update(&sha, sizes, sizeof sizes);
        cairn_sha256_update(&sha, shard->name, strlen(shard->name) + 1);
        cairn_sha256_update(&sha, text->head.data, text->head.size);
        for (size_t e = 0; e < shard->count; e++) {
            const struct cairn_safetensors_entry *entry = &shard->entries[e];
            const uint64_t places[] = {entry->tag, entry->dtype, entry->offset_bytes,
                                       entry->size_bytes, entry->name.size};
            cairn_sha256_update(&sha, places, sizeof places);
            cairn_sha256_update(&sha, entry->name.data, entry->name.size);
        }
        for (size_t a = 0; a < shard->alias_count; a++) {
            const uint64_t places[] = {shard->aliases[a].of, shard->aliases[a].name.size};
            cairn_sha256_update(&sha, places, sizeof places);
            cairn_sha256_update(&sha, shard->aliases[a].name.data, shard->aliases[a].name.size);
        }
    }
    cairn_sha256_final(&sha, ret);
    cairn_sha256_release(&sha);
}

/* ---- renaming ---- */

#define RULES_MAX 256
#define RULE_BYTES_MAX 1024

struct rule {
    char text[RULE_BYTES_MAX + 1]; /* OLD and NEW, each NUL-terminated */
    const char *old, *new;
    bool used;
};
struct renaming {
    const struct cairn_assembly *assembly;
    const char *prefix;
    struct rule *rules;
    size_t count;
    bool prefix_used;
};

void cli_names_release(struct cli_names *names) {
    for (size_t i = 0; i < names->count; i++) free(names->names[i]);
    free(names->names);
    *names = (struct cli_names){0};
}

static unsigned stars(const char *text) {
    unsigned count = 0;
    for (; *text; text++) count += *text == '*';
    return count;
}

static enum cairn_code read_rule(const char *begin, size_t size, struct rule *ret,
                                 struct cairn_error *err) {
    if (size > RULE_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "--rename: a rule of more than %d bytes",
                          RULE_BYTES_MAX);
    memcpy(ret->text, begin, size);
    ret->text[size] = '\0';
    char *equals = strchr(ret->text, '=');
    bool sound = equals && equals != ret->text && equals[1];
    if (sound) {
        *equals = '\0';
        ret->old = ret->text;
        ret->new = equals + 1;
        sound = stars(ret->old) <= 1 && stars(ret->new) == stars(ret->old);
        if (!sound) *equals = '=';
    }
    if (sound) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "--rename \"%s\": it is OLD=NEW, each with one * or both without",
                      cairn_short(ret->text).text);
}

static enum cairn_code read_rules(struct renaming *renaming, const char *text,
                                  struct cairn_error *err) {
    renaming->rules = calloc(RULES_MAX, sizeof *renaming->rules);
    if (!renaming->rules) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for rules");
    for (const char *at = text; at;) {
        const char *comma = strchr(at, ',');
        if (renaming->count == RULES_MAX)
            return cairn_fail(err, CAIRN_INVALID, "--rename: more than %d rules", RULES_MAX);
        CAIRN_TRY(read_rule(at, comma ? (size_t)(comma - at) : strlen(at),
                            &renaming->rules[renaming->count++], err));
        at = comma ? comma + 1 : NULL;
    }
    return CAIRN_OK;
}

/* *ret: the text matched by the star; false: no match. */
static bool match(const struct rule *rule, struct cairn_view name, struct cairn_view *ret) {
    const char *star = strchr(rule->old, '*'), *text = name.data;
    size_t before = star ? (size_t)(star - rule->old) : strlen(rule->old);
    size_t behind = star ? strlen(star + 1) : 0;
    if (name.size < before + behind || (!star && name.size != before)) return false;
    *ret = (struct cairn_view){text + before, name.size - before - behind};
    return memcmp(text, rule->old, before) == 0 &&
           (!star || memcmp(text + name.size - behind, star + 1, behind) == 0);
}

static enum cairn_code put_new(struct renaming *renaming, struct cairn_view name,
                               struct cairn_buf *ret, struct cairn_error *err) {
    size_t prefix = renaming->prefix ? strlen(renaming->prefix) : 0;
    struct cairn_view middle;
    if (prefix && name.size >= prefix && memcmp(name.data, renaming->prefix, prefix) == 0) {
        name = (struct cairn_view){(const char *)name.data + prefix, name.size - prefix};
        renaming->prefix_used = true;
    }
    for (size_t r = 0; r < renaming->count; r++) {
        struct rule *rule = &renaming->rules[r];
        if (!match(rule, name, &middle)) continue;
        rule->used = true;
        const char *star = strchr(rule->new, '*');
        if (!star) return cairn_buf_append_text(ret, rule->new, err);
        CAIRN_TRY(cairn_buf_append(ret, rule->new, (size_t)(star - rule->new), err));
        CAIRN_TRY(cairn_buf_append(ret, middle.data, middle.size, err));
        return cairn_buf_append_text(ret, star + 1, err);
    }
    return cairn_buf_append(ret, name.data, name.size, err);
}

static enum cairn_code rename_one(struct renaming *renaming, const char *name, char **ret,
                                  struct cairn_error *err) {
    CAIRN_AUTO(buf) made = {0};
    struct cairn_view own = cairn_view_of(name);
    const char *what = NULL;
    if (cairn_text_starts(name, CAIRN_ASSEMBLY_OPTIMIZER)) {
        size_t head = strlen(CAIRN_ASSEMBLY_OPTIMIZER);
        what = strrchr(name + head, '.');
        if (what) own = (struct cairn_view){name + head, (size_t)(what - name) - head};
        if (what) CAIRN_TRY(cairn_buf_append_text(&made, CAIRN_ASSEMBLY_OPTIMIZER, err));
    }
    size_t before = made.size;
    CAIRN_TRY(put_new(renaming, own, &made, err));
    if (made.size == before)
        return cairn_fail(err, CAIRN_INVALID, "%s would have no name left", cairn_short(name).text);
    if (what) CAIRN_TRY(cairn_buf_append_text(&made, what, err));
    if (made.size > CAIRN_TENSOR_NAME_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s would have a name of %zu bytes, at most %d are taken",
                          cairn_short(name).text, made.size, CAIRN_TENSOR_NAME_BYTES_MAX);
    *ret = strdup(made.data);
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
}

static const char *old_name(const struct cairn_assembly *assembly, size_t number) {
    return number < assembly->tensor_count
               ? assembly->tensors[number].name
               : assembly->objects[number - assembly->tensor_count].name;
}

static enum cairn_code rename_all(struct renaming *renaming,
                                  bool (*wanted)(const void *owner, size_t number),
                                  const void *owner, struct cli_names *ret,
                                  struct cairn_error *err) {
    const struct cairn_assembly *assembly = renaming->assembly;
    struct cairn_names taken = {0};
    CAIRN_AUTO_HEAP size_t *numbers = calloc(ret->count + 1, sizeof *numbers); /* sorted by name */
    enum cairn_code code =
        numbers ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    uint32_t count = 0;
    for (size_t i = 0; code == CAIRN_OK && i < ret->count; i++) {
        /* A tensor in an object has no name there, so no rule is for it. */
        if (i < assembly->tensor_count && assembly->tensors[i].in_object) continue;
        code = rename_one(renaming, old_name(assembly, i), &ret->names[i], err);
        if (code || !wanted(owner, i)) continue;
        uint32_t number = count;
        code = cairn_names_add(&taken, cairn_view_of(ret->names[i]), &number, err);
        if (code == CAIRN_OK && number < count)
            code = cairn_fail(err, CAIRN_INVALID, "%s and %s would both be %s",
                              cairn_short(old_name(assembly, numbers[number])).text,
                              cairn_short(old_name(assembly, i)).text,
                              cairn_short(ret->names[i]).text);
        numbers[count++] = i;
    }
    cairn_names_release(&taken);
    return code;
}

static enum cairn_code check_used(const struct renaming *renaming, struct cairn_error *err) {
    if (renaming->prefix && !renaming->prefix_used)
        return cairn_fail(err, CAIRN_INVALID, "--strip-prefix %s: no name begins so",
                          cairn_short(renaming->prefix).text);
    for (size_t r = 0; r < renaming->count; r++)
        if (!renaming->rules[r].used)
            return cairn_fail(err, CAIRN_INVALID, "--rename %s=%s: no name is like it",
                              renaming->rules[r].old, renaming->rules[r].new);
    return CAIRN_OK;
}

enum cairn_code cli_names_make(const struct cairn_assembly *assembly, const char *prefix,
                               const char *rules, bool (*wanted)(const void *owner, size_t number),
                               const void *owner, struct cli_names *ret, struct cairn_error *err) {
    struct renaming renaming = {.assembly = assembly, .prefix = prefix};
    *ret = (struct cli_names){0};
    if (!prefix && !rules) return CAIRN_OK;
    ret->count = assembly->tensor_count + assembly->object_count;
    ret->names = calloc(ret->count + 1, sizeof *ret->names);
    if (!ret->names) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    enum cairn_code code = rules ? read_rules(&renaming, rules, err) : CAIRN_OK;
    if (code == CAIRN_OK) code = rename_all(&renaming, wanted, owner, ret, err);
    if (code == CAIRN_OK) code = check_used(&renaming, err);
    free(renaming.rules);
    if (code) cli_names_release(ret);
    return code;
}

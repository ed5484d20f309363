/* SPDX-License-Identifier: Apache-2.0 */
/* cairn inspect: lists what another program's checkpoint holds, without reading tensors. */

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "api/table/dtype.h"
#include "cli/convert/inside.h"
#include "cli/shell/output.h"
#include "common/buf.h"
#include "common/file.h"
#include "common/text.h"
#include "formats/assembly/models.h"
#include "formats/input.h"

struct named_input {
    struct cairn_input input; /* points into this struct, which must not move */
    struct cairn_file file;
    struct cairn_cli_bucket_source *bucket; /* NULL: a local file */
};

static enum cairn_code open_file(const char *path, struct named_input *ret,
                                 struct cairn_error *err) {
    struct stat status;
    if (stat(path, &status) != 0)
        return errno == ENOENT ? cairn_fail(err, CAIRN_NOT_FOUND, "no such file")
                               : cairn_fail_errno(err, "cannot be looked at");
    if (!S_ISREG(status.st_mode)) return cairn_fail(err, CAIRN_INVALID, "it is not a file");
    CAIRN_TRY(cairn_file_open_below(AT_FDCWD, path, CAIRN_LINKS_FOLLOWED, &ret->file, err));
    return cairn_input_of_file(&ret->file, &ret->input, err);
}

static enum cairn_code open_object(const struct cli *cli, const char *url, struct named_input *ret,
                                   struct cairn_error *err) {
    struct cli_object object;
    CAIRN_TRY(cli_bucket_source_open(cli, url, &ret->bucket, err));
    CAIRN_TRY(cli_bucket_source_object(ret->bucket, "", &object, err));
    ret->input = object.input;
    return CAIRN_OK;
}

static void close_named(struct named_input *input) {
    cairn_file_release(&input->file);
    cairn_cli_bucket_source_free(input->bucket);
    *input = (struct named_input){0};
}

#define SHOWN_BYTES_MAX 65536 /* longer texts are shown as their length */

struct inspection {
    const struct cairn_torch *torch;
    json_t *tensors, *values, *left_out, *plain;
    struct cairn_torch_list list; /* of a torch file's tensors */
};

static enum cairn_code no_memory(struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for what the file holds");
}

static json_t *json_sizes(const uint64_t *sizes, unsigned count) {
    json_t *list = json_array();
    for (unsigned d = 0; d < count; d++)
        json_array_append_new(list, json_integer((json_int_t)sizes[d]));
    return list;
}

static enum cairn_code check_name(struct cairn_view name, struct cairn_error *err) {
    char begin[64];
    if (name.size <= CAIRN_TENSOR_NAME_BYTES_MAX) return CAIRN_OK;
    snprintf(begin, sizeof begin, "%.*s", (int)cairn_utf8_border(name.data, sizeof begin - 1),
             (const char *)name.data);
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "tensor %s...: its name has %zu bytes, at most %d are taken", begin,
                      name.size, CAIRN_TENSOR_NAME_BYTES_MAX);
}

static json_t *json_number(double real) {
    if (isnan(real)) return json_string("nan");
    if (isinf(real)) return json_string(real > 0 ? "inf" : "-inf");
    return json_real(real);
}

/* The value as JSON; values that JSON lacks become text. */
static json_t *json_plain(const struct cairn_pickle_value *value) {
    const struct cairn_torch_name *name = cairn_torch_name_at(value->global);
    char text[64];
    switch (value->kind) {
    case CAIRN_PICKLE_NONE:
        return json_null();
    case CAIRN_PICKLE_BOOL:
        return json_boolean(value->truth);
    case CAIRN_PICKLE_INTEGER:
        return json_integer(value->integer);
    case CAIRN_PICKLE_REAL:
        return json_number(value->real);
    case CAIRN_PICKLE_TEXT:
        if (value->text.size <= SHOWN_BYTES_MAX)
            return json_stringn(value->text.data, value->text.size);
        snprintf(text, sizeof text, "(text of %zu bytes)", value->text.size);
        return json_string(text);
    case CAIRN_PICKLE_GLOBAL:
        return name ? json_sprintf("%s.%s", name->module, name->name) : json_null();
    default:
        snprintf(text, sizeof text, "(%s of %zu bytes)",
                 value->kind == CAIRN_PICKLE_LONG ? "number" : "bytes", value->text.size);
        return json_string(text);
    }
}

/* Bytes pickled as Latin-1 text: one character per byte. */
static json_t *json_encoded(const struct cairn_pickle *values,
                            const struct cairn_pickle_value *object) {
    const struct cairn_pickle_value *arguments = cairn_pickle_at(values, object->arguments);
    const struct cairn_pickle_value *text =
        cairn_pickle_at(values, arguments->count ? arguments->items[0] : 0);
    size_t bytes = 0;
    if (text->kind != CAIRN_PICKLE_TEXT && text->kind != CAIRN_PICKLE_NONE) return NULL;
    for (size_t i = 0; text->kind == CAIRN_PICKLE_TEXT && i < text->text.size; i++)
        bytes += (((const uint8_t *)text->text.data)[i] & 0xc0) != 0x80;
    return json_sprintf("(bytes of %zu bytes)", bytes);
}

static json_t *json_leaf(const struct inspection *inspection, enum cairn_torch_kind kind,
                         cairn_pickle_ref ref) {
    const struct cairn_pickle *values = &inspection->torch->values;
    const struct cairn_pickle_value *value = cairn_pickle_at(values, ref);
    if (kind == CAIRN_TORCH_LEAF_PLAIN) return json_plain(value);
    if (kind == CAIRN_TORCH_LEAF_EMPTY)
        return value->kind == CAIRN_PICKLE_DICT || value->kind == CAIRN_PICKLE_OBJECT
                   ? json_object()
                   : json_array();
    const struct cairn_torch_name *name = cairn_torch_maker(values, value);
    char class[CAIRN_TORCH_CLASS_BYTES];
    json_t *bytes =
        name && name->meaning == CAIRN_TORCH_ENCODED ? json_encoded(values, value) : NULL;
    if (bytes) return bytes;
    cairn_torch_class_text(values, ref, class);
    return json_sprintf("(%s)", class);
}

static enum cairn_code visit(void *context, const char *path, enum cairn_torch_kind kind,
                             cairn_pickle_ref ref, struct cairn_error *err) {
    struct inspection *inspection = context;
    if (kind == CAIRN_TORCH_LEAF_TENSOR) {
        CAIRN_TRY(check_name(cairn_view_of(path), err));
        enum cairn_code code =
            cairn_torch_list_add(&inspection->list, inspection->torch, path, ref, err);
        return cairn_within(err, code, "tensor %s", path);
    }
    json_t *row = json_pack("{s:s, s:o}", "name", path, "value", json_leaf(inspection, kind, ref));
    return json_array_append_new(inspection->values, row) == 0 ? CAIRN_OK : no_memory(err);
}

static json_t *json_tensor(const struct cairn_torch_listed *listed, const char *alias_of) {
    const struct cairn_torch_tensor *tensor = &listed->tensor;
    const char *kind = alias_of ? "alias" : tensor->contiguous ? "contiguous" : "strided";
    json_t *row =
        json_pack("{s:s, s:s, s:o, s:s, s:I, s:s%, s:I}", "name", listed->name, "dtype",
                  cairn_dtype_text(tensor->dtype), "shape",
                  json_sizes(tensor->shape, tensor->dimension_count), "kind", kind, "bytes",
                  (json_int_t)tensor->size_bytes, "storage", tensor->storage.data,
                  tensor->storage.size, "offset", (json_int_t)tensor->offset_bytes);
    if (row && !tensor->contiguous)
        json_object_set_new(row, "stride", json_sizes(tensor->stride, tensor->dimension_count));
    if (row && alias_of) json_object_set_new(row, "alias_of", json_string(alias_of));
    return row;
}

/* Rows in file order; of tensors with the same elements all but the first are aliases. */
static enum cairn_code list_tensors(struct inspection *inspection, struct cairn_error *err) {
    const struct cairn_torch_list *list = &inspection->list;
    CAIRN_TRY(cairn_torch_list_join(&inspection->list, err));
    for (size_t i = 0; i < list->count; i++) {
        size_t first = list->items[i].first;
        json_t *row = json_tensor(&list->items[i], first == i ? NULL : list->items[first].name);
        if (json_array_append_new(inspection->tensors, row) != 0) return no_memory(err);
    }
    return CAIRN_OK;
}

/* Values that no export of the file keeps. */
static enum cairn_code list_left_out(const struct cli *cli, struct inspection *inspection,
                                     struct cairn_error *err) {
    struct cairn_assembly values = {0};
    const struct cairn_torch_plain plain = {.file = inspection->torch};
    const struct cli_left_out left_out = {.assembly = &values, .keeps_objects = true};
    enum cairn_code code = cairn_torch_plain_add(&plain, &values, err);
    if (code == CAIRN_OK)
        code = cli_left_out_rows(&left_out, inspection->left_out, inspection->plain, err);
    if (code == CAIRN_OK && cli->output == CLI_TABLE) cli_left_out_note(&left_out);
    cairn_assembly_release(&values);
    return code;
}

static enum cairn_code inspect_torch(const struct cli *cli, const struct cairn_input *input,
                                     struct inspection *inspection, const char **ret_format,
                                     struct cairn_error *err) {
    CAIRN_AUTO(torch) file = {0};
    CAIRN_TRY(cairn_torch_open(input, cli->strict, &file, err));
    *ret_format = file.legacy ? "torch-legacy" : "torch";
    inspection->torch = &file;
    enum cairn_code code = cairn_torch_walk(&file, visit, inspection, err);
    if (code == CAIRN_OK) code = list_tensors(inspection, err);
    if (code == CAIRN_OK) code = list_left_out(cli, inspection, err);
    cairn_torch_list_release(&inspection->list);
    return code;
}

static enum cairn_code inspect_safetensors(const struct cairn_input *input,
                                           struct inspection *inspection, struct cairn_error *err) {
    CAIRN_AUTO(buf) head = {0};
    CAIRN_AUTO(safetensors) file = {0};
    CAIRN_AUTO_JSON json_t *sharding = NULL;
    CAIRN_TRY(cairn_safetensors_load(input, &head, &file, err));
    CAIRN_TRY(cairn_safetensors_sharding(&file, &sharding, err));
    for (size_t i = 0; i < file.count; i++) {
        const struct cairn_safetensors_entry *entry = &file.entries[i];
        CAIRN_TRY(check_name(entry->name, err));
        const json_t *part = json_object_getn(sharding, entry->name.data, entry->name.size);
        json_t *row = json_pack(
            "{s:s%, s:s, s:o, s:s, s:I, s:I}", "name", entry->name.data, entry->name.size, "dtype",
            cairn_dtype_text(entry->dtype), "shape",
            json_sizes(entry->shape, entry->dimension_count), "kind", part ? "piece" : "contiguous",
            "bytes", (json_int_t)entry->size_bytes, "offset", (json_int_t)entry->offset_bytes);
        if (row && part) json_object_set(row, "starts", json_object_get(part, "saved_offsets"));
        if (json_array_append_new(inspection->tensors, row) != 0) return no_memory(err);
    }
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(file.document, "__metadata__"), key, value) {
        json_t *row = json_pack("{s:s, s:O}", "name", key, "value", value);
        if (json_array_append_new(inspection->values, row) != 0) return no_memory(err);
    }
    return CAIRN_OK;
}

static json_t *json_assembled(const struct cairn_assembly *assembly,
                              const struct cairn_assembly_tensor *tensor) {
    bool alias = tensor->alias_of != CAIRN_ASSEMBLY_NO_ALIAS;
    const char *kind = alias                     ? "alias"
                       : tensor->boxed           ? "boxes"
                       : tensor->piece_count > 1 ? "pieces"
                                                 : "contiguous";
    json_t *row = json_pack("{s:s, s:s, s:o, s:s, s:I}", "name", tensor->name, "dtype",
                            cairn_dtype_text(tensor->dtype), "shape",
                            json_sizes(tensor->shape, tensor->dimension_count), "kind", kind,
                            "bytes", (json_int_t)tensor->size_bytes);
    if (row && alias)
        json_object_set_new(row, "alias_of", json_string(assembly->tensors[tensor->alias_of].name));
    if (row && !alias)
        json_object_set_new(row, "pieces", json_integer((json_int_t)tensor->piece_count));
    return row;
}

/* The tensors that an export would write, and the names it would leave out. */
static enum cairn_code inspect_path(const struct cli *cli, struct inspection *inspection,
                                    const char **ret_format, uint64_t *ret_bytes,
                                    struct cairn_error *err) {
    struct cli_weights weights;
    CAIRN_TRY(cli_weights_open_path(cli, cli->arguments[0], true, &weights, err));
    const struct cairn_assembly *assembly = &weights.assembly;
    bool fits = true;
    for (size_t i = 0; i < assembly->tensor_count; i++)
        fits &= json_array_append_new(inspection->tensors,
                                      json_assembled(assembly, &assembly->tensors[i])) == 0;
    *ret_bytes = 0;
    for (size_t i = 0; i < assembly->input_count; i++)
        *ret_bytes += assembly->inputs[i]->size_bytes;
    const char *key;
    json_t *text;
    json_object_foreach(assembly->texts, key, text) {
        fits &= json_array_append_new(inspection->values,
                                      json_pack("{s:s, s:O}", "name", key, "value", text)) == 0;
    }
    *ret_format = cairn_format_tag(weights.format);
    const struct cli_left_out left_out = {.assembly = assembly, .keeps_texts = true};
    enum cairn_code code = fits ? CAIRN_OK : no_memory(err);
    if (code == CAIRN_OK) code = cli_weights_add_plain(&weights, false, err);
    if (code == CAIRN_OK)
        code = cli_left_out_rows(&left_out, inspection->left_out, inspection->plain, err);
    if (code == CAIRN_OK && cli->output == CLI_TABLE) cli_left_out_note(&left_out);
    cli_weights_release(&weights);
    return code;
}

static enum cairn_code print_inspection(const struct cli *cli, const struct inspection *inspection,
                                        const char *format, uint64_t size_bytes,
                                        struct cairn_error *err) {
    if (cli_wants_json(cli)) {
        CAIRN_AUTO_JSON json_t *answer = json_pack(
            "{s:s, s:s, s:I, s:O, s:O, s:O, s:O}", "file", cli->arguments[0], "format", format,
            "bytes", (json_int_t)size_bytes, "tensors", inspection->tensors, "values",
            inspection->values, "left_out", inspection->left_out, "plain", inspection->plain);
        if (!answer) return cairn_fail(err, CAIRN_INVALID, "the file's name is not UTF-8 text");
        return cli_print_reply(cli, answer, err);
    }
    CAIRN_TRY(cli_print(cli, inspection->tensors, &cli_tensor_table, err));
    if (cli->output != CLI_TABLE) return CAIRN_OK;
    uint64_t bytes = 0;
    CAIRN_JSON_EACH(row, inspection->tensors) {
        if (!json_object_get(row, "alias_of"))
            bytes += (uint64_t)json_integer_value(json_object_get(row, "bytes"));
    }
    cli_note("%s: %s of %s, %s%s", format,
             cairn_counted(json_array_size(inspection->tensors), "tensor").text,
             cli_size(bytes).text,
             cairn_counted(json_array_size(inspection->values), "other value").text,
             json_array_size(inspection->values) ? " (--json shows them)" : "");
    return CAIRN_OK;
}

/* Inspects one file or S3 object of *ret_bytes; *ret_format: NULL: neither of torch nor of
 * safetensors. */
static enum cairn_code inspect_input(const struct cli *cli, struct inspection *inspection,
                                     const char **ret_format, uint64_t *ret_bytes,
                                     struct cairn_error *err) {
    CAIRN_RELEASED(close_named) struct named_input opened = {0};
    const char *name = cli->arguments[0];
    bool object = cli_is_bucket(name);
    CAIRN_TRY(object ? open_object(cli, name, &opened, err) : open_file(name, &opened, err));
    *ret_bytes = opened.input.size_bytes;
    enum cairn_format format;
    CAIRN_TRY(cairn_format_of_file(&opened.input, name, &format, err));
    if (format == CAIRN_FORMAT_TORCH)
        return cairn_damaged(inspect_torch(cli, &opened.input, inspection, ret_format, err), err);
    if (format != CAIRN_FORMAT_SAFETENSORS) return CAIRN_OK;
    *ret_format = cairn_format_tag(format);
    return cairn_damaged(inspect_safetensors(&opened.input, inspection, err), err);
}

static enum cairn_code run_inspect(struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *tensors = json_array(), *values = json_array();
    CAIRN_AUTO_JSON json_t *left_out = json_array();
    CAIRN_AUTO_JSON json_t *plain = json_array();
    struct inspection inspection = {
        .tensors = tensors, .values = values, .left_out = left_out, .plain = plain};
    const char *path = cli->arguments[0], *format = NULL;
    struct stat status;
    uint64_t bytes = 0;
    if (!tensors || !values || !left_out || !plain) return no_memory(err);
    const char *slash = strrchr(path, '/');
    bool folder = (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) ||
                  cairn_model_is_index(slash ? slash + 1 : path);
    if (!folder) {
        enum cairn_code code = inspect_input(cli, &inspection, &format, &bytes, err);
        bool prefix = code == CAIRN_NOT_FOUND && cli_is_bucket(path);
        if (code && !prefix) return cairn_within(err, code, "%s", cairn_short(path).text);
    }
    if (!format) CAIRN_TRY(inspect_path(cli, &inspection, &format, &bytes, err));
    return print_inspection(cli, &inspection, format, bytes, err);
}

static const struct cli_flag inspect_flags[] = {
    CLI_FLAG_TP_RULE,
    CLI_FLAG_STRICT,
};

const struct cli_verb cli_verb_inspect = {
    CLI_VERB(inspect),
    .synopsis = "cairn inspect [flags] FILE|FOLDER|s3://bucket/path",
    .purpose = "List what a torch or safetensors file holds, or a folder of a checkpoint.",
    .examples = "  cairn inspect model.safetensors\n"
                "  cairn inspect checkpoints --json\n"
                "  cairn inspect s3://bucket/llm/optimizer.pt\n",
    CLI_TAKES(inspect_flags, 1, 1),
    .takes_paths = true,
};

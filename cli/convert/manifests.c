/* SPDX-License-Identifier: Apache-2.0 */
/* Two lists by name, field by field; see manifests.h. */
#include "cli/convert/manifests.h"

#include <stdio.h>

#include "cli/bucket/stored.h"
#include "cli/shell/call.h"
#include "cli/shell/output.h"
#include "cli/shell/sizes.h"
#include "common/text.h"

#define LIST_MAX 1000000
#define FIELDS_MAX 4

struct side {
    struct cairn_cli_stored stored;
    struct cairn_msg_version_row version; /* of stored.version */
};

/* What of a list's items is compared. */
static const struct list {
    const char *one, *many;
    const char *fields[FIELDS_MAX];
} shard_list = {"shard", "shards", {"bytes", "crc32c", "rank", "content"}},
  tensor_list = {"tensor", "tensors", {"dtype", "shape", "kind", "alias_of"}};

/* ---- loading ---- */

static enum cairn_code load_list(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                 const char *tail, json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) path = {0};
    bool more = false;
    *ret = json_array();
    CAIRN_TRY(cairn_cli_path(ref, tail, &path, err));
    CAIRN_TRY(cairn_cli_list(cli, path.data, LIST_MAX, *ret, &more, err));
    if (!more) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TOO_LARGE, "%s has more than %d %s", ref->version, LIST_MAX,
                      tail + 1);
}

static enum cairn_code load_side(const struct cairn_cli *cli, const struct cairn_cli_ref *named,
                                 struct side *ret, struct cairn_error *err) {
    struct cairn_cli_ref ref = *named;
    if (cli->store)
        CAIRN_TRY(cairn_cli_stored_version(cli, &ref, &ret->stored, err));
    else
        CAIRN_TRY(cairn_cli_call(cli, &ref, (struct cairn_cli_call){0}, &ret->stored.version, err));
    CAIRN_TRY(
        cairn_cli_reply_read(CAIRN_MESSAGE_version_row, ret->stored.version, &ret->version, err));
    if (strcmp(ret->version.state, "committed") != 0)
        return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s is %s: its list of shards is not whole",
                          ret->version.version, ret->version.state);
    if (cli->store) return CAIRN_OK;
    /* By its id: a step may mean another version by now. */
    cairn_text_copy(ref.version, sizeof ref.version, ret->version.version);
    CAIRN_TRY(load_list(cli, &ref, "/shards", &ret->stored.shards, err));
    if (ret->version.layout) CAIRN_TRY(load_list(cli, &ref, "/tensors", &ret->stored.tensors, err));
    return CAIRN_OK;
}

/* ---- comparing ---- */

static const char *name_of(const json_t *item) {
    const char *name = json_string_value(json_object_get(item, "name"));
    return name ? name : "";
}

/* Null and absent are the same. */
static bool same_field(const json_t *a, const json_t *b, const char *field) {
    const json_t *x = json_object_get(a, field), *y = json_object_get(b, field);
    bool none_x = !x || json_is_null(x), none_y = !y || json_is_null(y);
    return none_x || none_y ? none_x == none_y : json_equal(x, y);
}

static json_t *picked(const json_t *item, const struct list *list) {
    json_t *row = item ? json_object() : json_null();
    for (size_t i = 0; item && i < FIELDS_MAX; i++) {
        json_t *value = json_object_get(item, list->fields[i]);
        json_object_set_new(row, list->fields[i], value ? json_incref(value) : json_null());
    }
    return row;
}

static void add_row(const struct list *list, const json_t *a, const json_t *b, json_t *rows) {
    json_t *fields = json_array();
    for (size_t i = 0; a && b && i < FIELDS_MAX; i++)
        if (!same_field(a, b, list->fields[i]))
            json_array_append_new(fields, json_string(list->fields[i]));
    if (a && b && !json_array_size(fields)) {
        json_decref(fields);
        return;
    }
    const char *verdict = a && b ? "differs" : a ? "only in A" : "only in B";
    json_array_append_new(rows, json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", name_of(a ? a : b),
                                          "verdict", verdict, "fields", fields, "a",
                                          picked(a, list), "b", picked(b, list)));
}

/* {"same": 3, "differ": [...]} of two lists; NULL is an empty one. */
static json_t *compare_lists(const struct list *list, const json_t *a, const json_t *b) {
    CAIRN_AUTO_JSON json_t *of_a = json_object(), *of_b = json_object();
    json_t *rows = json_array(), *item = NULL;
    size_t index = 0, both = 0, only = 0;
    json_array_foreach(b, index, item) json_object_set(of_b, name_of(item), item);
    json_array_foreach(a, index, item) {
        const json_t *other = json_object_get(of_b, name_of(item));
        json_object_set(of_a, name_of(item), item);
        add_row(list, item, other, rows);
        if (other) both++;
    }
    only = json_array_size(rows);
    json_array_foreach(b, index, item)
        if (!json_object_get(of_a, name_of(item))) add_row(list, NULL, item, rows);
    /* Of the rows before those of B alone, the ones with both sides differ. */
    size_t differ = 0;
    for (size_t i = 0; i < only; i++)
        if (!json_is_null(json_object_get(json_array_get(rows, i), "b"))) differ++;
    return json_pack("{s:I, s:o}", "same", (json_int_t)(both - differ), "differ", rows);
}

/* ---- printing ---- */

static void value_text(const json_t *value, char *ret, size_t capacity) {
    CAIRN_AUTO(buf) shown = {0};
    if (json_is_string(value))
        snprintf(ret, capacity, "%s", json_string_value(value));
    else if (!value || json_is_null(value) || cairn_json_show(value, &shown, NULL))
        snprintf(ret, capacity, "none");
    else
        snprintf(ret, capacity, "%s", shown.data);
}

static void print_row(const struct list *list, const json_t *row) {
    char line[2200], x[160], y[160];
    size_t index = 0;
    const json_t *field = NULL, *a = json_object_get(row, "a"), *b = json_object_get(row, "b");
    const char *verdict = json_string_value(json_object_get(row, "verdict"));
    size_t used = (size_t)snprintf(line, sizeof line, "%s %s: ", list->one, name_of(row));
    if (json_is_null(a) || json_is_null(b)) {
        const json_t *size = json_object_get(json_is_null(a) ? b : a, "bytes");
        char text[24] = "";
        if (size) cairn_cli_size((uint64_t)json_integer_value(size), text);
        snprintf(line + used, sizeof line - used, "%s%s%s%s", verdict, size ? " (" : "", text,
                 size ? ")" : "");
    }
    json_array_foreach(json_object_get(row, "fields"), index, field) {
        const char *name = json_string_value(field);
        value_text(json_object_get(a, name), x, sizeof x);
        value_text(json_object_get(b, name), y, sizeof y);
        used = strlen(line);
        snprintf(line + used, sizeof line - used, "%s%s %s and %s", index ? ", " : "", name, x, y);
    }
    cairn_cli_clean(line);
    puts(line);
}

static void print_list(const struct list *list, const json_t *told) {
    size_t index = 0;
    const json_t *row = NULL, *rows = json_object_get(told, "differ");
    json_array_foreach(rows, index, row) print_row(list, row);
}

static void print_sum(const struct list *list, const json_t *told, const char *before) {
    uint64_t same = (uint64_t)json_integer_value(json_object_get(told, "same"));
    printf("%s%s the same, %zu not", before, cairn_cli_counted(same, list->one, list->many).text,
           json_array_size(json_object_get(told, "differ")));
}

static void print_side(const char *which, const struct side *side) {
    char size[24];
    cairn_cli_size(side->version.bytes, size);
    printf("%s  %s/%s@%llu %s: %s in %s of %s\n", which, side->version.project, side->version.run,
           (unsigned long long)side->version.step, side->version.version, size,
           cairn_cli_counted(side->version.shards, "shard", "shards").text,
           cairn_cli_counted(side->version.world_size, "rank", "ranks").text);
}

static enum cairn_code report_lists(const struct cairn_cli *cli, const struct side sides[2],
                                    struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *shards =
        compare_lists(&shard_list, sides[0].stored.shards, sides[1].stored.shards);
    CAIRN_AUTO_JSON json_t *tensors =
        compare_lists(&tensor_list, sides[0].stored.tensors, sides[1].stored.tensors);
    bool equal = !json_array_size(json_object_get(shards, "differ")) &&
                 !json_array_size(json_object_get(tensors, "differ"));
    CAIRN_AUTO_JSON json_t *answer =
        json_pack("{s:s, s:s, s:b, s:O, s:O}", "a", sides[0].version.version, "b",
                  sides[1].version.version, "equal", equal, "shards", shards, "tensors", tensors);
    if (!answer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a comparison");
    if (cli->output != CAIRN_CLI_TABLE)
        return cairn_cli_print_json(answer, cli->output == CAIRN_CLI_JSON, err);
    print_side("A", &sides[0]);
    print_side("B", &sides[1]);
    print_list(&shard_list, shards);
    print_list(&tensor_list, tensors);
    print_sum(&shard_list, shards, "");
    print_sum(&tensor_list, tensors, "; ");
    puts("");
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

enum cairn_code cairn_cli_manifests_diff(const struct cairn_cli *cli,
                                         const struct cairn_cli_ref refs[2],
                                         struct cairn_error *err) {
    struct side sides[2] = {{.version = {0}}};
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < 2 && code == CAIRN_OK; i++) {
        code = load_side(cli, &refs[i], &sides[i], err);
        if (code != CAIRN_OK) code = cairn_within(err, code, "%s", cli->arguments[i]);
    }
    if (code == CAIRN_OK) code = report_lists(cli, sides, err);
    cairn_cli_stored_release(&sides[0].stored);
    cairn_cli_stored_release(&sides[1].stored);
    return code;
}

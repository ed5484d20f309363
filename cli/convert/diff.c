/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn diff: compares two checkpoints: shards and tensors by metadata, or element by element.
 *
 * Promise: 1   by metadata: every shard and tensor of either side is the same, different (naming
 *              the fields) or on one side only. Shards compare size, checksum, rank and content;
 *              tensors type, shape, kind and alias target. An uncommitted version, whose list is
 *              incomplete, is CAIRN_NOT_COMMITTED.
 *          2   by values: every name is reported as on one side only, of another shape or type, or
 *              compared by element: by bytes if the types are equal, by value between two float
 *              types.
 *          3   memory is workers * 4 windows of at most 8 MiB.
 * Limits:  1,000,000 shards and as many tensors per side, in memory.
 */

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "cli/convert/inside.h"
#include "cli/shell/output.h"
#include "common/memory.h"
#include "common/text.h"
#include "formats/assembly/assembly.h"
#include "formats/convert.h"

enum verdict {
    CLI_SAME,
    CLI_DIFFERS,
    CLI_OTHER_SHAPE,
    CLI_OTHER_TYPE, /* not comparable by value */
    CLI_ONLY_A,
    CLI_ONLY_B
};
struct pair {
    const struct cairn_assembly_tensor *a, *b; /* NULL: missing on that side */
    enum verdict verdict;
    uint64_t elements, differing;
    bool measured;  /* numeric elements: largest is known */
    double largest; /* largest difference; NaN only counts as differing */
};
struct comparison {
    const struct cli *cli;
    const struct cairn_assembly *a, *b;
    const char *only; /* glob of names, or NULL */
    /* Set by _run; owned, sorted by name. */
    struct pair *pairs;
    size_t count;
};

/* ---- by values: merges the names, then compares windows in parallel ---- */

#define WINDOW_ELEMENTS (UINT64_C(1) << 20)
#define ELEMENT_BYTES_MAX 16
#define WINDOW_BYTES (WINDOW_ELEMENTS * ELEMENT_BYTES_MAX)

struct job {
    struct comparison *compare;
    struct cli_meter meter;
    struct cli_workers workers;
    struct { /* guarded by the workers' lock */
        size_t pair;
        uint64_t element; /* next window of the pair */
    } locked;
};
struct hand {
    char *a, *b;   /* stored bytes */
    float *x, *y;  /* as F32 */
    uint64_t size; /* elements */
};

static const struct cairn_assembly_tensor *bytes_of(const struct cairn_assembly *assembly,
                                                    const struct cairn_assembly_tensor *tensor) {
    return tensor->alias_of == CAIRN_ASSEMBLY_NO_ALIAS ? tensor
                                                       : &assembly->tensors[tensor->alias_of];
}

/* Types below 8 bits are compared by bytes. */
static uint64_t width_of(unsigned dtype) {
    unsigned bits = cairn_dtype_bits(dtype);
    return bits < 8 ? 1 : bits / 8;
}

static int by_name(const void *a, const void *b) {
    const struct cairn_assembly_tensor *x = *(const struct cairn_assembly_tensor *const *)a;
    const struct cairn_assembly_tensor *y = *(const struct cairn_assembly_tensor *const *)b;
    return strcmp(x->name, y->name);
}

static enum cairn_code sort_names(const struct cairn_assembly *assembly, const char *only,
                                  const struct cairn_assembly_tensor ***ret, size_t *ret_count,
                                  struct cairn_error *err) {
    const struct cairn_assembly_tensor **sorted =
        calloc(assembly->tensor_count + 1, sizeof *sorted);
    if (!sorted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the names of tensors");
    *ret = sorted;
    *ret_count = 0;
    for (size_t i = 0; i < assembly->tensor_count; i++)
        if (!only || fnmatch(only, assembly->tensors[i].name, 0) == 0)
            sorted[(*ret_count)++] = &assembly->tensors[i];
    if (*ret_count) qsort(sorted, *ret_count, sizeof *sorted, by_name);
    return CAIRN_OK;
}

static enum cairn_code merge_names(struct comparison *compare, struct cairn_error *err) {
    CAIRN_AUTO_HEAP const struct cairn_assembly_tensor **a = NULL, **b = NULL;
    size_t a_count = 0, b_count = 0;
    CAIRN_TRY(sort_names(compare->a, compare->only, &a, &a_count, err));
    CAIRN_TRY(sort_names(compare->b, compare->only, &b, &b_count, err));
    compare->pairs = calloc(a_count + b_count + 1, sizeof *compare->pairs);
    if (!compare->pairs) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the tensors");
    for (size_t i = 0, j = 0; i < a_count || j < b_count;) {
        struct pair *pair = &compare->pairs[compare->count++];
        int order = i == a_count ? 1 : j == b_count ? -1 : strcmp(a[i]->name, b[j]->name);
        if (order <= 0) pair->a = a[i++];
        if (order >= 0) pair->b = b[j++];
        if (!pair->a || !pair->b)
            pair->verdict = pair->a ? CLI_ONLY_A : CLI_ONLY_B;
        else if (pair->a->dimension_count != pair->b->dimension_count ||
                 memcmp(pair->a->shape, pair->b->shape,
                        pair->a->dimension_count * sizeof *pair->a->shape) != 0)
            pair->verdict = CLI_OTHER_SHAPE;
        else if (pair->a->dtype != pair->b->dtype &&
                 !(cairn_convertible(pair->a->dtype, CAIRN_DTYPE_F32) &&
                   cairn_convertible(pair->b->dtype, CAIRN_DTYPE_F32)))
            pair->verdict = CLI_OTHER_TYPE;
        else
            pair->elements = pair->a->size_bytes / width_of(pair->a->dtype);
    }
    return CAIRN_OK;
}

/* False: no integer type. */
static bool integer_at(unsigned dtype, const void *bytes, uint64_t i, double *ret) {
#define CASE(id, type)                                                                             \
    case CAIRN_DTYPE_##id:                                                                         \
        *ret = (double)((const type *)bytes)[i];                                                   \
        return true;
    switch (dtype) {
        CASE(BOOL, uint8_t)
        CASE(U8, uint8_t)
        CASE(I8, int8_t)
        CASE(U16, uint16_t)
        CASE(I16, int16_t)
        CASE(U32, uint32_t)
        CASE(I32, int32_t)
        CASE(U64, uint64_t)
        CASE(I64, int64_t)
        CASE(F64, double)
    default:
        return false;
    }
#undef CASE
}

static void note_distance(struct pair *sum, double x, double y) {
    double distance = fabs(x - y);
    sum->measured = true;
    if (distance > sum->largest) sum->largest = distance;
}

/* Equal types: elements differ if their bytes do. */
static void compare_alike(const struct hand *hand, unsigned dtype, struct pair *sum) {
    uint64_t width = width_of(dtype);
    if (memcmp(hand->a, hand->b, (size_t)(hand->size * width)) == 0) return;
    bool floats = dtype != CAIRN_DTYPE_F64 && cairn_convertible(dtype, CAIRN_DTYPE_F32);
    if (floats) {
        cairn_convert(dtype, hand->a, CAIRN_DTYPE_F32, hand->x, (size_t)hand->size);
        cairn_convert(dtype, hand->b, CAIRN_DTYPE_F32, hand->y, (size_t)hand->size);
    }
    for (uint64_t i = 0; i < hand->size; i++) {
        double x, y;
        if (memcmp(hand->a + i * width, hand->b + i * width, (size_t)width) == 0) continue;
        sum->differing++;
        if (floats)
            note_distance(sum, (double)hand->x[i], (double)hand->y[i]);
        else if (integer_at(dtype, hand->a, i, &x) && integer_at(dtype, hand->b, i, &y))
            note_distance(sum, x, y);
    }
}

static void compare_values(const struct hand *hand, unsigned a, unsigned b, struct pair *sum) {
    cairn_convert(a, hand->a, CAIRN_DTYPE_F32, hand->x, (size_t)hand->size);
    cairn_convert(b, hand->b, CAIRN_DTYPE_F32, hand->y, (size_t)hand->size);
    for (uint64_t i = 0; i < hand->size; i++) {
        float x = hand->x[i], y = hand->y[i];
        if (x == y || (isnan(x) && isnan(y))) continue;
        sum->differing++;
        note_distance(sum, (double)x, (double)y);
    }
}

static enum cairn_code compare_window(struct job *job, const struct pair *pair, uint64_t element,
                                      struct hand *hand, struct pair *sum,
                                      struct cairn_error *err) {
    const struct comparison *compare = job->compare;
    uint64_t a = width_of(pair->a->dtype), b = width_of(pair->b->dtype);
    hand->size = cairn_min_u64(WINDOW_ELEMENTS, pair->elements - element);
    enum cairn_code code = cairn_assembly_read(compare->a, bytes_of(compare->a, pair->a),
                                               element * a, hand->a, hand->size * a, err);
    if (code == CAIRN_OK)
        code = cairn_assembly_read(compare->b, bytes_of(compare->b, pair->b), element * b, hand->b,
                                   hand->size * b, err);
    if (code != CAIRN_OK) return cairn_within(err, code, "%s", cairn_short(pair->a->name).text);
    if (pair->a->dtype == pair->b->dtype)
        compare_alike(hand, pair->a->dtype, sum);
    else
        compare_values(hand, pair->a->dtype, pair->b->dtype, sum);
    return CAIRN_OK;
}

static bool next_window(struct job *job, struct pair **ret, uint64_t *ret_element) {
    CAIRN_HOLD(&job->workers.lock);
    while (job->workers.locked.code == CAIRN_OK && job->locked.pair < job->compare->count) {
        *ret = &job->compare->pairs[job->locked.pair];
        *ret_element = job->locked.element;
        job->locked.element += WINDOW_ELEMENTS;
        if (*ret_element < (*ret)->elements) {
            cli_workers_take_locked(&job->workers);
            return true;
        }
        job->locked.pair++;
        job->locked.element = 0;
    }
    return false;
}

static void note_sum(struct job *job, struct pair *pair, const struct pair *sum) {
    CAIRN_HOLD(&job->workers.lock);
    pair->differing += sum->differing;
    pair->measured |= sum->measured;
    if (sum->largest > pair->largest) pair->largest = sum->largest;
    if (pair->differing) pair->verdict = CLI_DIFFERS;
}

static void *work(void *argument) {
    struct job *job = argument;
    struct cairn_error err = {0};
    struct pair *pair;
    uint64_t element;
    struct hand hand = {.a = cairn_pages_map(WINDOW_BYTES),
                        .b = cairn_pages_map(WINDOW_BYTES),
                        .x = cairn_pages_map(WINDOW_ELEMENTS * sizeof(float)),
                        .y = cairn_pages_map(WINDOW_ELEMENTS * sizeof(float))};
    enum cairn_code code = hand.a && hand.b && hand.x && hand.y
                               ? CAIRN_OK
                               : cairn_fail(&err, CAIRN_NO_MEMORY, "no memory for a window");
    while (code == CAIRN_OK && next_window(job, &pair, &element)) {
        struct pair sum = {0};
        code = compare_window(job, pair, element, &hand, &sum, &err);
        if (code != CAIRN_OK) break;
        note_sum(job, pair, &sum);
        cli_workers_done(&job->workers);
        cli_meter_add(&job->meter, hand.size * width_of(pair->a->dtype),
                      element + hand.size == pair->elements);
    }
    if (code != CAIRN_OK) cli_workers_failed(&job->workers, code, &err);
    cairn_pages_unmap(hand.a, WINDOW_BYTES);
    cairn_pages_unmap(hand.b, WINDOW_BYTES);
    cairn_pages_unmap(hand.x, WINDOW_ELEMENTS * sizeof(float));
    cairn_pages_unmap(hand.y, WINDOW_ELEMENTS * sizeof(float));
    return NULL;
}

static enum cairn_code compare_tensors(struct comparison *compare, struct cairn_error *err) {
    struct job job = {.compare = compare};
    uint64_t bytes = 0, items = 0;
    CAIRN_TRY(merge_names(compare, err));
    for (size_t i = 0; i < compare->count; i++) {
        if (compare->pairs[i].elements) bytes += compare->pairs[i].a->size_bytes;
        items += compare->pairs[i].elements != 0;
    }
    cli_meter_init(&job.meter, compare->cli, "diff", bytes, items);
    enum cairn_code code = cli_workers_run(&job.workers, compare->cli->workers, work, &job, err);
    CAIRN_ASSERT(code || job.locked.pair == compare->count);
    if (code == CAIRN_OK) code = cairn_assembly_settle(compare->a, err);
    if (code == CAIRN_OK) code = cairn_assembly_settle(compare->b, err);
    cli_meter_end(&job.meter, code == CAIRN_OK);
    return code;
}

/* ---- by metadata: merges two lists by name, compares fields ---- */

#define LIST_MAX 1000000
#define FIELDS_MAX 4

struct side {
    struct cli_stored stored;
    struct cairn_msg_version_row version; /* points into stored.version */
};

/* Compared fields. */
static const struct list {
    const char *one, *fields[FIELDS_MAX];
} shard_list = {"shard", {"bytes", "crc32c", "rank", "content"}},
  tensor_list = {"tensor", {"dtype", "shape", "kind", "alias_of"}};

static enum cairn_code load_list(const struct cli *cli, const struct cli_ref *ref, const char *tail,
                                 json_t **ret, struct cairn_error *err) {
    bool more = false;
    *ret = json_array();
    CAIRN_TRY(cli_list(cli, ref, tail, LIST_MAX, *ret, &more, err));
    if (!more) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TOO_LARGE, "%s has more than %d %s", ref->version, LIST_MAX,
                      tail + 1);
}

static enum cairn_code load_side(const struct cli *cli, const struct cli_ref *named,
                                 struct side *ret, struct cairn_error *err) {
    struct cli_ref ref = *named;
    if (cli->store)
        CAIRN_TRY(cli_stored_version(cli, &ref, &ret->stored, err));
    else
        CAIRN_TRY(cli_call(cli, &ref, (struct cli_call){0}, &ret->stored.version, err));
    CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_version_row, ret->stored.version, &ret->version, err));
    if (strcmp(ret->version.state, "committed") != 0)
        return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s is %s: its list of shards is not whole",
                          ret->version.version, ret->version.state);
    if (cli->store) return CAIRN_OK;
    /* The id, because a step may mean another version later. */
    cairn_text_copy(ref.version, sizeof ref.version, ret->version.version);
    CAIRN_TRY(load_list(cli, &ref, "/shards", &ret->stored.shards, err));
    if (ret->version.layout) CAIRN_TRY(load_list(cli, &ref, "/tensors", &ret->stored.tensors, err));
    return CAIRN_OK;
}

static const char *name_of(const json_t *item) {
    const char *name = json_string_value(json_object_get(item, "name"));
    return name ? name : "";
}

/* Null equals absent. */
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

/* {"same": 3, "differ": [...]}; NULL is an empty list. */
static json_t *compare_lists(const struct list *list, const json_t *a, const json_t *b) {
    CAIRN_AUTO_JSON json_t *of_a = json_object(), *of_b = json_object();
    json_t *rows = json_array();
    size_t both = 0, only = 0;
    CAIRN_JSON_EACH(item, b) json_object_set(of_b, name_of(item), item);
    CAIRN_JSON_EACH(item, a) {
        const json_t *other = json_object_get(of_b, name_of(item));
        json_object_set(of_a, name_of(item), item);
        add_row(list, item, other, rows);
        if (other) both++;
    }
    only = json_array_size(rows);
    CAIRN_JSON_EACH(item, b)
        if (!json_object_get(of_a, name_of(item))) add_row(list, NULL, item, rows);
    /* Rows before those of B only: a row with both sides differs. */
    size_t differ = 0;
    for (size_t i = 0; i < only; i++)
        if (!json_is_null(json_object_get(json_array_get(rows, i), "b"))) differ++;
    return json_pack("{s:I, s:o}", "same", (json_int_t)(both - differ), "differ", rows);
}

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
    const json_t *field = NULL, *a = json_object_get(row, "a"), *b = json_object_get(row, "b");
    const char *verdict = json_string_value(json_object_get(row, "verdict"));
    snprintf(line, sizeof line, "%s %s: ", list->one, name_of(row));
    if (json_is_null(a) || json_is_null(b)) {
        const json_t *size = json_object_get(json_is_null(a) ? b : a, "bytes");
        cli_add(line, sizeof line, "", "%s", verdict);
        if (size)
            cli_add(line, sizeof line, " ", "(%s)",
                    cli_size((uint64_t)json_integer_value(size)).text);
    }
    for (size_t index = 0; (field = json_array_get(json_object_get(row, "fields"), index));
         index++) {
        const char *name = json_string_value(field);
        value_text(json_object_get(a, name), x, sizeof x);
        value_text(json_object_get(b, name), y, sizeof y);
        cli_add(line, sizeof line, index ? ", " : "", "%s %s and %s", name, x, y);
    }
    cli_clean(line);
    puts(line);
}

static void print_list(const struct list *list, const json_t *told) {
    const json_t *row = NULL, *rows = json_object_get(told, "differ");
    for (size_t i = 0; (row = json_array_get(rows, i)); i++) print_row(list, row);
}

static void print_sum(const struct list *list, const json_t *told, const char *before) {
    uint64_t same = (uint64_t)json_integer_value(json_object_get(told, "same"));
    printf("%s%s the same, %zu not", before, cairn_counted(same, list->one).text,
           json_array_size(json_object_get(told, "differ")));
}

static enum cairn_code report_lists(const struct cli *cli, const struct side sides[2],
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
    if (cli->output != CLI_TABLE) return cli_print_reply(cli, answer, err);
    for (size_t i = 0; i < 2; i++) {
        printf("%s  ", i ? "B" : "A");
        cli_tell("{project}/{run}@{step} {version}: {bytes:size} in {shards#shard} of "
                 "{world_size#rank}",
                 sides[i].stored.version);
    }
    print_list(&shard_list, shards);
    print_list(&tensor_list, tensors);
    print_sum(&shard_list, shards, "");
    print_sum(&tensor_list, tensors, "; ");
    puts("");
    return cli_flush(err);
}

/* Compares the first two arguments, prints by --output. */
static enum cairn_code diff_lists(const struct cli *cli, const struct cli_ref refs[2],
                                  struct cairn_error *err) {
    struct side sides[2] = {{.version = {0}}};
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < 2 && code == CAIRN_OK; i++) {
        code = load_side(cli, &refs[i], &sides[i], err);
        if (code != CAIRN_OK) code = cairn_within(err, code, "%s", cli->arguments[i]);
    }
    if (code == CAIRN_OK) code = report_lists(cli, sides, err);
    cli_stored_release(&sides[0].stored);
    cli_stored_release(&sides[1].stored);
    return code;
}

static const struct cli_flag diff_flags[] = {
    {"tensors", 0, CLI_SWITCH, CLI_AT(tensors), 0, NULL,
     "Read both and compare their tensors element by element."},
    {"only", 0, CLI_TEXT, CLI_AT(only), 0, "PATTERN",
     "Only tensors whose names are like this, e.g. 'model.layers.*'."},
    {"tp-rule", 0, CLI_TEXT, CLI_AT(tp_rules), 0, "RULES",
     "How DeepSpeed's tensor parallel ranks cut parameters, on each side that is a folder of it: "
     "GLOB=RULE,...; RULE is the dimension, 0:ROWS, halves or replicated."},
    CLI_FLAG_STRICT,
    {"store", 0, CLI_TEXT, CLI_AT(store), 0, "URL",
     "Read stored versions from the store itself, without a server."},
    {"workers", 'j', CLI_COUNT, CLI_AT(workers), 0, "N",
     "Threads that read and compare; default 4."},
};

static const char *const verdicts[] = {
    [CLI_SAME] = "same",        [CLI_DIFFERS] = "differs",  [CLI_OTHER_SHAPE] = "shape",
    [CLI_OTHER_TYPE] = "dtype", [CLI_ONLY_A] = "only in A", [CLI_ONLY_B] = "only in B",
};

static void type_text(const struct cairn_assembly_tensor *tensor, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", cairn_dtype_text(tensor->dtype));
    for (unsigned d = 0; d < tensor->dimension_count; d++)
        cli_add(ret, capacity, d ? "x" : " ", "%llu", (unsigned long long)tensor->shape[d]);
}

static void print_pair(const struct pair *pair) {
    char name[CAIRN_TENSOR_NAME_BYTES_MAX + 1], a[192] = "", b[192] = "";
    snprintf(name, sizeof name, "%s", (pair->a ? pair->a : pair->b)->name);
    cli_clean(name);
    if (pair->a) type_text(pair->a, a, sizeof a);
    if (pair->b) type_text(pair->b, b, sizeof b);
    if (pair->verdict != CLI_DIFFERS) {
        printf("%s: %s: %s%s%s\n", name, verdicts[pair->verdict], a, *a && *b ? " and " : "", b);
        return;
    }
    printf("%s: %llu of %llu elements differ", name, (unsigned long long)pair->differing,
           (unsigned long long)pair->elements);
    if (pair->measured) printf(", at most by %s", cairn_real(pair->largest).text);
    printf(strcmp(a, b) ? " (%s and %s)\n" : " (%s)\n", a, b);
}

static json_t *pair_json(const struct pair *pair) {
    const struct cairn_assembly_tensor *sides[2] = {pair->a, pair->b};
    json_t *row = json_pack("{s:s, s:s}", "name", (pair->a ? pair->a : pair->b)->name, "verdict",
                            verdicts[pair->verdict]);
    for (int s = 0; s < 2; s++) {
        json_t *side = NULL;
        if (sides[s]) {
            json_t *shape = json_array();
            for (unsigned d = 0; d < sides[s]->dimension_count; d++)
                json_array_append_new(shape, json_integer((json_int_t)sides[s]->shape[d]));
            side =
                json_pack("{s:s, s:o}", "dtype", cairn_dtype_text(sides[s]->dtype), "shape", shape);
        }
        json_object_set_new(row, s ? "b" : "a", side ? side : json_null());
    }
    bool differs = pair->verdict == CLI_DIFFERS;
    json_object_set_new(row, "elements", json_integer((json_int_t)pair->elements));
    json_object_set_new(row, "differing", json_integer((json_int_t)pair->differing));
    json_object_set_new(row, "largest",
                        differs && pair->measured ? json_real(pair->largest) : json_null());
    return row;
}

static enum cairn_code report_tensors(const struct cli *cli, const struct comparison *job,
                                      struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *rows = json_array();
    size_t same = 0;
    for (size_t i = 0; i < job->count; i++) {
        if (job->pairs[i].verdict == CLI_SAME)
            same++;
        else if (cli->output == CLI_TABLE)
            print_pair(&job->pairs[i]);
        else
            json_array_append_new(rows, pair_json(&job->pairs[i]));
    }
    if (cli->output == CLI_TABLE) {
        printf("%s %s the same, %zu not\n", cairn_counted(same, "tensor").text,
               same == 1 ? "is" : "are", job->count - same);
        return cli_flush(err);
    }
    CAIRN_AUTO_JSON json_t *answer =
        json_pack("{s:s, s:s, s:b, s:I, s:O}", "a", cli->arguments[0], "b", cli->arguments[1],
                  "equal", same == job->count, "same", (json_int_t)same, "differ", rows);
    if (!answer) return cairn_fail(err, CAIRN_INVALID, "a path is not UTF-8");
    return cli_print_reply(cli, answer, err);
}

/* --tp-rule needs at least one DeepSpeed side; the other may be its conversion. */
static enum cairn_code check_rules(const struct cli *cli, const struct cli_weights *a,
                                   const struct cli_weights *b, struct cairn_error *err) {
    if (!cli->tp_rules || a->format == CAIRN_FORMAT_ZERO || b->format == CAIRN_FORMAT_ZERO)
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "--tp-rule is for DeepSpeed's files, and these are %s and %s",
                      cairn_format_tag(a->format), cairn_format_tag(b->format));
}

static enum cairn_code diff_tensors(struct cli *cli, struct cairn_error *err) {
    struct cli_weights a, b;
    cli->tp_rules_of_any = true;
    CAIRN_TRY(cli_interrupt_says("\ncairn diff: interrupted\n", err));
    CAIRN_TRY(cli_weights_open(cli, cli->arguments[0], true, &a, err));
    enum cairn_code code = cli_weights_open(cli, cli->arguments[1], true, &b, err);
    if (code == CAIRN_OK) {
        struct comparison job = {.cli = cli, .a = &a.assembly, .b = &b.assembly, .only = cli->only};
        code = check_rules(cli, &a, &b, err);
        if (code == CAIRN_OK) code = compare_tensors(&job, err);
        if (code == CAIRN_OK) code = report_tensors(cli, &job, err);
        free(job.pairs);
        cli_weights_release(&b);
    }
    cli_weights_release(&a);
    return code;
}

/* Metadata of two stored versions needs no bytes; anything else is read. */
static enum cairn_code run_diff(struct cli *cli, struct cairn_error *err) {
    struct cli_ref sides[2];
    bool stored = cli_weights_is_stored(cli, cli->arguments[0], &sides[0]) &&
                  cli_weights_is_stored(cli, cli->arguments[1], &sides[1]);
    bool values = cli->tensors || cli->only || cli->tp_rules || cli->workers;
    if (values || !stored) return diff_tensors(cli, err);
    return diff_lists(cli, sides, err);
}

const struct cli_verb cli_verb_diff = {
    CLI_VERB(diff),
    .synopsis = "cairn diff [flags] A B",
    .purpose = "Which shards and tensors of two checkpoints differ, and by how much.",
    .examples = "  cairn diff llm/7b@1000 llm/7b@1200     (shapes, checksums; reads no bytes)\n"
                "  cairn diff --tensors llm/7b@1000 llm/7b@1200\n"
                "  cairn diff --tensors model.pt model.safetensors --only 'encoder.*'\n",
    CLI_TAKES(diff_flags, 2, 2),
    .takes_paths = true,
};

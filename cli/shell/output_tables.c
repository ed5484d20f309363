/* SPDX-License-Identifier: Apache-2.0 */
/* tables: list items as rows, one checkpoint as lines; ECMA-48 colours, spark lines of blocks. */
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/shell/output.h"
#include "common/text.h"
#include "store/time.h"

#define CELL_BYTES 160

/* ---- paint ---- */

static struct { bool terminal, colours; } paint;

void cairn_cli_paint_init(const struct cairn_cli *cli) {
    const char *term = getenv("TERM"), *none = getenv("NO_COLOR");
    bool dumb = !term || !*term || !strcmp(term, "dumb");
    paint.terminal = cli->output == CAIRN_CLI_TABLE && !dumb && isatty(STDOUT_FILENO);
    paint.colours = paint.terminal && !(none && *none);
}

bool cairn_cli_paint_terminal(void) {
    return paint.terminal;
}

const char *cairn_cli_tone(enum cairn_cli_tone tone) {
    /* The 16 basic colours follow the terminal's theme, so they stay readable. */
    static const char *const escapes[] = {
        [CAIRN_CLI_TONE_NONE] = "",         [CAIRN_CLI_TONE_HEAD] = "\033[1m",
        [CAIRN_CLI_TONE_GOOD] = "\033[32m", [CAIRN_CLI_TONE_BUSY] = "\033[33m",
        [CAIRN_CLI_TONE_BAD] = "\033[31m",  [CAIRN_CLI_TONE_QUIET] = "\033[2m"};
    return paint.colours ? escapes[tone] : "";
}

const char *cairn_cli_tone_end(enum cairn_cli_tone tone) {
    return paint.colours && tone ? "\033[0m" : "";
}

static enum cairn_cli_tone tone_of(const struct cairn_msg_version_row *version) {
    if (version->trashed || version->superseded) return CAIRN_CLI_TONE_QUIET;
    if (!strcmp(version->state, "committed")) return CAIRN_CLI_TONE_GOOD;
    if (!strcmp(version->state, "open")) return CAIRN_CLI_TONE_BUSY;
    if (!strcmp(version->state, "deleting") || !strcmp(version->state, "gone"))
        return CAIRN_CLI_TONE_QUIET;
    return CAIRN_CLI_TONE_BAD; /* aborting, damaged */
}

/* "9 ms"; from 1 s on as cairn_duration_text. */
static void moment_text(uint64_t ms, char ret[24]) {
    if (ms < 1000)
        snprintf(ret, 24, "%u ms", (unsigned)ms);
    else
        cairn_duration_text(ms, ret);
}

/* "stall ▁▂▁█ 9 ms to 120 ms, the last 40 ms"; oldest value first. */
static void print_spark(const char *name, const uint64_t *values_ms, size_t count) {
    static const char *const eighths[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[] = {"_", "_", ".", ".", "-", "-", "^", "^"};
    char least_text[24], most_text[24], last_text[24];
    uint64_t least = UINT64_MAX, most = 0;
    if (!count) return;
    for (size_t i = 0; i < count; i++) {
        least = cairn_min_u64(least, values_ms[i]);
        most = cairn_max_u64(most, values_ms[i]);
    }
    setlocale(LC_CTYPE, "");
    const char *const *marks = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? eighths : plain;
    printf("%-12s %s", name, cairn_cli_tone(CAIRN_CLI_TONE_GOOD));
    for (size_t i = 0; i < count; i++) {
        double part = most > least ? (double)(values_ms[i] - least) / (double)(most - least) : 0;
        fputs(marks[(size_t)(part * 7.0 + 0.5)], stdout);
    }
    moment_text(least, least_text);
    moment_text(most, most_text);
    moment_text(values_ms[count - 1], last_text);
    printf("%s  %s to %s, the last %s\n", cairn_cli_tone_end(CAIRN_CLI_TONE_GOOD), least_text,
           most_text, last_text);
}

void cairn_cli_spark_versions(const json_t *versions) {
    uint64_t stalls[CAIRN_CLI_SPARK_MAX], intervals[CAIRN_CLI_SPARK_MAX];
    size_t stall_count = 0, interval_count = 0;
    int64_t later_ms = 0;
    const json_t *item = NULL;
    if (!paint.terminal) return;
    /* `versions` is newest first: the arrays fill from their ends. */
    for (size_t i = 0; (item = json_array_get(versions, i)); i++) {
        struct cairn_msg_version_row row = {.stall_ms = CAIRN_MESSAGE_NONE};
        int64_t at_ms = 0;
        if (cairn_msg_version_row_read(item, "", &row, NULL) || !row.committed_at ||
            cairn_s3_time_iso(row.committed_at, &at_ms, NULL))
            continue;
        if (later_ms > at_ms && interval_count < CAIRN_CLI_SPARK_MAX)
            intervals[CAIRN_CLI_SPARK_MAX - ++interval_count] = (uint64_t)(later_ms - at_ms);
        later_ms = at_ms;
        if (row.stall_ms != CAIRN_MESSAGE_NONE && stall_count < CAIRN_CLI_SPARK_MAX)
            stalls[CAIRN_CLI_SPARK_MAX - ++stall_count] = row.stall_ms;
    }
    print_spark("stall", stalls + CAIRN_CLI_SPARK_MAX - stall_count, stall_count);
    print_spark("interval", intervals + CAIRN_CLI_SPARK_MAX - interval_count, interval_count);
}

/* ---- cells ---- */

static enum cairn_json_kind kind_of(enum cairn_message form,
                                    const struct cairn_cli_column *column) {
    const struct cairn_message_field *field = cairn_message_form(form)->fields();
    while (field->name && field->offset != column->field) field++;
    CAIRN_ASSERT(field->name);
    return field->kind;
}

static void print_cell(enum cairn_message form, const struct cairn_cli_column *column,
                       const union cairn_cli_row *row, char *ret, size_t capacity) {
    const void *at = (const char *)row + column->field;
    char text[24];
    if (column->cell) {
        column->cell(row, ret, capacity);
    } else if (kind_of(form, column) == CAIRN_JSON_TEXT) {
        const char *said = *(const char *const *)at;
        snprintf(ret, capacity, "%s", said ? said : column->none ? column->none : "");
    } else {
        uint64_t number =
            kind_of(form, column) == CAIRN_JSON_U32 ? *(const uint32_t *)at : *(const uint64_t *)at;
        snprintf(text, sizeof text, "%" PRIu64, number);
        if (column->size) cairn_cli_size(number, text);
        bool none = column->none && number == CAIRN_MESSAGE_NONE;
        snprintf(ret, capacity, "%s", none ? column->none : text);
    }
}

static bool is_right(enum cairn_message form, const struct cairn_cli_column *column) {
    return column->cell ? column->right : kind_of(form, column) != CAIRN_JSON_TEXT;
}

static enum cairn_cli_tone state_tone(const union cairn_cli_row *row) {
    return tone_of(&row->version);
}

static enum cairn_cli_tone flags_tone(const union cairn_cli_row *row) {
    char damage[CELL_BYTES];
    enum cairn_cli_tone tone = state_tone(row);
    cairn_cli_damage_words(row->version.copies, damage, sizeof damage);
    if (damage[0] || row->version.reason) return CAIRN_CLI_TONE_BAD;
    return tone == CAIRN_CLI_TONE_QUIET || row->version.latest ? tone : CAIRN_CLI_TONE_NONE;
}

static enum cairn_cli_tone operation_tone(const union cairn_cli_row *row) {
    if (row->operation.problem) return CAIRN_CLI_TONE_BAD;
    return row->operation.ended_at ? CAIRN_CLI_TONE_GOOD : CAIRN_CLI_TONE_BUSY;
}

/* Coloured columns, by row form and title. */
static const struct {
    enum cairn_message form;
    const char *title;
    enum cairn_cli_tone (*tone)(const union cairn_cli_row *row);
} painted[] = {
    {CAIRN_MESSAGE_version_row, "STATE", state_tone},
    {CAIRN_MESSAGE_version_row, "FLAGS", flags_tone},
    {CAIRN_MESSAGE_operation_row, "STATE", operation_tone},
};

static enum cairn_cli_tone tone_at(const struct cairn_cli_table *table, size_t column,
                                   const union cairn_cli_row *row) {
    for (size_t i = 0; row && i < CAIRN_COUNT(painted); i++)
        if (painted[i].form == table->form &&
            !strcmp(painted[i].title, table->columns[column].title))
            return painted[i].tone(row);
    return row ? CAIRN_CLI_TONE_NONE : CAIRN_CLI_TONE_HEAD;
}

static size_t columns_of(const struct cairn_cli_table *table, bool wide) {
    return table->column_count - (wide ? 0 : table->wide_count);
}

/* row NULL: the table head. Escapes do not count as width. */
static void print_row(const struct cairn_cli_table *table, size_t columns, const int *widths,
                      char (*cells)[CELL_BYTES], const union cairn_cli_row *row) {
    for (size_t c = 0; c < columns; c++) {
        bool last = c + 1 == columns, right = is_right(table->form, &table->columns[c]);
        int width = last && !right ? 0 : widths[c];
        enum cairn_cli_tone tone = tone_at(table, c, row);
        printf("%s%*s%s%s", cairn_cli_tone(tone), right ? width : -width, cells[c],
               cairn_cli_tone_end(tone), last ? "\n" : "  ");
    }
}

/* Null numbers become CAIRN_MESSAGE_NONE. */
static enum cairn_code read_row(const struct cairn_cli_table *table, const json_t *item,
                                union cairn_cli_row *ret, struct cairn_error *err) {
    const struct cairn_message_field *field = cairn_message_form(table->form)->fields();
    *ret = (union cairn_cli_row){0};
    for (; field->name; field++)
        if (field->presence == CAIRN_MESSAGE_NULLS && field->kind == CAIRN_JSON_U64)
            *(uint64_t *)(void *)((char *)ret + field->offset) = CAIRN_MESSAGE_NONE;
    /* `inspect` builds tensor rows itself; they lack the fragments that the server sends. */
    if (table->form == CAIRN_MESSAGE_tensor_row)
        return cairn_message_read_own(table->form, item, "", ret, err);
    return cairn_cli_reply_read(table->form, item, ret, err);
}

static enum cairn_code print_table(const json_t *items, const struct cairn_cli_table *table,
                                   bool wide, struct cairn_error *err) {
    const struct cairn_cli_column *columns = table->columns;
    size_t count = columns_of(table, wide);
    int widths[CAIRN_CLI_COLUMNS_MAX] = {0};
    char cells[CAIRN_CLI_COLUMNS_MAX][CELL_BYTES] = {{0}};
    json_t *item;
    CAIRN_ASSERT(count <= CAIRN_CLI_COLUMNS_MAX);
    for (size_t c = 0; c < count; c++) {
        widths[c] = (int)strlen(columns[c].title);
        snprintf(cells[c], CELL_BYTES, "%s", columns[c].title);
    }
    for (size_t index = 0; (item = json_array_get(items, index)); index++) {
        union cairn_cli_row row;
        CAIRN_TRY(read_row(table, item, &row, err));
        for (size_t c = 0; c < count; c++) {
            char cell[CELL_BYTES] = "";
            print_cell(table->form, &columns[c], &row, cell, sizeof cell);
            int width = (int)strlen(cell);
            if (width > widths[c]) widths[c] = width;
        }
    }
    print_row(table, count, widths, cells, NULL);
    for (size_t index = 0; (item = json_array_get(items, index)); index++) {
        union cairn_cli_row row;
        CAIRN_TRY(read_row(table, item, &row, err));
        for (size_t c = 0; c < count; c++) {
            cells[c][0] = '\0';
            print_cell(table->form, &columns[c], &row, cells[c], CELL_BYTES);
            cairn_cli_clean(cells[c]);
        }
        print_row(table, count, widths, cells, &row);
    }
    return cairn_cli_flush(err);
}

enum cairn_code cairn_cli_print(const struct cairn_cli *cli, const json_t *items,
                                const struct cairn_cli_table *table, struct cairn_error *err) {
    json_t *item;
    switch (cli->output) {
    case CAIRN_CLI_JSON:
        return cairn_cli_print_json(items, true, err);
    case CAIRN_CLI_TABLE:
        return print_table(items, table, cli->wide, err);
    case CAIRN_CLI_JSONL:
        return cairn_cli_print_lines(items, err);
    case CAIRN_CLI_NAME:
        for (size_t i = 0; (item = json_array_get(items, i)); i++) {
            union cairn_cli_row row;
            char name[CELL_BYTES * 4] = "";
            CAIRN_TRY(read_row(table, item, &row, err));
            print_cell(table->form, &table->name, &row, name, sizeof name);
            cairn_cli_clean(name);
            puts(name);
        }
        return cairn_cli_flush(err);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_cli_print_list(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                     const char *tail, uint64_t limit,
                                     const struct cairn_cli_table *table, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    CAIRN_TRY(cairn_cli_list(cli, ref, tail, limit, items, NULL, err));
    return cairn_cli_print(cli, items, table, err);
}

enum cairn_code cairn_cli_print_one(const struct cairn_cli *cli, json_t *json,
                                    const struct cairn_cli_table *table, struct cairn_error *err) {
    if (cairn_cli_wants_json(cli)) return cairn_cli_print_reply(cli, json, err);
    CAIRN_AUTO_JSON json_t *items = json_pack("[O]", json);
    if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    return cairn_cli_print(cli, items, table, err);
}

static void cell_shape(const union cairn_cli_row *row, char *ret, size_t capacity) {
    json_t *dimension;
    ret[0] = '\0';
    for (size_t index = 0; (dimension = json_array_get(row->tensor.shape, index)); index++)
        cairn_cli_add(ret, capacity, "x", "%lld", (long long)json_integer_value(dimension));
    /* An alias may lack a dtype; its shape is then its target's. */
    if (!ret[0] && row->tensor.dtype) snprintf(ret, capacity, "scalar");
}
static void cell_kind(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const char *kind = row->tensor.kind ? row->tensor.kind : "", *alias = row->tensor.alias_of;
    snprintf(ret, capacity, "%s%s%s", kind, alias ? " of " : "", alias ? alias : "");
}
static const struct cairn_cli_column tensor_columns[] = {
    CAIRN_CLI_FIELD("TENSOR", tensor, name), CAIRN_CLI_FIELD("DTYPE", tensor, dtype),
    CAIRN_CLI_CELL("SHAPE", cell_shape),     CAIRN_CLI_BYTES("SIZE", tensor, bytes),
    CAIRN_CLI_CELL("KIND", cell_kind),
};
const struct cairn_cli_table cairn_cli_tensor_table =
    CAIRN_CLI_ROWS(tensor_row, tensor_columns, 0, CAIRN_CLI_FIELD(NULL, tensor, name));

/* ---- one checkpoint ---- */

/* Prints one line; nothing for an empty value. */
static void print_field(const char *name, const char *value) {
    char text[4200];
    if (!value || !*value) return;
    snprintf(text, sizeof text, "%s", value);
    cairn_cli_clean(text);
    printf("%-12s %s\n", name, text);
}

static void value_text(const json_t *value, char *ret, size_t capacity) {
    if (json_is_string(value))
        snprintf(ret, capacity, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(ret, capacity, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        snprintf(ret, capacity, "%s", cairn_real(json_number_value(value)).text);
}

void cairn_cli_pairs(const json_t *pairs, const char *between, char *ret, size_t capacity) {
    const char *name = NULL;
    json_t *value = NULL;
    *ret = '\0';
    json_object_foreach((json_t *)(uintptr_t)pairs, name, value) {
        char told[300];
        value_text(value, told, sizeof told);
        cairn_cli_add(ret, capacity, between, "%s=%s", cairn_short(name).text, told);
    }
}

void cairn_cli_words(const json_t *words, const char *between, char *ret, size_t capacity) {
    const json_t *word = NULL;
    *ret = '\0';
    for (size_t i = 0; (word = json_array_get(words, i)); i++)
        cairn_cli_add(ret, capacity, between, "%s",
                      json_is_string(word) ? json_string_value(word) : "");
}

static const char *text_of(const json_t *origin, const char *name) {
    const char *text = json_string_value(json_object_get(origin, name));
    return text ? text : "";
}

static void print_origin(const json_t *origin) {
    char line[600];
    const char *user = text_of(origin, "user"), *branch = text_of(origin, "git_branch");
    snprintf(line, sizeof line, "%s%s%s", text_of(origin, "host"), *user ? ", by " : "", user);
    print_field("made on", line);
    snprintf(line, sizeof line, "%s%s%s%s", text_of(origin, "git_commit"), *branch ? " (" : "",
             branch, *branch ? ")" : "");
    print_field("git", line);
    cairn_cli_pairs(json_object_get(origin, "job"), ", ", line, sizeof line);
    print_field("job", line);
    cairn_cli_pairs(json_object_get(origin, "versions"), ", ", line, sizeof line);
    print_field("made with", line);
}

static void print_said(const struct cairn_msg_version_row *version) {
    char line[4000];
    cairn_cli_words(version->aliases, ", ", line, sizeof line);
    print_field("names", line);
    print_field("pinned", version->pinned ? "yes: no policy removes it" : NULL);
    print_field("note", version->note);
    cairn_cli_pairs(version->labels, ", ", line, sizeof line);
    print_field("labels", line);
    cairn_cli_pairs(version->metrics, ", ", line, sizeof line);
    print_field("metrics", line);
    print_origin(json_object_get(version->meta, "origin"));
}

/* " (making)", " (2 objects damaged, found 2026-11-22T10:18:55Z)"; false: a sound whole copy. */
static bool say_copy(const struct cairn_msg_copy_row *copy, char ret[128]) {
    struct cairn_msg_copy_damage damage = {0};
    bool whole = !strcmp(copy->state, "whole");
    bool damaged = copy->damage && !cairn_msg_copy_damage_read(copy->damage, "", &damage, NULL);
    ret[0] = '\0';
    if (!whole) snprintf(ret, 128, " (%s)", copy->state);
    if (whole && damaged)
        snprintf(ret, 128, " (%llu object%s damaged, found %.63s)",
                 (unsigned long long)damage.objects, damage.objects == 1 ? "" : "s",
                 damage.found_at);
    return ret[0] != '\0';
}

void cairn_cli_damage_words(const json_t *copies, char *ret, size_t capacity) {
    size_t sound = 0;
    const json_t *item = NULL;
    ret[0] = '\0';
    for (size_t i = 0; (item = json_array_get(copies, i)); i++) {
        struct cairn_msg_copy_row copy = {0};
        if (cairn_msg_copy_row_read(item, "", &copy, NULL) || strcmp(copy.state, "whole") != 0)
            continue;
        sound += !copy.damage;
        if (copy.damage) cairn_cli_add(ret, capacity, " ", "damaged-in:%s", copy.store);
    }
    if (ret[0] && !sound) snprintf(ret, capacity, "damaged");
}

/* "main, archive (making)"; omitted if main holds the only copy and it is sound. */
static void print_copies(const struct cairn_msg_version_row *version) {
    char text[4000] = "";
    const json_t *item = NULL;
    bool elsewhere = json_array_size(version->copies) > 1;
    for (size_t i = 0; (item = json_array_get(version->copies, i)); i++) {
        struct cairn_msg_copy_row copy = {0};
        char said[128];
        if (cairn_msg_copy_row_read(item, "", &copy, NULL)) continue;
        elsewhere |= say_copy(&copy, said) || strcmp(copy.store, "main") != 0;
        cairn_cli_add(text, sizeof text, ", ", "%s%s", copy.store, said);
    }
    if (elsewhere) print_field("lies in", text);
}

static void print_toned(const char *name, const char *value, enum cairn_cli_tone tone) {
    fputs(cairn_cli_tone(tone), stdout);
    print_field(name, value);
    fputs(cairn_cli_tone_end(tone), stdout);
}

/* "training stood still for 40 ms, staged after 210 ms, durable after ...". */
static void print_pace(const struct cairn_msg_version_row *version) {
    const struct {
        const char *at, *what;
    } marks[] = {{version->staged_at, "staged"},
                 {version->durable_at, "durable"},
                 {version->committed_at, "committed"}};
    char line[300] = "", text[24];
    int64_t begun_ms = 0, at_ms = 0;
    if (version->stall_ms != CAIRN_MESSAGE_NONE) {
        moment_text(version->stall_ms, text);
        snprintf(line, sizeof line, "training stood still for %s", text);
    }
    if (!version->created_at || cairn_s3_time_iso(version->created_at, &begun_ms, NULL)) return;
    for (size_t i = 0; line[0] && i < CAIRN_COUNT(marks); i++) {
        if (!marks[i].at || cairn_s3_time_iso(marks[i].at, &at_ms, NULL)) continue;
        moment_text(at_ms > begun_ms ? (uint64_t)(at_ms - begun_ms) : 0, text);
        cairn_cli_add(line, sizeof line, ", ", "%s after %s", marks[i].what, text);
    }
    print_field("pace", line);
}

static void print_fields(const struct cairn_msg_version_row *version) {
    char size[24];
    enum cairn_cli_tone tone = tone_of(version);
    cairn_cli_size(version->bytes, size);
    printf("%-12s %s/%s step %llu, attempt %llu\n", "checkpoint", version->project, version->run,
           (unsigned long long)version->step, (unsigned long long)version->attempt);
    print_field("version", version->version);
    print_toned("state", version->state, tone);
    print_toned("code", version->code, version->code ? CAIRN_CLI_TONE_BAD : CAIRN_CLI_TONE_NONE);
    print_field("reason", version->reason);
    print_field("request id", version->request_id);
    printf("%-12s %s in %s of %s\n", "content", size,
           cairn_cli_counted(version->shards, "shard", "shards").text,
           cairn_cli_counted(version->world_size, "rank", "ranks").text);
    print_field("format", version->format);
    print_field("layout", version->layout);
    print_field("created", version->created_at);
    print_field("committed", version->committed_at);
    print_pace(version);
    print_copies(version);
    print_said(version);
}

enum cairn_code cairn_cli_print_version(const struct cairn_cli *cli, const json_t *version,
                                        struct cairn_error *err) {
    struct cairn_msg_version_row row = {.stall_ms = CAIRN_MESSAGE_NONE};
    if (cairn_cli_wants_json(cli)) return cairn_cli_print_reply(cli, version, err);
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, version, &row, err));
    if (cli->output == CAIRN_CLI_NAME)
        puts(row.version);
    else
        print_fields(&row);
    return cairn_cli_flush(err);
}

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
#define LINE_BYTES 4200

/* ---- paint ---- */

static struct { bool terminal, colours; } paint;

void cli_paint_init(const struct cli *cli) {
    const char *term = getenv("TERM"), *none = getenv("NO_COLOR");
    bool dumb = !term || !*term || !strcmp(term, "dumb");
    paint.terminal = cli->output == CLI_TABLE && !dumb && isatty(STDOUT_FILENO);
    paint.colours = paint.terminal && !(none && *none);
}

bool cli_paint_terminal(void) {
    return paint.terminal;
}

const char *cli_tone(enum cli_tone tone) {
    /* The 16 basic colours follow the terminal's theme, so they stay readable. */
    static const char *const escapes[] = {
        [CLI_TONE_NONE] = "",         [CLI_TONE_HEAD] = "\033[1m", [CLI_TONE_GOOD] = "\033[32m",
        [CLI_TONE_BUSY] = "\033[33m", [CLI_TONE_BAD] = "\033[31m", [CLI_TONE_QUIET] = "\033[2m"};
    return paint.colours ? escapes[tone] : "";
}

const char *cli_tone_end(enum cli_tone tone) {
    return paint.colours && tone ? "\033[0m" : "";
}

static enum cli_tone tone_of(const struct cairn_msg_version_row *version) {
    if (version->trashed || version->superseded) return CLI_TONE_QUIET;
    if (!strcmp(version->state, "committed")) return CLI_TONE_GOOD;
    if (!strcmp(version->state, "open")) return CLI_TONE_BUSY;
    if (!strcmp(version->state, "deleting") || !strcmp(version->state, "gone"))
        return CLI_TONE_QUIET;
    return CLI_TONE_BAD; /* aborting, damaged */
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
    printf("%-12s %s", name, cli_tone(CLI_TONE_GOOD));
    for (size_t i = 0; i < count; i++) {
        double part = most > least ? (double)(values_ms[i] - least) / (double)(most - least) : 0;
        fputs(marks[(size_t)(part * 7.0 + 0.5)], stdout);
    }
    moment_text(least, least_text);
    moment_text(most, most_text);
    moment_text(values_ms[count - 1], last_text);
    printf("%s  %s to %s, the last %s\n", cli_tone_end(CLI_TONE_GOOD), least_text, most_text,
           last_text);
}

void cli_spark_versions(const json_t *versions) {
    uint64_t stalls[CLI_SPARK_MAX], intervals[CLI_SPARK_MAX];
    size_t stall_count = 0, interval_count = 0;
    int64_t later_ms = 0;
    if (!paint.terminal) return;
    /* `versions` is newest first: the arrays fill from their ends. */
    CAIRN_JSON_EACH(item, versions) {
        struct cairn_msg_version_row row = {.stall_ms = CAIRN_MESSAGE_NONE};
        int64_t at_ms = 0;
        if (cairn_msg_version_row_read(item, "", &row, NULL) || !row.committed_at ||
            cairn_s3_time_iso(row.committed_at, &at_ms, NULL))
            continue;
        if (later_ms > at_ms && interval_count < CLI_SPARK_MAX)
            intervals[CLI_SPARK_MAX - ++interval_count] = (uint64_t)(later_ms - at_ms);
        later_ms = at_ms;
        if (row.stall_ms != CAIRN_MESSAGE_NONE && stall_count < CLI_SPARK_MAX)
            stalls[CLI_SPARK_MAX - ++stall_count] = row.stall_ms;
    }
    print_spark("stall", stalls + CLI_SPARK_MAX - stall_count, stall_count);
    print_spark("interval", intervals + CLI_SPARK_MAX - interval_count, interval_count);
}

/* ---- formats ---- */

static void value_text(const json_t *value, char *ret, size_t capacity) {
    if (json_is_string(value))
        snprintf(ret, capacity, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(ret, capacity, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        snprintf(ret, capacity, "%s", cairn_real(json_number_value(value)).text);
}

/* The words of an array, or labels and metrics in command-line form: "tier=keep,team=nlp". */
static void list_text(const json_t *list, const char *between, char *ret, size_t capacity) {
    const char *name = NULL;
    json_t *value = NULL;
    CAIRN_JSON_EACH(word, list)
        cli_add(ret, capacity, between, "%s", json_is_string(word) ? json_string_value(word) : "");
    json_object_foreach((json_t *)(uintptr_t)list, name, value) {
        char told[300];
        value_text(value, told, sizeof told);
        cli_add(ret, capacity, between, "%s=%s", cairn_short(name).text, told);
    }
}

/* Appends one of the alternatives in braces; false: the member is not there. */
static bool put_alternative(const char *part, const json_t *item, char *ret, size_t capacity) {
    size_t name = strcspn(part, ":?#<>|}");
    const char *how = part + name, *pad = how + strcspn(how, "<>|}");
    const json_t *value = cli_member(item, (struct cairn_view){part, name});
    uint64_t number = (uint64_t)json_integer_value(value);
    char text[LINE_BYTES] = "";
    if (*part == '=' || (*how == '?' && json_is_true(value))) {
        const char *literal = *part == '=' ? part + 1 : how + 1;
        cli_add(ret, capacity, "", "%.*s", (int)strcspn(literal, "|}"), literal);
        return true;
    }
    if (!value || json_is_null(value) || *how == '?') return false;
    if (*how == '#') {
        const char *one = how + 1, *slash = one + strcspn(one, "/|}");
        const char *word = *slash == '/' && number != 1 ? slash + 1 : one;
        snprintf(text, sizeof text, "%" PRIu64 " %.*s%s", number, (int)strcspn(word, "/|}"), word,
                 *slash == '/' || number == 1 ? "" : "s");
    } else if (*how != ':' || !strncmp(how, ":if", 3))
        value_text(value, text, sizeof text);
    else if (!strncmp(how, ":list", 5) || !strncmp(how, ":packed", 7))
        list_text(value, how[1] == 'l' ? ", " : ",", text, sizeof text);
    else if (number || !strncmp(how, ":size", 5))
        snprintf(text, sizeof text, "%s", cli_size(number).text);
    if (!strncmp(how, ":if", 3))
        return text[0] && (number || !json_is_integer(value)) && !json_is_false(value);
    int width = *pad == '<' || *pad == '>' ? (int)strtoul(pad + 1, NULL, 10) : 0;
    if (text[0])
        cli_add(ret, capacity, "", "%*s%s", *pad == '<' ? -width : width, text,
                strncmp(how, ":rate", 5) ? "" : "/s");
    return text[0] != '\0';
}

/* Appends up to the group's end, where *at stays; false: a member of the group is not there. */
static bool put_group(const char **at, const json_t *item, char *ret, size_t capacity) {
    bool whole = true;
    while (**at && **at != ']') {
        size_t before = strlen(ret), plain = strcspn(*at, "{[]");
        bool there = false;
        cli_add(ret, capacity, "", "%.*s", (int)plain, *at);
        *at += plain;
        if (**at == '[') {
            ++*at;
            before = strlen(ret);
            if (!put_group(at, item, ret, capacity)) ret[before] = '\0';
            ++*at;
        } else if (**at == '{') {
            for (; **at != '}'; *at += 1 + strcspn(*at + 1, "|}"))
                if (!there) there = put_alternative(*at + 1, item, ret, capacity);
            whole &= there;
            ++*at;
        }
    }
    return whole;
}

void cli_format(const char *format, const json_t *item, char *ret, size_t capacity) {
    *ret = '\0';
    (void)put_group(&format, item, ret, capacity);
}

void cli_tell(const char *format, const json_t *item) {
    char text[LINE_BYTES];
    cli_format(format, item, text, sizeof text);
    cli_clean(text);
    puts(text);
}

void cli_note_of(const char *format, const json_t *item) {
    char text[LINE_BYTES];
    cli_format(format, item, text, sizeof text);
    if (text[0]) cli_note("%s", text);
}

/* ---- cells ---- */

static void print_cell(const struct cli_column *column, const json_t *item, char *ret,
                       size_t capacity) {
    if (column->cell)
        column->cell(item, ret, capacity);
    else
        cli_format(column->text, item, ret, capacity);
}

static enum cli_tone state_tone(const json_t *item) {
    struct cairn_msg_version_row version = {0};
    return cairn_msg_version_row_read(item, "", &version, NULL) ? CLI_TONE_NONE : tone_of(&version);
}

static enum cli_tone flags_tone(const json_t *item) {
    char bad[CELL_BYTES];
    enum cli_tone tone = state_tone(item);
    cli_damage_words(json_object_get(item, "copies"), bad, sizeof bad);
    if (bad[0] || json_is_string(json_object_get(item, "reason"))) return CLI_TONE_BAD;
    bool latest = json_is_true(json_object_get(item, "latest"));
    return tone == CLI_TONE_QUIET || latest ? tone : CLI_TONE_NONE;
}

static enum cli_tone operation_tone(const json_t *item) {
    if (json_is_object(json_object_get(item, "problem"))) return CLI_TONE_BAD;
    return json_is_string(json_object_get(item, "ended_at")) ? CLI_TONE_GOOD : CLI_TONE_BUSY;
}

/* Coloured columns, by row form and title. */
static const struct {
    enum cairn_message form;
    const char *title;
    enum cli_tone (*tone)(const json_t *item);
} painted[] = {
    {CAIRN_MESSAGE_version_row, "STATE", state_tone},
    {CAIRN_MESSAGE_version_row, "FLAGS", flags_tone},
    {CAIRN_MESSAGE_operation_row, "STATE", operation_tone},
};

static enum cli_tone tone_at(enum cairn_message form, const char *title, const json_t *item) {
    for (size_t i = 0; item && paint.colours && i < CAIRN_COUNT(painted); i++)
        if (painted[i].form == form && !strcmp(painted[i].title, title))
            return painted[i].tone(item);
    return item ? CLI_TONE_NONE : CLI_TONE_HEAD;
}

/* A name that the rows' form lacks would be an empty cell in every row. */
static void check_names(enum cairn_message form, const char *format) {
    for (const char *at = format; at && (at = strpbrk(at, "{|"));) {
        const struct cairn_message_field *field = cairn_message_form(form)->fields();
        size_t size = strcspn(++at, ".:?#<>|}");
        if (*at == '=') continue;
        while (field->name && (strlen(field->name) != size || strncmp(field->name, at, size) != 0))
            field++;
        CAIRN_ASSERT(field->name);
    }
}

/* An answer that does not fit its form is CAIRN_PROTOCOL. */
static enum cairn_code check_row(const struct cli_table *table, const json_t *item,
                                 struct cairn_error *err) {
    union {
#define FORM(form, group, text, answer) struct cairn_msg_##form form##_;
#include "api/messages.def"
    } row;
    memset(&row, 0, sizeof row);
    if (table->form == CAIRN_MESSAGE_none) return CAIRN_OK;
    /* `inspect` builds tensor rows itself; they lack the fragments that the server sends. */
    if (table->form == CAIRN_MESSAGE_tensor_row)
        return cairn_message_read_own(table->form, item, "", &row, err);
    return cli_reply_read(table->form, item, &row, err);
}

static enum cairn_code print_table(const json_t *items, const struct cli_table *table, bool wide,
                                   struct cairn_error *err) {
    const struct cli_column *columns[CLI_COLUMNS_MAX];
    int widths[CLI_COLUMNS_MAX];
    char cell[CELL_BYTES];
    size_t count = 0, rows = json_array_size(items);
    for (const struct cli_column *column = table->columns; column->title; column++) {
        if ((column->kind & CLI_WIDE) && !wide) continue;
        CAIRN_ASSERT(count < CLI_COLUMNS_MAX);
        widths[count] = (int)strlen(column->title);
        columns[count++] = column;
    }
    for (size_t row = 0; row < rows; row++) {
        CAIRN_TRY(check_row(table, json_array_get(items, row), err));
        for (size_t c = 0; c < count; c++) {
            print_cell(columns[c], json_array_get(items, row), cell, sizeof cell);
            if ((int)strlen(cell) > widths[c]) widths[c] = (int)strlen(cell);
        }
    }
    for (size_t row = 0; row <= rows; row++) { /* the head first; escapes do not count as width */
        const json_t *item = row ? json_array_get(items, row - 1) : NULL;
        for (size_t c = 0; c < count; c++) {
            bool last = c + 1 == count, right = columns[c]->kind & CLI_RIGHT;
            int width = last && !right ? 0 : widths[c];
            enum cli_tone tone = tone_at(table->form, columns[c]->title, item);
            snprintf(cell, sizeof cell, "%s", columns[c]->title);
            if (item) print_cell(columns[c], item, cell, sizeof cell);
            cli_clean(cell);
            printf("%s%*s%s%s", cli_tone(tone), right ? width : -width, cell, cli_tone_end(tone),
                   last ? "\n" : "  ");
        }
    }
    return cli_flush(err);
}

enum cairn_code cli_print(const struct cli *cli, const json_t *items, const struct cli_table *table,
                          struct cairn_error *err) {
    bool lines = cli->output == CLI_JSONL;
    if (table->form != CAIRN_MESSAGE_none) {
        check_names(table->form, table->name);
        check_names(table->form, table->line);
        for (const struct cli_column *column = table->columns; column->title; column++)
            check_names(table->form, column->text);
    }
    if (cli->output == CLI_JSON) return cli_print_json(items, true, err);
    if (lines && !table->line) return cli_print_lines(items, err);
    if (cli->output == CLI_TABLE && !table->line) return print_table(items, table, cli->wide, err);
    CAIRN_JSON_EACH(item, items) {
        CAIRN_TRY(check_row(table, item, err));
        if (lines)
            CAIRN_TRY(cli_print_json(item, false, err));
        else
            cli_tell(cli->output == CLI_NAME ? table->name : table->line, item);
    }
    return cli_flush(err);
}

enum cairn_code cli_print_list(const struct cli *cli, const struct cli_ref *ref, const char *tail,
                               uint64_t limit, const struct cli_table *table,
                               struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    CAIRN_TRY(cli_list(cli, ref, tail, limit, items, NULL, err));
    return cli_print(cli, items, table, err);
}

enum cairn_code cli_print_one(const struct cli *cli, json_t *json, const struct cli_table *table,
                              struct cairn_error *err) {
    if (cli_wants_json(cli)) return cli_print_reply(cli, json, err);
    CAIRN_AUTO_JSON json_t *items = json_pack("[O]", json);
    if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    return cli_print(cli, items, table, err);
}

static void cell_shape(const json_t *item, char *ret, size_t capacity) {
    json_t *dimension, *shape = json_object_get(item, "shape");
    ret[0] = '\0';
    for (size_t index = 0; (dimension = json_array_get(shape, index)); index++)
        cli_add(ret, capacity, "x", "%lld", (long long)json_integer_value(dimension));
    /* An alias may lack a dtype; its shape is then its target's. */
    if (!ret[0]) cli_format("[{dtype:if}scalar]", item, ret, capacity);
}
const struct cli_table cli_tensor_table = {
    CAIRN_MESSAGE_tensor_row,
    .name = "{name}",
    .columns = {{"TENSOR", .text = "{name}"},
                {"DTYPE", .text = "{dtype}"},
                {"SHAPE", .cell = cell_shape},
                {"SIZE", .text = "{bytes:size}", CLI_RIGHT},
                {"KIND", .text = "{kind}[ of {alias_of}]"}},
};

/* ---- one checkpoint ---- */

/* Prints one line; nothing for an empty value. */
static void print_field(const char *name, const char *value, enum cli_tone tone) {
    char text[LINE_BYTES];
    if (!value || !*value) return;
    snprintf(text, sizeof text, "%s", value);
    cli_clean(text);
    printf("%s%-12s %s\n%s", cli_tone(tone), name, text, cli_tone_end(tone));
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

void cli_damage_words(const json_t *copies, char *ret, size_t capacity) {
    size_t sound = 0;
    ret[0] = '\0';
    CAIRN_JSON_EACH(item, copies) {
        struct cairn_msg_copy_row copy = {0};
        if (cairn_msg_copy_row_read(item, "", &copy, NULL) || strcmp(copy.state, "whole") != 0)
            continue;
        sound += !copy.damage;
        if (copy.damage) cli_add(ret, capacity, " ", "damaged-in:%s", copy.store);
    }
    if (ret[0] && !sound) snprintf(ret, capacity, "damaged");
}

/* "main, archive (making)"; omitted if main holds the only copy and it is sound. */
static void print_copies(const struct cairn_msg_version_row *version) {
    char text[4000] = "";
    bool elsewhere = json_array_size(version->copies) > 1;
    CAIRN_JSON_EACH(item, version->copies) {
        struct cairn_msg_copy_row copy = {0};
        char said[128];
        if (cairn_msg_copy_row_read(item, "", &copy, NULL)) continue;
        elsewhere |= say_copy(&copy, said) || strcmp(copy.store, "main") != 0;
        cli_add(text, sizeof text, ", ", "%s%s", copy.store, said);
    }
    if (elsewhere) print_field("lies in", text, CLI_TONE_NONE);
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
        cli_add(line, sizeof line, ", ", "%s after %s", marks[i].what, text);
    }
    print_field("pace", line, CLI_TONE_NONE);
}

static void print_fields(const json_t *item, const struct cairn_msg_version_row *version) {
    static const struct {
        const char *name, *text;
    } fields[] = {{"checkpoint", "{project}/{run} step {step}, attempt {attempt}"},
                  {"version", "{version}"},
                  {"state", "{state}"},
                  {"code", "{code}"},
                  {"reason", "{reason}"},
                  {"request id", "{request_id}"},
                  {"content", "{bytes:size} in {shards#shard} of {world_size#rank}"},
                  {"format", "{format}"},
                  {"layout", "{layout}"},
                  {"created", "{created_at}"},
                  {"committed", "{committed_at}"},
                  {"names", "{aliases:list}"},
                  {"pinned", "{pinned?yes: no policy removes it}"},
                  {"note", "{note}"},
                  {"labels", "{labels:list}"},
                  {"metrics", "{metrics:list}"},
                  {"made on", "{meta.origin.host}[, by {meta.origin.user}]"},
                  {"git", "{meta.origin.git_commit}[ ({meta.origin.git_branch})]"},
                  {"job", "{meta.origin.job:list}"},
                  {"made with", "{meta.origin.versions:list}"}};
    for (size_t i = 0; i < CAIRN_COUNT(fields); i++) {
        char text[LINE_BYTES];
        enum cli_tone tone = !strcmp(fields[i].name, "state")  ? tone_of(version)
                             : !strcmp(fields[i].name, "code") ? CLI_TONE_BAD
                                                               : CLI_TONE_NONE;
        cli_format(fields[i].text, item, text, sizeof text);
        print_field(fields[i].name, text, tone);
        if (strcmp(fields[i].name, "committed") != 0) continue;
        print_pace(version);
        print_copies(version);
    }
}

enum cairn_code cli_print_version(const struct cli *cli, const json_t *version,
                                  struct cairn_error *err) {
    struct cairn_msg_version_row row = {.stall_ms = CAIRN_MESSAGE_NONE};
    if (cli_wants_json(cli)) return cli_print_reply(cli, version, err);
    CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_version_row, version, &row, err));
    if (cli->output == CLI_NAME)
        puts(row.version);
    else
        print_fields(version, &row);
    return cli_flush(err);
}

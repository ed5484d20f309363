/* SPDX-License-Identifier: Apache-2.0 */
/* Tables for eyes, JSON for programs. */
#include "cli/shell/output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include "cli/shell/fields.h"
#include "cli/shell/said.h"
#include "cli/shell/sizes.h"
#include "cli/shell/yaml.h"
#include "common/text.h"
#include "store/time.h"

#define CELL_BYTES 160

static struct {
    const char *fields;
    bool yaml;
} forms;

void cairn_cli_print_as(const struct cairn_cli *cli) {
    forms.fields = cli->fields;
    forms.yaml = cli->yaml;
    cairn_cli_paint_init(cli);
}

static enum cairn_code flushed(struct cairn_error *err) {
    if (fflush(stdout)) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}

/* U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069. */
static bool turns_direction(const unsigned char *at) {
    if (at[0] != 0xe2) return false;
    if (at[1] == 0x80) return at[2] == 0x8e || at[2] == 0x8f || (at[2] >= 0xa8 && at[2] <= 0xae);
    return at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9;
}

static bool is_c1(const unsigned char *at) { /* U+0080 to U+009F */
    return at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0;
}

/* The same JSON, with escapes for what a terminal obeys; jansson escapes what is below U+0020. */
static enum cairn_code escape_json(const struct cairn_buf *json, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    const unsigned char *text = (const unsigned char *)json->data;
    for (size_t at = 0; at < json->size;) {
        size_t run = at;
        while (run < json->size && text[run] != 0x7f && !is_c1(text + run) &&
               !turns_direction(text + run))
            run++;
        CAIRN_TRY(cairn_buf_append(ret, text + at, run - at, err));
        at = run;
        if (at == json->size) break;
        unsigned point = text[at] == 0x7f ? 0x7f
                         : is_c1(text + at)
                             ? text[at + 1]
                             : 0x2000u | (text[at + 1] & 0x3fu) << 6 | (text[at + 2] & 0x3fu);
        CAIRN_TRY(cairn_buf_printf(ret, err, "\\u%04x", point));
        at += text[at] == 0x7f ? 1 : is_c1(text + at) ? 2 : 3;
    }
    return CAIRN_OK;
}

static enum cairn_code print_value(const json_t *json, bool pretty, struct cairn_error *err) {
    CAIRN_AUTO(buf) raw = {.limit = CAIRN_GIB}, text = {.limit = 2 * CAIRN_GIB};
    if (forms.yaml)
        CAIRN_TRY(cairn_cli_yaml(json, &raw, err));
    else
        CAIRN_TRY(pretty ? cairn_json_dump_pretty(json, &raw, err)
                         : cairn_json_show(json, &raw, err));
    CAIRN_TRY(escape_json(&raw, &text, err));
    if (!forms.yaml) CAIRN_TRY(cairn_buf_append_text(&text, "\n", err));
    if (fwrite(text.data, 1, text.size, stdout) != text.size)
        return cairn_fail_errno(err, "standard output");
    return flushed(err);
}

enum cairn_code cairn_cli_print_json(const json_t *json, bool pretty, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *chosen = NULL;
    if (!forms.fields) return print_value(json, pretty, err);
    CAIRN_TRY(cairn_cli_fields(json, forms.fields, pretty, &chosen, err));
    return print_value(chosen, pretty, err);
}

/* The names are held against all of them. */
static enum cairn_code print_lines(const json_t *items, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *chosen = NULL;
    if (forms.fields) CAIRN_TRY(cairn_cli_fields(items, forms.fields, true, &chosen, err));
    if (chosen) items = chosen;
    for (size_t i = 0; i < json_array_size(items); i++)
        CAIRN_TRY(print_value(json_array_get(items, i), false, err));
    return CAIRN_OK;
}

struct cairn_cli_count cairn_cli_counted(uint64_t count, const char *one, const char *many) {
    struct cairn_cli_count ret;
    snprintf(ret.text, sizeof ret.text, "%llu %s", (unsigned long long)count,
             count == 1 ? one : many);
    return ret;
}

void cairn_cli_clean(char *text) {
    for (unsigned char *at = (unsigned char *)text; *at; at++) {
        bool two = is_c1(at);
        bool three = turns_direction(at);
        if (*at < 0x20 || *at == 0x7f || two || three) *at = '?';
        if (two || three) at[1] = '?';
        if (three) at[2] = '?';
    }
}

void cairn_cli_note(const char *format, ...) {
    char text[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cairn_cli_clean(text);
    fprintf(stderr, "%s\n", text);
}

static enum cairn_cli_tone state_tone(const union cairn_cli_row *row) {
    return cairn_cli_tone_of(&row->version);
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

/* Columns that are painted, by the form of a row and their title. */
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

/* row NULL: the heads. What is painted is as wide as what is not. */
static void print_row(const struct cairn_cli_table *table, const int *widths,
                      char (*cells)[CELL_BYTES], const union cairn_cli_row *row) {
    for (size_t c = 0; c < table->column_count; c++) {
        bool last = c + 1 == table->column_count, right = table->columns[c].right;
        int width = last && !right ? 0 : widths[c];
        enum cairn_cli_tone tone = tone_at(table, c, row);
        printf("%s%*s%s%s", cairn_cli_tone(tone), right ? width : -width, cells[c],
               cairn_cli_tone_end(tone), last ? "\n" : "  ");
    }
}

static enum cairn_code read_row(const struct cairn_cli_table *table, const json_t *item,
                                union cairn_cli_row *ret, struct cairn_error *err) {
    *ret = table->none ? *table->none : (union cairn_cli_row){0};
    /* `inspect` makes rows of tensors of files by itself; they have no fragments. */
    if (table->form == CAIRN_MESSAGE_tensor_row)
        return cairn_message_read_own(table->form, item, "", ret, err);
    return cairn_cli_reply_read(table->form, item, ret, err);
}

static enum cairn_code print_table(const json_t *items, const struct cairn_cli_table *table,
                                   struct cairn_error *err) {
    const struct cairn_cli_column *columns = table->columns;
    int widths[CAIRN_CLI_COLUMNS_MAX] = {0};
    char cells[CAIRN_CLI_COLUMNS_MAX][CELL_BYTES] = {{0}};
    size_t index;
    json_t *item;
    CAIRN_ASSERT(table->column_count <= CAIRN_CLI_COLUMNS_MAX);
    for (size_t c = 0; c < table->column_count; c++) {
        widths[c] = (int)strlen(columns[c].title);
        snprintf(cells[c], CELL_BYTES, "%s", columns[c].title);
    }
    json_array_foreach((json_t *)(uintptr_t)items, index, item) {
        union cairn_cli_row row;
        CAIRN_TRY(read_row(table, item, &row, err));
        for (size_t c = 0; c < table->column_count; c++) {
            char cell[CELL_BYTES] = "";
            columns[c].cell(&row, cell, sizeof cell);
            int width = (int)strlen(cell);
            if (width > widths[c]) widths[c] = width;
        }
    }
    print_row(table, widths, cells, NULL);
    json_array_foreach((json_t *)(uintptr_t)items, index, item) {
        union cairn_cli_row row;
        CAIRN_TRY(read_row(table, item, &row, err));
        for (size_t c = 0; c < table->column_count; c++) {
            cells[c][0] = '\0';
            columns[c].cell(&row, cells[c], CELL_BYTES);
            cairn_cli_clean(cells[c]);
        }
        print_row(table, widths, cells, &row);
    }
    return flushed(err);
}

enum cairn_code cairn_cli_print(const struct cairn_cli *cli, const json_t *items,
                                const struct cairn_cli_table *table, struct cairn_error *err) {
    size_t index;
    json_t *item;
    switch (cli->output) {
    case CAIRN_CLI_JSON:
        return cairn_cli_print_json(items, true, err);
    case CAIRN_CLI_TABLE:
        return print_table(items, table, err);
    case CAIRN_CLI_JSONL:
        return print_lines(items, err);
    case CAIRN_CLI_NAME:
        json_array_foreach((json_t *)(uintptr_t)items, index, item) {
            union cairn_cli_row row;
            char name[CELL_BYTES * 4] = "";
            CAIRN_TRY(read_row(table, item, &row, err));
            table->name(&row, name, sizeof name);
            cairn_cli_clean(name);
            puts(name);
        }
        return flushed(err);
    }
    return CAIRN_OK;
}

/* ---- one checkpoint ---- */

void cairn_cli_print_field(const char *name, const char *value) {
    char text[4200];
    if (!value || !*value) return;
    snprintf(text, sizeof text, "%s", value);
    cairn_cli_clean(text);
    printf("%-12s %s\n", name, text);
}

/* " (making)", " (2 objects damaged, found 2026-11-22T10:18:55Z)"; false: all is well. */
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
    size_t index = 0, sound = 0, used = 0;
    const json_t *item = NULL;
    ret[0] = '\0';
    json_array_foreach(copies, index, item) {
        struct cairn_msg_copy_row copy = {0};
        if (cairn_msg_copy_row_read(item, "", &copy, NULL) || strcmp(copy.state, "whole") != 0)
            continue;
        sound += !copy.damage;
        if (!copy.damage || used >= capacity) continue;
        used += (size_t)snprintf(ret + used, capacity - used, "%sdamaged-in:%s", used ? " " : "",
                                 copy.store);
    }
    if (ret[0] && !sound) snprintf(ret, capacity, "damaged");
}

/* "main, archive (making)"; of one that lies in main alone, and is well there, nothing. */
static void print_copies(const struct cairn_msg_version_row *version) {
    char text[4000] = "";
    size_t index = 0, used = 0;
    const json_t *item = NULL;
    bool elsewhere = json_array_size(version->copies) > 1;
    json_array_foreach(version->copies, index, item) {
        struct cairn_msg_copy_row copy = {0};
        char said[128];
        if (cairn_msg_copy_row_read(item, "", &copy, NULL)) continue;
        elsewhere |= say_copy(&copy, said) || strcmp(copy.store, "main") != 0;
        snprintf(text + used, sizeof text - used, "%s%s%s", used ? ", " : "", copy.store, said);
        used = strlen(text);
    }
    if (elsewhere) cairn_cli_print_field("lies in", text);
}

static void print_toned(const char *name, const char *value, enum cairn_cli_tone tone) {
    fputs(cairn_cli_tone(tone), stdout);
    cairn_cli_print_field(name, value);
    fputs(cairn_cli_tone_end(tone), stdout);
}

/* How a save went: "training stood still for 40 ms, staged after 210 ms, durable after …". */
static void print_pace(const struct cairn_msg_version_row *version) {
    const struct {
        const char *at, *what;
    } marks[] = {{version->staged_at, "staged"},
                 {version->durable_at, "durable"},
                 {version->committed_at, "committed"}};
    char line[300] = "", text[24];
    int64_t begun_ms = 0, at_ms = 0;
    size_t used = 0;
    if (version->stall_ms != CAIRN_MESSAGE_NONE) {
        cairn_cli_moment(version->stall_ms, text);
        used = (size_t)snprintf(line, sizeof line, "training stood still for %s", text);
    }
    if (!version->created_at || cairn_s3_time_iso(version->created_at, &begun_ms, NULL)) return;
    for (size_t i = 0; used && i < CAIRN_COUNT(marks); i++) {
        if (!marks[i].at || cairn_s3_time_iso(marks[i].at, &at_ms, NULL)) continue;
        cairn_cli_moment(at_ms > begun_ms ? (uint64_t)(at_ms - begun_ms) : 0, text);
        used += (size_t)snprintf(line + used, sizeof line - used, ", %s after %s", marks[i].what,
                                 text);
    }
    cairn_cli_print_field("pace", line);
}

static void print_fields(const struct cairn_msg_version_row *version) {
    char size[24];
    enum cairn_cli_tone tone = cairn_cli_tone_of(version);
    cairn_cli_size(version->bytes, size);
    printf("%-12s %s/%s step %llu, attempt %llu\n", "checkpoint", version->project, version->run,
           (unsigned long long)version->step, (unsigned long long)version->attempt);
    cairn_cli_print_field("version", version->version);
    print_toned("state", version->state, tone);
    print_toned("code", version->code, version->code ? CAIRN_CLI_TONE_BAD : CAIRN_CLI_TONE_NONE);
    cairn_cli_print_field("reason", version->reason);
    cairn_cli_print_field("request id", version->request_id);
    printf("%-12s %s in %s of %s\n", "content", size,
           cairn_cli_counted(version->shards, "shard", "shards").text,
           cairn_cli_counted(version->world_size, "rank", "ranks").text);
    cairn_cli_print_field("format", version->format);
    cairn_cli_print_field("layout", version->layout);
    cairn_cli_print_field("created", version->created_at);
    cairn_cli_print_field("committed", version->committed_at);
    print_pace(version);
    print_copies(version);
    cairn_cli_print_said(version);
}

enum cairn_code cairn_cli_print_version(const struct cairn_cli *cli, const json_t *version,
                                        struct cairn_error *err) {
    struct cairn_msg_version_row row = {.stall_ms = CAIRN_MESSAGE_NONE};
    if (cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL)
        return cairn_cli_print_json(version, cli->output == CAIRN_CLI_JSON, err);
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, version, &row, err));
    if (cli->output == CAIRN_CLI_NAME)
        puts(row.version);
    else
        print_fields(&row);
    return flushed(err);
}

enum cairn_code cairn_cli_no_space(const char *folder, uint64_t needed_bytes, const char *left,
                                   struct cairn_error *err) {
    struct statvfs room = {0};
    char needed[24], is_free[24];
    if (!err || err->code != CAIRN_NO_SPACE) return CAIRN_NO_SPACE;
    if (err->os_errno == EFBIG)
        return cairn_fail(err, CAIRN_NO_SPACE,
                          "%s: files may not be that large here: raise the limit (ulimit -f); %s",
                          err->message, left);
    (void)statvfs(folder, &room);
    if (room.f_files && !room.f_favail)
        return cairn_fail(err, CAIRN_NO_SPACE,
                          "%s: make room, or name a folder on another disk; %s", err->message,
                          left);
    cairn_cli_size(needed_bytes, needed);
    cairn_cli_size((uint64_t)room.f_bavail * room.f_frsize, is_free);
    return cairn_fail(err, CAIRN_NO_SPACE,
                      "%s: %s are needed and %s free in %s: make room, or name a folder on another "
                      "disk; %s",
                      err->message, needed, is_free, folder, left);
}

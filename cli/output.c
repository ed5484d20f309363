/* SPDX-License-Identifier: Apache-2.0 */
/* Tables for eyes, JSON for programs. */
#include "cli/output.h"

#include <stdio.h>

#define CELL_BYTES 160

const char *cairn_cli_text_of(const json_t *item, const char *key) {
    const char *text = json_string_value(json_object_get(item, key));
    return text ? text : "";
}

uint64_t cairn_cli_number_of(const json_t *item, const char *key) {
    json_int_t value = json_integer_value(json_object_get(item, key));
    return value > 0 ? (uint64_t)value : 0;
}

bool cairn_cli_flag_of(const json_t *item, const char *key) {
    return json_is_true(json_object_get(item, key));
}

static enum cairn_code flushed(struct cairn_error *err) {
    if (fflush(stdout)) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}

enum cairn_code cairn_cli_print_json(const json_t *json, bool pretty, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_GIB};
    CAIRN_TRY(pretty ? cairn_json_dump_pretty(json, &text, err)
                     : cairn_json_dump(json, &text, err));
    CAIRN_TRY(cairn_buf_append_text(&text, "\n", err));
    if (fwrite(text.data, 1, text.size, stdout) != text.size)
        return cairn_fail_errno(err, "standard output");
    return flushed(err);
}

void cairn_cli_clean(char *text) {
    for (unsigned char *at = (unsigned char *)text; *at; at++) {
        bool two = at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0; /* U+0080 to U+009F */
        if (*at < 0x20 || *at == 0x7f || two) *at = '?';
        if (two) at[1] = '?';
    }
}

static void print_row(const struct cairn_cli_column *columns, size_t column_count,
                      const int *widths, char (*cells)[CELL_BYTES]) {
    for (size_t c = 0; c < column_count; c++) {
        bool last = c + 1 == column_count;
        int width = last && !columns[c].right ? 0 : widths[c];
        printf("%*s%s", columns[c].right ? width : -width, cells[c], last ? "\n" : "  ");
    }
}

static enum cairn_code print_table(const json_t *items, const struct cairn_cli_column *columns,
                                   size_t column_count, struct cairn_error *err) {
    CAIRN_ASSERT(column_count <= CAIRN_CLI_COLUMNS_MAX);
    int widths[CAIRN_CLI_COLUMNS_MAX] = {0};
    char cells[CAIRN_CLI_COLUMNS_MAX][CELL_BYTES] = {{0}};
    size_t index;
    json_t *item;
    for (size_t c = 0; c < column_count; c++) {
        widths[c] = (int)strlen(columns[c].title);
        snprintf(cells[c], CELL_BYTES, "%s", columns[c].title);
    }
    json_array_foreach((json_t *)(uintptr_t)items, index, item) {
        for (size_t c = 0; c < column_count; c++) {
            char cell[CELL_BYTES] = "";
            columns[c].cell(item, cell, sizeof cell);
            int width = (int)strlen(cell);
            if (width > widths[c]) widths[c] = width;
        }
    }
    print_row(columns, column_count, widths, cells);
    json_array_foreach((json_t *)(uintptr_t)items, index, item) {
        for (size_t c = 0; c < column_count; c++) {
            cells[c][0] = '\0';
            columns[c].cell(item, cells[c], CELL_BYTES);
            cairn_cli_clean(cells[c]);
        }
        print_row(columns, column_count, widths, cells);
    }
    return flushed(err);
}

enum cairn_code cairn_cli_print(const struct cairn_cli *cli, const json_t *items,
                                const struct cairn_cli_column *columns, size_t column_count,
                                const char *name_key, struct cairn_error *err) {
    size_t index;
    json_t *item;
    switch (cli->output) {
    case CAIRN_CLI_JSON:
        return cairn_cli_print_json(items, true, err);
    case CAIRN_CLI_TABLE:
        return print_table(items, columns, column_count, err);
    case CAIRN_CLI_JSONL:
        json_array_foreach((json_t *)(uintptr_t)items, index, item) {
            CAIRN_TRY(cairn_cli_print_json(item, false, err));
        }
        return CAIRN_OK;
    case CAIRN_CLI_NAME:
        json_array_foreach((json_t *)(uintptr_t)items, index, item) {
            char name[CELL_BYTES * 4];
            snprintf(name, sizeof name, "%s", cairn_cli_text_of(item, name_key));
            cairn_cli_clean(name);
            puts(name);
        }
        return flushed(err);
    }
    return CAIRN_OK;
}

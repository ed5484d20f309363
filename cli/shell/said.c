/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of text from a version's row; see said.h. */
#include "cli/shell/said.h"

#include <stdio.h>

#include "cli/shell/output.h"
#include "common/text.h"
#include "common/utf8.h"

#define EVENTS_SHOWN "20"

static void value_text(const json_t *value, char *ret, size_t capacity) {
    if (json_is_string(value))
        snprintf(ret, capacity, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(ret, capacity, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        snprintf(ret, capacity, "%s", cairn_real(json_number_value(value)).text);
}

static void add(const char *between, const char *text, char *ret, size_t capacity) {
    size_t used = strlen(ret);
    snprintf(ret + used, capacity - used, "%s%s", used ? between : "", text);
}

void cairn_cli_pairs(const json_t *pairs, const char *between, char *ret, size_t capacity) {
    const char *name = NULL;
    json_t *value = NULL;
    *ret = '\0';
    json_object_foreach((json_t *)(uintptr_t)pairs, name, value) {
        char text[400], told[300];
        value_text(value, told, sizeof told);
        snprintf(text, sizeof text, "%s=%s", cairn_short(name).text, told);
        add(between, text, ret, capacity);
    }
}

void cairn_cli_words(const json_t *words, const char *between, char *ret, size_t capacity) {
    size_t index = 0;
    const json_t *word = NULL;
    *ret = '\0';
    json_array_foreach(words, index, word)
        add(between, json_is_string(word) ? json_string_value(word) : "", ret, capacity);
}

/* ---- where it was made ---- */

static const char *text_of(const json_t *origin, const char *name) {
    const char *text = json_string_value(json_object_get(origin, name));
    return text ? text : "";
}

static void print_origin(const json_t *origin) {
    char line[600];
    const char *user = text_of(origin, "user"), *branch = text_of(origin, "git_branch");
    snprintf(line, sizeof line, "%s%s%s", text_of(origin, "host"), *user ? ", by " : "", user);
    cairn_cli_print_field("made on", line);
    snprintf(line, sizeof line, "%s%s%s%s", text_of(origin, "git_commit"), *branch ? " (" : "",
             branch, *branch ? ")" : "");
    cairn_cli_print_field("git", line);
    cairn_cli_pairs(json_object_get(origin, "job"), ", ", line, sizeof line);
    cairn_cli_print_field("job", line);
    cairn_cli_pairs(json_object_get(origin, "versions"), ", ", line, sizeof line);
    cairn_cli_print_field("made with", line);
}

void cairn_cli_print_said(const struct cairn_msg_version_row *version) {
    char line[4000];
    cairn_cli_words(version->aliases, ", ", line, sizeof line);
    cairn_cli_print_field("names", line);
    cairn_cli_print_field("pinned", version->pinned ? "yes: no policy removes it" : NULL);
    cairn_cli_print_field("note", version->note);
    cairn_cli_pairs(version->labels, ", ", line, sizeof line);
    cairn_cli_print_field("labels", line);
    cairn_cli_pairs(version->metrics, ", ", line, sizeof line);
    cairn_cli_print_field("metrics", line);
    print_origin(json_object_get(version->meta, "origin"));
}

/* ---- what has happened ---- */

static void cell_at(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->event.at);
}
static void cell_event(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const char *behind = strchr(row->event.event, '.'); /* checkpoint.committed: it is known */
    bool plain = behind && !strncmp(row->event.event, "checkpoint.", 11);
    snprintf(ret, capacity, "%s", plain ? behind + 1 : row->event.event);
}
static void cell_by(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const char *who = row->event.actor && *row->event.actor ? row->event.actor : row->event.address;
    snprintf(ret, capacity, "%s", who ? who : "");
}
static void cell_why(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const char *code = row->event.code ? row->event.code : "";
    const char *reason = row->event.reason ? row->event.reason : "";
    char text[1000];
    snprintf(text, sizeof text, "%s%s%s", code, *code && *reason ? ": " : "", reason);
    cairn_utf8_shorten(ret, capacity, text);
}
static const struct cairn_cli_column event_columns[] = {{"WHEN", false, cell_at},
                                                        {"WHAT", false, cell_event},
                                                        {"BY", false, cell_by},
                                                        {"WHY", false, cell_why}};
static const struct cairn_cli_table event_table = {CAIRN_MESSAGE_event_row, event_columns,
                                                   CAIRN_COUNT(event_columns), cell_event, NULL};

enum cairn_code cairn_cli_print_happened(const struct cairn_cli *cli,
                                         const struct cairn_cli_ref *version,
                                         struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_event_page page = {0};
    struct cairn_cli_call call = {.tail = "/events?limit=" EVENTS_SHOWN};
    CAIRN_TRY(cairn_cli_call(cli, version, call, &json, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_event_page, json, &page, err));
    if (!json_array_size(page.items)) return CAIRN_OK; /* they are kept for a time only */
    printf("\n");
    return cairn_cli_print(cli, page.items, &event_table, err);
}

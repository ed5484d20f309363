/* SPDX-License-Identifier: Apache-2.0 */
/* cairn ls: runs, or the checkpoints of one run. */
#include <stdio.h>

#include "cli/output.h"
#include "cli/ref.h"
#include "cli/stored.h"
#include "common/encode.h"
#include "common/text.h"
#include "common/utf8.h"

#define PAGE 1000
#define LIMIT_DEFAULT 100

static const struct cairn_cli_flag flags[] = {
    {"limit", 'n', CAIRN_CLI_NUMBER, CAIRN_CLI_AT(limit), 0, "N", "At most N; default 100."},
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "List the store itself, without a server: a folder or s3://bucket/prefix."},
    {"state", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(state), 0, "STATE",
     "Only versions in this state: open, committed, aborting, deleting."},
};

static void cell_step(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%llu", (unsigned long long)cairn_cli_number_of(item, "step"));
}
static void cell_state(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", cairn_cli_text_of(item, "state"));
}
static void cell_shards(const json_t *item, char *ret, size_t capacity) {
    unsigned long long shards = cairn_cli_number_of(item, "shards");
    if (!strcmp(cairn_cli_text_of(item, "state"), "open"))
        snprintf(ret, capacity, "%llu/%llu",
                 (unsigned long long)cairn_cli_number_of(item, "shards_registered"), shards);
    else
        snprintf(ret, capacity, "%llu", shards);
}
static void cell_size(const json_t *item, char *ret, size_t capacity) {
    char text[24];
    cairn_size_text(cairn_cli_number_of(item, "bytes"), text);
    snprintf(ret, capacity, "%s", text);
}
static void cell_attempt(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%llu", (unsigned long long)cairn_cli_number_of(item, "attempt"));
}
static void cell_saved(const json_t *item, char *ret, size_t capacity) {
    const char *time = cairn_cli_text_of(item, "committed_at");
    snprintf(ret, capacity, "%s", *time ? time : cairn_cli_text_of(item, "created_at"));
}
static void cell_flags(const json_t *item, char *ret, size_t capacity) {
    static const char *const names[] = {"latest", "superseded", "trashed"};
    size_t used = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < CAIRN_COUNT(names); i++)
        if (cairn_cli_flag_of(item, names[i]) && used < capacity)
            used +=
                (size_t)snprintf(ret + used, capacity - used, "%s%s", used ? " " : "", names[i]);
    bool opaque = !strcmp(cairn_cli_text_of(item, "state"), "committed") &&
                  !*cairn_cli_text_of(item, "layout");
    if (opaque && used < capacity)
        used += (size_t)snprintf(ret + used, capacity - used, "%sopaque", used ? " " : "");
    const char *reason = cairn_cli_text_of(item, "reason");
    if (*reason && used < capacity)
        snprintf(ret + used, capacity - used, "%s%s", used ? " " : "", cairn_short(reason).text);
}
static const struct cairn_cli_column checkpoint_columns[] = {
    {"STEP", true, cell_step},    {"STATE", false, cell_state},    {"SHARDS", true, cell_shards},
    {"SIZE", true, cell_size},    {"ATTEMPT", true, cell_attempt}, {"SAVED", false, cell_saved},
    {"FLAGS", false, cell_flags},
};

static void cell_run(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s/%s", cairn_cli_text_of(item, "project"),
             cairn_cli_text_of(item, "run"));
}
static void cell_committed(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%llu", (unsigned long long)cairn_cli_number_of(item, "committed"));
}
static void cell_latest(const json_t *item, char *ret, size_t capacity) {
    const json_t *latest = json_object_get(item, "latest");
    if (json_is_object(latest))
        cell_step(latest, ret, capacity);
    else
        snprintf(ret, capacity, "-");
}
static const struct cairn_cli_column run_columns[] = {
    {"RUN", false, cell_run},      {"COMMITTED", true, cell_committed}, {"SIZE", true, cell_size},
    {"LATEST", true, cell_latest}, {"ATTEMPT", true, cell_attempt},
};

/* Follow the cursor until `limit` items are there. */
static enum cairn_code collect(struct cairn_rest *rest, const char *path, uint64_t limit,
                               json_t *items, struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    CAIRN_AUTO(buf) cursor = {0};
    bool more = true;
    while (more && json_array_size(items) < limit) {
        uint64_t page = cairn_min_u64(PAGE, limit - json_array_size(items));
        cairn_buf_clear(&url);
        CAIRN_TRY(cairn_buf_printf(&url, err, "%s%climit=%llu", path, strchr(path, '?') ? '&' : '?',
                                   (unsigned long long)page));
        if (cursor.size) CAIRN_TRY(cairn_buf_printf(&url, err, "&cursor=%s", cursor.data));
        CAIRN_AUTO_JSON json_t *reply = NULL;
        CAIRN_TRY(cairn_rest_call(rest, "GET", url.data, NULL, 0, &reply, err));
        json_t *got = json_object_get(reply, "items");
        if (!json_is_array(got))
            return cairn_fail(err, CAIRN_PROTOCOL, "the server's answer has no items");
        json_array_extend(items, got);
        const char *next = json_string_value(json_object_get(reply, "next_cursor"));
        more = next && *next && json_array_size(got);
        cairn_buf_clear(&cursor);
        if (more) CAIRN_TRY(cairn_percent_encode(cairn_view_of(next), false, &cursor, err));
    }
    return CAIRN_OK;
}

static enum cairn_code collect_runs(struct cairn_cli *cli, uint64_t limit, json_t *items,
                                    struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    if (cli->store) return cairn_cli_stored_runs(cli, limit, items, err);
    CAIRN_TRY(cairn_cli_connect(cli, &rest, err));
    return collect(rest, "/v1/runs", limit, items, err);
}

static enum cairn_code collect_versions(struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                        uint64_t limit, json_t *items, struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    if (cli->store && cli->state && strcmp(cli->state, "committed") != 0)
        return cairn_fail(err, CAIRN_INVALID,
                          "--store shows what is committed; the server alone knows what is %s",
                          cli->state);
    if (cli->store) return cairn_cli_stored_versions(cli, &ref->name, limit, items, err);
    CAIRN_TRY(cairn_cli_path(ref, "/checkpoints", &path, err));
    if (cli->state) CAIRN_TRY(cairn_buf_printf(&path, err, "?state=%s", cli->state));
    CAIRN_TRY(cairn_cli_connect(cli, &rest, err));
    return collect(rest, path.data, limit, items, err);
}

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    uint64_t limit = cli->limit ? cli->limit : LIMIT_DEFAULT;
    if (!cli->argument_count) {
        CAIRN_TRY(collect_runs(cli, limit, items, err));
        return cairn_cli_print(cli, items, run_columns, CAIRN_COUNT(run_columns), "run", err);
    }
    struct cairn_cli_ref ref;
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
    if (ref.version[0])
        return cairn_fail(err, CAIRN_INVALID, "ls lists a run; for one checkpoint: cairn show %s",
                          cli->arguments[0]);
    CAIRN_TRY(collect_versions(cli, &ref, limit, items, err));
    return cairn_cli_print(cli, items, checkpoint_columns, CAIRN_COUNT(checkpoint_columns),
                           "version", err);
}

const struct cairn_cli_verb cairn_cli_verb_ls = {
    .name = "ls",
    .synopsis = "cairn ls [flags] [project/run]",
    .purpose = "List runs, or the checkpoints of one run, newest first.",
    .examples = "  cairn ls\n"
                "  cairn ls llm/7b\n"
                "  cairn ls llm/7b --store ./cairn/store   (no server needed)\n",
    .flags = flags,
    .flag_count = CAIRN_COUNT(flags),
    .arguments_max = 1,
    .run = run,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* cairn show: a checkpoint or run with shards, tensors and events, from the server or, without what
 * only the catalog has, from the store; cairn events: past and live events. */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/bucket/bucket.h"
#include "cli/shell/output.h"
#include "common/clock.h"
#include "common/text.h"

/* ---- progress of a run: GET /liveness and GET /why as sentences ---- */

#define NAMED_MAX 4

static void print_missing(const json_t *items, uint64_t count, const char *what, const char *key) {
    json_t *item = NULL;
    if (!count) return;
    printf("  %s:", what);
    for (size_t index = 0; (item = json_array_get(items, index)); index++) {
        const char *node = json_string_value(json_object_get(item, "node"));
        const json_t *name = json_object_get(item, key);
        if (index == NAMED_MAX) break;
        if (json_is_string(name))
            printf("%s %s", index ? "," : "", json_string_value(name));
        else
            printf("%s %lld", index ? "," : "", (long long)json_integer_value(name));
        if (node && *node) printf(" (%s)", node);
    }
    if (count > NAMED_MAX) printf(" and %llu more", (unsigned long long)(count - NAMED_MAX));
    printf("\n");
}

static enum cairn_code print_open(const json_t *item, struct cairn_error *err) {
    struct cairn_msg_liveness_open save = {.begun_at = ""};
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_liveness_open, item, &save, err));
    printf("step %llu is being saved since %s: %llu of %llu ranks sealed, %llu of %llu shards "
           "there\n",
           (unsigned long long)save.step, save.begun_at, (unsigned long long)save.ranks_sealed,
           (unsigned long long)save.world_size, (unsigned long long)save.shards_registered,
           (unsigned long long)save.shards);
    print_missing(save.missing_ranks, save.missing_rank_count, "not sealed, ranks", "rank");
    print_missing(save.missing_shards, save.missing_shard_count, "not there, shards", "shard");
    return CAIRN_OK;
}

static enum cairn_code print_liveness(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                      struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_liveness facts = {.interval_s = NAN};
    char age[24], interval[24];
    json_t *item = NULL;
    CAIRN_TRY(cairn_cli_get(cli, run, "/liveness", CAIRN_MESSAGE_liveness, &reply, &facts, err));
    cairn_duration_text((uint64_t)(facts.last_commit_age_s * 1000), age);
    if (facts.last_commit_at)
        printf("\nrun %s/%s: last commit %s ago", run->name.project, run->name.run, age);
    else
        printf("\nrun %s/%s: nothing is committed yet", run->name.project, run->name.run);
    if (!isnan(facts.interval_s)) {
        cairn_duration_text((uint64_t)(facts.interval_s * 1000), interval);
        printf(", one every %s", interval);
    }
    printf("\n");
    for (size_t i = 0; (item = json_array_get(facts.open, i)); i++)
        CAIRN_TRY(print_open(item, err));
    return cairn_cli_flush(err);
}

/* *ref: the newest open save; `latest` if none is open. */
static enum cairn_code newest_of(const struct cairn_cli *cli, struct cairn_cli_ref *ref,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_liveness facts = {0};
    struct cairn_msg_liveness_open save = {.begun_at = ""};
    const char *version = "latest";
    CAIRN_TRY(cairn_cli_get(cli, ref, "/liveness", CAIRN_MESSAGE_liveness, &reply, &facts, err));
    if (json_array_size(facts.open)) {
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_liveness_open, json_array_get(facts.open, 0),
                                       &save, err));
        version = save.version;
    }
    cairn_text_copy(ref->version, sizeof ref->version, version);
    return CAIRN_OK;
}

static enum cairn_code print_errors(const json_t *errors, struct cairn_error *err) {
    json_t *item = NULL;
    for (size_t i = 0; (item = json_array_get(errors, i)); i++) {
        struct cairn_msg_why_error one = {.part = CAIRN_MESSAGE_NONE};
        char age[24], part[40] = "";
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_why_error, item, &one, err));
        cairn_duration_text(one.age_ms / 1000 * 1000, age);
        if (one.part != CAIRN_MESSAGE_NONE)
            snprintf(part, sizeof part, " part %llu", (unsigned long long)one.part);
        printf("    shard %s%s of rank %u, %s ago, %s: %s\n", one.shard, part, one.rank, age,
               cairn_cli_counted(one.tries, "error", "errors").text, one.error);
    }
    return CAIRN_OK;
}

static enum cairn_code print_keeps(const struct cairn_msg_why_node *node, struct cairn_error *err) {
    json_t *item = NULL;
    for (size_t i = 0; (item = json_array_get(node->keeps, i)); i++) {
        struct cairn_msg_why_kept kept = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_why_kept, item, &kept, err));
        printf("  rank %u of node %s outlives it: node %s has a copy\n", kept.rank, kept.node,
               node->node);
    }
    return CAIRN_OK;
}

static enum cairn_code print_node(const json_t *item, struct cairn_error *err) {
    struct cairn_msg_why_node node = {0};
    char done[24], total[24], silent[24];
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_why_node, item, &node, err));
    if (!node.waited_for) return print_keeps(&node, err);
    printf("  node %s:", node.node);
    if (node.total_bytes != CAIRN_MESSAGE_NONE) {
        cairn_cli_size(node.done_bytes, done);
        cairn_cli_size(node.total_bytes, total);
        printf(" %s of %s sent,", done, total);
    }
    if (node.parts_total != CAIRN_MESSAGE_NONE)
        printf(" %llu of %llu shards, %llu of %llu parts,", (unsigned long long)node.shards_done,
               (unsigned long long)node.shards_total, (unsigned long long)node.parts_done,
               (unsigned long long)node.parts_total);
    cairn_duration_text(node.silent_ms == CAIRN_MESSAGE_NONE ? 0 : node.silent_ms, silent);
    printf(" %s %s ago\n", node.left ? "it left; heard" : "heard", silent);
    if (node.error) printf("    last error: %s\n", node.error);
    CAIRN_TRY(print_errors(node.errors, err));
    if (node.trouble) printf("    its uploader: %s\n", node.trouble);
    return print_keeps(&node, err);
}

static enum cairn_code print_restore(const json_t *item, struct cairn_error *err) {
    struct cairn_msg_why_restore told = {0};
    char store[24], shared[24], peer[24], memory[24];
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_why_restore, item, &told, err));
    cairn_cli_size(told.store_bytes, store);
    cairn_cli_size(told.shared_bytes, shared);
    cairn_cli_size(told.peer_bytes, peer);
    cairn_cli_size(told.memory_bytes, memory);
    printf("  restored on node %s: %s from the store; not read from it: %s shared by its ranks, %s "
           "from other nodes, %s from its own memory\n    %s\n",
           told.node, store, shared, peer, memory, told.choice);
    return CAIRN_OK;
}

static enum cairn_code print_facts(const struct cairn_msg_why *why, struct cairn_error *err) {
    json_t *item = NULL;
    if (!why->open) {
        printf("step %llu (%s) is %s and waits for nothing\n", (unsigned long long)why->step,
               why->version, why->state);
        if (why->reason) printf("  %s\n", why->reason);
        for (size_t index = 0; (item = json_array_get(why->restores, index)); index++)
            CAIRN_TRY(print_restore(item, err));
        return CAIRN_OK;
    }
    CAIRN_TRY(print_open(why->open, err));
    for (size_t index = 0; (item = json_array_get(why->nodes, index)); index++)
        CAIRN_TRY(print_node(item, err));
    if (why->commit) printf("  all is there, and the commit waits: %s\n", why->commit);
    return CAIRN_OK;
}

/* Prints GET /why of a version; of a run, for its newest open save, else its latest version. */
static enum cairn_code print_why(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_cli_ref ref = *run;
    struct cairn_msg_why why = {0};
    if (!ref.version[0]) CAIRN_TRY(newest_of(cli, &ref, err));
    CAIRN_TRY(cairn_cli_call(cli, &ref, (struct cairn_cli_call){.tail = "/why"}, &reply, err));
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_reply(cli, reply, err);
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_why, reply, &why, err));
    CAIRN_TRY(print_facts(&why, err));
    return cairn_cli_flush(err);
}

#define LIST_MAX 1000

static const struct cairn_cli_flag show_flags[] = {
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "Read the store itself, without a server: a folder or s3://bucket/prefix."},
    {"why", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(why), 0, NULL,
     "What an open one waits for: ranks, shards, and nodes with what went wrong there last."},
};

static const struct cairn_cli_column shard_columns[] = {
    CAIRN_CLI_FIELD("SHARD", shard, name),      CAIRN_CLI_FIELD("RANK", shard, rank),
    CAIRN_CLI_BYTES("SIZE", shard, bytes),      CAIRN_CLI_FIELD("CRC32C", shard, crc32c),
    CAIRN_CLI_FIELD("CONTENT", shard, content),
};
static const struct cairn_cli_table shard_table =
    CAIRN_CLI_ROWS(shard_row, shard_columns, 0, CAIRN_CLI_FIELD(NULL, shard, name));

static void cell_event(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const char *behind = strchr(row->event.event, '.'); /* without "checkpoint." */
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
static const struct cairn_cli_column event_columns[] = {
    CAIRN_CLI_FIELD("WHEN", event, at), CAIRN_CLI_CELL("WHAT", cell_event),
    CAIRN_CLI_CELL("BY", cell_by), CAIRN_CLI_CELL("WHY", cell_why)};
static const struct cairn_cli_table event_table =
    CAIRN_CLI_ROWS(event_row, event_columns, 0, CAIRN_CLI_CELL(NULL, cell_event));

/* Events of the version, oldest first. */
static enum cairn_code print_happened(const struct cairn_cli *cli,
                                      const struct cairn_cli_ref *version,
                                      struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_event_page page = {0};
    CAIRN_TRY(cairn_cli_get(cli, version, "/events?limit=20", CAIRN_MESSAGE_event_page, &json,
                            &page, err));
    if (!json_array_size(page.items)) return CAIRN_OK; /* events expire */
    printf("\n");
    return cairn_cli_print(cli, page.items, &event_table, err);
}

static enum cairn_code print_list(const struct cairn_cli *cli, const json_t *items,
                                  const char *what, bool more, const struct cairn_cli_table *table,
                                  struct cairn_error *err) {
    if (!json_array_size(items)) return CAIRN_OK;
    printf("\n");
    CAIRN_TRY(cairn_cli_print(cli, items, table, err));
    if (more) printf("... and more; the HTTP API lists all %s (docs/http.md)\n", what);
    return CAIRN_OK;
}

static void print_opaque(const json_t *shards) {
    size_t count = cairn_cli_opaque_count(shards);
    if (count)
        printf("\nopaque content: %s of %zu (CONTENT above), of which only names and bytes are "
               "known\n",
               cairn_cli_counted(count, "shard", "shards").text, json_array_size(shards));
}

static enum cairn_code list_part(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                 const char *what, json_t **ret, bool *ret_more,
                                 struct cairn_error *err) {
    *ret = json_array();
    return cairn_cli_list(cli, ref, what, LIST_MAX, *ret, ret_more, err);
}

/* Optional: omitted on errors. */
static void print_sparks(const struct cairn_cli *cli, const struct cairn_cli_ref *run) {
    CAIRN_AUTO_JSON json_t *versions = json_array();
    if (cairn_cli_list(cli, run, "/checkpoints?state=committed", CAIRN_CLI_SPARK_MAX + 1, versions,
                       NULL, NULL))
        return;
    cairn_cli_spark_versions(versions);
}

/* The step's only save failed and was never committed. A version named by id is no failure. */
static bool has_failed(const struct cairn_cli_ref *ref,
                       const struct cairn_msg_version_row *version) {
    uint64_t step;
    bool of_step = cairn_parse_u64(cairn_view_of(ref->version), &step, NULL) == CAIRN_OK;
    return of_step && !version->committed_at && strcmp(version->state, "open") != 0 &&
           strcmp(version->state, "committed") != 0;
}

static enum cairn_code show(const struct cairn_cli *cli, struct cairn_cli_stored *shown,
                            struct cairn_error *err) {
    struct cairn_cli_ref ref, run;
    struct cairn_msg_version_row version = {0};
    bool more_shards = false, more_tensors = false;
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &run, err));
    CAIRN_TRY(cairn_cli_ref_latest(cli, &ref, err));
    enum cairn_code code = CAIRN_OK;
    bool of_run = !cli->store && !run.version[0] && cli->output == CAIRN_CLI_TABLE;
    if (cli->store)
        CAIRN_TRY(cairn_cli_stored_version(cli, &ref, shown, err));
    else
        code = cairn_cli_version_or_failed(cli, &ref, &shown->version, err);
    /* Without a commit, still show the save in progress. */
    if (code == CAIRN_NOT_FOUND && of_run) (void)!print_liveness(cli, &run, NULL);
    CAIRN_TRY(code);
    CAIRN_TRY(cairn_cli_print_version(cli, shown->version, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, shown->version, &version, err));
    if (!cli->store && has_failed(&ref, &version) && !fflush(stdout))
        return cairn_fail(err, CAIRN_ABORTED, "%s is %s: %s", cli->arguments[0], version.state,
                          version.reason ? version.reason : "no reason is given");
    if (cli->output != CAIRN_CLI_TABLE) return CAIRN_OK;
    if (of_run) CAIRN_TRY(print_liveness(cli, &run, err));
    if (of_run && cairn_cli_paint_terminal()) print_sparks(cli, &run);
    if (!cli->store) {
        /* The id, because a step may mean another version later. */
        cairn_text_copy(ref.version, sizeof ref.version, version.version);
        CAIRN_TRY(list_part(cli, &ref, "/shards", &shown->shards, &more_shards, err));
        if (version.layout)
            CAIRN_TRY(list_part(cli, &ref, "/tensors", &shown->tensors, &more_tensors, err));
    }
    CAIRN_TRY(print_list(cli, shown->shards, "shards", more_shards, &shard_table, err));
    if (version.layout) {
        CAIRN_TRY(
            print_list(cli, shown->tensors, "tensors", more_tensors, &cairn_cli_tensor_table, err));
        print_opaque(shown->shards);
    } else {
        puts("\nopaque content: no shard is described as tensors, only names and bytes are known");
    }
    if (!cli->store) CAIRN_TRY(print_happened(cli, &ref, err));
    return cairn_cli_flush(err);
}

/* For a run: its newest save, which is not `latest` before its commit. */
static enum cairn_code show_why(const struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    if (cli->store) return cairn_fail(err, CAIRN_INVALID, "--why asks the server; drop --store");
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
    return print_why(cli, &ref, err);
}

static enum cairn_code run_show(struct cairn_cli *cli, struct cairn_error *err) {
    if (cli->why) return show_why(cli, err);
    struct cairn_cli_stored shown = {0};
    enum cairn_code code = show(cli, &shown, err);
    cairn_cli_stored_release(&shown);
    return code;
}

const struct cairn_cli_verb cairn_cli_verb_show = {
    .name = "show",
    .synopsis = "cairn show [flags] project/run[@step|@latest|@ckpt_...]",
    .purpose = "Show one checkpoint: what is known of it, shards, tensors, what has happened.",
    .examples = "  cairn show llm/7b\n"
                "  cairn show llm/7b --why                         (what does the save wait for?)\n"
                "  cairn show llm/7b@latest --store s3://bucket/cairn   (no server needed)\n",
    CAIRN_CLI_FLAGS(show_flags),
    CAIRN_CLI_ARGUMENTS(1, 1),
    .run = run_show,
};

/* ---- events ---- */

#define LIMIT_DEFAULT 100
#define LIMIT_MAX 1000

static const struct cairn_cli_flag events_flags[] = {
    {"follow", 'f', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(follow), 0, NULL, "Go on as they happen."},
    {"since", 0, CAIRN_CLI_NUMBER, CAIRN_CLI_AT(since), CAIRN_CLI_AT(since_given), "ID",
     "Begin behind that event; 0: with the oldest that is kept."},
    {"limit", 'n', CAIRN_CLI_COUNT, CAIRN_CLI_AT(limit), 0, "N",
     "How many, at most 1000 (100 by default)."},
};

static enum cairn_code print_event(const struct cairn_cli *cli, const json_t *item,
                                   struct cairn_error *err) {
    struct cairn_msg_event_row row = {0};
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_event_row, item, &row, err));
    if (cairn_cli_wants_json(cli)) return cairn_cli_print_json(item, false, err);
    if (cli->output == CAIRN_CLI_NAME) {
        printf("%" PRIu64 "\n", row.id);
        return CAIRN_OK;
    }
    char line[1200], what[300] = "";
    if (row.version && row.version[0])
        snprintf(what, sizeof what, " %s/%s@%" PRIu64 " %s", row.project, row.run, row.step,
                 row.version);
    else if (row.run && row.run[0])
        snprintf(what, sizeof what, " %s/%s", row.project, row.run);
    else if (row.project && row.project[0])
        snprintf(what, sizeof what, " %s", row.project);
    const char *who = row.actor && row.actor[0] ? row.actor : row.address;
    snprintf(line, sizeof line, "%s %s%s%s%s%s%s%s%s", row.at, row.event, what,
             row.code && row.code[0] ? " " : "", row.code ? row.code : "",
             row.reason && row.reason[0] ? ": " : "", row.reason ? row.reason : "",
             who && who[0] ? " by " : "", who ? who : "");
    cairn_cli_clean(line);
    puts(line);
    return CAIRN_OK;
}

/* Prints one page; *since: the next page's cursor. */
static enum cairn_code one_page(struct cairn_cli_patience *patience, const struct cairn_cli *cli,
                                const struct cairn_cli_ref *ref, uint64_t limit, bool *since_given,
                                uint64_t *since, bool *ret_full, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_event_page page = {0};
    char tail[120];
    json_t *item = NULL;
    if (*since_given)
        snprintf(tail, sizeof tail, "/events?limit=%" PRIu64 "&since=%" PRIu64, limit, *since);
    else
        snprintf(tail, sizeof tail, "/events?limit=%" PRIu64, limit);
    struct cairn_cli_call call = {
        .tail = tail, .wait_ms = cli->follow && *since_given ? CAIRN_CLI_LONG_POLL_MS : 0};
    CAIRN_TRY(cairn_cli_patient_call(patience, cli, ref, call, &json, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_event_page, json, &page, err));
    for (size_t i = 0; (item = json_array_get(page.items, i)); i++)
        CAIRN_TRY(print_event(cli, item, err));
    *since = page.since;
    *ret_full = *since_given && json_array_size(page.items) == limit;
    *since_given = true;
    return cairn_cli_flush(err);
}

static enum cairn_code run_events(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref = {0}, *of = NULL;
    uint64_t limit = cli->limit ? cli->limit : LIMIT_DEFAULT, since = cli->since;
    bool since_given = cli->since_given, full = false;
    if (limit > LIMIT_MAX)
        return cairn_fail(err, CAIRN_INVALID, "--limit is at most %d", LIMIT_MAX);
    if (cli->argument_count) {
        CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
        of = &ref;
    }
    struct cairn_cli_patience patience = {0}; /* deadline 0: no retries */
    if (cli->follow) patience.deadline = cairn_cli_begin_wait(cli, 0);
    bool more = true;
    while (more) {
        CAIRN_TRY(one_page(&patience, cli, of, limit, &since_given, &since, &full, err));
        more = cli->follow ? cairn_deadline_left_ms(&cairn_clock_real, patience.deadline) > 0
                           : full && !cli->limit;
    }
    return CAIRN_OK;
}

const struct cairn_cli_verb cairn_cli_verb_events = {
    .name = "events",
    .synopsis = "cairn events [flags] [project/run[@step]]",
    .purpose = "What has happened, why, and who changed what.",
    .examples = "  cairn events llm/7b\n  cairn events llm/7b@1200\n"
                "  cairn events --follow --json\n",
    CAIRN_CLI_FLAGS(events_flags),
    CAIRN_CLI_ARGUMENTS(0, 1),
    .run = run_events,
};

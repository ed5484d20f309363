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

static void print_missing(const json_t *save, const char *items, const char *count_of,
                          const char *what, const char *key) {
    json_int_t count = json_integer_value(json_object_get(save, count_of)), index = 0;
    if (!count) return;
    printf("  %s:", what);
    CAIRN_JSON_EACH(item, json_object_get(save, items)) {
        char format[40], text[700];
        if (index == NAMED_MAX) break;
        snprintf(format, sizeof format, " {%s}[ ({node})]", key);
        cli_format(format, item, text, sizeof text);
        printf("%s%s", index++ ? "," : "", text);
    }
    if (count > NAMED_MAX) printf(" and %lld more", (long long)(count - NAMED_MAX));
    printf("\n");
}

static enum cairn_code print_open(const json_t *item, struct cairn_error *err) {
    struct cairn_msg_liveness_open save = {.begun_at = ""};
    CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_liveness_open, item, &save, err));
    cli_tell("step {step} is being saved since {begun_at}: {ranks_sealed} of {world_size} "
             "ranks sealed, {shards_registered} of {shards} shards there",
             item);
    print_missing(item, "missing_ranks", "missing_rank_count", "not sealed, ranks", "rank");
    print_missing(item, "missing_shards", "missing_shard_count", "not there, shards", "shard");
    return CAIRN_OK;
}

static enum cairn_code print_liveness(const struct cli *cli, const struct cli_ref *run,
                                      struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_liveness facts = {.interval_s = NAN};
    char age[24], interval[24];
    CAIRN_TRY(cli_get(cli, run, "/liveness", CAIRN_MESSAGE_liveness, &reply, &facts, err));
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
    CAIRN_JSON_EACH(item, facts.open) CAIRN_TRY(print_open(item, err));
    return cli_flush(err);
}

/* *ref: the newest open save; `latest` if none is open. */
static enum cairn_code newest_of(const struct cli *cli, struct cli_ref *ref,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_liveness facts = {0};
    struct cairn_msg_liveness_open save = {.begun_at = ""};
    const char *version = "latest";
    CAIRN_TRY(cli_get(cli, ref, "/liveness", CAIRN_MESSAGE_liveness, &reply, &facts, err));
    if (json_array_size(facts.open)) {
        CAIRN_TRY(
            cli_reply_read(CAIRN_MESSAGE_liveness_open, json_array_get(facts.open, 0), &save, err));
        version = save.version;
    }
    cairn_text_copy(ref->version, sizeof ref->version, version);
    return CAIRN_OK;
}

static enum cairn_code print_errors(const json_t *errors, struct cairn_error *err) {
    CAIRN_JSON_EACH(item, errors) {
        struct cairn_msg_why_error one = {.part = CAIRN_MESSAGE_NONE};
        char age[24], part[40] = "";
        CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_why_error, item, &one, err));
        cairn_duration_text(one.age_ms / 1000 * 1000, age);
        if (one.part != CAIRN_MESSAGE_NONE)
            snprintf(part, sizeof part, " part %llu", (unsigned long long)one.part);
        printf("    shard %s%s of rank %u, %s ago, %s: %s\n", one.shard, part, one.rank, age,
               cairn_counted(one.tries, "error").text, one.error);
    }
    return CAIRN_OK;
}

static enum cairn_code print_keeps(const struct cairn_msg_why_node *node, struct cairn_error *err) {
    CAIRN_JSON_EACH(item, node->keeps) {
        CLI_READ(why_kept, kept, item, err);
        printf("  rank %u of node %s outlives it: node %s has a copy\n", kept.rank, kept.node,
               node->node);
    }
    return CAIRN_OK;
}

static enum cairn_code print_node(const json_t *item, struct cairn_error *err) {
    char silent[24];
    CLI_READ(why_node, node, item, err);
    if (!node.waited_for) return print_keeps(&node, err);
    printf("  node %s:", node.node);
    if (node.total_bytes != CAIRN_MESSAGE_NONE)
        printf(" %s of %s sent,", cli_size(node.done_bytes).text, cli_size(node.total_bytes).text);
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
    CLI_READ(why_restore, told, item, err);
    cli_tell("  restored on node {node}: {store_bytes:size} from the store; not read from it: "
             "{shared_bytes:size} shared by its ranks, {peer_bytes:size} from other nodes, "
             "{memory_bytes:size|=0 B} from its own memory",
             item);
    printf("    %s\n", told.choice);
    return CAIRN_OK;
}

static enum cairn_code print_facts(const struct cairn_msg_why *why, struct cairn_error *err) {
    if (!why->open) {
        printf("step %llu (%s) is %s and waits for nothing\n", (unsigned long long)why->step,
               why->version, why->state);
        if (why->reason) printf("  %s\n", why->reason);
        CAIRN_JSON_EACH(item, why->restores) CAIRN_TRY(print_restore(item, err));
        return CAIRN_OK;
    }
    CAIRN_TRY(print_open(why->open, err));
    CAIRN_JSON_EACH(item, why->nodes) CAIRN_TRY(print_node(item, err));
    if (why->commit) printf("  all is there, and the commit waits: %s\n", why->commit);
    return CAIRN_OK;
}

/* Prints GET /why of a version; of a run, for its newest open save, else its latest version. */
static enum cairn_code show_why(const struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cli_ref ref;
    struct cairn_msg_why why = {0};
    if (cli->store) return cairn_fail(err, CAIRN_INVALID, "--why asks the server; drop --store");
    CAIRN_TRY(cli_ref_parse(cli->arguments[0], &ref, err));
    if (!ref.version[0]) CAIRN_TRY(newest_of(cli, &ref, err));
    CAIRN_TRY(cli_call(cli, &ref, (struct cli_call){.tail = "/why"}, &reply, err));
    if (cli->output != CLI_TABLE) return cli_print_reply(cli, reply, err);
    CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_why, reply, &why, err));
    CAIRN_TRY(print_facts(&why, err));
    return cli_flush(err);
}

#define LIST_MAX 1000

static const struct cli_flag show_flags[] = {
    {"store", 0, CLI_TEXT, CLI_AT(store), 0, "URL",
     "Read the store itself, without a server: a folder or s3://bucket/prefix."},
    {"why", 0, CLI_SWITCH, CLI_AT(why), 0, NULL,
     "What an open one waits for: ranks, shards, and nodes with what went wrong there last."},
};

static const struct cli_table shard_table = {
    CAIRN_MESSAGE_shard_row,
    .name = "{name}",
    .columns = {{"SHARD", .text = "{name}"},
                {"RANK", .text = "{rank}", CLI_RIGHT},
                {"SIZE", .text = "{bytes:size}", CLI_RIGHT},
                {"CRC32C", .text = "{crc32c}"},
                {"CONTENT", .text = "{content}"}},
};

static void cell_event(const json_t *item, char *ret, size_t capacity) {
    static const char of_checkpoints[] = "checkpoint.";
    const char *event = json_string_value(json_object_get(item, "event"));
    bool plain = event && cairn_text_starts(event, of_checkpoints);
    snprintf(ret, capacity, "%s", plain ? event + sizeof of_checkpoints - 1 : event ? event : "");
}
static void cell_why(const json_t *item, char *ret, size_t capacity) {
    char text[1000];
    bool coded = json_string_length(json_object_get(item, "code"));
    cli_format(coded ? "{code}[: {reason}]" : "{reason}", item, text, sizeof text);
    cairn_utf8_shorten(ret, capacity, text);
}
static const struct cli_table event_table = {
    CAIRN_MESSAGE_event_row,
    .columns = {{"WHEN", .text = "{at}"},
                {"WHAT", .cell = cell_event},
                {"BY", .text = "{actor|address}"},
                {"WHY", .cell = cell_why}},
};

/* Events of the version, oldest first. */
static enum cairn_code print_happened(const struct cli *cli, const struct cli_ref *version,
                                      struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_event_page page = {0};
    CAIRN_TRY(
        cli_get(cli, version, "/events?limit=20", CAIRN_MESSAGE_event_page, &json, &page, err));
    if (!json_array_size(page.items)) return CAIRN_OK; /* events expire */
    printf("\n");
    return cli_print(cli, page.items, &event_table, err);
}

static enum cairn_code print_list(const struct cli *cli, const json_t *items, const char *what,
                                  bool more, const struct cli_table *table,
                                  struct cairn_error *err) {
    if (!json_array_size(items)) return CAIRN_OK;
    printf("\n");
    CAIRN_TRY(cli_print(cli, items, table, err));
    if (more) printf("... and more; the HTTP API lists all %s (docs/http.md)\n", what);
    return CAIRN_OK;
}

static enum cairn_code list_part(const struct cli *cli, const struct cli_ref *ref, const char *what,
                                 json_t **ret, bool *ret_more, struct cairn_error *err) {
    *ret = json_array();
    return cli_list(cli, ref, what, LIST_MAX, *ret, ret_more, err);
}

/* Optional: omitted on errors. */
static void print_sparks(const struct cli *cli, const struct cli_ref *run) {
    CAIRN_AUTO_JSON json_t *versions = json_array();
    if (cli_list(cli, run, "/checkpoints?state=committed", CLI_SPARK_MAX + 1, versions, NULL, NULL))
        return;
    cli_spark_versions(versions);
}

/* The step's only save failed and was never committed. A version named by id is no failure. */
static bool has_failed(const struct cli_ref *ref, const struct cairn_msg_version_row *version) {
    uint64_t step;
    bool of_step = cairn_parse_u64(cairn_view_of(ref->version), &step, NULL) == CAIRN_OK;
    return of_step && !version->committed_at && strcmp(version->state, "open") != 0 &&
           strcmp(version->state, "committed") != 0;
}

static enum cairn_code run_show(struct cli *cli, struct cairn_error *err) {
    if (cli->why) return show_why(cli, err);
    CAIRN_RELEASED(cli_stored_release) struct cli_stored shown = {0};
    struct cli_ref ref, run;
    struct cairn_msg_version_row version = {0};
    bool more_shards = false, more_tensors = false;
    CAIRN_TRY(cli_ref_parse(cli->arguments[0], &run, err));
    CAIRN_TRY(cli_ref_latest(cli, &ref, err));
    enum cairn_code code = CAIRN_OK;
    bool of_run = !cli->store && !run.version[0] && cli->output == CLI_TABLE;
    if (cli->store)
        CAIRN_TRY(cli_stored_version(cli, &ref, &shown, err));
    else
        code = cli_version_or_failed(cli, &ref, &shown.version, err);
    /* Without a commit, still show the save in progress. */
    if (code == CAIRN_NOT_FOUND && of_run) (void)!print_liveness(cli, &run, NULL);
    CAIRN_TRY(code);
    CAIRN_TRY(cli_print_version(cli, shown.version, err));
    CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_version_row, shown.version, &version, err));
    if (!cli->store && has_failed(&ref, &version) && !fflush(stdout))
        return cairn_fail(err, CAIRN_ABORTED, "%s is %s: %s", cli->arguments[0], version.state,
                          version.reason ? version.reason : "no reason is given");
    if (cli->output != CLI_TABLE) return CAIRN_OK;
    if (of_run) CAIRN_TRY(print_liveness(cli, &run, err));
    if (of_run && cli_paint_terminal()) print_sparks(cli, &run);
    if (!cli->store) {
        /* The id, because a step may mean another version later. */
        cairn_text_copy(ref.version, sizeof ref.version, version.version);
        CAIRN_TRY(list_part(cli, &ref, "/shards", &shown.shards, &more_shards, err));
        if (version.layout)
            CAIRN_TRY(list_part(cli, &ref, "/tensors", &shown.tensors, &more_tensors, err));
    }
    CAIRN_TRY(print_list(cli, shown.shards, "shards", more_shards, &shard_table, err));
    if (version.layout) {
        CAIRN_TRY(print_list(cli, shown.tensors, "tensors", more_tensors, &cli_tensor_table, err));
        size_t count = cli_opaque_count(shown.shards);
        if (count)
            printf("\nopaque content: %s of %zu (CONTENT above), of which only names and bytes are "
                   "known\n",
                   cairn_counted(count, "shard").text, json_array_size(shown.shards));
    } else {
        puts("\nopaque content: no shard is described as tensors, only names and bytes are known");
    }
    if (!cli->store) CAIRN_TRY(print_happened(cli, &ref, err));
    return cli_flush(err);
}

const struct cli_verb cli_verb_show = {
    CLI_VERB(show),
    .synopsis = "cairn show [flags] project/run[@step|@latest|@ckpt_...]",
    .purpose = "Show one checkpoint: state, shards, tensors, history.",
    .examples = "  cairn show llm/7b\n"
                "  cairn show llm/7b --why                         (what does the save wait for?)\n"
                "  cairn show llm/7b@latest --store s3://bucket/cairn   (no server needed)\n",
    CLI_TAKES(show_flags, 1, 1),
};

/* ---- events ---- */

#define LIMIT_DEFAULT 100
#define LIMIT_MAX 1000

static const struct cli_flag events_flags[] = {
    {"follow", 'f', CLI_SWITCH, CLI_AT(follow), 0, NULL, "Go on as they happen."},
    {"since", 0, CLI_NUMBER, CLI_AT(since), CLI_AT(since_given), "ID",
     "Begin behind that event; 0: with the oldest that is kept."},
    {"limit", 'n', CLI_COUNT, CLI_AT(limit), 0, "N", "How many, at most 1000 (100 by default)."},
};

static const struct cli_table event_lines = {
    CAIRN_MESSAGE_event_row,
    .name = "{id}",
    .line = "{at} {event}[ {project}[/{run}[@{step} {version}]]][ {code}][: {reason}]"
            "[ by {actor|address}]",
};

static enum cairn_code run_events(struct cli *cli, struct cairn_error *err) {
    struct cli_ref ref = {0}, *of = NULL;
    uint64_t limit = cli->limit ? cli->limit : LIMIT_DEFAULT, since = cli->since;
    bool since_given = cli->since_given, full = false;
    if (limit > LIMIT_MAX)
        return cairn_fail(err, CAIRN_INVALID, "--limit is at most %d", LIMIT_MAX);
    if (cli->argument_count) {
        CAIRN_TRY(cli_ref_parse(cli->arguments[0], &ref, err));
        of = &ref;
    }
    struct cli_patience patience = {0}; /* deadline 0: no retries */
    if (cli->follow) patience.deadline = cli_begin_wait(cli, 0);
    bool more = true;
    while (more) {
        /* Prints one page; `since` becomes the cursor of the next. */
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cli stream = *cli;
        char tail[120];
        if (cli->output == CLI_JSON) stream.output = CLI_JSONL;
        if (since_given)
            snprintf(tail, sizeof tail, "/events?limit=%" PRIu64 "&since=%" PRIu64, limit, since);
        else
            snprintf(tail, sizeof tail, "/events?limit=%" PRIu64, limit);
        struct cli_call call = {.tail = tail,
                                .wait_ms = cli->follow && since_given ? CLI_LONG_POLL_MS : 0};
        CAIRN_TRY(cli_patient_call(&patience, cli, of, call, &json, err));
        CLI_READ(event_page, page, json, err);
        CAIRN_TRY(cli_print(&stream, page.items, &event_lines, err));
        since = page.since;
        full = since_given && json_array_size(page.items) == limit;
        since_given = true;
        more = cli->follow ? cairn_deadline_left_ms(&cairn_clock_real, patience.deadline) > 0
                           : full && !cli->limit;
    }
    return CAIRN_OK;
}

const struct cli_verb cli_verb_events = {
    CLI_VERB(events),
    .synopsis = "cairn events [flags] [project/run[@step]]",
    .purpose = "List events: what happened, why, and who changed it.",
    .examples = "  cairn events llm/7b\n  cairn events llm/7b@1200\n"
                "  cairn events --follow --json\n",
    CLI_TAKES(events_flags, 0, 1),
};

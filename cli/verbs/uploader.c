/* SPDX-License-Identifier: Apache-2.0 */
/* This node: cairn uploader status|drain over the socket; warmup; health. */

#include <cairn/cairn.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/routes.h"
#include "cli/shell/output.h"
#include "common/clock.h"
#include "common/text.h"
#include "common/trace.h"

#define ANSWER_MS 10000
#define RATE_MS 500 /* between the two samples of the rate */
#define LOOK_MS 200
#define DRAIN_DEFAULT_MS 600000

static const struct cli_flag uploader_flags[] = {
    {"wait", 'w', CLI_SWITCH, CLI_AT(follow), 0, NULL,
     "Of drain: until all that was staged is stored and told, at most --timeout (10min)."},
};

struct ask {
    struct cli_uploader link;
    json_t *json;
    struct cairn_msg_report report;
};

static enum cairn_code ask(struct ask *ask, json_t *take_request, struct cairn_error *err) {
    json_t *json = NULL;
    uint64_t deadline_ms = cairn_deadline_in(&cairn_clock_real, ANSWER_MS);
    CAIRN_TRY(cli_uploader_ask(&ask->link, take_request, deadline_ms, &json, err));
    json_decref(ask->json);
    ask->json = json;
    ask->report = (struct cairn_msg_report){0};
    return cli_reply_read(CAIRN_MESSAGE_report, json, &ask->report, err);
}

static enum cairn_code print_json(const struct cli *cli, const struct ask *ask,
                                  struct cairn_error *err) {
    (void)json_object_del(ask->json, "t");
    (void)json_object_del(ask->json, "id");
    return cli_print_reply(cli, ask->json, err);
}

static void print_trouble(const char *what, const char *text, uint64_t for_ms) {
    char line[700], since[24];
    if (!text || !*text) return;
    cairn_duration_text(for_ms, since);
    snprintf(line, sizeof line, "%s%s%s: %s", what, for_ms ? " for " : "", for_ms ? since : "",
             text);
    cli_clean(line);
    puts(line);
}

/* ", NUMA node 0: 2.0 GiB, ..." of the slabs that are bound to one. */
static enum cairn_code print_slab_nodes(const json_t *nodes, struct cairn_error *err) {
    const json_t *item = NULL;
    for (size_t i = 0; (item = json_array_get(nodes, i)); i++) {
        struct cairn_msg_report_slab_node node = {0};
        CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_report_slab_node, item, &node, err));
        printf("%s%s of node %" PRIu32,
               i ? ", " : "slabs by NUMA node: ", cli_size(node.slab_bytes).text, node.numa_node);
    }
    if (json_array_size(nodes)) puts("");
    return CAIRN_OK;
}

static enum cairn_code print_report(const struct ask *ask, uint64_t rate_bytes,
                                    struct cairn_error *err) {
    const struct cairn_msg_report *said = &ask->report;
    cli_tell("node {node}{draining? is draining|=}: version {uploader}, pid {pid}", ask->json);
    printf("store %s\nserver %s\n", said->store, said->server);
    cli_tell("sessions {sessions}; saves being staged {staging}, unfinished {unfinished}; "
             "entries of the journal {open}",
             ask->json);
    cli_tell("memory {budget_free_bytes:size} free of {budget_bytes:size}; {slab_bytes:size} "
             "of slabs in {slabs}, {slab_held_bytes:size} of them held by saves",
             ask->json);
    CAIRN_TRY(print_slab_nodes(said->slab_nodes, err));
    printf("sent %s, now %s/s\n", cli_size(said->sent_bytes).text, cli_size(rate_bytes).text);
    print_trouble("nothing is sent", said->store_waits, said->store_waits_ms);
    print_trouble("nothing is told", said->server_away, said->server_away_ms);
    print_trouble("the journal is not written", said->journal, 0);
    CAIRN_JSON_EACH(item, said->saves) {
        CLI_READ(report_save, save, item, err);
        cli_tell("  {project}/{run}@{step} rank {rank}: {phase}, {done_bytes:size} of "
                 "{total_bytes:size}, {shards_done} of {shards_total} shards, {parts_done} of "
                 "{parts_total} parts[; copied with {copy_threads#thread}, "
                 "{copy_bytes_per_s:size|=0 B}/s][; last error: {error}]",
                 item);
    }
    return cli_flush(err);
}

static enum cairn_code show_status(const struct cli *cli, struct ask *at, struct cairn_error *err) {
    CAIRN_TRY(ask(at, CAIRN_PACK(status, 0), err));
    if (cli->output == CLI_NAME) {
        puts(at->report.node);
        return cli_flush(err);
    }
    if (cli->output != CLI_TABLE) return print_json(cli, at, err);
    uint64_t before = at->report.sent_bytes, begun_ms = cairn_mono_ms();
    (void)poll(NULL, 0, RATE_MS);
    CAIRN_TRY(ask(at, CAIRN_PACK(status, 0), err));
    uint64_t elapsed_ms = cairn_max_u64(cairn_mono_ms() - begun_ms, 1);
    return print_report(at, (at->report.sent_bytes - before) * 1000 / elapsed_ms, err);
}

static enum cairn_code left_over(const struct cairn_msg_report *said, struct cairn_error *err) {
    const char *why = said->store_waits && *said->store_waits   ? said->store_waits
                      : said->server_away && *said->server_away ? said->server_away
                                                                : NULL;
    return cairn_fail(err, CAIRN_TIMEOUT,
                      "node %s: %s unfinished, %s being staged by trainers; what is staged is in "
                      "the journal and goes on with the next start%s%s",
                      said->node, cairn_counted(said->unfinished, "save").text,
                      cairn_counted(said->staging, "save").text, why ? ": " : "", why ? why : "");
}

static bool is_done(const struct cairn_msg_report *said) {
    return !said->unfinished && !said->staging;
}

/* An uploader that ended after its last reply was idle or left its work in the journal. */
static enum cairn_code wait_for_end(struct ask *at, uint64_t deadline_ms, struct cli_meter *meter,
                                    struct cairn_error *err) {
    for (;;) {
        /* Finished saves vanish from reports, so the largest total seen is kept. */
        uint64_t left = at->report.total_bytes > at->report.done_bytes
                            ? at->report.total_bytes - at->report.done_bytes
                            : 0;
        if (left > meter->total_bytes) meter->total_bytes = left;
        cli_meter_set(meter, meter->total_bytes - left, at->report.staging ? "staging" : NULL);
        if (is_done(&at->report)) return CAIRN_OK;
        if (!cairn_deadline_left_ms(&cairn_clock_real, deadline_ms))
            return left_over(&at->report, err);
        (void)poll(NULL, 0, LOOK_MS);
        CAIRN_TRY(ask(at, CAIRN_PACK(status, 0), err));
    }
}

static enum cairn_code drain(const struct cli *cli, struct ask *at, struct cairn_error *err) {
    uint64_t timeout_ms = cli->timeout_ms ? cli->timeout_ms : DRAIN_DEFAULT_MS;
    uint64_t deadline_ms = cairn_deadline_in(&cairn_clock_real, timeout_ms);
    enum cairn_code code = CAIRN_OK;
    CAIRN_TRY(ask(at, CAIRN_PACK(drain, 0), err));
    if (cli->follow) {
        struct cli_meter meter;
        cli_meter_init(&meter, cli, "drain", at->report.total_bytes - at->report.done_bytes, 0);
        code = wait_for_end(at, deadline_ms, &meter, err);
        cli_meter_end(&meter, code == CAIRN_OK);
    }
    if (cli_wants_json(cli))
        (void)!print_json(cli, at, NULL);
    else if (cli->output == CLI_NAME)
        puts(at->report.node);
    else if (code == CAIRN_OK)
        printf("node %s %s: %s unfinished, %s being staged\n", at->report.node,
               is_done(&at->report) ? "is drained" : "drains",
               cairn_counted(at->report.unfinished, "save").text,
               cairn_counted(at->report.staging, "save").text);
    return code ? code : cli_flush(err);
}

static enum cairn_code run_uploader(struct cli *cli, struct cairn_error *err) {
    struct ask at = {.json = NULL};
    bool draining = !strcmp(cli->arguments[0], "drain");
    if (!draining && (strcmp(cli->arguments[0], "status") != 0 || cli->follow))
        return cairn_fail(err, CAIRN_INVALID, "uploader takes status, drain or drain --wait");
    CAIRN_TRY(cli_uploader_open(cli_uploader_socket(cli), &at.link, err));
    enum cairn_code code = draining ? drain(cli, &at, err) : show_status(cli, &at, err);
    cli_uploader_close(&at.link);
    json_decref(at.json);
    return code;
}

const struct cli_verb cli_verb_uploader = {
    CLI_VERB(uploader),
    .synopsis = "cairn uploader status|drain [flags]",
    .purpose = "Show the state of this node's uploader, or drain it.",
    .examples = "  cairn uploader status\n  cairn uploader drain --wait --timeout 110s\n"
                "  cairn uploader status --json\n",
    CLI_TAKES(uploader_flags, 1, 1),
};

/* ---- warmup node|ls ---- */

/* Tests before a job whether this node's ranks could save, or lists what a run's ranks found.
 * Opening an attempt ends older ones of its run, so warmup uses a run of its own. */

#define RANKS_MAX 256
#define ROWS_MAX 1000000
#define CALL_MS 60000
#define RUN_PREFIX "warmup-"

static const struct cli_flag warmup_flags[] = {
    {"ranks", 'n', CLI_COUNT, CLI_AT(ranks), 0, "N",
     "Of node: ranks of the job on this node; default 1."},
    {"bytes", 'b', CLI_SIZE, CLI_AT(bytes), 0, "SIZE",
     "Of node: what one save of a rank stages; default: its memory is not looked at."},
};

static const struct cli_table probe_table = {
    CAIRN_MESSAGE_probe_row,
    .name = "{rank}",
    .columns = {{"NODE", .text = "{node}"},
                {"RANK", .text = "{rank}", CLI_RIGHT},
                {"FOUND", .text = "{ok?ok|code}"},
                {"REASON", .text = "{reason}"}},
};

/* ---- node ---- */

struct warm {
    char node[CAIRN_NAME_BYTES_MAX + 1];
    char run[2 * CAIRN_NAME_BYTES_MAX + 2], job[CAIRN_UUID_TEXT_BYTES];
    const char *socket;
    uint64_t bytes;
    uint32_t ranks, timeout_ms;
    struct cairn_session *sessions[RANKS_MAX]; /* kept open: a node holds all at once */
};

/* Asks for the uploader's report over one connection; its strings point into *ret. */
static enum cairn_code uploader_report(const char *socket_path, uint64_t timeout_ms, json_t **ret,
                                       struct cairn_msg_report *ret_report,
                                       struct cairn_error *err) {
    struct cli_uploader uploader;
    uint64_t deadline_ms = cairn_deadline_in(&cairn_clock_real, timeout_ms);
    CAIRN_TRY(cli_uploader_open(socket_path, &uploader, err));
    enum cairn_code code =
        cli_uploader_ask(&uploader, CAIRN_PACK(status, 0), deadline_ms, ret, err);
    cli_uploader_close(&uploader);
    return code ? code : cli_reply_read(CAIRN_MESSAGE_report, *ret, ret_report, err);
}

/* Opens an attempt, maps memory and probes the store, rank by rank, as a job does. */
static enum cairn_code warm_rank(struct warm *warm, uint32_t rank, struct cairn_error *err) {
    const struct cairn_open_options options = {.size = sizeof options,
                                               .run = warm->run,
                                               .job = warm->job,
                                               .rank = rank,
                                               .world_size = warm->ranks,
                                               .local_rank = rank,
                                               .local_world_size = warm->ranks,
                                               .bytes = warm->bytes,
                                               .socket = warm->socket,
                                               .timeout_ms = warm->timeout_ms};
    CAIRN_TRY(cairn_open(&options, &warm->sessions[rank], NULL, err));
    return cairn_warmup(warm->sessions[rank], NULL, err);
}

static enum cairn_code warm_all(const struct cli *cli, struct warm *warm, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *rows = json_array();
    struct cairn_error first = {0};
    uint32_t failed = 0;
    for (uint32_t rank = 0; rank < warm->ranks; rank++) {
        struct cairn_error why = {0};
        why.code = warm_rank(warm, rank, &why);
        if (why.code && !failed++) first = why;
        json_t *row = CAIRN_PACK(probe_row, .rank = rank, .node = warm->node, .ok = !why.code,
                                 .code = why.code ? cairn_code_info(why.code)->slug : NULL,
                                 .reason = why.code ? why.message : NULL);
        if (!(row && !json_array_append_new(rows, row)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list");
    }
    CAIRN_TRY(cli_print(cli, rows, &probe_table, err));
    if (!failed) return CAIRN_OK;
    if (err) *err = first;
    return cairn_within(err, first.code, "node %s: %u of %u ranks could not save", warm->node,
                        failed, warm->ranks);
}

static enum cairn_code run_warmup(struct cli *cli, struct cairn_error *err) {
    struct warm warm;
    struct cli_ref run = {0};
    if (!strcmp(cli->arguments[0], "ls") && !cli->ranks && !cli->bytes) {
        CAIRN_TRY(cairn_run_name_parse(cli->arguments[1], &run.name, err));
        return cli_print_list(cli, &run, "/probes", ROWS_MAX, &probe_table, err);
    }
    if (strcmp(cli->arguments[0], "node") != 0)
        return cairn_fail(err, CAIRN_INVALID, "want node PROJECT, or ls PROJECT/RUN; usage: %s",
                          cli_verb_warmup.synopsis);
    const char *project = cli->arguments[1];
    struct cairn_run_name name;
    if (!cairn_name_valid(cairn_view_of(project)))
        return cairn_fail(err, CAIRN_INVALID, "\"%s\": want a project: " CAIRN_NAME_WANTED,
                          project);
    if (cli->ranks > RANKS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "at most %d ranks", RANKS_MAX);
    warm = (struct warm){.socket = cli_uploader_socket(cli),
                         .bytes = cli->bytes,
                         .timeout_ms = cli->timeout_ms
                                           ? (uint32_t)cairn_min_u64(cli->timeout_ms, UINT32_MAX)
                                           : CALL_MS};
    struct cairn_msg_report report = {.node = ""};
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_TRY(uploader_report(warm.socket, ANSWER_MS, &json, &report, err));
    (void)cairn_text_copy(warm.node, sizeof warm.node, report.node);
    cairn_uuid_random(warm.job);
    int length = snprintf(warm.run, sizeof warm.run, "%s/" RUN_PREFIX "%s", project, warm.node);
    if (length >= (int)sizeof warm.run || cairn_run_name_parse(warm.run, &name, err) != CAIRN_OK)
        return cairn_fail(err, CAIRN_INVALID, "node %s: its name makes no run", warm.node);
    warm.ranks = cli->ranks ? (uint32_t)cli->ranks : 1;
    enum cairn_code code = warm_all(cli, &warm, err);
    for (uint32_t rank = 0; rank < warm.ranks; rank++) (void)cairn_close(warm.sessions[rank], NULL);
    return code;
}

const struct cli_verb cli_verb_warmup = {
    CLI_VERB(warmup),
    .synopsis = "cairn warmup node|ls [flags] project[/run]",
    .purpose = "Test before a job whether each rank of this node could save, and list the results.",
    .examples = "  cairn warmup node llm --ranks 8 --bytes 20GiB\n"
                "  srun --ntasks-per-node=1 cairn warmup node llm --json\n"
                "  cairn warmup ls llm/7b\n",
    CLI_TAKES(warmup_flags, 2, 2),
    .surplus = "ranks",
};

/* ---- health ---- */

/* For container engines, service managers and scripts: no token, one line, an exit status. */

#define ANSWER_DEFAULT_MS 5000

static const struct cli_flag health_flags[] = {
    {"ready", 0, CLI_SWITCH, CLI_AT(ready), 0, NULL,
     "Not only whether it answers: also whether it can do its work now."},
};

#define TROUBLES_BYTES 400 /* problems, separated by "; " */

static void add_trouble(char troubles[TROUBLES_BYTES], const char *what, const char *text) {
    cli_add(troubles, TROUBLES_BYTES, "; ", "%s%s%s", what, *what ? ": " : "", text);
}

static uint32_t answer_ms(const struct cli *cli) {
    return cli->timeout_ms ? (uint32_t)cairn_min_u64(cli->timeout_ms, UINT32_MAX)
                           : ANSWER_DEFAULT_MS;
}

static enum cairn_code say_health(const struct cli *cli, const char *what, const char *name,
                                  struct cairn_error *err) {
    if (cli->output == CLI_TABLE || cli->output == CLI_NAME) {
        printf("%s is %s\n", name, cli->ready ? "ready" : "alive");
    } else {
        CAIRN_AUTO_JSON json_t *answer = json_pack("{s:s, s:s, s:b, s:b}", "of", what, "name", name,
                                                   "alive", true, "ready", cli->ready);
        if (!answer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
        if (!cli->ready) (void)json_object_del(answer, "ready");
        return cli_print_reply(cli, answer, err);
    }
    return cli_flush(err);
}

static void add_checks(const json_t *body, char troubles[TROUBLES_BYTES]) {
    struct cairn_msg_readiness ready = {0};
    const char *name = NULL;
    json_t *said = NULL;
    if (!body || cairn_msg_readiness_read(body, "", &ready, NULL)) return;
    json_object_foreach(ready.checks, name, said) {
        const char *text = json_string_value(said);
        bool of_one_run = !strcmp(name, "commits") || !strcmp(name, "runs") ||
                          !strcmp(name, "nodes") || !strcmp(name, "copies");
        if (text && strcmp(text, "ok") != 0 && !of_one_run) add_trouble(troubles, name, text);
    }
}

static enum cairn_code ask_server(const struct cli *cli, struct cairn_error *err) {
    struct cli_server server;
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    char troubles[TROUBLES_BYTES] = "";
    cli_server_of(cli, &server);
    struct cairn_rest_options options = {.url = server.url,
                                         .ca_bundle = server.ca_file,
                                         .timeout_ms = answer_ms(cli),
                                         .seen = cli->seen};
    CAIRN_TRY(cairn_rest_new(&options, &rest, err));
    enum cairn_code code =
        cairn_rest_call(rest, "GET", cli->ready ? "/readyz" : "/livez", NULL, 0, &reply, err);
    if (!code) return say_health(cli, "server", server.url, err);
    add_checks(cairn_rest_problem(rest), troubles);
    if (!troubles[0]) return code;
    return cairn_fail(err, CAIRN_UNAVAILABLE, "%s is not ready: %s", server.url, troubles);
}

static enum cairn_code ask_uploader(const struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_report said = {0};
    const char *path = cli_uploader_socket(cli);
    CAIRN_TRY(uploader_report(path, answer_ms(cli), &json, &said, err));
    char troubles[TROUBLES_BYTES] = "", since[24] = "", what[64];
    cairn_duration_text(said.store_waits_ms, since);
    snprintf(what, sizeof what, "nothing is sent for %s", since);
    if (said.draining) add_trouble(troubles, "", "it is draining");
    if (said.store_waits && *said.store_waits) add_trouble(troubles, what, said.store_waits);
    if (said.journal && *said.journal)
        add_trouble(troubles, "the journal is not written", said.journal);
    if (!cli->ready || !troubles[0]) return say_health(cli, "uploader", said.node, err);
    return cairn_fail(err, CAIRN_UNAVAILABLE, "the uploader of node %s is not ready: %s", said.node,
                      troubles);
}

static enum cairn_code run_health(struct cli *cli, struct cairn_error *err) {
    const char *what = cli->argument_count ? cli->arguments[0]
                       : cli->socket       ? "uploader"
                                           : "server";
    if (!strcmp(what, "server")) return ask_server(cli, err);
    if (!strcmp(what, "uploader")) return ask_uploader(cli, err);
    return cairn_fail(err, CAIRN_INVALID, "want server or uploader, not \"%.40s\"; usage: %s", what,
                      cli_verb_health.synopsis);
}

const struct cli_verb cli_verb_health = {
    CLI_VERB(health),
    .synopsis = "cairn health [flags] [server|uploader]",
    .purpose = "Whether a server or this node's uploader answers, or is ready; without a token.",
    .examples = "  cairn health\n  cairn health --ready --server https://cairn.lab:7420\n"
                "  cairn health --ready --socket /run/cairn/uploader.sock\n",
    CLI_TAKES(health_flags, 0, 1),
};

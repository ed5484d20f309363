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

static const struct cairn_cli_flag uploader_flags[] = {
    {"wait", 'w', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(follow), 0, NULL,
     "Of drain: until all that was staged is stored and told, at most --timeout (10min)."},
};

struct ask {
    struct cairn_cli_uploader link;
    json_t *json;
    struct cairn_msg_report report;
};

static enum cairn_code ask(struct ask *ask, json_t *take_request, struct cairn_error *err) {
    json_t *json = NULL;
    uint64_t deadline_ms = cairn_deadline_in(&cairn_clock_real, ANSWER_MS);
    CAIRN_TRY(cairn_cli_uploader_ask(&ask->link, take_request, deadline_ms, &json, err));
    json_decref(ask->json);
    ask->json = json;
    ask->report = (struct cairn_msg_report){0};
    return cairn_cli_reply_read(CAIRN_MESSAGE_report, json, &ask->report, err);
}

static enum cairn_code print_json(const struct cairn_cli *cli, const struct ask *ask,
                                  struct cairn_error *err) {
    (void)json_object_del(ask->json, "t");
    (void)json_object_del(ask->json, "id");
    return cairn_cli_print_reply(cli, ask->json, err);
}

static void print_save(const struct cairn_msg_report_save *save) {
    char done[24], total[24], rate[24], copied[128] = "", line[1200];
    cairn_cli_size(save->done_bytes, done);
    cairn_cli_size(save->total_bytes, total);
    cairn_cli_size(save->copy_bytes_per_s, rate);
    if (save->copy_threads)
        snprintf(copied, sizeof copied, "; copied with %s, %s/s",
                 cairn_counted(save->copy_threads, "thread").text, rate);
    snprintf(line, sizeof line,
             "  %s/%s@%" PRIu64 " rank %" PRIu64 ": %s, %s of %s, %" PRIu64 " of %" PRIu64
             " shards, %" PRIu64 " of %" PRIu64 " parts%s%s%s",
             save->project, save->run, save->step, (uint64_t)save->rank, save->phase, done, total,
             save->shards_done, save->shards_total, save->parts_done, save->parts_total, copied,
             save->error && *save->error ? "; last error: " : "", save->error ? save->error : "");
    cairn_cli_clean(line);
    puts(line);
}

static void print_trouble(const char *what, const char *text, uint64_t for_ms) {
    char line[700], since[24];
    if (!text || !*text) return;
    cairn_duration_text(for_ms, since);
    snprintf(line, sizeof line, "%s%s%s: %s", what, for_ms ? " for " : "", for_ms ? since : "",
             text);
    cairn_cli_clean(line);
    puts(line);
}

static enum cairn_code print_report(const struct ask *ask, uint64_t rate_bytes,
                                    struct cairn_error *err) {
    const struct cairn_msg_report *said = &ask->report;
    char line[9000], rate[24], sent[24], budget[24], free_text[24], slabs[24], held[24];
    json_t *item = NULL;
    cairn_cli_size(rate_bytes, rate);
    cairn_cli_size(said->sent_bytes, sent);
    cairn_cli_size(said->budget_bytes, budget);
    cairn_cli_size(said->budget_free_bytes, free_text);
    cairn_cli_size(said->slab_bytes, slabs);
    cairn_cli_size(said->slab_held_bytes, held);
    snprintf(line, sizeof line, "node %s%s: version %s, pid %" PRIu64 "\nstore %s\nserver %s",
             said->node, said->draining ? " is draining" : "", said->uploader, said->pid,
             said->store, said->server);
    puts(line);
    printf("sessions %" PRIu64 "; saves being staged %" PRIu64 ", unfinished %" PRIu64
           "; entries of the journal %" PRIu64 "\n",
           said->sessions, said->staging, said->unfinished, said->open);
    printf("memory %s free of %s; %s of slabs in %" PRIu64 ", %s of them held by saves\n",
           free_text, budget, slabs, said->slabs, held);
    printf("sent %s, now %s/s\n", sent, rate);
    print_trouble("nothing is sent", said->store_waits, said->store_waits_ms);
    print_trouble("nothing is told", said->server_away, said->server_away_ms);
    print_trouble("the journal is not written", said->journal, 0);
    for (size_t i = 0; (item = json_array_get(said->saves, i)); i++) {
        struct cairn_msg_report_save save = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_report_save, item, &save, err));
        print_save(&save);
    }
    return cairn_cli_flush(err);
}

static enum cairn_code show_status(const struct cairn_cli *cli, struct ask *at,
                                   struct cairn_error *err) {
    CAIRN_TRY(ask(at, CAIRN_PACK(status, 0), err));
    if (cli->output == CAIRN_CLI_NAME) {
        puts(at->report.node);
        return cairn_cli_flush(err);
    }
    if (cli->output != CAIRN_CLI_TABLE) return print_json(cli, at, err);
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

/* Finished saves vanish from reports, so the largest total seen is kept. */
static void show_progress(struct cairn_cli_meter *meter, const struct cairn_msg_report *said) {
    uint64_t left = said->total_bytes > said->done_bytes ? said->total_bytes - said->done_bytes : 0;
    if (left > meter->total_bytes) meter->total_bytes = left;
    cairn_cli_meter_set(meter, meter->total_bytes - left, said->staging ? "staging" : NULL);
}

/* An uploader that ended after its last reply was idle or left its work in the journal. */
static enum cairn_code wait_for_end(struct ask *at, uint64_t deadline_ms,
                                    struct cairn_cli_meter *meter, struct cairn_error *err) {
    for (;;) {
        show_progress(meter, &at->report);
        if (is_done(&at->report)) return CAIRN_OK;
        if (!cairn_deadline_left_ms(&cairn_clock_real, deadline_ms))
            return left_over(&at->report, err);
        (void)poll(NULL, 0, LOOK_MS);
        CAIRN_TRY(ask(at, CAIRN_PACK(status, 0), err));
    }
}

static enum cairn_code drain(const struct cairn_cli *cli, struct ask *at, struct cairn_error *err) {
    uint64_t timeout_ms = cli->timeout_ms ? cli->timeout_ms : DRAIN_DEFAULT_MS;
    uint64_t deadline_ms = cairn_deadline_in(&cairn_clock_real, timeout_ms);
    enum cairn_code code = CAIRN_OK;
    CAIRN_TRY(ask(at, CAIRN_PACK(drain, 0), err));
    if (cli->follow) {
        struct cairn_cli_meter meter;
        cairn_cli_meter_init(&meter, cli, "drain", at->report.total_bytes - at->report.done_bytes,
                             0);
        code = wait_for_end(at, deadline_ms, &meter, err);
        cairn_cli_meter_end(&meter, code == CAIRN_OK);
    }
    if (cairn_cli_wants_json(cli))
        (void)!print_json(cli, at, NULL);
    else if (cli->output == CAIRN_CLI_NAME)
        puts(at->report.node);
    else if (code == CAIRN_OK)
        printf("node %s %s: %s unfinished, %s being staged\n", at->report.node,
               is_done(&at->report) ? "is drained" : "drains",
               cairn_counted(at->report.unfinished, "save").text,
               cairn_counted(at->report.staging, "save").text);
    return code ? code : cairn_cli_flush(err);
}

static enum cairn_code run_uploader(struct cairn_cli *cli, struct cairn_error *err) {
    struct ask at = {.json = NULL};
    bool draining = !strcmp(cli->arguments[0], "drain");
    if (!draining && (strcmp(cli->arguments[0], "status") != 0 || cli->follow))
        return cairn_fail(err, CAIRN_INVALID, "uploader takes status, drain or drain --wait");
    CAIRN_TRY(cairn_cli_uploader_open(cairn_cli_uploader_socket(cli), &at.link, err));
    enum cairn_code code = draining ? drain(cli, &at, err) : show_status(cli, &at, err);
    cairn_cli_uploader_close(&at.link);
    json_decref(at.json);
    return code;
}

const struct cairn_cli_verb cairn_cli_verb_uploader = {
    .name = "uploader",
    .synopsis = "cairn uploader status|drain [flags]",
    .purpose = "How this node's uploader stands; or let it finish, and nobody new in.",
    .examples = "  cairn uploader status\n  cairn uploader drain --wait --timeout 110s\n"
                "  cairn uploader status --json\n",
    CAIRN_CLI_FLAGS(uploader_flags),
    CAIRN_CLI_ARGUMENTS(1, 1),
    .run = run_uploader,
};

/* ---- warmup node|ls ---- */

/* Tests before a job whether this node's ranks could save, or lists what a run's ranks found.
 * Opening an attempt ends older ones of its run, so warmup uses a run of its own. */

#define RANKS_MAX 256
#define ROWS_MAX 1000000
#define CALL_MS 60000
#define RUN_PREFIX "warmup-"

static const struct cairn_cli_flag warmup_flags[] = {
    {"ranks", 'n', CAIRN_CLI_COUNT, CAIRN_CLI_AT(ranks), 0, "N",
     "Of node: ranks of the job on this node; default 1."},
    {"bytes", 'b', CAIRN_CLI_SIZE, CAIRN_CLI_AT(bytes), 0, "SIZE",
     "Of node: what one save of a rank stages; default: its memory is not looked at."},
};

static void cell_found(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->probe.ok ? "ok" : row->probe.code ? row->probe.code : "");
}
static const struct cairn_cli_column probe_columns[] = {
    CAIRN_CLI_FIELD("NODE", probe, node),
    CAIRN_CLI_FIELD("RANK", probe, rank),
    CAIRN_CLI_CELL("FOUND", cell_found),
    CAIRN_CLI_FIELD("REASON", probe, reason),
};
static const struct cairn_cli_table probe_table =
    CAIRN_CLI_ROWS(probe_row, probe_columns, 0, CAIRN_CLI_FIELD(NULL, probe, rank));

/* ---- node ---- */

struct warm {
    char node[CAIRN_NAME_BYTES_MAX + 1];
    char run[2 * CAIRN_NAME_BYTES_MAX + 2], job[CAIRN_UUID_TEXT_BYTES];
    const char *socket;
    uint64_t bytes;
    uint32_t ranks, timeout_ms;
    struct cairn_session *sessions[RANKS_MAX]; /* kept open: a node holds all at once */
};

static void warm_release(struct warm *warm) {
    for (uint32_t rank = 0; rank < warm->ranks; rank++)
        (void)cairn_close(warm->sessions[rank], NULL);
}

static enum cairn_code name_node(struct warm *warm, struct cairn_error *err) {
    struct cairn_msg_report report = {.node = ""};
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_TRY(cairn_cli_uploader_report(warm->socket, ANSWER_MS, &json, &report, err));
    (void)cairn_text_copy(warm->node, sizeof warm->node, report.node);
    return CAIRN_OK;
}

static enum cairn_code prepare(const struct cairn_cli *cli, struct warm *ret,
                               struct cairn_error *err) {
    const char *project = cli->arguments[1];
    struct cairn_run_name name;
    if (!cairn_name_valid(cairn_view_of(project)))
        return cairn_fail(err, CAIRN_INVALID, "\"%s\": want a project: " CAIRN_NAME_WANTED,
                          project);
    if (cli->ranks > RANKS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "at most %d ranks", RANKS_MAX);
    *ret = (struct warm){.socket = cairn_cli_uploader_socket(cli),
                         .bytes = cli->bytes,
                         .timeout_ms = cli->timeout_ms
                                           ? (uint32_t)cairn_min_u64(cli->timeout_ms, UINT32_MAX)
                                           : CALL_MS};
    CAIRN_TRY(name_node(ret, err));
    cairn_uuid_random(ret->job);
    int length = snprintf(ret->run, sizeof ret->run, "%s/" RUN_PREFIX "%s", project, ret->node);
    if (length >= (int)sizeof ret->run || cairn_run_name_parse(ret->run, &name, err) != CAIRN_OK)
        return cairn_fail(err, CAIRN_INVALID, "node %s: its name makes no run", ret->node);
    ret->ranks = cli->ranks ? (uint32_t)cli->ranks : 1;
    return CAIRN_OK;
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

static enum cairn_code add_row(const struct warm *warm, uint32_t rank,
                               const struct cairn_error *why, json_t *rows,
                               struct cairn_error *err) {
    json_t *row = CAIRN_PACK(probe_row, .rank = rank, .node = warm->node, .ok = !why->code,
                             .code = why->code ? cairn_code_info(why->code)->slug : NULL,
                             .reason = why->code ? why->message : NULL);
    return row && !json_array_append_new(rows, row)
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list");
}

static enum cairn_code warm_all(const struct cairn_cli *cli, struct warm *warm,
                                struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *rows = json_array();
    struct cairn_error first = {0};
    uint32_t failed = 0;
    for (uint32_t rank = 0; rank < warm->ranks; rank++) {
        struct cairn_error why = {0};
        why.code = warm_rank(warm, rank, &why);
        if (why.code && !failed++) first = why;
        CAIRN_TRY(add_row(warm, rank, &why, rows, err));
    }
    CAIRN_TRY(cairn_cli_print(cli, rows, &probe_table, err));
    if (!failed) return CAIRN_OK;
    if (err) *err = first;
    return cairn_within(err, first.code, "node %s: %u of %u ranks could not save", warm->node,
                        failed, warm->ranks);
}

static enum cairn_code list_probes(const struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref run = {0};
    CAIRN_TRY(cairn_run_name_parse(cli->arguments[1], &run.name, err));
    return cairn_cli_print_list(cli, &run, "/probes", ROWS_MAX, &probe_table, err);
}

static enum cairn_code run_warmup(struct cairn_cli *cli, struct cairn_error *err) {
    struct warm warm;
    if (!strcmp(cli->arguments[0], "ls") && !cli->ranks && !cli->bytes)
        return list_probes(cli, err);
    if (strcmp(cli->arguments[0], "node") != 0)
        return cairn_fail(err, CAIRN_INVALID, "want node PROJECT, or ls PROJECT/RUN; usage: %s",
                          cairn_cli_verb_warmup.synopsis);
    CAIRN_TRY(prepare(cli, &warm, err));
    enum cairn_code code = warm_all(cli, &warm, err);
    warm_release(&warm);
    return code;
}

const struct cairn_cli_verb cairn_cli_verb_warmup = {
    .name = "warmup",
    .synopsis = "cairn warmup node|ls [flags] project[/run]",
    .purpose = "Before a job: which of this node's ranks could not save, and why.",
    .examples = "  cairn warmup node llm --ranks 8 --bytes 20GiB\n"
                "  srun --ntasks-per-node=1 cairn warmup node llm --json\n"
                "  cairn warmup ls llm/7b\n",
    CAIRN_CLI_FLAGS(warmup_flags),
    CAIRN_CLI_ARGUMENTS(2, 2),
    .run = run_warmup,
};

/* ---- health ---- */

/* For container engines, service managers and scripts: no token, one line, an exit status. */

#define ANSWER_DEFAULT_MS 5000

static const struct cairn_cli_flag health_flags[] = {
    {"ready", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(ready), 0, NULL,
     "Not only whether it answers: also whether it can do its work now."},
};

#define TROUBLES_BYTES 400 /* problems, separated by "; " */

static void add_trouble(char troubles[TROUBLES_BYTES], const char *what, const char *text) {
    cairn_cli_add(troubles, TROUBLES_BYTES, "; ", "%s%s%s", what, *what ? ": " : "", text);
}

static uint32_t answer_ms(const struct cairn_cli *cli) {
    return cli->timeout_ms ? (uint32_t)cairn_min_u64(cli->timeout_ms, UINT32_MAX)
                           : ANSWER_DEFAULT_MS;
}

static enum cairn_code say_health(const struct cairn_cli *cli, const char *what, const char *name,
                                  struct cairn_error *err) {
    if (cli->output == CAIRN_CLI_TABLE || cli->output == CAIRN_CLI_NAME) {
        printf("%s is %s\n", name, cli->ready ? "ready" : "alive");
    } else {
        CAIRN_AUTO_JSON json_t *answer = json_pack("{s:s, s:s, s:b, s:b}", "of", what, "name", name,
                                                   "alive", true, "ready", cli->ready);
        if (!answer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
        if (!cli->ready) (void)json_object_del(answer, "ready");
        return cairn_cli_print_reply(cli, answer, err);
    }
    return cairn_cli_flush(err);
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

static enum cairn_code ask_server(const struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_server server;
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    char troubles[TROUBLES_BYTES] = "";
    cairn_cli_server_of(cli, &server);
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

static enum cairn_code judge_report(const struct cairn_cli *cli,
                                    const struct cairn_msg_report *said, struct cairn_error *err) {
    char troubles[TROUBLES_BYTES] = "", since[24] = "", what[64];
    cairn_duration_text(said->store_waits_ms, since);
    snprintf(what, sizeof what, "nothing is sent for %s", since);
    if (said->draining) add_trouble(troubles, "", "it is draining");
    if (said->store_waits && *said->store_waits) add_trouble(troubles, what, said->store_waits);
    if (said->journal && *said->journal)
        add_trouble(troubles, "the journal is not written", said->journal);
    if (!cli->ready || !troubles[0]) return say_health(cli, "uploader", said->node, err);
    return cairn_fail(err, CAIRN_UNAVAILABLE, "the uploader of node %s is not ready: %s",
                      said->node, troubles);
}

static enum cairn_code ask_uploader(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_report said = {0};
    const char *path = cairn_cli_uploader_socket(cli);
    CAIRN_TRY(cairn_cli_uploader_report(path, answer_ms(cli), &json, &said, err));
    return judge_report(cli, &said, err);
}

static enum cairn_code run_health(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->argument_count ? cli->arguments[0]
                       : cli->socket       ? "uploader"
                                           : "server";
    if (!strcmp(what, "server")) return ask_server(cli, err);
    if (!strcmp(what, "uploader")) return ask_uploader(cli, err);
    return cairn_fail(err, CAIRN_INVALID, "want server or uploader, not \"%.40s\"; usage: %s", what,
                      cairn_cli_verb_health.synopsis);
}

const struct cairn_cli_verb cairn_cli_verb_health = {
    .name = "health",
    .synopsis = "cairn health [flags] [server|uploader]",
    .purpose = "Whether a server or this node's uploader answers, or is ready; without a token.",
    .examples = "  cairn health\n  cairn health --ready --server https://cairn.lab:7420\n"
                "  cairn health --ready --socket /run/cairn/uploader.sock\n",
    CAIRN_CLI_FLAGS(health_flags),
    CAIRN_CLI_ARGUMENTS(0, 1),
    .run = run_health,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* cairn uploader status|drain: this node's uploader, asked over its socket. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>

#include "cli/shell/options.h"
#include "cli/shell/output.h"
#include "cli/shell/progress.h"
#include "cli/shell/sizes.h"
#include "cli/shell/uploader_link.h"
#include "common/clock.h"
#include "common/text.h"

#define ANSWER_MS 10000
#define RATE_MS 500 /* between the two looks of which the rate is made */
#define LOOK_MS 200
#define DRAIN_DEFAULT_MS 600000

static const struct cairn_cli_flag uploader_flags[] = {
    {"wait", 'w', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(follow), 0, NULL,
     "Of drain: until all that was staged is stored and told, at most --timeout (10min)."},
};

static enum cairn_code flushed(struct cairn_error *err) {
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

/* ---- asking ---- */

struct ask {
    struct cairn_cli_uploader link;
    json_t *json; /* the last report */
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
    return cairn_cli_print_json(ask->json, cli->output == CAIRN_CLI_JSON, err);
}

/* ---- status ---- */

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
    size_t index = 0;
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
    json_array_foreach(said->saves, index, item) {
        struct cairn_msg_report_save save = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_report_save, item, &save, err));
        print_save(&save);
    }
    return flushed(err);
}

static enum cairn_code show_status(const struct cairn_cli *cli, struct ask *at,
                                   struct cairn_error *err) {
    CAIRN_TRY(ask(at, CAIRN_PACK(status, 0), err));
    if (cli->output == CAIRN_CLI_NAME) {
        puts(at->report.node);
        return flushed(err);
    }
    if (cli->output != CAIRN_CLI_TABLE) return print_json(cli, at, err);
    uint64_t before = at->report.sent_bytes, begun_ms = cairn_mono_ms();
    (void)poll(NULL, 0, RATE_MS);
    CAIRN_TRY(ask(at, CAIRN_PACK(status, 0), err));
    uint64_t elapsed_ms = cairn_max_u64(cairn_mono_ms() - begun_ms, 1);
    return print_report(at, (at->report.sent_bytes - before) * 1000 / elapsed_ms, err);
}

/* ---- drain ---- */

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

/* Bytes of saves that were finished meanwhile are in no report any more, so what was seen of them
 * counts on. */
static void show_progress(struct cairn_cli_meter *meter, const struct cairn_msg_report *said) {
    uint64_t left = said->total_bytes > said->done_bytes ? said->total_bytes - said->done_bytes : 0;
    if (left > meter->total_bytes) meter->total_bytes = left;
    cairn_cli_meter_set(meter, meter->total_bytes - left, said->staging ? "staging" : NULL);
}

/* After its last answer an uploader that has ended had nothing to do any more, or has left it in
 * the journal. */
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
        cairn_cli_meter_init(&meter, cli, "drain",
                             at->report.total_bytes - at->report.done_bytes, 0);
        code = wait_for_end(at, deadline_ms, &meter, err);
        cairn_cli_meter_end(&meter, code == CAIRN_OK);
    }
    if (cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL)
        (void)!print_json(cli, at, NULL);
    else if (cli->output == CAIRN_CLI_NAME)
        puts(at->report.node);
    else if (code == CAIRN_OK)
        printf("node %s %s: %s unfinished, %s being staged\n", at->report.node,
               is_done(&at->report) ? "is drained" : "drains",
               cairn_counted(at->report.unfinished, "save").text,
               cairn_counted(at->report.staging, "save").text);
    return code ? code : flushed(err);
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
    .flags = uploader_flags,
    .flag_count = CAIRN_COUNT(uploader_flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_uploader,
};

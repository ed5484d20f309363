/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn watch: live events of a checkpoint, run, project or all, and open saves' progress by node.
 *
 * Promise: 1   each poll replaces the last one's state; rates count from a version's first sight.
 *          2   only terminals get partial lines, no more than fit. Colours only repeat words.
 *          3   elsewhere a save gets a line on every change, else one a minute.
 * Limits:  8 saves of 16 nodes each; others are not shown.
 */

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "api/documents/keys.h"
#include "cli/shell/output.h"
#include "common/clock.h"
#include "common/text.h"

#define WATCHED_SAVES 8
#define WATCHED_NODES 16

struct watched_save {
    char run[2 * CAIRN_NAME_BYTES_MAX + 2]; /* project/run */
    json_t *json;                           /* the server's reply; owned; the rows point into it */
    struct cairn_msg_why why;
    struct cairn_msg_liveness_open open;
    struct cairn_msg_why_node nodes[WATCHED_NODES];
    size_t node_count, waited_count; /* waited_count: of all nodes, also beyond WATCHED_NODES */
    uint64_t bytes_done, bytes_total, parts_done, parts_total; /* sums over nodes */
    uint64_t first_ms, first_bytes, rate_bytes;                /* 0: unknown rate */
};
struct watched {
    struct watched_save saves[WATCHED_SAVES];
    size_t save_count;
};

/* Which saves: all, a project's, a run's, a step's, or one version. */
struct scope {
    char project[CAIRN_NAME_BYTES_MAX + 1]; /* "": all */
    char run[CAIRN_NAME_BYTES_MAX + 1];     /* "": all of the project */
    char version[CAIRN_VERSION_ID_BYTES];   /* "": any */
    uint64_t step;
    bool step_given;
};

struct watch_view {
    const struct cli *cli;
    bool terminal;
    int drawn; /* lines on the terminal */
    struct {
        char version[CAIRN_VERSION_ID_BYTES];
        char said[160];   /* changing part of its last line */
        char errors[600]; /* its nodes' errors as last printed */
        uint64_t shown_ms;
    } told[WATCHED_SAVES];
    size_t told_next; /* next entry to reuse */
};

/* ---- runs with open saves: GET /liveness, then GET /why of each version ---- */

#define RUNS_MAX 10000

static void release_watched(struct watched *watched) {
    for (size_t i = 0; i < watched->save_count; i++) json_decref(watched->saves[i].json);
    watched->save_count = 0;
}

static bool scope_has(const struct scope *scope, const char *project, const char *run,
                      const char *version, uint64_t step) {
    if (scope->project[0] && (!project || strcmp(scope->project, project) != 0)) return false;
    if (scope->run[0] && (!run || strcmp(scope->run, run) != 0)) return false;
    if (scope->version[0]) return version && !strcmp(scope->version, version);
    return !scope->step_given || (version && version[0] && step == scope->step);
}

static void add_known(uint64_t *sum, uint64_t more) {
    if (more != CAIRN_MESSAGE_NONE) *sum += more;
}

static enum cairn_code read_node(const json_t *item, struct watched_save *save,
                                 struct cairn_error *err) {
    struct cairn_msg_why_node said = {.silent_ms = CAIRN_MESSAGE_NONE,
                                      .done_bytes = CAIRN_MESSAGE_NONE,
                                      .total_bytes = CAIRN_MESSAGE_NONE,
                                      .parts_done = CAIRN_MESSAGE_NONE,
                                      .parts_total = CAIRN_MESSAGE_NONE};
    CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_why_node, item, &said, err));
    add_known(&save->bytes_done, said.done_bytes);
    add_known(&save->bytes_total, said.total_bytes);
    add_known(&save->parts_done, said.parts_done);
    add_known(&save->parts_total, said.parts_total);
    save->waited_count += said.waited_for;
    if (save->node_count < WATCHED_NODES) save->nodes[save->node_count++] = said;
    return CAIRN_OK;
}

static enum cairn_code read_why(const json_t *json, struct watched_save *save,
                                struct cairn_error *err) {
    CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_why, json, &save->why, err));
    if (!save->why.open) return CAIRN_OK;
    save->open.begun_at = "";
    CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_liveness_open, save->why.open, &save->open, err));
    CAIRN_JSON_EACH(item, save->why.nodes) CAIRN_TRY(read_node(item, save, err));
    /* Nodes missing from the report have sealed their bytes. */
    save->bytes_total = cairn_max_u64(save->bytes_total, save->open.bytes);
    if (!save->waited_count) save->bytes_done = save->bytes_total;
    return CAIRN_OK;
}

static void take_rate(const struct watched *before, struct watched_save *save) {
    uint64_t now_ms = cairn_mono_ms();
    save->first_ms = now_ms;
    save->first_bytes = save->bytes_done;
    for (size_t i = 0; i < before->save_count; i++) {
        const struct watched_save *old = &before->saves[i];
        if (strcmp(old->why.version, save->why.version) != 0 || save->bytes_done < old->first_bytes)
            continue;
        save->first_ms = old->first_ms;
        save->first_bytes = old->first_bytes;
    }
    uint64_t elapsed_ms = now_ms - save->first_ms;
    if (elapsed_ms) save->rate_bytes = (save->bytes_done - save->first_bytes) * 1000 / elapsed_ms;
}

struct watched_look {
    const struct cli *cli;
    const struct scope *scope;
    struct watched found;
};

static enum cairn_code look_at_version(struct watched_look *look, const struct cli_ref *run,
                                       const char *version, struct cairn_error *err) {
    struct cli_ref ref = *run;
    struct watched_save *save = &look->found.saves[look->found.save_count];
    CAIRN_AUTO_JSON json_t *json = NULL;
    (void)cairn_text_copy(ref.version, sizeof ref.version, version);
    enum cairn_code code = cli_call(look->cli, &ref, (struct cli_call){.tail = "/why"}, &json, err);
    if (code == CAIRN_NOT_FOUND || code == CAIRN_DELETED) return CAIRN_OK;
    CAIRN_TRY(code);
    *save = (struct watched_save){0};
    snprintf(save->run, sizeof save->run, "%s/%s", run->name.project, run->name.run);
    CAIRN_TRY(read_why(json, save, err));
    if (!save->why.open) return CAIRN_OK;
    save->json = CAIRN_TAKE(json);
    look->found.save_count++;
    return CAIRN_OK;
}

static enum cairn_code look_at_run(struct watched_look *look, const char *project, const char *run,
                                   struct cairn_error *err) {
    struct cli_ref ref = {0};
    CAIRN_AUTO_JSON json_t *json = NULL;
    (void)cairn_text_copy(ref.name.project, sizeof ref.name.project, project);
    (void)cairn_text_copy(ref.name.run, sizeof ref.name.run, run);
    enum cairn_code code =
        cli_call(look->cli, &ref, (struct cli_call){.tail = "/liveness"}, &json, err);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK; /* the run may be created later */
    CAIRN_TRY(code);
    CLI_READ(liveness, facts, json, err);
    for (size_t i = 0; i < json_array_size(facts.open); i++) {
        struct cairn_msg_liveness_open save = {.begun_at = ""};
        if (look->found.save_count == WATCHED_SAVES) return CAIRN_OK;
        CAIRN_TRY(
            cli_reply_read(CAIRN_MESSAGE_liveness_open, json_array_get(facts.open, i), &save, err));
        if (!scope_has(look->scope, project, run, save.version, save.step)) continue;
        CAIRN_TRY(look_at_version(look, &ref, save.version, err));
    }
    return CAIRN_OK;
}

/* Runs with an open save have no idle time. */
static enum cairn_code look_at_runs(struct watched_look *look, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *runs = json_array();
    char path[CAIRN_NAME_BYTES_MAX + 32] = "/runs";
    const char *project = look->scope->project;
    if (project[0]) snprintf(path, sizeof path, "/runs?project=%s", project);
    CAIRN_TRY(cli_list(look->cli, NULL, path, RUNS_MAX, runs, NULL, err));
    for (size_t i = 0; i < json_array_size(runs); i++) {
        struct cairn_msg_run_row run = {.idle_s = CAIRN_MESSAGE_NONE};
        CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_run_row, json_array_get(runs, i), &run, err));
        if (run.idle_s != CAIRN_MESSAGE_NONE) continue;
        if (look->found.save_count == WATCHED_SAVES) return CAIRN_OK;
        CAIRN_TRY(look_at_run(look, run.project, run.run, err));
    }
    return CAIRN_OK;
}

static enum cairn_code look_at_open_saves(const struct cli *cli, const struct scope *scope,
                                          struct watched *watched, struct cairn_error *err) {
    struct watched_look look = {.cli = cli, .scope = scope};
    enum cairn_code code = scope->run[0] ? look_at_run(&look, scope->project, scope->run, err)
                                         : look_at_runs(&look, err);
    if (code) {
        release_watched(&look.found);
        return code;
    }
    for (size_t i = 0; i < look.found.save_count; i++) take_rate(watched, &look.found.saves[i]);
    release_watched(watched);
    *watched = look.found;
    return CAIRN_OK;
}

/* ---- output ---- */

#define UNCHANGED_EVERY_MS 60000
#define BAR_CELLS 24

static bool is_json(const struct watch_view *view) {
    return view->cli->output == CLI_JSON || view->cli->output == CLI_JSONL;
}

/* run: "project/run" for progress; events name theirs. */
static enum cairn_code print_object(const char *kind, const char *run, const json_t *value,
                                    struct cairn_error *err) {
    struct cairn_run_name name;
    bool named = run && !cairn_run_name_parse(run, &name, NULL);
    CAIRN_AUTO_JSON json_t *line =
        json_pack("{s:s*, s:s*, s:O}", "project", named ? name.project : NULL, "run",
                  named ? name.run : NULL, kind, value);
    if (!line) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a line");
    return cli_print_json(line, false, err);
}

/* Erases from the picture's first line on. */
static void erase(struct watch_view *view) {
    if (view->drawn) printf("\r\033[%dA\033[J", view->drawn);
    view->drawn = 0;
}

static void view_note(struct watch_view *view, const char *text) {
    erase(view);
    (void)fflush(stdout);
    cli_note("cairn watch: %s", text);
}

static enum cairn_code view_event(struct watch_view *view, const json_t *item,
                                  struct cairn_error *err) {
    CLI_READ(event_row, row, item, err);
    if (is_json(view)) {
        CAIRN_TRY(print_object("event", NULL, item, err));
        return cli_flush(err);
    }
    erase(view);
    if (view->cli->output == CLI_NAME) { /* newly readable checkpoints */
        if (!strcmp(row.event, "checkpoint.committed"))
            printf("%s/%s@%" PRIu64 "\n", row.project, row.run, row.step);
        return cli_flush(err);
    }
    char line[1400];
    cli_format("{at}[ {project}[/{run}]][{version:if} step={step}] event={event}[ code={code}]"
               "[ reason=\"{reason}\"][ by={actor|address}]",
               item, line, sizeof line);
    cli_clean(line);
    puts(line);
    return cli_flush(err);
}

static unsigned percent(uint64_t done, uint64_t total) {
    unsigned part = total ? (unsigned)((double)done / (double)total * 100) : 0;
    return part > 99 ? 99 : part; /* only the commit is 100 % */
}

/* log: values without spaces. */
static void rate_text(const struct watched_save *save, bool log, char *ret, size_t capacity) {
    char eta[24];
    *ret = '\0';
    if (!save->rate_bytes) return;
    uint64_t left = save->bytes_total > save->bytes_done ? save->bytes_total - save->bytes_done : 0;
    struct cli_size rate = cli_size(save->rate_bytes);
    cairn_duration_text((uint64_t)((double)left / (double)save->rate_bytes * 1000), eta);
    if (log) {
        char *to = rate.text;
        for (const char *at = rate.text; *at; at++)
            if (*at != ' ') *to++ = *at;
        *to = '\0';
    }
    snprintf(ret, capacity, log ? " rate=%s/s eta=%s" : "%s/s  ETA %s", rate.text, eta);
}

static size_t told_at(struct watch_view *view, const char *version) {
    for (size_t i = 0; i < WATCHED_SAVES; i++)
        if (!strcmp(view->told[i].version, version)) return i;
    size_t at = view->told_next++ % WATCHED_SAVES;
    memset(&view->told[at], 0, sizeof view->told[at]);
    (void)cairn_text_copy(view->told[at].version, sizeof view->told[at].version, version);
    return at;
}

#define TEXT_BYTES 200 /* of a node's last error, of what delays a commit */

static void error_of(const struct cairn_msg_why_node *node, char ret[TEXT_BYTES]) {
    const char *error = node->error ? node->error : node->trouble ? node->trouble : "";
    (void)cairn_text_copy(ret, TEXT_BYTES, node->waited_for ? error : "");
}

static void commit_of(const struct watched_save *save, char ret[TEXT_BYTES]) {
    (void)cairn_text_copy(ret, TEXT_BYTES, save->why.commit ? save->why.commit : "");
}

static void print_errors(struct watch_view *view, size_t at, const char *now,
                         const struct watched_save *save) {
    char errors[sizeof view->told[at].errors] = "", error[TEXT_BYTES];
    size_t size = 0;
    for (size_t i = 0; i < save->node_count && size + 1 < sizeof errors; i++) {
        error_of(&save->nodes[i], error);
        if (error[0]) size += (size_t)snprintf(errors + size, sizeof errors - size, "%s\n", error);
    }
    bool same = !strcmp(errors, view->told[at].errors);
    memcpy(view->told[at].errors, errors, sizeof errors);
    for (size_t i = 0; !same && i < save->node_count; i++) {
        char line[800];
        error_of(&save->nodes[i], error);
        if (!error[0]) continue;
        snprintf(line, sizeof line, "%s %s step=%" PRIu64 " node=%s error=\"%s\"", now, save->run,
                 save->open.step, save->nodes[i].node, error);
        cli_clean(line);
        puts(line);
    }
}

static void print_line(struct watch_view *view, const struct watched_save *save) {
    char now[32], said[sizeof view->told[0].said], rate[80], line[1000], parts[64] = "";
    char commit[TEXT_BYTES];
    size_t at = told_at(view, save->why.version);
    commit_of(save, commit);
    uint64_t mono_ms = cairn_mono_ms();
    cairn_time_text(cairn_clock_real.wall_ms(&cairn_clock_real), false, now);
    rate_text(save, true, rate, sizeof rate);
    if (save->parts_total)
        snprintf(parts, sizeof parts, " parts=%" PRIu64 "/%" PRIu64, save->parts_done,
                 save->parts_total);
    snprintf(said, sizeof said,
             "bytes=%" PRIu64 "/%" PRIu64 " ranks=%" PRIu64 "/%" PRIu64 " shards=%" PRIu64
             "/%" PRIu64 "%s nodes=%zu",
             save->bytes_done, save->bytes_total, save->open.ranks_sealed, save->open.world_size,
             save->open.shards_registered, save->open.shards, parts, save->waited_count);
    bool same = !strcmp(said, view->told[at].said);
    if (!same || mono_ms - view->told[at].shown_ms >= UNCHANGED_EVERY_MS) {
        snprintf(line, sizeof line,
                 "%s %s step=%" PRIu64 " attempt=%" PRIu64 " state=open pct=%u %s%s%s%s%s%s", now,
                 save->run, save->open.step, save->open.attempt,
                 percent(save->bytes_done, save->bytes_total), said, rate,
                 same ? " unchanged=yes" : "", commit[0] ? " commit=\"" : "", commit,
                 commit[0] ? "\"" : "");
        cli_clean(line);
        puts(line);
        memcpy(view->told[at].said, said, sizeof said);
        view->told[at].shown_ms = mono_ms;
    }
    print_errors(view, at, now, save);
}

/* ---- the picture ---- */

static void print_bar(uint64_t done, uint64_t total) {
    int full = total ? (int)((double)done / (double)total * BAR_CELLS) : 0;
    cli_bar(stdout, BAR_CELLS, full > BAR_CELLS ? BAR_CELLS : full);
}

static void draw_node(const struct cairn_msg_why_node *node) {
    char silent[24], error[TEXT_BYTES];
    bool known = node->total_bytes != CAIRN_MESSAGE_NONE;
    error_of(node, error);
    cli_clean(error);
    printf("  %-16.16s ", node->node);
    enum cli_tone tone = !node->waited_for ? CLI_TONE_GOOD
                         : error[0]        ? CLI_TONE_BAD
                                           : CLI_TONE_BUSY;
    fputs(cli_tone(tone), stdout);
    print_bar(known ? node->done_bytes : 0, known ? node->total_bytes : 1);
    printf("%s %s/%s", cli_tone_end(tone), known ? cli_size(node->done_bytes).text : "?",
           known ? cli_size(node->total_bytes).text : "?");
    if (!node->waited_for) printf("  done");
    if (node->left) printf("  left");
    if (node->waited_for && node->silent_ms != CAIRN_MESSAGE_NONE && node->silent_ms >= 10000) {
        cairn_duration_text(node->silent_ms, silent);
        printf("  silent for %s", silent);
    }
    if (error[0]) printf("  %s%s%s", cli_tone(CLI_TONE_BAD), error, cli_tone_end(CLI_TONE_BAD));
    puts("");
}

static void draw_save(struct watch_view *view, const struct watched_save *save, int rows) {
    char rate[80], commit[TEXT_BYTES];
    rate_text(save, false, rate, sizeof rate);
    commit_of(save, commit);
    printf("%s step %" PRIu64 " attempt %" PRIu64 "  ", save->run, save->open.step,
           save->open.attempt);
    print_bar(save->bytes_done, save->bytes_total);
    printf(" %2u%%  %s/%s  %s  ranks %" PRIu64 "/%" PRIu64 "%s%s\n",
           percent(save->bytes_done, save->bytes_total), cli_size(save->bytes_done).text,
           cli_size(save->bytes_total).text, rate, save->open.ranks_sealed, save->open.world_size,
           commit[0] ? "  the commit waits: " : "", commit);
    view->drawn++;
    /* Nodes that the save waits for come first, because not all may fit. */
    for (int waited = 1; waited >= 0; waited--)
        for (size_t i = 0; i < save->node_count && view->drawn < rows; i++) {
            if (save->nodes[i].waited_for != (waited == 1)) continue;
            draw_node(&save->nodes[i]);
            view->drawn++;
        }
}

static int terminal_rows(void) {
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_row < 4) return 20;
    return size.ws_row - 2;
}

static enum cairn_code view_saves(struct watch_view *view, const struct watched *watched,
                                  struct cairn_error *err) {
    if (view->cli->output == CLI_NAME || view->cli->progress == CLI_PROGRESS_NONE) return CAIRN_OK;
    if (view->terminal) {
        /* Disables line wrap, so that the number of lines is known. */
        int rows = terminal_rows();
        erase(view);
        fputs("\033[?7l", stdout);
        for (size_t i = 0; i < watched->save_count && view->drawn < rows; i++)
            draw_save(view, &watched->saves[i], rows);
        fputs("\033[?7h", stdout);
        return cli_flush(err);
    }
    for (size_t i = 0; i < watched->save_count; i++) {
        if (is_json(view))
            CAIRN_TRY(print_object("progress", watched->saves[i].run, watched->saves[i].json, err));
        else
            print_line(view, &watched->saves[i]);
    }
    return cli_flush(err);
}

#define TERMINAL_EVERY_MS 1000
#define LINE_EVERY_MS 5000
#define AGAIN_MS 500 /* without a server, or before the run exists */
#define PAGE 1000

static const struct cli_flag watch_flags[] = {
    {"until", 0, CLI_TEXT, CLI_AT(until), 0, "EVENT",
     "End with it: committed, aborted, any event's name, or idle: nothing is being saved."},
    {"every", 0, CLI_TIME, CLI_AT(every_ms), 0, "TIME",
     "How often to look how far saves are: 1s on a terminal, else 5s."},
};

struct watch {
    struct cli *cli;
    struct scope scope;
    struct cli_ref ref; /* of the run, if one is named */
    struct watch_view view;
    struct watched watched;
    uint64_t deadline, every_ms, looked_ms, since;
    bool since_known, answered, away, seen; /* seen: the event of --until came */
    struct cairn_error ended;               /* code: the version ended otherwise */
};

/* ---- arguments ---- */

static const char *const event_names[] = {
#define EVENT(id, name, kept, about, ...) name,
#include "api/events.def"
#undef EVENT
};

/* "committed" abbreviates "checkpoint.committed". */
static bool is_event(const char *word, const char *name) {
    static const char of_checkpoints[] = "checkpoint.";
    if (!strcmp(word, name)) return true;
    return cairn_text_starts(name, of_checkpoints) &&
           !strcmp(word, name + sizeof of_checkpoints - 1);
}

static enum cairn_code check_until(const char *word, struct cairn_error *err) {
    if (!word || !strcmp(word, "idle")) return CAIRN_OK;
    for (size_t i = 0; i < CAIRN_COUNT(event_names); i++)
        if (is_event(word, event_names[i])) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "--until takes committed, aborted, idle or an event's name, not %s", word);
}

/* Resolves an alias or `latest` once, at start. */
static enum cairn_code resolve(struct watch *watch, const char *version, struct cairn_error *err) {
    struct scope *scope = &watch->scope;
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_version_row row = {0};
    scope->step_given = cairn_parse_u64(cairn_view_of(version), &scope->step, NULL) == CAIRN_OK;
    if (scope->step_given) return CAIRN_OK;
    (void)cairn_text_copy(scope->version, sizeof scope->version, version);
    if (cairn_text_starts(version, "ckpt_")) return CAIRN_OK;
    struct cli_ref ref = watch->ref;
    (void)cairn_text_copy(ref.version, sizeof ref.version, version);
    CAIRN_TRY(cli_get(watch->cli, &ref, "", CAIRN_MESSAGE_version_row, &json, &row, err));
    (void)cairn_text_copy(scope->version, sizeof scope->version, row.version);
    return CAIRN_OK;
}

static enum cairn_code read_scope(struct watch *watch, struct cairn_error *err) {
    const char *text = watch->cli->argument_count ? watch->cli->arguments[0] : "";
    struct scope *scope = &watch->scope;
    if (!*text) return CAIRN_OK;
    if (!strchr(text, '/')) { /* a project, with the characters of a run's name */
        char run[2 * CAIRN_NAME_BYTES_MAX + 4];
        struct cli_ref ref;
        snprintf(run, sizeof run, "%s/x", text);
        if (strchr(text, '@') || cli_ref_parse(run, &ref, err))
            return cairn_fail(err, CAIRN_INVALID, "\"%.80s\" is neither a project nor a run", text);
        (void)cairn_text_copy(scope->project, sizeof scope->project, text);
        return CAIRN_OK;
    }
    CAIRN_TRY(cli_ref_parse(text, &watch->ref, err));
    char version[sizeof watch->ref.version];
    memcpy(version, watch->ref.version, sizeof version);
    watch->ref.version[0] = '\0';
    (void)cairn_text_copy(scope->project, sizeof scope->project, watch->ref.name.project);
    (void)cairn_text_copy(scope->run, sizeof scope->run, watch->ref.name.run);
    return version[0] ? resolve(watch, version, err) : CAIRN_OK;
}

static bool is_of_version(const struct watch *watch) {
    return watch->scope.step_given || watch->scope.version[0];
}

/* ---- events ---- */

/* A single watched version ends the watch. */
static void judge_event(struct watch *watch, const struct cairn_msg_event_row *row) {
    const char *until = watch->cli->until;
    if (until ? is_event(until, row->event)
              : is_of_version(watch) && is_event("committed", row->event)) {
        watch->seen = true;
        return;
    }
    if (!is_of_version(watch) ||
        (!is_event("aborted", row->event) && !is_event("gone", row->event)))
        return;
    (void)cairn_fail(&watch->ended, CAIRN_ABORTED, "%s: %s%s%s", watch->cli->arguments[0],
                     row->event, row->reason && row->reason[0] ? ": " : "",
                     row->reason ? row->reason : "");
}

static enum cairn_code take_events(struct watch *watch, const json_t *items,
                                   struct cairn_error *err) {
    CAIRN_JSON_EACH(item, items) {
        CLI_READ(event_row, row, item, err);
        if (!scope_has(&watch->scope, row.project, row.run, row.version, row.step)) continue;
        CAIRN_TRY(view_event(&watch->view, item, err));
        watch->looked_ms = 0; /* progress changed, too: poll now */
        judge_event(watch, &row);
        if (watch->seen || watch->ended.code) return CAIRN_OK;
    }
    return CAIRN_OK;
}

/* ---- progress ---- */

/* A version that ended before the watch began sends no event. */
static enum cairn_code look_at_end(struct watch *watch, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cli_ref ref = watch->ref;
    const char *until = watch->cli->until;
    if (!is_of_version(watch) || (until && !is_event(until, "checkpoint.committed")))
        return CAIRN_OK;
    if (watch->scope.step_given)
        snprintf(ref.version, sizeof ref.version, "%llu", (unsigned long long)watch->scope.step);
    else
        (void)cairn_text_copy(ref.version, sizeof ref.version, watch->scope.version);
    enum cairn_code code = cli_version_or_failed(watch->cli, &ref, &json, err);
    if (code == CAIRN_NOT_FOUND && watch->scope.step_given) return CAIRN_OK;
    CAIRN_TRY(code);
    CLI_READ(version_row, row, json, err);
    if (!strcmp(row.state, "committed")) {
        watch->seen = true;
        return CAIRN_OK;
    }
    if (strcmp(row.state, "open") != 0)
        (void)cairn_fail(&watch->ended, CAIRN_ABORTED, "%s is %s: %s", watch->cli->arguments[0],
                         row.state, row.reason ? row.reason : "no reason is given");
    return CAIRN_OK;
}

static enum cairn_code one_round(struct watch *watch, struct cairn_error *err) {
    bool first = !watch->since_known;
    uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, watch->deadline);
    uint64_t since_ms = cairn_mono_ms() - watch->looked_ms;
    uint64_t wait_ms = since_ms < watch->every_ms ? watch->every_ms - since_ms : 0;
    /* Reads events, waiting up to wait_ms; the first round only fetches the cursor. */
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_event_page page = {0};
    char tail[80] = "/events?limit=1";
    struct cli_call call = {.tail = tail};
    if (watch->since_known) {
        snprintf(tail, sizeof tail, "/events?limit=%d&since=%llu", PAGE,
                 (unsigned long long)watch->since);
        call.wait_ms = (uint32_t)cairn_max_u64(
            cairn_min_u64(cairn_min_u64(wait_ms, left_ms), CLI_LONG_POLL_MS), 1);
    }
    const struct cli_ref *of = watch->scope.run[0] ? &watch->ref : NULL;
    CAIRN_TRY(cli_ask(watch->cli, of, call, CAIRN_MESSAGE_event_page, &json, &page, err));
    if (watch->since_known) CAIRN_TRY(take_events(watch, page.items, err));
    watch->since = page.since;
    watch->since_known = true;
    if (watch->seen || watch->ended.code) return CAIRN_OK;
    if (first) CAIRN_TRY(look_at_end(watch, err));
    if (!first && cairn_mono_ms() - watch->looked_ms < watch->every_ms) return CAIRN_OK;
    CAIRN_TRY(look_at_open_saves(watch->cli, &watch->scope, &watch->watched, err));
    watch->looked_ms = cairn_mono_ms();
    CAIRN_TRY(view_saves(&watch->view, &watch->watched, err));
    const char *until = watch->cli->until;
    watch->seen |= until && !strcmp(until, "idle") && !watch->watched.save_count;
    return CAIRN_OK;
}

/* Retries an absent server, then continues after the last event or, if that is trimmed, from
 * now. */
static enum cairn_code judge_failure(struct watch *watch, enum cairn_code code,
                                     struct cairn_error *why) {
    char text[400];
    uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, watch->deadline);
    bool expired = code == CAIRN_CURSOR_EXPIRED;
    bool away = cli_failure_is_transient(watch->answered, code, why);
    if (!expired && !away) return code;
    snprintf(text, sizeof text, "%s%s", expired ? "some events are lost: " : "", why->message);
    if (!watch->away) view_note(&watch->view, text);
    watch->away = !expired;
    watch->since_known &= !expired;
    (void)poll(NULL, 0, (int)cairn_min_u64(left_ms, AGAIN_MS));
    return CAIRN_OK;
}

static enum cairn_code follow(struct watch *watch, struct cairn_error *err) {
    while (!watch->seen && !watch->ended.code) {
        struct cairn_error why = {0};
        enum cairn_code code = one_round(watch, &why);
        if (!code && watch->away) view_note(&watch->view, "it answers again");
        if (!code) {
            watch->answered = true;
            watch->away = false;
        } else if (judge_failure(watch, code, &why))
            return cairn_pass(err, code, &why);
        if (watch->seen || watch->ended.code ||
            cairn_deadline_left_ms(&cairn_clock_real, watch->deadline))
            continue;
        if (!watch->cli->until && !is_of_version(watch)) return CAIRN_OK;
        return cairn_fail(err, CAIRN_TIMEOUT, "%s was not seen in time",
                          watch->cli->until ? watch->cli->until : "the end of this save");
    }
    if (watch->seen) return CAIRN_OK;
    return cairn_pass(err, watch->ended.code, &watch->ended);
}

static enum cairn_code run_watch(struct cli *cli, struct cairn_error *err) {
    struct watch watch = {.cli = cli};
    CAIRN_TRY(check_until(cli->until, err));
    watch.deadline = cli_begin_wait(cli, 0);
    CAIRN_TRY(read_scope(&watch, err));
    const char *term = getenv("TERM");
    bool dumb = !term || !*term || !strcmp(term, "dumb");
    watch.view = (struct watch_view){.cli = cli};
    watch.view.terminal = cli->output == CLI_TABLE && !dumb && isatty(STDOUT_FILENO) &&
                          (cli->progress == CLI_PROGRESS_AUTO || cli->progress == CLI_PROGRESS_BAR);
    watch.every_ms = cli->every_ms         ? cli->every_ms
                     : watch.view.terminal ? TERMINAL_EVERY_MS
                                           : LINE_EVERY_MS;
    enum cairn_code code = follow(&watch, err);
    release_watched(&watch.watched);
    return code;
}

const struct cli_verb cli_verb_watch = {
    CLI_VERB(watch),
    .synopsis = "cairn watch [flags] [project[/run[@step]]]",
    .purpose = "Follow events and the progress of saves live.",
    .examples = "  cairn watch llm/7b@1400\n"
                "  cairn watch llm/7b --until committed --timeout 10min\n"
                "  cairn watch llm --json\n",
    CLI_TAKES(watch_flags, 0, 1),
};

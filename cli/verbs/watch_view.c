/* SPDX-License-Identifier: Apache-2.0 */
/* Lines, objects and the picture; see watch_view.h. */
#include "cli/verbs/watch_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/shell/output.h"
#include "cli/shell/progress.h"
#include "cli/shell/sizes.h"
#include "common/clock.h"
#include "common/text.h"

#define UNCHANGED_EVERY_MS 60000
#define BAR_CELLS 24

void cairn_cli_watch_view_init(struct cairn_cli_watch_view *view, const struct cairn_cli *cli) {
    const char *term = getenv("TERM");
    bool dumb = !term || !*term || !strcmp(term, "dumb");
    *view = (struct cairn_cli_watch_view){.cli = cli};
    view->terminal = cli->output == CAIRN_CLI_TABLE && !dumb && isatty(STDOUT_FILENO) &&
                     (cli->progress == CAIRN_CLI_PROGRESS_AUTO ||
                      cli->progress == CAIRN_CLI_PROGRESS_BAR);
}

static bool is_json(const struct cairn_cli_watch_view *view) {
    return view->cli->output == CAIRN_CLI_JSON || view->cli->output == CAIRN_CLI_JSONL;
}

/* run: "project/run", of progress alone; an event names its own. */
static enum cairn_code print_object(const char *kind, const char *run, const json_t *value,
                                    struct cairn_error *err) {
    struct cairn_run_name name;
    bool named = run && !cairn_run_name_parse(run, &name, NULL);
    CAIRN_AUTO_JSON json_t *line =
        json_pack("{s:s*, s:s*, s:O}", "project", named ? name.project : NULL, "run",
                  named ? name.run : NULL, kind, value);
    if (!line) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a line");
    return cairn_cli_print_json(line, false, err);
}

static enum cairn_code flushed(struct cairn_error *err) {
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

/* The cursor goes back to where the picture began. */
static void erase(struct cairn_cli_watch_view *view) {
    if (view->drawn) printf("\r\033[%dA\033[J", view->drawn);
    view->drawn = 0;
}

void cairn_cli_watch_view_note(struct cairn_cli_watch_view *view, const char *text) {
    erase(view);
    (void)fflush(stdout);
    cairn_cli_note("cairn watch: %s", text);
}

/* ---- events ---- */

/* Of --output name: what can be read from now on. */
static void print_name(const struct cairn_msg_event_row *row) {
    if (!strcmp(row->event, "checkpoint.committed"))
        printf("%s/%s@%" PRIu64 "\n", row->project, row->run, row->step);
}

enum cairn_code cairn_cli_watch_view_event(struct cairn_cli_watch_view *view, const json_t *item,
                                           struct cairn_error *err) {
    struct cairn_msg_event_row row = {0};
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_event_row, item, &row, err));
    if (is_json(view)) {
        CAIRN_TRY(print_object("event", NULL, item, err));
        return flushed(err);
    }
    erase(view);
    if (view->cli->output == CAIRN_CLI_NAME) {
        print_name(&row);
        return flushed(err);
    }
    char line[1400], of[300] = "", step[40] = "";
    const char *who = row.actor && row.actor[0] ? row.actor : row.address ? row.address : "";
    if (row.project && row.project[0])
        snprintf(of, sizeof of, " %s%s%s", row.project, row.run && row.run[0] ? "/" : "",
                 row.run ? row.run : "");
    if (row.version && row.version[0]) snprintf(step, sizeof step, " step=%" PRIu64, row.step);
    snprintf(line, sizeof line, "%s%s%s event=%s%s%s%s%s%s%s%s", row.at, of, step, row.event,
             row.code && row.code[0] ? " code=" : "", row.code ? row.code : "",
             row.reason && row.reason[0] ? " reason=\"" : "", row.reason ? row.reason : "",
             row.reason && row.reason[0] ? "\"" : "", who[0] ? " by=" : "", who);
    cairn_cli_clean(line);
    puts(line);
    return flushed(err);
}

/* ---- lines ---- */

static unsigned percent(uint64_t done, uint64_t total) {
    unsigned part = total ? (unsigned)((double)done / (double)total * 100) : 0;
    return part > 99 ? 99 : part; /* all of it is the commit's word */
}

static void drop_blanks(char *text) {
    char *to = text;
    for (const char *at = text; *at; at++)
        if (*at != ' ') *to++ = *at;
    *to = '\0';
}

/* In a line of a log each value is one word. */
static void rate_text(const struct cairn_cli_watched_save *save, bool log, char *ret,
                      size_t capacity) {
    char rate[24], eta[24];
    *ret = '\0';
    if (!save->rate_bytes) return;
    uint64_t left = save->bytes_total > save->bytes_done ? save->bytes_total - save->bytes_done : 0;
    cairn_cli_size(save->rate_bytes, rate);
    cairn_duration_text((uint64_t)((double)left / (double)save->rate_bytes * 1000), eta);
    if (log) drop_blanks(rate);
    snprintf(ret, capacity, log ? " rate=%s/s eta=%s" : "%s/s  ETA %s", rate, eta);
}

static size_t told_at(struct cairn_cli_watch_view *view, const char *version) {
    for (size_t i = 0; i < CAIRN_CLI_WATCHED_SAVES; i++)
        if (!strcmp(view->told[i].version, version)) return i;
    size_t at = view->told_next++ % CAIRN_CLI_WATCHED_SAVES;
    memset(&view->told[at], 0, sizeof view->told[at]);
    (void)cairn_text_copy(view->told[at].version, sizeof view->told[at].version, version);
    return at;
}

static void print_errors(struct cairn_cli_watch_view *view, size_t at, const char *now,
                         const struct cairn_cli_watched_save *save) {
    char errors[sizeof view->told[at].errors] = "";
    size_t size = 0;
    for (size_t i = 0; i < save->node_count && size + 1 < sizeof errors; i++)
        if (save->nodes[i].error[0] && save->nodes[i].waited_for)
            size += (size_t)snprintf(errors + size, sizeof errors - size, "%s\n",
                                     save->nodes[i].error);
    bool same = !strcmp(errors, view->told[at].errors);
    memcpy(view->told[at].errors, errors, sizeof errors);
    for (size_t i = 0; !same && i < save->node_count; i++) {
        const struct cairn_cli_watched_node *node = &save->nodes[i];
        char line[800];
        if (!node->error[0] || !node->waited_for) continue;
        snprintf(line, sizeof line, "%s %s step=%" PRIu64 " node=%s error=\"%s\"", now, save->run,
                 save->step, node->name, node->error);
        cairn_cli_clean(line);
        puts(line);
    }
}

static void print_line(struct cairn_cli_watch_view *view,
                       const struct cairn_cli_watched_save *save) {
    char now[32], said[sizeof view->told[0].said], rate[80], line[1000], parts[64] = "";
    size_t at = told_at(view, save->version);
    uint64_t mono_ms = cairn_mono_ms();
    cairn_time_text(cairn_clock_real.wall_ms(&cairn_clock_real), false, now);
    rate_text(save, true, rate, sizeof rate);
    if (save->parts_total)
        snprintf(parts, sizeof parts, " parts=%" PRIu64 "/%" PRIu64, save->parts_done,
                 save->parts_total);
    snprintf(said, sizeof said, "bytes=%" PRIu64 "/%" PRIu64 " ranks=%" PRIu64 "/%" PRIu64
             " shards=%" PRIu64 "/%" PRIu64 "%s nodes=%zu", save->bytes_done, save->bytes_total,
             save->ranks_sealed, save->world_size, save->shards_done, save->shards, parts,
             save->waited_count);
    bool same = !strcmp(said, view->told[at].said);
    if (!same || mono_ms - view->told[at].shown_ms >= UNCHANGED_EVERY_MS) {
        snprintf(line, sizeof line, "%s %s step=%" PRIu64 " attempt=%" PRIu64
                 " state=open pct=%u %s%s%s%s%s%s", now, save->run, save->step, save->attempt,
                 percent(save->bytes_done, save->bytes_total), said, rate,
                 same ? " unchanged=yes" : "", save->commit[0] ? " commit=\"" : "", save->commit,
                 save->commit[0] ? "\"" : "");
        cairn_cli_clean(line);
        puts(line);
        memcpy(view->told[at].said, said, sizeof said);
        view->told[at].shown_ms = mono_ms;
    }
    print_errors(view, at, now, save);
}

/* ---- the picture ---- */

static void print_bar(uint64_t done, uint64_t total, int cells) {
    int full = total ? (int)((double)done / (double)total * cells) : 0;
    cairn_cli_bar(stdout, cells, full > cells ? cells : full);
}

static void draw_node(const struct cairn_cli_watched_node *node) {
    char done[24] = "?", total[24] = "?", silent[24], error[sizeof node->error];
    bool known = node->bytes_total != CAIRN_MESSAGE_NONE;
    if (known) cairn_cli_size(node->bytes_done, done);
    if (known) cairn_cli_size(node->bytes_total, total);
    memcpy(error, node->error, sizeof error);
    cairn_cli_clean(error);
    printf("  %-16.16s ", node->name);
    enum cairn_cli_tone tone = !node->waited_for ? CAIRN_CLI_TONE_GOOD
                               : error[0]        ? CAIRN_CLI_TONE_BAD
                                                 : CAIRN_CLI_TONE_BUSY;
    fputs(cairn_cli_tone(tone), stdout);
    print_bar(known ? node->bytes_done : 0, known ? node->bytes_total : 1, BAR_CELLS);
    printf("%s %s/%s", cairn_cli_tone_end(tone), done, total);
    if (!node->waited_for) printf("  done");
    if (node->left) printf("  left");
    if (node->waited_for && node->silent_ms != CAIRN_MESSAGE_NONE && node->silent_ms >= 10000) {
        cairn_duration_text(node->silent_ms, silent);
        printf("  silent for %s", silent);
    }
    if (node->waited_for && error[0])
        printf("  %s%s%s", cairn_cli_tone(CAIRN_CLI_TONE_BAD), error,
               cairn_cli_tone_end(CAIRN_CLI_TONE_BAD));
    puts("");
}

static void draw_save(struct cairn_cli_watch_view *view, const struct cairn_cli_watched_save *save,
                      int rows) {
    char done[24], total[24], rate[80];
    cairn_cli_size(save->bytes_done, done);
    cairn_cli_size(save->bytes_total, total);
    rate_text(save, false, rate, sizeof rate);
    printf("%s step %" PRIu64 " attempt %" PRIu64 "  ", save->run, save->step, save->attempt);
    print_bar(save->bytes_done, save->bytes_total, BAR_CELLS);
    printf(" %2u%%  %s/%s  %s  ranks %" PRIu64 "/%" PRIu64 "%s%s\n",
           percent(save->bytes_done, save->bytes_total), done, total, rate, save->ranks_sealed,
           save->world_size, save->commit[0] ? "  the commit waits: " : "", save->commit);
    view->drawn++;
    /* The slow ones first, where not all have room. */
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

/* The terminal cuts lines instead of breaking them, so that their number is known. */
static void draw(struct cairn_cli_watch_view *view, const struct cairn_cli_watched *watched) {
    int rows = terminal_rows();
    erase(view);
    fputs("\033[?7l", stdout);
    for (size_t i = 0; i < watched->save_count && view->drawn < rows; i++)
        draw_save(view, &watched->saves[i], rows);
    fputs("\033[?7h", stdout);
}

enum cairn_code cairn_cli_watch_view_saves(struct cairn_cli_watch_view *view,
                                           const struct cairn_cli_watched *watched,
                                           struct cairn_error *err) {
    if (view->cli->output == CAIRN_CLI_NAME || view->cli->progress == CAIRN_CLI_PROGRESS_NONE)
        return CAIRN_OK;
    if (view->terminal) {
        draw(view, watched);
        return flushed(err);
    }
    for (size_t i = 0; i < watched->save_count; i++) {
        if (is_json(view))
            CAIRN_TRY(print_object("progress", watched->saves[i].run, watched->saves[i].why, err));
        else
            print_line(view, &watched->saves[i]);
    }
    return flushed(err);
}

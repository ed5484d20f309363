/* SPDX-License-Identifier: Apache-2.0 */
/* Progress for people and for logs. */
#include "cli/shell/progress.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/shell/sizes.h"
#include "common/clock.h"
#include "common/text.h"

#define BAR_REDRAW_MS 100
#define LINE_EVERY_MS 5000
#define JSON_EVERY_MS 500

static int terminal_width(void) {
    struct winsize size = {0};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col < 20) return 80;
    return size.ws_col;
}

void cairn_cli_bar(FILE *to, int cells, int full) {
    setlocale(LC_CTYPE, "");
    bool utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
    for (int i = 0; i < cells; i++) fputs(i < full ? (utf8 ? "━" : "#") : (utf8 ? "─" : "."), to);
}

static void draw_bar(const struct cairn_cli_meter *meter, const char *done, const char *total,
                     const char *rate, const char *left, double part) {
    char tail[160];
    snprintf(tail, sizeof tail, " %3.0f%%  %s/%s  %s/s  %s", part * 100, done, total, rate, left);
    int room = terminal_width() - (int)strlen(meter->job) - (int)strlen(tail) - 4;
    int cells = room < 5 ? 5 : room > 40 ? 40 : room, full = (int)(part * cells);
    fprintf(stderr, "\r%s  ", meter->job);
    cairn_cli_bar(stderr, cells, full);
    fprintf(stderr, "%s\033[K", tail);
    fflush(stderr);
}

static void amount(const struct cairn_cli_meter *meter, uint64_t number, char ret[24]) {
    if (meter->unit)
        snprintf(ret, 24, "%llu", (unsigned long long)number);
    else
        cairn_cli_size(number, ret);
}

static void print_json(const struct cairn_cli_meter *meter, uint64_t elapsed_ms, bool last) {
    uint64_t done = meter->locked.done_bytes, total = meter->total_bytes;
    bool counts = meter->unit;
    fprintf(stderr,
            "{\"job\":\"%s\",\"done_bytes\":%llu,\"total_bytes\":%llu,\"items\":%llu,"
            "\"total_items\":%llu,\"elapsed_ms\":%llu,\"last\":%s}\n",
            meter->job, (unsigned long long)(counts ? 0 : done),
            (unsigned long long)(counts ? 0 : total),
            (unsigned long long)(counts ? done : meter->locked.done_items),
            (unsigned long long)(counts ? total : meter->total_items),
            (unsigned long long)elapsed_ms, last ? "true" : "false");
}

static void show(struct cairn_cli_meter *meter, bool last) {
    uint64_t now = cairn_mono_ms(), elapsed = cairn_max_u64(now - meter->started_ms, 1);
    uint64_t done_bytes = meter->locked.done_bytes;
    double part = meter->total_bytes ? (double)done_bytes / (double)meter->total_bytes : last;
    if (!last && part > 0.99) part = 0.99; /* 100 % is said at the end only */
    uint64_t rate_bytes = done_bytes * 1000 / elapsed;
    char done[24], total[24], rate[24], left[32] = "", time[32], items[64] = "";
    amount(meter, done_bytes, done);
    amount(meter, meter->total_bytes, total);
    amount(meter, rate_bytes, rate);
    if (meter->locked.phase) {
        snprintf(left, sizeof left, "%s", meter->locked.phase);
    } else if (!last && rate_bytes && done_bytes < meter->total_bytes) {
        char eta[24];
        cairn_duration_text((meter->total_bytes - done_bytes) * 1000 / rate_bytes, eta);
        snprintf(left, sizeof left, "ETA %s", eta);
    }
    switch (meter->form) {
    case CAIRN_CLI_PROGRESS_BAR:
        draw_bar(meter, done, total, rate, left, part);
        if (last) fputc('\n', stderr);
        break;
    case CAIRN_CLI_PROGRESS_JSON:
        print_json(meter, elapsed, last);
        break;
    default:
        cairn_time_text(cairn_clock_real.wall_ms(&cairn_clock_real), false, time);
        if (meter->total_items)
            snprintf(items, sizeof items, " items=%llu/%llu",
                     (unsigned long long)meter->locked.done_items,
                     (unsigned long long)meter->total_items);
        fprintf(stderr, "%s %s pct=%.0f %s=%s/%s rate=%s/s%s %s\n", time, meter->job, part * 100,
                meter->unit ? meter->unit : "bytes", done, total, rate, items, left);
    }
    meter->locked.shown_ms = now;
}

static void maybe_show(struct cairn_cli_meter *meter) {
    uint64_t since = cairn_mono_ms() - meter->locked.shown_ms;
    uint64_t every = meter->form == CAIRN_CLI_PROGRESS_BAR    ? BAR_REDRAW_MS
                     : meter->form == CAIRN_CLI_PROGRESS_JSON ? JSON_EVERY_MS
                                                              : LINE_EVERY_MS;
    if (meter->form != CAIRN_CLI_PROGRESS_NONE && since >= every) show(meter, false);
}

void cairn_cli_meter_init(struct cairn_cli_meter *meter, const struct cairn_cli *cli,
                          const char *job, uint64_t total_bytes, uint64_t total_items) {
    *meter = (struct cairn_cli_meter){.form = cli->progress,
                                      .job = job,
                                      .total_bytes = total_bytes,
                                      .total_items = total_items,
                                      .started_ms = cairn_mono_ms()};
    cairn_lock_init(&meter->lock, CAIRN_LOCK_log_line);
    meter->locked.shown_ms = meter->started_ms;
    if (meter->form == CAIRN_CLI_PROGRESS_AUTO)
        meter->form = isatty(STDERR_FILENO) ? CAIRN_CLI_PROGRESS_BAR : CAIRN_CLI_PROGRESS_PLAIN;
}

void cairn_cli_meter_add(struct cairn_cli_meter *meter, uint64_t bytes, uint64_t items) {
    CAIRN_HOLD(&meter->lock);
    meter->locked.done_bytes += bytes;
    meter->locked.done_items += items;
    maybe_show(meter);
}

void cairn_cli_meter_set(struct cairn_cli_meter *meter, uint64_t done_bytes, const char *phase) {
    CAIRN_HOLD(&meter->lock);
    meter->locked.done_bytes = done_bytes;
    meter->locked.phase = phase;
    maybe_show(meter);
}

void cairn_cli_meter_end(struct cairn_cli_meter *meter, bool ended_well) {
    cairn_lock_take(&meter->lock);
    if (ended_well) meter->locked.phase = NULL;
    if (meter->form != CAIRN_CLI_PROGRESS_NONE) show(meter, ended_well);
    cairn_lock_give(&meter->lock);
    if (!ended_well && meter->form == CAIRN_CLI_PROGRESS_BAR) fputc('\n', stderr);
    cairn_lock_release(&meter->lock);
}

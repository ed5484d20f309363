/* SPDX-License-Identifier: Apache-2.0 */
/* progress: the meter as bar, lines or JSON; workers; the signal thread. */
#include "cli/shell/progress.h"

#include <langinfo.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/shell/output.h"
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

void cli_bar(FILE *to, int cells, int full) {
    setlocale(LC_CTYPE, "");
    bool utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
    for (int i = 0; i < cells; i++) fputs(i < full ? (utf8 ? "━" : "#") : (utf8 ? "─" : "."), to);
}

static void draw_bar(const struct cli_meter *meter, const char *done, const char *total,
                     const char *rate, const char *left, double part) {
    char tail[160];
    snprintf(tail, sizeof tail, " %3.0f%%  %s/%s  %s/s  %s", part * 100, done, total, rate, left);
    int room = terminal_width() - (int)strlen(meter->job) - (int)strlen(tail) - 4;
    int cells = room < 5 ? 5 : room > 40 ? 40 : room, full = (int)(part * cells);
    fprintf(stderr, "\r%s  ", meter->job);
    cli_bar(stderr, cells, full);
    fprintf(stderr, "%s\033[K", tail);
    fflush(stderr);
}

static void amount(const struct cli_meter *meter, uint64_t number, char ret[24]) {
    if (meter->unit)
        snprintf(ret, 24, "%llu", (unsigned long long)number);
    else
        snprintf(ret, 24, "%s", cli_size(number).text);
}

static void print_json(const struct cli_meter *meter, uint64_t elapsed_ms, bool last) {
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

static void show(struct cli_meter *meter, bool last) {
    uint64_t now = cairn_mono_ms(), elapsed = cairn_max_u64(now - meter->started_ms, 1);
    uint64_t done_bytes = meter->locked.done_bytes;
    double part = meter->total_bytes ? (double)done_bytes / (double)meter->total_bytes : last;
    if (!last && part > 0.99) part = 0.99; /* only _end shows 100 % */
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
    case CLI_PROGRESS_BAR:
        draw_bar(meter, done, total, rate, left, part);
        if (last) fputc('\n', stderr);
        break;
    case CLI_PROGRESS_JSON:
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

static void maybe_show(struct cli_meter *meter) {
    uint64_t since = cairn_mono_ms() - meter->locked.shown_ms;
    uint64_t every = meter->form == CLI_PROGRESS_BAR    ? BAR_REDRAW_MS
                     : meter->form == CLI_PROGRESS_JSON ? JSON_EVERY_MS
                                                        : LINE_EVERY_MS;
    if (meter->form != CLI_PROGRESS_NONE && since >= every) show(meter, false);
}

void cli_meter_init(struct cli_meter *meter, const struct cli *cli, const char *job,
                    uint64_t total_bytes, uint64_t total_items) {
    *meter = (struct cli_meter){.form = cli->progress,
                                .job = job,
                                .total_bytes = total_bytes,
                                .total_items = total_items,
                                .started_ms = cairn_mono_ms()};
    cairn_lock_init(&meter->lock, CAIRN_LOCK_log_line);
    meter->locked.shown_ms = meter->started_ms;
    if (meter->form == CLI_PROGRESS_AUTO)
        meter->form = isatty(STDERR_FILENO) ? CLI_PROGRESS_BAR : CLI_PROGRESS_PLAIN;
}

void cli_meter_add(struct cli_meter *meter, uint64_t bytes, uint64_t items) {
    CAIRN_HOLD(&meter->lock);
    meter->locked.done_bytes += bytes;
    meter->locked.done_items += items;
    maybe_show(meter);
}

void cli_meter_set(struct cli_meter *meter, uint64_t done_bytes, const char *phase) {
    CAIRN_HOLD(&meter->lock);
    meter->locked.done_bytes = done_bytes;
    meter->locked.phase = phase;
    maybe_show(meter);
}

void cli_meter_end(struct cli_meter *meter, bool ended_well) {
    cairn_lock_take(&meter->lock);
    if (ended_well) meter->locked.phase = NULL;
    if (meter->form != CLI_PROGRESS_NONE) show(meter, ended_well);
    cairn_lock_give(&meter->lock);
    if (!ended_well && meter->form == CLI_PROGRESS_BAR) fputc('\n', stderr);
    cairn_lock_release(&meter->lock);
}

/* ---- workers ---- */

#define WORKERS_DEFAULT 4

void cli_workers_take_locked(struct cli_workers *workers) {
    workers->locked.taken++;
}

void cli_workers_done(struct cli_workers *workers) {
    CAIRN_HOLD(&workers->lock);
    workers->locked.done++;
    CAIRN_ASSERT(workers->locked.done <= workers->locked.taken);
}

void cli_workers_failed(struct cli_workers *workers, enum cairn_code code,
                        const struct cairn_error *why) {
    CAIRN_ASSERT(code != CAIRN_OK);
    CAIRN_HOLD(&workers->lock);
    if (workers->locked.code != CAIRN_OK) return;
    workers->locked.code = code;
    workers->locked.error = *why;
}

enum cairn_code cli_workers_run(struct cli_workers *workers, uint64_t count,
                                void *(*work)(void *argument), void *argument,
                                struct cairn_error *err) {
    pthread_t threads[CLI_WORKERS_MAX];
    uint64_t wanted = cairn_min_u64(count ? count : WORKERS_DEFAULT, CLI_WORKERS_MAX);
    uint64_t started = 0;
    cairn_lock_init(&workers->lock, CAIRN_LOCK_client_session);
    while (started < wanted && !pthread_create(&threads[started], NULL, work, argument)) started++;
    for (uint64_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    cairn_lock_release(&workers->lock);
    if (!started) return cairn_fail(err, CAIRN_NO_MEMORY, "no thread could be started");
    CAIRN_ASSERT(workers->locked.code || workers->locked.done == workers->locked.taken);
    return cairn_pass(err, workers->locked.code, &workers->locked.error);
}

/* ---- signals ---- */

static const int taken[] = {SIGINT, SIGTERM, SIGHUP};

static sigset_t wanted(void) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < CAIRN_COUNT(taken); i++) {
        struct sigaction now;
        if (sigaction(taken[i], NULL, &now) || now.sa_handler == SIG_IGN) continue;
        sigaddset(&set, taken[i]);
    }
    return set;
}

static void *watch(void *argument) {
    const struct cli_interrupt *interrupt = argument;
    sigset_t set = wanted();
    for (int number = 0;;)
        if (!sigwait(&set, &number)) interrupt->take(interrupt->owner, number);
    return NULL;
}

void cli_interrupt_block(sigset_t *ret) {
    *ret = wanted();
    pthread_sigmask(SIG_BLOCK, ret, NULL);
}

enum cairn_code cli_interrupt_start(struct cli_interrupt *interrupt, struct cairn_error *err) {
    pthread_t thread;
    sigset_t set;
    cli_interrupt_block(&set);
    int failed = pthread_create(&thread, NULL, watch, interrupt);
    if (failed) return cairn_fail(err, CAIRN_NO_MEMORY, "no thread for signals (error %d)", failed);
    pthread_detach(thread);
    return CAIRN_OK;
}

static void say_and_exit(void *owner, int signal) {
    const char *const *text = owner;
    fputs(*text, stderr);
    cli_interrupt_exit(signal);
}

enum cairn_code cli_interrupt_says(const char *text, struct cairn_error *err) {
    static const char *said;
    static struct cli_interrupt interrupt = {.take = say_and_exit, .owner = &said};
    said = text;
    return cli_interrupt_start(&interrupt, err);
}

void cli_interrupt_exit(int signal) {
    _exit(128 + signal);
}

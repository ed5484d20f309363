/* SPDX-License-Identifier: Apache-2.0 */
/* Escapes of ECMA-48, and blocks of eighths; see paint.h. */
#include "cli/shell/paint.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/text.h"
#include "store/time.h"

static struct {
    bool terminal, colours;
} paint;

void cairn_cli_paint_init(const struct cairn_cli *cli) {
    const char *term = getenv("TERM"), *none = getenv("NO_COLOR");
    bool dumb = !term || !*term || !strcmp(term, "dumb");
    paint.terminal = cli->output == CAIRN_CLI_TABLE && !dumb && isatty(STDOUT_FILENO);
    paint.colours = paint.terminal && !(none && *none);
}

bool cairn_cli_paint_terminal(void) {
    return paint.terminal;
}

const char *cairn_cli_tone(enum cairn_cli_tone tone) {
    /* Of the terminal's own sixteen, which its user has chosen to be read. */
    static const char *const escapes[] = {
        [CAIRN_CLI_TONE_NONE] = "",         [CAIRN_CLI_TONE_HEAD] = "\033[1m",
        [CAIRN_CLI_TONE_GOOD] = "\033[32m", [CAIRN_CLI_TONE_BUSY] = "\033[33m",
        [CAIRN_CLI_TONE_BAD] = "\033[31m",  [CAIRN_CLI_TONE_QUIET] = "\033[2m"};
    return paint.colours ? escapes[tone] : "";
}

const char *cairn_cli_tone_end(enum cairn_cli_tone tone) {
    return paint.colours && tone ? "\033[0m" : "";
}

enum cairn_cli_tone cairn_cli_tone_of(const struct cairn_msg_version_row *version) {
    if (version->trashed || version->superseded) return CAIRN_CLI_TONE_QUIET;
    if (!strcmp(version->state, "committed")) return CAIRN_CLI_TONE_GOOD;
    if (!strcmp(version->state, "open")) return CAIRN_CLI_TONE_BUSY;
    if (!strcmp(version->state, "deleting") || !strcmp(version->state, "gone"))
        return CAIRN_CLI_TONE_QUIET;
    return CAIRN_CLI_TONE_BAD; /* aborting, damaged */
}

void cairn_cli_moment(uint64_t ms, char ret[24]) {
    if (ms < 1000)
        snprintf(ret, 24, "%u ms", (unsigned)ms);
    else
        cairn_duration_text(ms, ret);
}

void cairn_cli_spark(const char *name, const uint64_t *values_ms, size_t count) {
    static const char *const eighths[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[] = {"_", "_", ".", ".", "-", "-", "^", "^"};
    char least_text[24], most_text[24], last_text[24];
    uint64_t least = UINT64_MAX, most = 0;
    if (!count) return;
    for (size_t i = 0; i < count; i++) {
        least = cairn_min_u64(least, values_ms[i]);
        most = cairn_max_u64(most, values_ms[i]);
    }
    setlocale(LC_CTYPE, "");
    const char *const *marks = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? eighths : plain;
    printf("%-12s %s", name, cairn_cli_tone(CAIRN_CLI_TONE_GOOD));
    for (size_t i = 0; i < count; i++) {
        double part = most > least ? (double)(values_ms[i] - least) / (double)(most - least) : 0;
        fputs(marks[(size_t)(part * 7.0 + 0.5)], stdout);
    }
    cairn_cli_moment(least, least_text);
    cairn_cli_moment(most, most_text);
    cairn_cli_moment(values_ms[count - 1], last_text);
    printf("%s  %s to %s, the last %s\n", cairn_cli_tone_end(CAIRN_CLI_TONE_GOOD), least_text,
           most_text, last_text);
}

void cairn_cli_spark_versions(const json_t *versions) {
    uint64_t stalls[CAIRN_CLI_SPARK_MAX], intervals[CAIRN_CLI_SPARK_MAX];
    size_t stall_count = 0, interval_count = 0;
    int64_t later_ms = 0;
    size_t index = 0;
    const json_t *item = NULL;
    if (!paint.terminal) return;
    /* From the newest on, filled from behind. */
    json_array_foreach(versions, index, item) {
        struct cairn_msg_version_row row = {.stall_ms = CAIRN_MESSAGE_NONE};
        int64_t at_ms = 0;
        if (cairn_msg_version_row_read(item, "", &row, NULL) || !row.committed_at ||
            cairn_s3_time_iso(row.committed_at, &at_ms, NULL))
            continue;
        if (later_ms > at_ms && interval_count < CAIRN_CLI_SPARK_MAX)
            intervals[CAIRN_CLI_SPARK_MAX - ++interval_count] = (uint64_t)(later_ms - at_ms);
        later_ms = at_ms;
        if (row.stall_ms != CAIRN_MESSAGE_NONE && stall_count < CAIRN_CLI_SPARK_MAX)
            stalls[CAIRN_CLI_SPARK_MAX - ++stall_count] = row.stall_ms;
    }
    cairn_cli_spark("stall", stalls + CAIRN_CLI_SPARK_MAX - stall_count, stall_count);
    cairn_cli_spark("interval", intervals + CAIRN_CLI_SPARK_MAX - interval_count, interval_count);
}

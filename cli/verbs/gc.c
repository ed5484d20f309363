/* SPDX-License-Identifier: Apache-2.0 */
/* cairn gc: look now for what lies in the store and belongs to nothing; what may go goes. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>

#include "cli/shell/output.h"
#include "cli/shell/sizes.h"
#include "common/clock.h"
#include "common/text.h"

#define ORPHANS_MAX 100000
#define GC_ASK_MS 500
#define TELL_MS 5000

static const struct cairn_cli_flag gc_flags[] = {
    {"dry-run", 'n', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(dry_run), 0, NULL,
     "Show what the server's last look found; no look is begun."},
    {"not-freed", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(not_freed), 0, NULL,
     "List deleted versions of which the store keeps bytes, with its reason, and try again."},
};

static void orphan_size(const union cairn_cli_row *row, char *ret, size_t capacity) {
    char text[24];
    cairn_cli_size(row->orphan.bytes, text);
    snprintf(ret, capacity, "%s", text);
}
static void cell_objects(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%" PRIu64, row->orphan.objects);
}
static void cell_written(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->orphan.written_at ? row->orphan.written_at : "");
}
static void cell_version(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s/%s@%s", row->orphan.project, row->orphan.run, row->orphan.version);
}
static void cell_why(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->orphan.why);
}
static const struct cairn_cli_column orphan_columns[] = {
    {"SIZE", true, orphan_size},
    {"OBJECTS", true, cell_objects},
    {"LAST WRITTEN", false, cell_written},
    {"VERSION", false, cell_version},
    {"WHAT BECOMES OF IT", false, cell_why},
};
static const struct cairn_cli_table orphan_table = {CAIRN_MESSAGE_orphan_row, orphan_columns,
                                             CAIRN_COUNT(orphan_columns), cell_version, NULL};

/* ---- what the store keeps of what was deleted ---- */

static void cell_kept(const union cairn_cli_row *row, char *ret, size_t capacity) {
    char text[24];
    cairn_cli_size(row->not_freed.bytes, text);
    snprintf(ret, capacity, "%s%s", row->not_freed.counted ? "" : ">=", text);
}
static void cell_kept_objects(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%" PRIu64, row->not_freed.objects);
}
static void cell_since(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->not_freed.found_at);
}
static void cell_tries(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%" PRIu64, row->not_freed.tries);
}
static void cell_kept_version(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s/%s@%s", row->not_freed.project, row->not_freed.run,
             row->not_freed.version);
}
static void cell_reason(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->not_freed.reason);
}
static const struct cairn_cli_column kept_columns[] = {
    {"SIZE", true, cell_kept},
    {"OBJECTS", true, cell_kept_objects},
    {"SINCE", false, cell_since},
    {"TRIES", true, cell_tries},
    {"VERSION", false, cell_kept_version},
    {"WHY", false, cell_reason},
};
static const struct cairn_cli_table kept_table = {CAIRN_MESSAGE_not_freed_row, kept_columns,
                                                  CAIRN_COUNT(kept_columns), cell_kept_version,
                                                  NULL};

/* ---- the look ---- */

static enum cairn_code ask_gc(const struct cairn_cli *cli, struct cairn_msg_gc *ret, json_t **json,
                              struct cairn_error *err) {
    const struct cairn_cli_call call = {.method = cli->dry_run ? NULL : "POST", .tail = "/gc"};
    json_decref(CAIRN_TAKE(*json));
    CAIRN_TRY(cairn_cli_call(cli, NULL, call, json, err));
    return cairn_cli_reply_read(CAIRN_MESSAGE_gc, *json, ret, err);
}

/* A look reads the listing of the whole store: seconds, or an hour of a very large one. */
static enum cairn_code look_for_orphans(const struct cairn_cli *cli, struct cairn_msg_gc *ret,
                                        json_t **json, struct cairn_error *err) {
    uint64_t told_ms = cairn_mono_ms();
    CAIRN_TRY(ask_gc(cli, ret, json, err));
    while (!cli->dry_run && ret->looking) {
        (void)poll(NULL, 0, GC_ASK_MS);
        CAIRN_TRY(ask_gc(cli, ret, json, err));
        uint64_t now_ms = cairn_mono_ms();
        if (now_ms - told_ms < TELL_MS) continue;
        told_ms = now_ms;
        cairn_cli_note("note: looking: %" PRIu64 " objects so far", ret->objects);
    }
    return CAIRN_OK;
}

static void tell_gc(const struct cairn_msg_gc *gc) {
    char seen[24], nobodys[24], trash[24], kept[24];
    cairn_cli_size(gc->not_freed_bytes, kept);
    cairn_cli_size(gc->bytes, seen);
    cairn_cli_size(gc->orphan_bytes, nobodys);
    cairn_cli_size(gc->trash_bytes, trash);
    if (!gc->looked_at) cairn_cli_note("the server has not looked yet; without --dry-run it does");
    if (gc->looked_at)
        cairn_cli_note("looked at %s, %s; %s nobody's, %s",
                       cairn_cli_counted(gc->objects, "object", "objects").text, seen,
                       cairn_cli_counted(gc->orphans, "version is", "versions are").text, nobodys);
    if (gc->trash)
        cairn_cli_note("in the trash: %s, %s, until their grace is over",
                       cairn_cli_counted(gc->trash, "checkpoint", "checkpoints").text, trash);
    if (gc->ended)
        cairn_cli_note("being deleted: %s",
                       cairn_cli_counted(gc->ended, "version", "versions").text);
    if (gc->not_freed)
        cairn_cli_note(
            "kept by the store: %s of %s; cairn gc --not-freed says why", kept,
            cairn_cli_counted(gc->not_freed, "deleted version", "deleted versions").text);
}

static enum cairn_code run_gc(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_gc gc = {0};
    CAIRN_TRY(look_for_orphans(cli, &gc, &json, err));
    if (gc.trouble)
        return cairn_fail(err, CAIRN_STORE, "the store could not be looked at: %s", gc.trouble);
    const char *path = cli->not_freed ? "/v1/not-freed" : "/v1/orphans";
    CAIRN_TRY(cairn_cli_list(cli, path, ORPHANS_MAX, items, NULL, err));
    CAIRN_TRY(cairn_cli_print(cli, items, cli->not_freed ? &kept_table : &orphan_table, err));
    if (cli->output == CAIRN_CLI_TABLE) tell_gc(&gc);
    return CAIRN_OK;
}

const struct cairn_cli_verb cairn_cli_verb_gc = {
    .name = "gc",
    .synopsis = "cairn gc [flags]",
    .purpose = "Look for what lies in the store and is nobody's; what may be deleted is.",
    .examples = "  cairn gc\n  cairn gc --dry-run\n  cairn gc --json\n",
    .flags = gc_flags,
    .flag_count = CAIRN_COUNT(gc_flags),
    .run = run_gc,
};

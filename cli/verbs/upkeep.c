/* SPDX-License-Identifier: Apache-2.0 */
/* Maintenance: cairn gc and uploads: a store's orphans; reconcile: a run whose catalog lags;
 * reindex and catalog exec cairn-server, which links the database libraries. */

#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/shell/output.h"
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

static void cell_version(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s/%s@%s", row->orphan.project, row->orphan.run, row->orphan.version);
}
static const struct cairn_cli_column orphan_columns[] = {
    CAIRN_CLI_BYTES("SIZE", orphan, bytes),
    CAIRN_CLI_FIELD("OBJECTS", orphan, objects),
    CAIRN_CLI_FIELD("LAST WRITTEN", orphan, written_at),
    CAIRN_CLI_CELL("VERSION", cell_version),
    CAIRN_CLI_FIELD("WHAT BECOMES OF IT", orphan, why),
};
static const struct cairn_cli_table orphan_table =
    CAIRN_CLI_ROWS(orphan_row, orphan_columns, 0, CAIRN_CLI_CELL(NULL, cell_version));

/* ---- deleted bytes that the store keeps ---- */

static void cell_kept(const union cairn_cli_row *row, char *ret, size_t capacity) {
    char text[24];
    cairn_cli_size(row->not_freed.bytes, text);
    snprintf(ret, capacity, "%s%s", row->not_freed.counted ? "" : ">=", text);
}
static void cell_kept_version(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s/%s@%s", row->not_freed.project, row->not_freed.run,
             row->not_freed.version);
}
static const struct cairn_cli_column kept_columns[] = {
    CAIRN_CLI_RIGHT_CELL("SIZE", cell_kept),       CAIRN_CLI_FIELD("OBJECTS", not_freed, objects),
    CAIRN_CLI_FIELD("SINCE", not_freed, found_at), CAIRN_CLI_FIELD("TRIES", not_freed, tries),
    CAIRN_CLI_CELL("VERSION", cell_kept_version),  CAIRN_CLI_FIELD("WHY", not_freed, reason),
};
static const struct cairn_cli_table kept_table =
    CAIRN_CLI_ROWS(not_freed_row, kept_columns, 0, CAIRN_CLI_CELL(NULL, cell_kept_version));

static enum cairn_code ask_gc(const struct cairn_cli *cli, struct cairn_msg_gc *ret, json_t **json,
                              struct cairn_error *err) {
    const struct cairn_cli_call call = {.method = cli->dry_run ? NULL : "POST", .tail = "/gc"};
    json_decref(CAIRN_TAKE(*json));
    return cairn_cli_ask(cli, NULL, call, CAIRN_MESSAGE_gc, json, ret, err);
}

/* Waits for the server's listing of the whole store: seconds, or an hour for a very large one. */
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
    const char *path = cli->not_freed ? "/not-freed" : "/orphans";
    CAIRN_TRY(cairn_cli_list(cli, NULL, path, ORPHANS_MAX, items, NULL, err));
    CAIRN_TRY(cairn_cli_print(cli, items, cli->not_freed ? &kept_table : &orphan_table, err));
    if (cli->output == CAIRN_CLI_TABLE) tell_gc(&gc);
    return CAIRN_OK;
}

const struct cairn_cli_verb cairn_cli_verb_gc = {
    .name = "gc",
    .synopsis = "cairn gc [flags]",
    .purpose = "Look for what lies in the store and is nobody's; what may be deleted is.",
    .examples = "  cairn gc\n  cairn gc --dry-run\n  cairn gc --json\n",
    CAIRN_CLI_FLAGS(gc_flags),
    .run = run_gc,
};

/* ---- uploads ls|abort ---- */

#define UPLOADS_MAX 100000
#define UPLOADS_ASK_MS 200

static const struct cairn_cli_flag uploads_flags[] = {
    {"now", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(now), 0, NULL,
     "Of ls: let the server look at the store first; by itself it does once an hour."},
};

static const struct cairn_cli_column upload_columns[] = {
    CAIRN_CLI_BYTES_OR("SIZE", upload, bytes, "?"),
    CAIRN_CLI_FIELD("BEGUN", upload, begun_at),
    CAIRN_CLI_FIELD("VERSION IS", upload, state),
    CAIRN_CLI_FIELD("KEY", upload, key),
};
static const struct cairn_cli_table upload_table =
    CAIRN_CLI_ROWS(upload_row, upload_columns, 0, CAIRN_CLI_FIELD(NULL, upload, key));

static enum cairn_code note_sum(const json_t *uploads, struct cairn_error *err) {
    uint64_t bytes = 0;
    char size[24];
    json_t *item = NULL;
    for (size_t i = 0; (item = json_array_get(uploads, i)); i++) {
        struct cairn_msg_upload_row row = {.bytes = CAIRN_MESSAGE_NONE};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_upload_row, item, &row, err));
        if (row.bytes != CAIRN_MESSAGE_NONE) bytes += row.bytes;
    }
    cairn_cli_size(bytes, size);
    cairn_cli_note("%s, %s", cairn_cli_counted(json_array_size(uploads), "upload", "uploads").text,
                   size);
    return CAIRN_OK;
}

/* The server looks hourly by itself; this starts a look and waits for its end. */
static enum cairn_code look_for_uploads(const struct cairn_cli *cli, struct cairn_error *err) {
    const struct cairn_cli_call call = {.method = "POST", .tail = "/uploads"};
    for (;;) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cairn_msg_upload_look said = {0};
        CAIRN_TRY(cairn_cli_ask(cli, NULL, call, CAIRN_MESSAGE_upload_look, &json, &said, err));
        if (!said.looking) return CAIRN_OK;
        (void)poll(NULL, 0, UPLOADS_ASK_MS);
    }
}

static enum cairn_code list_uploads(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *uploads = json_array();
    if (cli->now) CAIRN_TRY(look_for_uploads(cli, err));
    CAIRN_TRY(cairn_cli_list(cli, NULL, "/uploads", UPLOADS_MAX, uploads, NULL, err));
    CAIRN_TRY(cairn_cli_print(cli, uploads, &upload_table, err));
    return cli->output == CAIRN_CLI_TABLE ? note_sum(uploads, err) : CAIRN_OK;
}

static enum cairn_code abort_one(const struct cairn_cli *cli, const char *version,
                                 struct cairn_error *err) {
    char tail[CAIRN_VERSION_ID_BYTES + 16];
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_upload_aborted aborted = {0};
    const char *at = strrchr(version, '@'); /* `cairn gc -o name` prints project/run@id */
    if (at) version = at + 1;
    if (!cairn_version_id_valid(cairn_view_of(version)))
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%.80s\" is no version id: `cairn uploads ls -o json` has them",
                          version);
    snprintf(tail, sizeof tail, "/uploads/%s", version);
    const struct cairn_cli_call call = {.method = "DELETE", .tail = tail};
    CAIRN_TRY(cairn_cli_ask(cli, NULL, call, CAIRN_MESSAGE_upload_aborted, &json, &aborted, err));
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_json(json, true, err);
    printf("%s (%s): %s\n", aborted.version, aborted.state,
           aborted.done ? "its uploads are ended"
                        : "the server's sweep ends its uploads and deletes what is there");
    return cairn_cli_flush(err);
}

static enum cairn_code run_uploads(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    if (!strcmp(what, "ls") && cli->argument_count == 1) return list_uploads(cli, err);
    if (!strcmp(what, "abort") && cli->argument_count == 2)
        return abort_one(cli, cli->arguments[1], err);
    return cairn_fail(err, CAIRN_INVALID, "want ls, or abort VERSION-ID, not \"%.40s\"; usage: %s",
                      what, cairn_cli_verb_uploads.synopsis);
}

const struct cairn_cli_verb cairn_cli_verb_uploads = {
    .name = "uploads",
    .synopsis = "cairn uploads ls|abort [flags] [VERSION-ID]",
    .purpose = "Uploads in the store that no save will end.",
    .examples = "  cairn uploads ls\n  cairn uploads ls --now --json\n"
                "  cairn uploads abort ckpt_0f0f1c1e-5a55-8c6b-9d4b-0b3f6a5f9f01\n",
    CAIRN_CLI_FLAGS(uploads_flags),
    CAIRN_CLI_ARGUMENTS(1, 2),
    .run = run_uploads,
};

/* ---- reconcile ---- */

#define CALL_MS 60000
#define WAIT_DEFAULT_MS 3600000

static enum cairn_code run_reconcile(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    CAIRN_TRY(cairn_cli_ref_run("reconcile", cli->arguments[0], &ref, err));
    struct cairn_cli_patience patience = {.deadline = cairn_cli_begin_wait(cli, WAIT_DEFAULT_MS)};
    struct cairn_cli_call call = {.method = "POST", .tail = "/reconcile", .timeout_ms = CALL_MS};
    do {
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cairn_msg_reconciled answer = {0};
        CAIRN_TRY(cairn_cli_patient_call(&patience, cli, &ref, call, &json, err));
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_reconciled, json, &answer, err));
        if (!answer.frozen) {
            if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_json(json, true, err);
            printf("%s/%s is not frozen: attempts, latest and saves go on\n", answer.project,
                   answer.run);
            return cairn_cli_flush(err);
        }
        cairn_cli_note("note: %s/%s is still frozen: %s", answer.project, answer.run,
                       answer.note    ? answer.note
                       : answer.cause ? answer.cause
                                      : "no reason is given");
    } while (cairn_deadline_left_ms(&cairn_clock_real, patience.deadline));
    return cairn_fail(err, CAIRN_TIMEOUT, "%s/%s is still frozen; the server's log says why",
                      ref.name.project, ref.name.run);
}

const struct cairn_cli_verb cairn_cli_verb_reconcile = {
    .name = "reconcile",
    .synopsis = "cairn reconcile [flags] project/run",
    .purpose = "End the freeze of a run: take over what its store says (catalog-behind).",
    .examples = "  cairn reconcile llm/7b\n"
                "  cairn reconcile llm/7b --json\n"
                "  cairn reconcile llm/7b --server http://cairn:7420\n",
    CAIRN_CLI_ARGUMENTS(1, 1),
    .run = run_reconcile,
};

/* ---- reindex ---- */

#define ARGUMENTS_MAX 24
#define NAMES_MAX 512

static const struct cairn_cli_flag reindex_flags[] = {
    {"catalog", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(catalog), 0, "NEW",
     "The new catalog: a data_dir without one, or postgresql://..."},
    {"data-dir", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(data_dir), 0, "DIR",
     "With postgresql://: where grant.key is; default as the server's."},
    {"config", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(config), 0, "FILE",
     "The server's settings, as for the store's endpoint."},
    {"stores", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(stores), 0, "NAME=URL,...",
     "Further stores, as the server's setting: main,archive=URL,..."},
    {"without", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(without), 0, "NAME,...",
     "Go on without a further store that is away: versions that lie there alone are not had."},
    {"new-grant-key", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(new_grant_key), 0, NULL,
     "grant.key is lost for good: make one, which ends all saves under way."},
    {"force", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(force), 0, NULL,
     "Do not look whether a server still works on the store."},
    {"dry-run", 'n', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(dry_run), 0, NULL,
     "Say what the store holds; write nothing, neither there nor in a catalog."},
};

static enum cairn_code run_reindex(struct cairn_cli *cli, struct cairn_error *err) {
    char path[PATH_MAX], without[NAMES_MAX];
    const char *arguments[ARGUMENTS_MAX];
    size_t count = 0;
    bool database = cli->catalog && (cairn_text_starts(cli->catalog, "postgresql://") ||
                                     cairn_text_starts(cli->catalog, "postgres://"));
    if (!cli->catalog && !cli->dry_run)
        return cairn_fail(err, CAIRN_INVALID,
                          "name the new catalog: --catalog DIR, or --catalog postgresql://...; or "
                          "say --dry-run");
    if (cli->data_dir && !database)
        return cairn_fail(err, CAIRN_INVALID,
                          "--data-dir goes with --catalog postgresql://...; a folder is its own");
    if (cli->without && strlen(cli->without) >= sizeof without - sizeof "--without=")
        return cairn_fail(err, CAIRN_INVALID, "--without names at most a few stores");
    snprintf(without, sizeof without, "--without=%s", cli->without ? cli->without : "");
    snprintf(path, sizeof path, "%s/cairn-server", cli->program_folder);
    arguments[count++] = "cairn-server";
    arguments[count++] = "--reindex";
    arguments[count++] = "--store";
    arguments[count++] = cli->arguments[0];
    arguments[count++] = "--catalog";
    arguments[count++] = database ? cli->catalog : "";
    const char *data_dir = database ? cli->data_dir : cli->catalog;
    if (data_dir) arguments[count++] = "--data-dir";
    if (data_dir) arguments[count++] = data_dir;
    if (cli->config) arguments[count++] = "--config";
    if (cli->config) arguments[count++] = cli->config;
    if (cli->stores) arguments[count++] = "--stores";
    if (cli->stores) arguments[count++] = cli->stores;
    if (cli->without) arguments[count++] = without;
    if (cli->new_grant_key) arguments[count++] = "--new-grant-key=true";
    if (cli->dry_run) arguments[count++] = "--dry-run";
    if (cli->force) arguments[count++] = "--force";
    if (cli->progress == CAIRN_CLI_PROGRESS_NONE) arguments[count++] = "--progress=none";
    if (cli->progress == CAIRN_CLI_PROGRESS_JSON) arguments[count++] = "--progress=json";
    if (cairn_cli_wants_json(cli)) arguments[count++] = "--json";
    arguments[count] = NULL;
    CAIRN_ASSERT(count < ARGUMENTS_MAX);
    execv(path, (char *const *)(uintptr_t)arguments);
    return cairn_fail_errno(err, "cannot run %s", path);
}

const struct cairn_cli_verb cairn_cli_verb_reindex = {
    .name = "reindex",
    .synopsis = "cairn reindex [flags] STORE --catalog NEW",
    .purpose = "Make a lost catalog again from its stores alone.",
    .examples = "  cairn reindex /srv/cairn/store --catalog /var/lib/cairn-new\n"
                "  cairn reindex /nvme/cairn --stores main,archive=s3://bucket/cairn \\\n"
                "    --catalog postgresql://cairn@db/cairn\n"
                "  cairn reindex s3://bucket/prefix --dry-run --json\n",
    CAIRN_CLI_FLAGS(reindex_flags),
    CAIRN_CLI_ARGUMENTS(1, 1),
    .run = run_reindex,
};

/* ---- catalog copy|backup ---- */

static const struct cairn_cli_flag catalog_flags[] = {
    {"data-dir", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(data_dir), 0, "DIR",
     "Of a backup: the server's data_dir; default /var/lib/cairn."},
};

static const char *progress_of(const struct cairn_cli *cli) {
    if (cli->progress == CAIRN_CLI_PROGRESS_NONE) return "none";
    return cli->progress == CAIRN_CLI_PROGRESS_JSON ? "json" : "plain";
}

static enum cairn_code run_catalog(struct cairn_cli *cli, struct cairn_error *err) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/cairn-server", cli->program_folder);
    const char *json = cairn_cli_wants_json(cli) ? "--json" : NULL;
    bool copies = !strcmp(cli->arguments[0], "copy");
    if (!copies && strcmp(cli->arguments[0], "backup") != 0)
        return cairn_fail(err, CAIRN_INVALID, "catalog takes copy FROM TO or backup FILE, not %s",
                          cli->arguments[0]);
    if (copies ? !cli->arguments[2] || cli->data_dir : cli->arguments[2] != NULL)
        return cairn_fail(err, CAIRN_INVALID,
                          copies ? "catalog copy takes FROM and TO, a data_dir "
                                   "or postgresql://... each"
                                 : "catalog backup takes one FILE");
    if (copies)
        execl(path, "cairn-server", "--copy-catalog", cli->arguments[1], cli->arguments[2],
              "--progress", progress_of(cli), json, (char *)NULL);
    else
        execl(path, "cairn-server", "--backup-catalog",
              cli->data_dir ? cli->data_dir : "/var/lib/cairn", cli->arguments[1], json,
              (char *)NULL);
    return cairn_fail_errno(err, "cannot run %s", path);
}

const struct cairn_cli_verb cairn_cli_verb_catalog = {
    .name = "catalog",
    .synopsis = "cairn catalog copy [flags] FROM TO | cairn catalog backup [flags] FILE",
    .purpose = "Back a catalog up while its server runs, or copy it to another database.",
    .examples = "  cairn catalog backup /backup/catalog-$(date +%F).db\n"
                "  cairn catalog copy /var/lib/cairn postgresql://cairn@db.example/cairn\n"
                "  cairn catalog copy postgresql:///cairn /var/lib/cairn-sqlite --json\n",
    CAIRN_CLI_FLAGS(catalog_flags),
    CAIRN_CLI_ARGUMENTS(2, 3),
    .run = run_catalog,
};

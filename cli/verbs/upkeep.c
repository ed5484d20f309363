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

static const struct cli_flag gc_flags[] = {
    {"dry-run", 'n', CLI_SWITCH, CLI_AT(dry_run), 0, NULL,
     "Show what the server's last look found; no look is begun."},
    {"not-freed", 0, CLI_SWITCH, CLI_AT(not_freed), 0, NULL,
     "List deleted versions of which the store keeps bytes, with its reason, and try again."},
};

static const struct cli_table orphan_table = {
    CAIRN_MESSAGE_orphan_row,
    .name = "{project}/{run}@{version}",
    .columns = {{"SIZE", .text = "{bytes:size}", CLI_RIGHT},
                {"OBJECTS", .text = "{objects}", CLI_RIGHT},
                {"LAST WRITTEN", .text = "{written_at}"},
                {"VERSION", .text = "{project}/{run}@{version}"},
                {"WHAT BECOMES OF IT", .text = "{why}"}},
};

/* ---- deleted bytes that the store keeps ---- */

static const struct cli_table kept_table = {
    CAIRN_MESSAGE_not_freed_row,
    .name = "{project}/{run}@{version}",
    .columns = {{"SIZE", .text = "{counted?|=>=}{bytes:size}", CLI_RIGHT},
                {"OBJECTS", .text = "{objects}", CLI_RIGHT},
                {"SINCE", .text = "{found_at}"},
                {"TRIES", .text = "{tries}", CLI_RIGHT},
                {"VERSION", .text = "{project}/{run}@{version}"},
                {"WHY", .text = "{reason}"}},
};

static enum cairn_code ask_gc(const struct cli *cli, struct cairn_msg_gc *ret, json_t **json,
                              struct cairn_error *err) {
    const struct cli_call call = {.method = cli->dry_run ? NULL : "POST", .tail = "/gc"};
    json_decref(CAIRN_TAKE(*json));
    return cli_ask(cli, NULL, call, CAIRN_MESSAGE_gc, json, ret, err);
}

static void tell_gc(const struct cairn_msg_gc *gc, const json_t *json) {
    static const char *const formats[] = {
        "[{looked_at:if}looked at {objects#object}, {bytes:size}; "
        "{orphans#version is/versions are} nobody's, {orphan_bytes:size}]",
        "[{trash:if}in the trash: {trash#checkpoint}, {trash_bytes:size}, until their grace is "
        "over]",
        "[{ended:if}being deleted: {ended#version}]", CLI_KEPT_BYTES};
    if (!gc->looked_at) cli_note("the server has not looked yet; without --dry-run it does");
    for (size_t i = 0; i < CAIRN_COUNT(formats); i++) cli_note_of(formats[i], json);
}

static enum cairn_code run_gc(struct cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_gc gc = {0};
    /* Waits for the server's listing of the store: seconds, or an hour for a very large one. */
    uint64_t told_ms = cairn_mono_ms();
    CAIRN_TRY(ask_gc(cli, &gc, &json, err));
    while (!cli->dry_run && gc.looking) {
        (void)poll(NULL, 0, GC_ASK_MS);
        CAIRN_TRY(ask_gc(cli, &gc, &json, err));
        uint64_t now_ms = cairn_mono_ms();
        if (now_ms - told_ms < TELL_MS) continue;
        told_ms = now_ms;
        cli_note("note: looking: %" PRIu64 " objects so far", gc.objects);
    }
    if (gc.trouble)
        return cairn_fail(err, CAIRN_STORE, "the store could not be looked at: %s", gc.trouble);
    const char *path = cli->not_freed ? "/not-freed" : "/orphans";
    CAIRN_TRY(cli_list(cli, NULL, path, ORPHANS_MAX, items, NULL, err));
    CAIRN_TRY(cli_print(cli, items, cli->not_freed ? &kept_table : &orphan_table, err));
    if (cli->output == CLI_TABLE) tell_gc(&gc, json);
    return CAIRN_OK;
}

const struct cli_verb cli_verb_gc = {
    CLI_VERB(gc),
    .synopsis = "cairn gc [flags]",
    .purpose = "Find objects that belong to no checkpoint, and delete those that may be deleted.",
    .examples = "  cairn gc\n  cairn gc --dry-run\n  cairn gc --json\n",
    CLI_FLAGS(gc_flags),
};

/* ---- uploads ls|abort ---- */

#define UPLOADS_MAX 100000
#define UPLOADS_ASK_MS 200

static const struct cli_flag uploads_flags[] = {
    {"now", 0, CLI_SWITCH, CLI_AT(now), 0, NULL,
     "Of ls: let the server look at the store first; by itself it does once an hour."},
};

static const struct cli_table upload_table = {
    CAIRN_MESSAGE_upload_row,
    .name = "{key}",
    .columns = {{"SIZE", .text = "{bytes:size|=?}", CLI_RIGHT},
                {"BEGUN", .text = "{begun_at}"},
                {"VERSION IS", .text = "{state}"},
                {"KEY", .text = "{key}"}},
};

static enum cairn_code note_sum(const json_t *uploads, struct cairn_error *err) {
    uint64_t bytes = 0;
    CAIRN_JSON_EACH(item, uploads) {
        struct cairn_msg_upload_row row = {.bytes = CAIRN_MESSAGE_NONE};
        CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_upload_row, item, &row, err));
        if (row.bytes != CAIRN_MESSAGE_NONE) bytes += row.bytes;
    }
    cli_note("%s, %s", cairn_counted(json_array_size(uploads), "upload").text,
             cli_size(bytes).text);
    return CAIRN_OK;
}

/* The server looks hourly by itself; this starts a look and waits for its end. */
static enum cairn_code look_for_uploads(const struct cli *cli, struct cairn_error *err) {
    const struct cli_call call = {.method = "POST", .tail = "/uploads"};
    for (;;) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cairn_msg_upload_look said = {0};
        CAIRN_TRY(cli_ask(cli, NULL, call, CAIRN_MESSAGE_upload_look, &json, &said, err));
        if (!said.looking) return CAIRN_OK;
        (void)poll(NULL, 0, UPLOADS_ASK_MS);
    }
}

static enum cairn_code run_uploads(struct cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    if (!strcmp(what, "ls") && cli->argument_count == 1) {
        CAIRN_AUTO_JSON json_t *uploads = json_array();
        if (cli->now) CAIRN_TRY(look_for_uploads(cli, err));
        CAIRN_TRY(cli_list(cli, NULL, "/uploads", UPLOADS_MAX, uploads, NULL, err));
        CAIRN_TRY(cli_print(cli, uploads, &upload_table, err));
        return cli->output == CLI_TABLE ? note_sum(uploads, err) : CAIRN_OK;
    }
    if (!strcmp(what, "abort") && cli->argument_count == 2) {
        const char *version = cli->arguments[1];
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
        const struct cli_call call = {.method = "DELETE", .tail = tail};
        CAIRN_TRY(cli_ask(cli, NULL, call, CAIRN_MESSAGE_upload_aborted, &json, &aborted, err));
        if (cli->output != CLI_TABLE) return cli_print_json(json, true, err);
        cli_tell("{version} ({state}): {done?its uploads are ended|=the server's sweep ends its "
                 "uploads and deletes what is there}",
                 json);
        return cli_flush(err);
    }
    return cairn_fail(err, CAIRN_INVALID, "want ls, or abort VERSION-ID, not \"%.40s\"; usage: %s",
                      what, cli_verb_uploads.synopsis);
}

const struct cli_verb cli_verb_uploads = {
    CLI_VERB(uploads),
    .synopsis = "cairn uploads ls|abort [flags] [VERSION-ID]",
    .purpose = "List or abort multipart uploads that no save will complete.",
    .examples = "  cairn uploads ls\n  cairn uploads ls --now --json\n"
                "  cairn uploads abort ckpt_0f0f1c1e-5a55-8c6b-9d4b-0b3f6a5f9f01\n",
    CLI_TAKES(uploads_flags, 1, 2),
};

/* ---- reconcile ---- */

#define CALL_MS 60000
#define WAIT_DEFAULT_MS 3600000

static enum cairn_code run_reconcile(struct cli *cli, struct cairn_error *err) {
    struct cli_ref ref;
    CAIRN_TRY(cli_ref_run("reconcile", cli->arguments[0], &ref, err));
    struct cli_patience patience = {.deadline = cli_begin_wait(cli, WAIT_DEFAULT_MS)};
    struct cli_call call = {.method = "POST", .tail = "/reconcile", .timeout_ms = CALL_MS};
    do {
        CAIRN_AUTO_JSON json_t *json = NULL;
        CAIRN_TRY(cli_patient_call(&patience, cli, &ref, call, &json, err));
        CLI_READ(reconciled, answer, json, err);
        if (!answer.frozen) {
            if (cli->output != CLI_TABLE) return cli_print_json(json, true, err);
            cli_tell("{project}/{run} is not frozen: attempts, latest and saves go on", json);
            return cli_flush(err);
        }
        cli_note("note: %s/%s is still frozen: %s", answer.project, answer.run,
                 answer.note    ? answer.note
                 : answer.cause ? answer.cause
                                : "no reason is given");
    } while (cairn_deadline_left_ms(&cairn_clock_real, patience.deadline));
    return cairn_fail(err, CAIRN_TIMEOUT, "%s/%s is still frozen; the server's log says why",
                      ref.name.project, ref.name.run);
}

const struct cli_verb cli_verb_reconcile = {
    CLI_VERB(reconcile),
    .synopsis = "cairn reconcile [flags] project/run",
    .purpose = "Unfreeze a run (catalog-behind): take over what its store says.",
    .examples = "  cairn reconcile llm/7b\n"
                "  cairn reconcile llm/7b --json\n"
                "  cairn reconcile llm/7b --server http://cairn:7420\n",
    CLI_ARGUMENTS(1, 1),
};

/* ---- reindex ---- */

#define ARGUMENTS_MAX 24
#define NAMES_MAX 512

static const struct cli_flag reindex_flags[] = {
    {"catalog", 0, CLI_TEXT, CLI_AT(catalog), 0, "NEW",
     "The new catalog: a data_dir without one, or postgresql://..."},
    {"data-dir", 0, CLI_TEXT, CLI_AT(data_dir), 0, "DIR",
     "With postgresql://: where grant.key is; default as the server's."},
    {"config", 0, CLI_TEXT, CLI_AT(config), 0, "FILE",
     "The server's settings, as for the store's endpoint."},
    {"stores", 0, CLI_TEXT, CLI_AT(stores), 0, "NAME=URL,...",
     "Further stores, as the server's setting: main,archive=URL,..."},
    {"without", 0, CLI_TEXT, CLI_AT(without), 0, "NAME,...",
     "Go on without a further store that is away: versions that lie there alone are not had."},
    {"new-grant-key", 0, CLI_SWITCH, CLI_AT(new_grant_key), 0, NULL,
     "grant.key is lost for good: make one, which ends all saves under way."},
    {"force", 0, CLI_SWITCH, CLI_AT(force), 0, NULL,
     "Do not look whether a server still works on the store."},
    {"dry-run", 'n', CLI_SWITCH, CLI_AT(dry_run), 0, NULL,
     "Say what the store holds; write nothing, neither there nor in a catalog."},
};

static enum cairn_code run_reindex(struct cli *cli, struct cairn_error *err) {
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
    if (cli->progress == CLI_PROGRESS_NONE) arguments[count++] = "--progress=none";
    if (cli->progress == CLI_PROGRESS_JSON) arguments[count++] = "--progress=json";
    if (cli_wants_json(cli)) arguments[count++] = "--json";
    arguments[count] = NULL;
    CAIRN_ASSERT(count < ARGUMENTS_MAX);
    execv(path, (char *const *)(uintptr_t)arguments);
    return cairn_fail_errno(err, "cannot run %s", path);
}

const struct cli_verb cli_verb_reindex = {
    CLI_VERB(reindex),
    .synopsis = "cairn reindex [flags] STORE --catalog NEW",
    .purpose = "Rebuild a lost catalog from its stores.",
    .examples = "  cairn reindex /srv/cairn/store --catalog /var/lib/cairn-new\n"
                "  cairn reindex /nvme/cairn --stores main,archive=s3://bucket/cairn \\\n"
                "    --catalog postgresql://cairn@db/cairn\n"
                "  cairn reindex s3://bucket/prefix --dry-run --json\n",
    CLI_TAKES(reindex_flags, 1, 1),
    .surplus = "catalog",
};

/* ---- catalog copy|backup ---- */

static const struct cli_flag catalog_flags[] = {
    {"data-dir", 0, CLI_TEXT, CLI_AT(data_dir), 0, "DIR",
     "Of a backup: the server's data_dir; default /var/lib/cairn/server, or /var/lib/cairn where "
     "that one holds the server's key."},
};

static const char *progress_of(const struct cli *cli) {
    if (cli->progress == CLI_PROGRESS_NONE) return "none";
    return cli->progress == CLI_PROGRESS_JSON ? "json" : "plain";
}

static enum cairn_code run_catalog(struct cli *cli, struct cairn_error *err) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/cairn-server", cli->program_folder);
    const char *json = cli_wants_json(cli) ? "--json" : NULL;
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
    else if (cli->data_dir)
        execl(path, "cairn-server", "--backup-catalog", cli->data_dir, cli->arguments[1], json,
              (char *)NULL);
    else
        execl(path, "cairn-server", "--backup-catalog", cli->arguments[1], json, (char *)NULL);
    return cairn_fail_errno(err, "cannot run %s", path);
}

const struct cli_verb cli_verb_catalog = {
    CLI_VERB(catalog),
    .synopsis = "cairn catalog copy [flags] FROM TO | cairn catalog backup [flags] FILE",
    .purpose = "Back a catalog up while its server runs, or copy it to another database.",
    .examples = "  cairn catalog backup /backup/catalog-$(date +%F).db\n"
                "  cairn catalog copy /var/lib/cairn postgresql://cairn@db.example/cairn\n"
                "  cairn catalog copy postgresql:///cairn /var/lib/cairn-sqlite --json\n",
    CLI_TAKES(catalog_flags, 2, 3),
};

/* SPDX-License-Identifier: Apache-2.0 */
/* Runs are listed first, then the versions of one after the other; see verify_all.h. */
#include "cli/verbs/verify_all.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/bucket/stored.h"
#include "cli/shell/call.h"
#include "cli/shell/output.h"
#include "cli/shell/sizes.h"
#include "common/file.h"
#include "common/text.h"

#define NOTES_BYTES_MAX (256 * CAIRN_MIB)

struct all_versions {
    const struct cairn_cli *cli;
    enum cairn_code (*one)(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                           struct cairn_error *err);
    struct cairn_buf notes; /* of earlier calls */
    int notes_fd;           /* -1: none are made */
    uint64_t good, damaged, passed, gone;
    struct cairn_error *err;
};

/* ---- --resume ---- */

static enum cairn_code open_notes(struct all_versions *all) {
    const char *path = all->cli->resume;
    struct cairn_error why = {0};
    if (!path) return CAIRN_OK;
    enum cairn_code code = cairn_file_load(path, &all->notes, &why);
    if (code && code != CAIRN_NOT_FOUND) {
        if (all->err) *all->err = why;
        return code;
    }
    all->notes_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    return all->notes_fd < 0 ? cairn_fail_errno(all->err, "%s", path) : CAIRN_OK;
}

/* A version that was read for its metadata alone is none whose bytes were read. */
static void note_of(const struct all_versions *all, const char *version, char ret[160]) {
    const struct cairn_cli *cli = all->cli;
    snprintf(ret, 160, "%s %.60s\n", version,
             cli->metadata_only ? "metadata"
             : cli->subset      ? cli->subset
                                : "whole");
}

static bool is_noted(const struct all_versions *all, const char *version) {
    char text[160];
    note_of(all, version, text);
    return all->notes.size && memmem(all->notes.data, all->notes.size, text, strlen(text));
}

static enum cairn_code note_good(const struct all_versions *all, const char *version) {
    char text[160];
    if (all->notes_fd < 0) return CAIRN_OK;
    note_of(all, version, text);
    ssize_t written = write(all->notes_fd, text, strlen(text));
    if (written == (ssize_t)strlen(text) && !fdatasync(all->notes_fd)) return CAIRN_OK;
    if (written >= 0 && written < (ssize_t)strlen(text)) errno = ENOSPC;
    return cairn_fail_errno(all->err, "%s", all->cli->resume);
}

/* ---- versions ---- */

static enum cairn_code verify_version(struct all_versions *all, const struct cairn_cli_ref *ref) {
    struct cairn_error why = {0};
    if (is_noted(all, ref->version)) {
        all->passed++;
        return CAIRN_OK;
    }
    enum cairn_code code = all->one(all->cli, ref, &why);
    if (!code) {
        all->good++;
        return note_good(all, ref->version);
    }
    all->damaged += code == CAIRN_CORRUPT;
    all->gone += code == CAIRN_NOT_FOUND || code == CAIRN_DELETED;
    if (code == CAIRN_CORRUPT)
        cairn_cli_note("cairn: damaged: %s/%s@%s: %s", ref->name.project, ref->name.run,
                       ref->version, why.message);
    if (code == CAIRN_CORRUPT || code == CAIRN_NOT_FOUND || code == CAIRN_DELETED) return CAIRN_OK;
    if (all->err) *all->err = why;
    return cairn_within(all->err, code, "%s/%s@%s", ref->name.project, ref->name.run,
                        ref->version);
}

static enum cairn_code list_versions(const struct all_versions *all,
                                     const struct cairn_cli_ref *ref, json_t *items) {
    const struct cairn_cli *cli = all->cli;
    CAIRN_AUTO(buf) path = {0};
    if (cli->store)
        return cairn_cli_stored_versions(cli, &ref->name, CAIRN_CLI_VERIFY_MAX, items, all->err);
    CAIRN_TRY(cairn_cli_path(ref, "/checkpoints?state=committed", &path, all->err));
    return cairn_cli_list(cli, path.data, CAIRN_CLI_VERIFY_MAX, items, NULL, all->err);
}

static enum cairn_code verify_run(struct all_versions *all, const struct cairn_cli_ref *run) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    if (!items) return cairn_fail(all->err, CAIRN_NO_MEMORY, "no memory for the list");
    CAIRN_TRY(list_versions(all, run, items));
    size_t count = json_array_size(items);
    for (size_t i = 0; i < count; i++) {
        const char *id = json_string_value(json_object_get(json_array_get(items, i), "version"));
        struct cairn_cli_ref ref = {.name = run->name};
        if (!id || !cairn_text_copy(ref.version, sizeof(ref.version), id)) continue;
        CAIRN_TRY(verify_version(all, &ref));
        cairn_cli_note("cairn: verify %s/%s: %zu of %zu", run->name.project, run->name.run, i + 1,
                       count);
    }
    return CAIRN_OK;
}

static enum cairn_code verify_site(struct all_versions *all) {
    const struct cairn_cli *cli = all->cli;
    CAIRN_AUTO_JSON json_t *items = json_array();
    if (!items) return cairn_fail(all->err, CAIRN_NO_MEMORY, "no memory for the list");
    if (cli->store)
        CAIRN_TRY(cairn_cli_stored_runs(cli, CAIRN_CLI_VERIFY_MAX, items, all->err));
    else
        CAIRN_TRY(cairn_cli_list(cli, "/v1/runs", CAIRN_CLI_VERIFY_MAX, items, NULL,
                                 all->err));
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        const char *project = json_string_value(json_object_get(item, "project"));
        const char *run = json_string_value(json_object_get(item, "run"));
        struct cairn_cli_ref ref = {.version = ""};
        if (!project || !run) continue;
        (void)cairn_text_copy(ref.name.project, sizeof(ref.name.project), project);
        (void)cairn_text_copy(ref.name.run, sizeof(ref.name.run), run);
        cairn_cli_note("cairn: verify: run %zu of %zu", i + 1, json_array_size(items));
        CAIRN_TRY(verify_run(all, &ref));
    }
    return CAIRN_OK;
}

static enum cairn_code verify_listed(struct all_versions *all) {
    const struct cairn_cli *cli = all->cli;
    struct cairn_cli_ref run;
    CAIRN_TRY(open_notes(all));
    if (cli->arguments[0]) {
        CAIRN_TRY(cairn_cli_ref_run("verify --all", cli->arguments[0], &run, all->err));
        CAIRN_TRY(verify_run(all, &run));
    } else {
        CAIRN_TRY(verify_site(all));
    }
    cairn_cli_note("cairn: verify: %s good, %" PRIu64 " damaged, %" PRIu64 " noted as good before, "
                   "%" PRIu64 " went meanwhile",
                   cairn_cli_counted(all->good, "version", "versions").text, all->damaged,
                   all->passed, all->gone);
    if (!all->damaged) return CAIRN_OK;
    return cairn_fail(all->err, CAIRN_CORRUPT, "%s damaged",
                      cairn_cli_counted(all->damaged, "version is", "versions are").text);
}

enum cairn_code cairn_cli_verify_all(const struct cairn_cli *cli,
                                     enum cairn_code (*one)(const struct cairn_cli *cli,
                                                            const struct cairn_cli_ref *ref,
                                                            struct cairn_error *err),
                                     struct cairn_error *err) {
    struct all_versions all = {.cli = cli,
                      .one = one,
                      .notes = {.limit = NOTES_BYTES_MAX},
                      .notes_fd = -1,
                      .err = err};
    enum cairn_code code = verify_listed(&all);
    if (all.notes_fd >= 0) close(all.notes_fd);
    cairn_buf_release(&all.notes);
    return code;
}

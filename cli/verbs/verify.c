/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn verify: compares every stored byte of a version, a run or a site with its checksum.
 *
 * Promise: 1   --all reports damaged versions and continues; the result is CAIRN_CORRUPT with
 *              their number. Versions deleted meanwhile are skipped.
 *          2   --resume FILE records each good version, synced, before the next is read; later
 *              calls that read as much skip it.
 * Limits:  VERSIONS_MAX versions; a file of 256 MiB.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/bucket/bucket.h"
#include "cli/shell/output.h"
#include "common/file.h"
#include "common/text.h"
#include "store/whole.h"

#define VERSIONS_MAX 10000000

static const struct cli_flag verify_flags[] = {
    {"all", 'a', CLI_SWITCH, CLI_AT(whole_run), 0, NULL,
     "Every version of the run, or of all runs where none is named."},
    {"metadata", 0, CLI_SWITCH, CLI_AT(metadata_only), 0, NULL,
     "Check documents, digests and lengths only; read no shard."},
    {"read-data-subset", 0, CLI_TEXT, CLI_AT(subset), 0, "N/T",
     "Read the N-th of T equal groups of shards, to spread a full check over T days."},
    {"repair", 0, CLI_SWITCH, CLI_AT(repair), 0, NULL,
     "Write anew what is damaged or missing in one store, from another that has it right."},
    {"resume", 0, CLI_TEXT, CLI_AT(resume), 0, "FILE",
     "With --all: note in FILE what was found good, and pass over what is noted there."},
    {"store", 0, CLI_TEXT, CLI_AT(store), 0, "URL",
     "Check the store itself, without a server: a folder or s3://bucket/prefix."},
    {"workers", 'j', CLI_COUNT, CLI_AT(workers), 0, "N", "Readers at work at once; default 8."},
};

static enum cairn_code parse_subset(const char *text, uint64_t *ret_part, uint64_t *ret_parts,
                                    struct cairn_error *err) {
    *ret_part = *ret_parts = 1;
    if (!text) return CAIRN_OK;
    const char *slash = strchr(text, '/');
    struct cairn_view part = {text, slash ? (size_t)(slash - text) : 0};
    if (!slash || cairn_parse_u64(part, ret_part, NULL) != CAIRN_OK ||
        cairn_parse_u64(cairn_view_of(slash + 1), ret_parts, NULL) != CAIRN_OK || !*ret_part ||
        *ret_part > *ret_parts)
        return cairn_fail(err, CAIRN_INVALID,
                          "--read-data-subset wants N/T with 1 <= N <= T, not %s", text);
    return CAIRN_OK;
}

/* ---- findings ---- */

struct findings {
    struct cli_source *source;
    json_t *list;                            /* of {what, key, detail}; owned */
    json_t *copies;                          /* of the server's reply; owned */
    uint64_t damaged, strays, newer, mended; /* counts of findings on the version's objects */
    bool record_rewritten;
};

static bool is_listed(const struct findings *findings, const char *key) {
    CAIRN_JSON_EACH(json, findings->list) {
        struct cairn_msg_finding finding = {0};
        if (cairn_msg_finding_read(json, "", &finding, NULL) == CAIRN_OK &&
            !strcmp(finding.key, key))
            return true;
    }
    return false;
}

/* The store read; "" for --store, whose store may have no name. */
static const char *store_of(const struct findings *findings) {
    struct cairn_msg_verified_copy copy = {0};
    const json_t *first = json_array_get(findings->copies, 0);
    return first && !cairn_msg_verified_copy_read(first, "", &copy, NULL) ? copy.store : "";
}

static void add_finding(struct findings *findings, const char *what, const char *key,
                        const char *detail) {
    json_t *finding = CAIRN_PACK(finding, .what = what, .key = key, .detail = detail,
                                 .store = store_of(findings));
    (void)!json_array_append_new(findings->list, finding);
}

/* Prefix of the key in text. */
static const char *kind_of(const char *what, bool mended) {
    if (!strcmp(what, cairn_store_finding_text(CAIRN_STORE_FINDING_STRAY))) return "note:";
    if (!strcmp(what, cairn_store_finding_text(CAIRN_STORE_FINDING_NEWER))) return "not read:";
    return mended ? "mended:" : "damaged:";
}

static void take_finding(void *owner, enum cairn_store_finding finding, const char *key,
                         const char *text) {
    const char *what = cairn_store_finding_text(finding);
    cli_note("cairn: %s %s: %s", kind_of(what, false), key, text);
    add_finding(owner, what, key, text);
}

/* Damaged bytes; a missing shard was already reported. */
static void take_bad_shard(void *owner, uint32_t shard, const char *why) {
    struct findings *findings = owner;
    const struct cairn_committed *version = &findings->source->version;
    struct cairn_key key;
    cairn_key_shard(&version->place, cairn_view_of(version->manifest.shards[shard].name), &key);
    if (!is_listed(findings, key.text))
        add_finding(findings, cairn_store_finding_text(CAIRN_STORE_FINDING_OBJECT), key.text, why);
}

static enum cairn_code audit_store(struct findings *findings, struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    struct cli_source *source = findings->source;
    struct cairn_store_audit audit = {
        .committed = &source->version, .ask_each = true, .found = take_finding, .owner = findings};
    CAIRN_TRY(cairn_store_worker_new(source->store, &worker, err));
    CAIRN_TRY(cairn_store_audit_look(&audit, worker, err));
    findings->damaged = audit.damaged;
    findings->newer = audit.newer;
    findings->strays = audit.strays;
    return CAIRN_OK;
}

static bool is_same(const json_t *json, const struct cairn_msg_finding *as) {
    struct cairn_msg_finding told = {0};
    return cairn_msg_finding_read(json, "", &told, NULL) == CAIRN_OK && told.mended == as->mended &&
           !strcmp(told.key, as->key) && !strcmp(told.store, as->store) &&
           !strcmp(told.detail, as->detail);
}

/* A reading of every copy finds again what the look before it has told. */
static bool was_told(const json_t *list, const struct cairn_msg_finding *finding) {
    CAIRN_JSON_EACH(json, list)
        if (is_same(json, finding)) return true;
    return false;
}

/* Takes the server's findings; with several copies they name the store. */
static enum cairn_code take_answer(struct findings *findings, const json_t *json,
                                   struct cairn_msg_verified *answer, struct cairn_error *err) {
    CAIRN_TRY(cli_reply_read(CAIRN_MESSAGE_verified, json, answer, err));
    bool several = json_array_size(answer->copies) > 1;
    /* Keeps only the finding of a missing record that the server has since rewritten. */
    json_t *kept = json_array();
    CAIRN_JSON_EACH(item, findings->list) {
        struct cairn_msg_finding finding = {0};
        if (!findings->record_rewritten || cairn_msg_finding_read(item, "", &finding, NULL) ||
            strcmp(finding.what, cairn_store_finding_text(CAIRN_STORE_FINDING_RECORD)) != 0)
            continue;
        (void)!json_array_append(kept, item);
    }
    CAIRN_AUTO_JSON json_t *before = findings->list;
    findings->list = kept;
    json_decref(findings->copies);
    findings->copies = json_deep_copy(answer->copies);
    CAIRN_JSON_EACH(item, answer->findings) {
        CLI_READ(finding, finding, item, err);
        if (!was_told(before, &finding))
            cli_note("cairn: %s%s%s %s: %s", several ? finding.store : "", several ? ": " : "",
                     kind_of(finding.what, finding.mended), finding.key, finding.detail);
        (void)!json_array_append(findings->list, item);
    }
    CAIRN_JSON_EACH(item, answer->copies) {
        CLI_READ(verified_copy, copy, item, err);
        if (copy.problem) cli_note("cairn: %s: not looked at: %s", copy.store, copy.problem);
    }
    findings->damaged = answer->damaged;
    findings->newer = answer->newer;
    findings->strays = answer->strays;
    findings->mended = answer->mended;
    findings->record_rewritten |= answer->record_rewritten;
    if (answer->record_rewritten)
        fputs("cairn: note: committed.json was missing; the server has written it again\n", stderr);
    return CAIRN_OK;
}

static struct cli_ref ref_of(const struct cli_source *source) {
    struct cli_ref ref = {.name = source->version.place.name};
    (void)cairn_text_copy(ref.version, sizeof ref.version, source->version.place.id.text);
    return ref;
}

static enum cairn_code audit_server(struct findings *findings, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_verified answer = {0};
    struct cli_ref ref = ref_of(findings->source);
    struct cli_call call = {.method = "POST", .tail = "/verify"};
    CAIRN_TRY(cli_call(findings->source->cli, &ref, call, &json, err));
    return take_answer(findings, json, &answer, err);
}

/* ---- bytes of shards ---- */

struct read {
    size_t shards; /* to be read */
    uint64_t bytes, bad;
    enum cairn_code code; /* of the first bad shard */
    struct cairn_error why;
};
struct subset {
    uint64_t part, parts;
};

static bool in_subset(const void *owner, uint32_t index, const struct cairn_manifest_shard *shard) {
    const struct subset *subset = owner;
    (void)shard;
    return index % subset->parts == subset->part - 1;
}

static enum cairn_code read_shards(struct findings *findings, struct read *ret,
                                   struct cairn_error *err) {
    const struct cli *cli = findings->source->cli;
    struct subset subset;
    CAIRN_TRY(parse_subset(cli->subset, &subset.part, &subset.parts, err));
    struct cli_fetch fetch = {.source = findings->source,
                              .verb = "verify",
                              .stat_only = cli->metadata_only,
                              .bad = take_bad_shard,
                              .owner = findings};
    CAIRN_TRY(cli_fetch_choose(&fetch, in_subset, &subset, err));
    ret->code = cli_fetch_run(&fetch, &ret->why);
    ret->shards = fetch.shard_count;
    ret->bytes = cli->metadata_only ? 0 : fetch.total_bytes;
    ret->bad = fetch.bad_shards;
    cli_fetch_release(&fetch);
    if (ret->code == CAIRN_OK || ret->code == CAIRN_CORRUPT) return CAIRN_OK;
    return cairn_pass(err, ret->code, &ret->why);
}

/* ---- every copy, read by the server ---- */

/* The server forgets known damage only after its own read of the copy. */
static bool is_known_damaged(const struct findings *findings) {
    const struct cli_source *source = findings->source;
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_version_row version = {0};
    struct cli_ref ref = ref_of(source);
    char words[200] = "";
    if (source->store || cli_call(source->cli, &ref, (struct cli_call){0}, &json, NULL))
        return false;
    if (!cairn_msg_version_row_read(json, "", &version, NULL))
        cli_damage_words(version.copies, words, sizeof words);
    return words[0] != '\0';
}

static bool by_the_server(const struct findings *findings) {
    const struct cli *cli = findings->source->cli;
    /* Reads through the server fall back to other copies, so a damaged one would pass. */
    return cli->repair || (!cli->metadata_only &&
                           (json_array_size(findings->copies) > 1 || is_known_damaged(findings)));
}

/* An unread copy must not count as good. */
static enum cairn_code judge_copies(const struct findings *findings, struct cairn_error *err) {
    CAIRN_JSON_EACH(item, findings->copies) {
        CLI_READ(verified_copy, copy, item, err);
        if (copy.problem)
            return cairn_fail(err, CAIRN_UNAVAILABLE, "the copy in %s was not looked at: %s",
                              copy.store, copy.problem);
    }
    return CAIRN_OK;
}

static enum cairn_code report_verified(const struct findings *findings, const struct read *read,
                                       struct cairn_error *err) {
    const struct cli *cli = findings->source->cli;
    const struct cairn_version_place *place = &findings->source->version.place;
    bool damaged = findings->damaged || read->bad;
    bool good = !damaged && !findings->newer && !judge_copies(findings, NULL);
    if (cli->output != CLI_TABLE) {
        CAIRN_AUTO_JSON json_t *answer = json_pack(
            "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:O, s:O}", "version",
            place->id.text, "step", (json_int_t)place->step, "shards", (json_int_t)read->shards,
            "read_bytes", (json_int_t)read->bytes, "bad_shards", (json_int_t)read->bad,
            "bad_objects", (json_int_t)findings->damaged, "newer", (json_int_t)findings->newer,
            "strays", (json_int_t)findings->strays, "mended", (json_int_t)findings->mended,
            "record_rewritten", (int)findings->record_rewritten, "ok", (int)good, "copies",
            findings->copies, "findings", findings->list);
        if (!answer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
        return cli_print_json(answer, true, err);
    }
    size_t copies = json_array_size(findings->copies);
    printf("%s/%s step %llu: %s checked", place->name.project, place->name.run,
           (unsigned long long)place->step, cairn_counted(read->shards, "shard").text);
    if (copies > 1) printf(" in %zu stores", copies);
    printf(", %s read, ", cli_size(read->bytes).text);
    if (findings->mended) printf("%s mended, ", cairn_counted(findings->mended, "object").text);
    puts(good ? "all good" : damaged ? "DAMAGED" : "NOT LOOKED AT WHOLE");
    return cli_flush(err);
}

/* Documents first: a damaged manifest or checksums.bin makes shards unreadable. */
static enum cairn_code verify_version(struct findings *findings, struct cairn_error *err) {
    struct cli_source *source = findings->source;
    struct read read = {0};
    struct cairn_error why = {0};
    enum cairn_code code = CAIRN_OK;
    CAIRN_TRY(source->store ? audit_store(findings, err) : audit_server(findings, err));
    bool served = by_the_server(findings);
    if (!served) code = cli_source_load(source, &why);
    if (served) {
        /* Starts the server's operation that reads every copy. */
        const struct cli *cli = findings->source->cli;
        CAIRN_AUTO_JSON json_t *row = NULL;
        struct subset subset;
        struct cairn_msg_verified answer = {0};
        CAIRN_TRY(parse_subset(cli->subset, &subset.part, &subset.parts, err));
        CAIRN_AUTO_JSON json_t *body = CAIRN_PACK(verify, .read = true, .repair = cli->repair,
                                                  .part = cli->subset ? subset.part : 0,
                                                  .parts = cli->subset ? subset.parts : 0);
        if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the call");
        struct cli_ref ref = ref_of(findings->source);
        struct cli_call call = {.method = "POST", .tail = "/verify", .body = body};
        CAIRN_TRY(cli_operation_run(cli, "verify", &ref, call, &row, err));
        CLI_READ(operation_row, operation, row, err);
        CAIRN_TRY(take_answer(findings, operation.result, &answer, err));
        read.shards = answer.shards;
        read.bytes = answer.read_bytes;
    } else if ((code == CAIRN_CORRUPT && findings->damaged) ||
               (code == CAIRN_UNSUPPORTED && findings->newer)) {
        cli_note("cairn: note: no shard can be read: %s", why.message);
    } else if (code)
        return cairn_pass(err, code, &why);
    else {
        CAIRN_TRY(read_shards(findings, &read, err));
    }
    CAIRN_TRY(report_verified(findings, &read, err));
    if (read.code && read.bad < 2) return cairn_pass(err, read.code, &read.why);
    if (read.code)
        return cairn_fail(err, read.code, "%s (the first of %llu damaged shards)", read.why.message,
                          (unsigned long long)read.bad);
    if (!findings->damaged && findings->newer)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "%s of the version %s written by a newer release: verify it with that",
                          cairn_counted(findings->newer, "document").text,
                          findings->newer == 1 ? "was" : "were");
    if (!findings->damaged) return judge_copies(findings, err);
    return cairn_fail(err, CAIRN_CORRUPT, "%s of the version %s missing or damaged",
                      cairn_counted(findings->damaged, "object").text,
                      findings->damaged == 1 ? "is" : "are");
}

static enum cairn_code verify_source(struct cli_source *source, struct cairn_error *err) {
    struct findings findings = {.source = source, .list = json_array(), .copies = json_array()};
    enum cairn_code code = findings.list && findings.copies
                               ? verify_version(&findings, err)
                               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the findings");
    json_decref(findings.list);
    json_decref(findings.copies);
    return code;
}

static enum cairn_code verify_one(const struct cli *cli, const struct cli_ref *ref,
                                  struct cairn_error *err) {
    struct cli_source source;
    CAIRN_TRY(cli_source_find(cli, ref, &source, err));
    enum cairn_code code = verify_source(&source, err);
    cli_source_release(&source);
    return code;
}

/* ---- --all: lists runs, then each run's versions ---- */

#define NOTES_BYTES_MAX (256 * CAIRN_MIB)

struct all_versions {
    const struct cli *cli;
    struct cairn_buf notes; /* of earlier calls */
    int notes_fd;           /* -1: none */
    uint64_t good, damaged, passed, gone;
    struct cairn_error *err;
};

static enum cairn_code open_notes(struct all_versions *all) {
    const char *path = all->cli->resume;
    struct cairn_error why = {0};
    if (!path) return CAIRN_OK;
    enum cairn_code code = cairn_file_load(path, &all->notes, &why);
    if (code && code != CAIRN_NOT_FOUND) return cairn_pass(all->err, code, &why);
    all->notes_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    return all->notes_fd < 0 ? cairn_fail_errno(all->err, "%s", path) : CAIRN_OK;
}

/* The note includes what was read: metadata, a subset, or all. */
static void note_of(const struct all_versions *all, const char *version, char ret[160]) {
    const struct cli *cli = all->cli;
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

static enum cairn_code verify_listed_version(struct all_versions *all, const struct cli_ref *ref) {
    struct cairn_error why = {0};
    if (is_noted(all, ref->version)) {
        all->passed++;
        return CAIRN_OK;
    }
    enum cairn_code code = verify_one(all->cli, ref, &why);
    if (!code) {
        all->good++;
        char text[160];
        if (all->notes_fd < 0) return CAIRN_OK;
        note_of(all, ref->version, text);
        ssize_t written = write(all->notes_fd, text, strlen(text));
        if (written == (ssize_t)strlen(text) && !fdatasync(all->notes_fd)) return CAIRN_OK;
        if (written >= 0 && written < (ssize_t)strlen(text)) errno = ENOSPC;
        return cairn_fail_errno(all->err, "%s", all->cli->resume);
    }
    all->damaged += code == CAIRN_CORRUPT;
    all->gone += code == CAIRN_NOT_FOUND || code == CAIRN_DELETED;
    if (code == CAIRN_CORRUPT)
        cli_note("cairn: damaged: %s/%s@%s: %s", ref->name.project, ref->name.run, ref->version,
                 why.message);
    if (code == CAIRN_CORRUPT || code == CAIRN_NOT_FOUND || code == CAIRN_DELETED) return CAIRN_OK;
    if (all->err) *all->err = why;
    return cairn_within(all->err, code, "%s/%s@%s", ref->name.project, ref->name.run, ref->version);
}

static enum cairn_code verify_run(struct all_versions *all, const struct cli_ref *run) {
    const struct cli *cli = all->cli;
    CAIRN_AUTO_JSON json_t *items = json_array();
    if (!items) return cairn_fail(all->err, CAIRN_NO_MEMORY, "no memory for the list");
    CAIRN_TRY(cli->store ? cli_stored_versions(cli, &run->name, VERSIONS_MAX, items, all->err)
                         : cli_list(cli, run, "/checkpoints?state=committed", VERSIONS_MAX, items,
                                    NULL, all->err));
    size_t count = json_array_size(items);
    for (size_t i = 0; i < count; i++) {
        const char *id = json_string_value(json_object_get(json_array_get(items, i), "version"));
        struct cli_ref ref = {.name = run->name};
        if (!id || !cairn_text_copy(ref.version, sizeof(ref.version), id)) continue;
        CAIRN_TRY(verify_listed_version(all, &ref));
        cli_note("cairn: verify %s/%s: %zu of %zu", run->name.project, run->name.run, i + 1, count);
    }
    return CAIRN_OK;
}

static enum cairn_code verify_site(struct all_versions *all) {
    const struct cli *cli = all->cli;
    CAIRN_AUTO_JSON json_t *items = json_array();
    if (!items) return cairn_fail(all->err, CAIRN_NO_MEMORY, "no memory for the list");
    CAIRN_TRY(cli->store ? cli_stored_runs(cli, VERSIONS_MAX, items, all->err)
                         : cli_list(cli, NULL, "/runs", VERSIONS_MAX, items, NULL, all->err));
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        const char *project = json_string_value(json_object_get(item, "project"));
        const char *run = json_string_value(json_object_get(item, "run"));
        struct cli_ref ref = {.version = ""};
        if (!project || !run) continue;
        (void)cairn_text_copy(ref.name.project, sizeof(ref.name.project), project);
        (void)cairn_text_copy(ref.name.run, sizeof(ref.name.run), run);
        cli_note("cairn: verify: run %zu of %zu", i + 1, json_array_size(items));
        CAIRN_TRY(verify_run(all, &ref));
    }
    return CAIRN_OK;
}

static enum cairn_code verify_listed(struct all_versions *all) {
    const struct cli *cli = all->cli;
    struct cli_ref run;
    CAIRN_TRY(open_notes(all));
    if (cli->arguments[0]) {
        CAIRN_TRY(cli_ref_run("verify --all", cli->arguments[0], &run, all->err));
        CAIRN_TRY(verify_run(all, &run));
    } else {
        CAIRN_TRY(verify_site(all));
    }
    cli_note("cairn: verify: %s good, %" PRIu64 " damaged, %" PRIu64 " noted as good before, "
             "%" PRIu64 " went meanwhile",
             cairn_counted(all->good, "version").text, all->damaged, all->passed, all->gone);
    if (!all->damaged) return CAIRN_OK;
    return cairn_fail(all->err, CAIRN_CORRUPT, "%s %s damaged",
                      cairn_counted(all->damaged, "version").text,
                      all->damaged == 1 ? "is" : "are");
}

static enum cairn_code verify_all(const struct cli *cli, struct cairn_error *err) {
    struct all_versions all = {
        .cli = cli, .notes = {.limit = NOTES_BYTES_MAX}, .notes_fd = -1, .err = err};
    enum cairn_code code = verify_listed(&all);
    if (all.notes_fd >= 0) close(all.notes_fd);
    cairn_buf_release(&all.notes);
    return code;
}

static enum cairn_code run_verify(struct cli *cli, struct cairn_error *err) {
    uint64_t part, parts;
    if (!cli->whole_run && (!cli->arguments[0] || cli->resume))
        return cairn_fail(err, CAIRN_INVALID, "%s",
                          cli->resume ? "--resume goes with --all"
                                      : "name a checkpoint, or give --all for every one");
    CAIRN_TRY(parse_subset(cli->subset, &part, &parts, err)); /* before any request */
    if (cli->repair && cli->store)
        return cairn_fail(err, CAIRN_INVALID,
                          "--repair is done by the server, which knows the other stores: leave "
                          "--store out");
    if (cli->repair && (cli->metadata_only || cli->subset))
        return cairn_fail(
            err, CAIRN_INVALID,
            "--repair reads every shard: leave --metadata and --read-data-subset out");
    if (cli->whole_run) return verify_all(cli, err);
    return cli_source_use(cli, cli_source_find, verify_source, err);
}

const struct cli_verb cli_verb_verify = {
    CLI_VERB(verify),
    .synopsis = "cairn verify [flags] [project/run[@step|@latest|@ckpt_...]]",
    .purpose = "Check that all objects of a checkpoint are stored and unchanged.",
    .examples = "  cairn verify llm/7b@latest\n"
                "  cairn verify llm/7b@1200 --repair\n"
                "  cairn verify --all --resume verified.txt\n",
    CLI_TAKES(verify_flags, 0, 1),
    .surplus = "store",
};

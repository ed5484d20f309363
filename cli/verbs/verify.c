/* SPDX-License-Identifier: Apache-2.0 */
/* cairn verify: is every stored byte what was saved? */
#include <stdio.h>
#include <stdlib.h>

#include "cli/fetch.h"
#include "cli/output.h"
#include "common/text.h"
#include "store/audit.h"

static const struct cairn_cli_flag flags[] = {
    {"metadata", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(metadata_only), 0, NULL,
     "Check documents, digests and lengths only; read no shard."},
    {"read-data-subset", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(subset), 0, "N/T",
     "Read the N-th of T equal groups of shards, to spread a full check over T days."},
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "Check the store itself, without a server: a folder or s3://bucket/prefix."},
    {"workers", 'j', CAIRN_CLI_NUMBER, CAIRN_CLI_AT(workers), 0, "N",
     "Readers at work at once; default 8."},
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

/* ---- what was found ---- */

struct findings {
    struct cairn_cli_source *source;
    json_t *list;             /* of {what, key, detail}; owned */
    uint64_t damaged, strays; /* of the look at what belongs to the version */
    bool record_rewritten;
};

static bool is_listed(const struct findings *findings, const char *key) {
    size_t at = 0;
    const json_t *finding = NULL;
    json_array_foreach(findings->list, at, finding) {
        if (!strcmp(cairn_cli_text_of(finding, "key"), key)) return true;
    }
    return false;
}

static void add(struct findings *findings, const char *what, const char *key, const char *detail) {
    json_t *finding = json_pack("{s:s, s:s, s:s}", "what", what, "key", key, "detail", detail);
    (void)!json_array_append_new(findings->list, finding);
}

static void tell(struct findings *findings, const char *what, const char *key, const char *detail) {
    cairn_cli_note("cairn: %s %s: %s", strcmp(what, "stray") ? "damaged:" : "note:", key, detail);
    add(findings, what, key, detail);
}

static void take_finding(void *owner, enum cairn_store_finding finding, const char *key,
                         const char *text) {
    tell(owner, cairn_store_finding_text(finding), key, text);
}

/* A shard whose bytes are wrong; that it is missing was found before. */
static void take_bad_shard(void *owner, uint32_t shard, const char *why) {
    struct findings *findings = owner;
    const struct cairn_committed *version = &findings->source->version;
    struct cairn_key key;
    cairn_key_shard(&version->place, cairn_view_of(version->manifest.shards[shard].name), &key);
    if (!is_listed(findings, key.text))
        add(findings, cairn_store_finding_text(CAIRN_STORE_FINDING_OBJECT), key.text, why);
}

static enum cairn_code audit_store(struct findings *findings, struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    struct cairn_cli_source *source = findings->source;
    struct cairn_store_audit audit = {
        .committed = &source->version, .ask_each = true, .found = take_finding, .owner = findings};
    CAIRN_TRY(cairn_store_worker_new(source->store, &worker, err));
    CAIRN_TRY(cairn_store_audit_look(&audit, worker, err));
    findings->damaged = audit.damaged;
    findings->strays = audit.strays;
    return CAIRN_OK;
}

static enum cairn_code audit_server(struct findings *findings, struct cairn_error *err) {
    const struct cairn_cli_source *source = findings->source;
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_AUTO_JSON json_t *answer = NULL;
    struct cairn_cli_ref ref = {.name = source->version.place.name};
    cairn_text_copy(ref.version, sizeof ref.version, source->version.place.id.text);
    CAIRN_TRY(cairn_cli_connect(source->cli, &rest, err));
    CAIRN_TRY(cairn_cli_path(&ref, "/verify", &path, err));
    CAIRN_TRY(cairn_rest_call(rest, "POST", path.data, NULL, 0, &answer, err));
    size_t at = 0;
    const json_t *finding = NULL;
    json_array_foreach(json_object_get(answer, "findings"), at, finding) {
        tell(findings, cairn_cli_text_of(finding, "what"), cairn_cli_text_of(finding, "key"),
             cairn_cli_text_of(finding, "detail"));
    }
    findings->damaged = cairn_cli_number_of(answer, "damaged");
    findings->strays = cairn_cli_number_of(answer, "strays");
    findings->record_rewritten = cairn_cli_flag_of(answer, "record_rewritten");
    if (findings->record_rewritten)
        fputs("cairn: note: committed.json was missing; the server has written it again\n", stderr);
    return CAIRN_OK;
}

/* ---- the shards' bytes ---- */

struct read {
    size_t shards; /* that were to be read */
    uint64_t bytes, bad;
    enum cairn_code code; /* of the first bad one */
    struct cairn_error why;
};

static enum cairn_code read_shards(struct findings *findings, struct read *ret,
                                   struct cairn_error *err) {
    struct cairn_cli_source *source = findings->source;
    const struct cairn_cli *cli = source->cli;
    uint64_t part, parts;
    CAIRN_TRY(parse_subset(cli->subset, &part, &parts, err));
    CAIRN_AUTO_HEAP uint32_t *shards =
        calloc(source->version.manifest.shard_count + 1, sizeof *shards);
    if (!shards) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of shards");
    for (uint32_t i = 0; i < source->version.manifest.shard_count; i++) {
        if (i % parts != part - 1) continue;
        shards[ret->shards++] = i;
        ret->bytes += source->version.manifest.shards[i].size_bytes;
    }
    char job[320];
    snprintf(job, sizeof job, "verify %s/%s@%llu", source->version.place.name.project,
             source->version.place.name.run, (unsigned long long)source->version.place.step);
    struct cairn_cli_meter meter;
    cairn_cli_meter_init(&meter, cli, job, ret->bytes, ret->shards);
    struct cairn_cli_fetch fetch = {.source = source,
                                    .shards = shards,
                                    .shard_count = ret->shards,
                                    .workers = (uint32_t)cairn_min_u64(cli->workers, 64),
                                    .stat_only = cli->metadata_only,
                                    .meter = &meter,
                                    .bad = take_bad_shard,
                                    .owner = findings};
    ret->code = cairn_cli_fetch(&fetch, &ret->why);
    cairn_cli_meter_end(&meter, ret->code == CAIRN_OK);
    ret->bad = fetch.ret_bad_shards;
    if (cli->metadata_only) ret->bytes = 0;
    if (ret->code == CAIRN_OK || ret->code == CAIRN_CORRUPT) return CAIRN_OK;
    if (err) *err = ret->why;
    return ret->code;
}

/* ---- the whole ---- */

static enum cairn_code report(const struct findings *findings, const struct read *read,
                              struct cairn_error *err) {
    const struct cairn_cli *cli = findings->source->cli;
    const struct cairn_version_place *place = &findings->source->version.place;
    bool good = !read->bad && !findings->damaged;
    if (cli->output != CAIRN_CLI_TABLE) {
        CAIRN_AUTO_JSON json_t *answer =
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:O}", "version",
                      place->id.text, "step", (json_int_t)place->step, "shards",
                      (json_int_t)read->shards, "bytes_read", (json_int_t)read->bytes, "bad_shards",
                      (json_int_t)read->bad, "bad_objects", (json_int_t)findings->damaged, "strays",
                      (json_int_t)findings->strays, "record_rewritten",
                      (int)findings->record_rewritten, "ok", (int)good, "findings", findings->list);
        if (!answer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
        return cairn_cli_print_json(answer, true, err);
    }
    char size[24];
    cairn_size_text(read->bytes, size);
    printf("%s/%s step %llu: %s checked, %s read, %s\n", place->name.project, place->name.run,
           (unsigned long long)place->step, cairn_cli_counted(read->shards, "shard", "shards").text,
           size, good ? "all good" : "DAMAGED");
    if (fflush(stdout)) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}

/* What belongs to the version first: where manifest or checksums are damaged no shard can be
 * read, and that was said then. */
static enum cairn_code verify(struct findings *findings, struct cairn_error *err) {
    struct cairn_cli_source *source = findings->source;
    struct read read = {0};
    struct cairn_error why = {0};
    CAIRN_TRY(source->store ? audit_store(findings, err) : audit_server(findings, err));
    enum cairn_code code = cairn_cli_source_load(source, &why);
    if (code == CAIRN_CORRUPT && findings->damaged) {
        cairn_cli_note("cairn: note: no shard can be read: %s", why.message);
    } else if (code) {
        if (err) *err = why;
        return code;
    } else {
        CAIRN_TRY(read_shards(findings, &read, err));
    }
    CAIRN_TRY(report(findings, &read, err));
    if (read.code && read.bad < 2) {
        if (err) *err = read.why;
        return read.code;
    }
    if (read.code)
        return cairn_fail(err, read.code, "%s (the first of %llu damaged shards)", read.why.message,
                          (unsigned long long)read.bad);
    if (!findings->damaged) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "%s of the version %s missing or damaged",
                      cairn_cli_counted(findings->damaged, "object", "objects").text,
                      findings->damaged == 1 ? "is" : "are");
}

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    struct cairn_cli_source source;
    struct findings findings = {.source = &source};
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
    CAIRN_TRY(cairn_cli_source_find(cli, &ref, &source, err));
    findings.list = json_array();
    enum cairn_code code = findings.list
                               ? verify(&findings, err)
                               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the findings");
    json_decref(findings.list);
    cairn_cli_source_release(&source);
    return code;
}

const struct cairn_cli_verb cairn_cli_verb_verify = {
    .name = "verify",
    .synopsis = "cairn verify [flags] project/run[@step|@latest|@ckpt_...]",
    .purpose = "Is every stored byte what was saved, and all that belongs to it there?",
    .examples = "  cairn verify llm/7b@latest\n"
                "  cairn verify llm/7b@1200 --metadata\n"
                "  cairn verify llm/7b@1200 --store ./store --read-data-subset 1/7\n",
    .flags = flags,
    .flag_count = CAIRN_COUNT(flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run,
};

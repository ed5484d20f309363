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
     "Readers at work at once; default 4."},
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

/* ---- what belongs to the version beside its shards' bytes ---- */

struct documents {
    uint64_t damaged, strays;
    bool record_rewritten;
};

static void tell_finding(void *owner, enum cairn_store_finding finding, const char *key,
                         const char *text) {
    (void)owner;
    fprintf(stderr, "cairn: %s %s: %s\n",
            finding == CAIRN_STORE_FINDING_STRAY ? "note:" : "damaged:", key, text);
}

static enum cairn_code audit_store(const struct cairn_cli_source *source, struct documents *ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    struct cairn_store_audit audit = {.place = source->place,
                                      .manifest = &source->manifest,
                                      .manifest_sha256 = source->manifest_sha256,
                                      .ask_each = true,
                                      .found = tell_finding};
    CAIRN_TRY(cairn_store_worker_new(source->store, &worker, err));
    CAIRN_TRY(cairn_store_audit_look(&audit, worker, err));
    *ret = (struct documents){.damaged = audit.damaged, .strays = audit.strays};
    return CAIRN_OK;
}

static enum cairn_code audit_server(const struct cairn_cli_source *source, struct documents *ret,
                                    struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_AUTO_JSON json_t *answer = NULL;
    struct cairn_cli_ref ref = {.name = source->name};
    cairn_text_copy(ref.version, sizeof ref.version, source->manifest.id.text);
    CAIRN_TRY(cairn_cli_connect(source->cli, &rest, err));
    CAIRN_TRY(cairn_cli_path(&ref, "/verify", &path, err));
    CAIRN_TRY(cairn_rest_call(rest, "POST", path.data, NULL, 0, &answer, err));
    size_t at = 0;
    const json_t *finding = NULL;
    json_array_foreach(json_object_get(answer, "findings"), at, finding) {
        const char *what = json_string_value(json_object_get(finding, "what"));
        const char *key = json_string_value(json_object_get(finding, "key"));
        const char *detail = json_string_value(json_object_get(finding, "detail"));
        fprintf(stderr, "cairn: %s %s: %s\n",
                what && !strcmp(what, "stray") ? "note:" : "damaged:", key ? key : "?",
                detail ? detail : "?");
    }
    ret->damaged = (uint64_t)json_integer_value(json_object_get(answer, "damaged"));
    ret->strays = (uint64_t)json_integer_value(json_object_get(answer, "strays"));
    ret->record_rewritten = json_is_true(json_object_get(answer, "record_rewritten"));
    if (ret->record_rewritten)
        fputs("cairn: note: committed.json was missing; the server has written it again\n", stderr);
    return CAIRN_OK;
}

static enum cairn_code report(const struct cairn_cli *cli, const struct cairn_cli_source *source,
                              size_t shards, uint64_t bytes, uint64_t bad,
                              const struct documents *documents, struct cairn_error *err) {
    bool good = !bad && !documents->damaged;
    CAIRN_AUTO_JSON json_t *answer = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "version", source->manifest.id.text,
        "step", (json_int_t)source->place.step, "shards", (json_int_t)shards, "bytes_read",
        (json_int_t)bytes, "bad_shards", (json_int_t)bad, "bad_objects",
        (json_int_t)documents->damaged, "strays", (json_int_t)documents->strays, "record_rewritten",
        (int)documents->record_rewritten, "ok", (int)good);
    if (!answer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_json(answer, true, err);
    char size[24];
    cairn_size_text(bytes, size);
    printf("%s/%s step %llu: %zu shards checked, %s read, %s\n", source->name.project,
           source->name.run, (unsigned long long)source->place.step, shards, size,
           good ? "all good" : "DAMAGED");
    if (fflush(stdout)) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}

static enum cairn_code verify(const struct cairn_cli *cli, struct cairn_cli_source *source,
                              struct cairn_error *err) {
    uint64_t part, parts, bytes = 0;
    size_t count = 0;
    CAIRN_TRY(parse_subset(cli->subset, &part, &parts, err));
    CAIRN_AUTO_HEAP uint32_t *shards = calloc(source->manifest.shard_count + 1, sizeof *shards);
    if (!shards) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of shards");
    for (uint32_t i = 0; i < source->manifest.shard_count; i++) {
        if (i % parts != part - 1) continue;
        shards[count++] = i;
        bytes += source->manifest.shards[i].size_bytes;
    }
    char job[320];
    snprintf(job, sizeof job, "verify %s/%s@%llu", source->name.project, source->name.run,
             (unsigned long long)source->place.step);
    struct cairn_cli_meter meter;
    cairn_cli_meter_init(&meter, cli, job, bytes, count);
    struct cairn_cli_fetch fetch = {.source = source,
                                    .shards = shards,
                                    .shard_count = count,
                                    .workers = (uint32_t)cairn_min_u64(cli->workers, 64),
                                    .stat_only = cli->metadata_only,
                                    .meter = &meter};
    enum cairn_code code = cairn_cli_fetch(&fetch, err);
    cairn_cli_meter_end(&meter, code == CAIRN_OK);
    if (code != CAIRN_OK && code != CAIRN_CORRUPT) return code;
    struct documents documents = {0};
    struct cairn_error why = {0};
    enum cairn_code looked = source->store ? audit_store(source, &documents, &why)
                                           : audit_server(source, &documents, &why);
    if (looked != CAIRN_OK && code == CAIRN_OK && err) *err = why;
    if (looked != CAIRN_OK) return code == CAIRN_OK ? looked : code;
    CAIRN_TRY(report(cli, source, count, cli->metadata_only ? 0 : bytes, fetch.ret_bad_shards,
                     &documents, &why));
    if (code == CAIRN_OK && documents.damaged)
        return cairn_fail(err, CAIRN_CORRUPT, "%llu objects of the version are missing or damaged",
                          (unsigned long long)documents.damaged);
    if (code == CAIRN_OK) return CAIRN_OK;
    return cairn_within(err, code, "%llu of %zu shards are damaged; the first",
                        (unsigned long long)fetch.ret_bad_shards, count);
}

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    struct cairn_cli_source source;
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
    CAIRN_TRY(cairn_cli_source_open(cli, &ref, &source, err));
    enum cairn_code code = verify(cli, &source, err);
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

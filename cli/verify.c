/* SPDX-License-Identifier: Apache-2.0 */
/* cairn verify: is every stored byte what was saved? */
#include <stdio.h>
#include <stdlib.h>

#include "cli/fetch.h"
#include "cli/output.h"
#include "common/text.h"

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

static enum cairn_code report(const struct cairn_cli *cli, const struct cairn_cli_source *source,
                              size_t shards, uint64_t bytes, uint64_t bad,
                              struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *answer =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:b}", "version", source->manifest.id.text, "step",
                  (json_int_t)source->place.step, "shards", (json_int_t)shards, "bytes_read",
                  (json_int_t)bytes, "bad_shards", (json_int_t)bad, "ok", bad == 0);
    if (!answer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_json(answer, true, err);
    char size[24];
    cairn_size_text(bytes, size);
    printf("%s/%s step %llu: %zu shards checked, %s read, %s\n", source->name.project,
           source->name.run, (unsigned long long)source->place.step, shards, size,
           bad ? "DAMAGED" : "all good");
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
    CAIRN_TRY(
        report(cli, source, count, cli->metadata_only ? 0 : bytes, fetch.ret_bad_shards, err));
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
    .purpose = "Read every block of a checkpoint and compare it with its checksum.",
    .examples = "  cairn verify llm/7b@latest\n"
                "  cairn verify llm/7b@1200 --metadata\n"
                "  cairn verify llm/7b@1200 --store ./store --read-data-subset 1/7\n",
    .flags = flags,
    .flag_count = CAIRN_COUNT(flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run,
};

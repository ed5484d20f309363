/* SPDX-License-Identifier: Apache-2.0 */
/* cairn get: a version, one rank's shards or one shard, verified, into a folder or a pipe. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "cli/fetch.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/patterns.h"
#include "cli/sizes.h"
#include "cli/target.h"
#include "common/clock.h"
#include "common/text.h"

static const struct cairn_cli_flag flags[] = {
    {"directory", 'd', CAIRN_CLI_TEXT, CAIRN_CLI_AT(directory), 0, "DIR",
     "Where the tree is written; default ./RUN-STEP. - is standard output, for one shard."},
    {"shard", 0, CAIRN_CLI_TEXTS, CAIRN_CLI_AT(shards), 0, "NAME|PATTERN",
     "Only this shard, or those that match: *.safetensors, unet/**. Again for others."},
    {"rank", 'r', CAIRN_CLI_NUMBER, CAIRN_CLI_AT(rank), CAIRN_CLI_AT(rank_given), "N",
     "Only the shards that rank N wrote."},
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "Read the store itself, without a server: a folder or s3://bucket/prefix."},
    {"workers", 'j', CAIRN_CLI_COUNT, CAIRN_CLI_AT(workers), 0, "N",
     "Readers at work at once; default 8."},
};

/* What an interrupted get says; made before anything is written. */
static char interrupted[3 * PATH_MAX] = "cairn get: interrupted; nothing was written\n";

struct wanted {
    const struct cairn_cli *cli;
    struct cairn_cli_patterns patterns; /* of --shard */
    bool described_apart; /* the shard that describes the tree is none of its files */
};

static bool is_shard(const struct cairn_manifest *manifest, const char *name) {
    for (uint32_t i = 0; i < manifest->shard_count; i++)
        if (!strcmp(manifest->shards[i].name, name)) return true;
    return false;
}

/* Without * ? [ it is a name and nothing else, and so is what a shard is called. */
static enum cairn_code add_patterns(const struct cairn_manifest *manifest, struct wanted *wanted,
                                    struct cairn_error *err) {
    const struct cairn_cli_texts *texts = &wanted->cli->shards;
    for (size_t i = 0; i < texts->count; i++)
        if (strpbrk(texts->items[i], "*?[") && !is_shard(manifest, texts->items[i]))
            CAIRN_TRY(cairn_cli_patterns_add(&wanted->patterns, texts->items[i], err));
    return CAIRN_OK;
}

static bool wants(const void *owner, uint32_t index, const struct cairn_manifest_shard *shard) {
    const struct wanted *wanted = owner;
    const struct cairn_cli *cli = wanted->cli;
    (void)index;
    for (size_t i = 0; i < cli->shards.count; i++)
        if (!strcmp(cli->shards.items[i], shard->name)) return true;
    if (cli->shards.count) return cairn_cli_patterns_match(&wanted->patterns, shard->name, false);
    if (wanted->described_apart && !strcmp(shard->name, CAIRN_TREE_SHARD)) return false;
    return !cli->rank_given || shard->rank == cli->rank;
}

/* Standard output takes one shard, in order: one worker. */
static enum cairn_code write_stream(void *owner, uint32_t shard, uint64_t offset, const void *bytes,
                                    size_t size, struct cairn_error *err) {
    (void)owner, (void)shard, (void)offset;
    if (fwrite(bytes, 1, size, stdout) != size) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}

/* Where bytes are damaged or a file came in the way meanwhile, a second get cannot go on from what
 * this one has read. What an earlier get has read stays when this one does not begin. */
static bool worth_keeping(enum cairn_code code) {
    return code != CAIRN_CORRUPT && code != CAIRN_CONFLICT;
}

static enum cairn_code get_tree(const struct cairn_cli *cli, struct cairn_cli_fetch *fetch,
                                const char *folder, struct cairn_error *err) {
    struct cairn_cli_target target = {.source = fetch->source,
                                      .shards = fetch->shards,
                                      .shard_count = fetch->shard_count,
                                      .whole = !cli->shards.count && !cli->rank_given};
    enum cairn_code code = cairn_cli_target_open(&target, folder, err);
    bool begun = code == CAIRN_OK;
    if (begun) {
        fetch->sink = cairn_cli_target_write;
        fetch->have = cairn_cli_target_have;
        fetch->owner = &target;
        code = cairn_cli_fetch_run(fetch, err);
    }
    if (code == CAIRN_OK) code = cairn_cli_target_finish(&target, err);
    cairn_cli_target_close(&target, code != CAIRN_OK && (!begun || worth_keeping(code)));
    if (code != CAIRN_NO_SPACE) return code;
    return cairn_cli_no_space(folder, fetch->total_bytes,
                              "the same command goes on where this one stopped", err);
}

static enum cairn_code get_stream(struct cairn_cli_fetch *fetch, struct cairn_error *err) {
    if (fetch->shard_count != 1)
        return cairn_fail(err, CAIRN_INVALID,
                          "standard output takes one shard: name it with --shard");
    fetch->sink = write_stream;
    fetch->one_worker = true;
    CAIRN_TRY(cairn_cli_fetch_run(fetch, err));
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code check_chosen(const struct cairn_cli *cli,
                                    const struct cairn_cli_fetch *fetch, struct cairn_error *err) {
    const struct cairn_committed *version = &fetch->source->version;
    unsigned long long step = version->place.step;
    if (fetch->shard_count || (!cli->shards.count && !cli->rank_given)) return CAIRN_OK;
    if (cli->shards.count)
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "step %llu has no shard %s; cairn show %s lists the shards", step,
                          cli->shards.items[0], cli->arguments[0]);
    return cairn_fail(err, CAIRN_NOT_FOUND, "rank %llu wrote no shard of step %llu (world size %u)",
                      (unsigned long long)cli->rank, step, version->manifest.world_size);
}

static enum cairn_code report(const struct cairn_cli *cli, const struct cairn_cli_fetch *fetch,
                              const char *folder, uint64_t elapsed_ms, struct cairn_error *err) {
    const struct cairn_version_place *place = &fetch->source->version.place;
    if (cli->output == CAIRN_CLI_TABLE) {
        char size[24];
        cairn_cli_size(fetch->total_bytes, size);
        printf("restored %s/%s step %llu into %s: %s, %s, every block verified, %.1fs\n",
               place->name.project, place->name.run, (unsigned long long)place->step, folder,
               cairn_cli_counted(fetch->shard_count, "shard", "shards").text, size,
               (double)elapsed_ms / 1000);
        return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
    }
    CAIRN_AUTO_JSON json_t *answer =
        json_pack("{s:s, s:I, s:I, s:I, s:s, s:b}", "version", place->id.text, "step",
                  (json_int_t)place->step, "shards", (json_int_t)fetch->shard_count, "bytes",
                  (json_int_t)fetch->total_bytes, "folder", folder, "verified", 1);
    if (!answer) return cairn_fail(err, CAIRN_INVALID, "the folder's name is not UTF-8");
    return cairn_cli_print_json(answer, false, err);
}

static enum cairn_code get(const struct cairn_cli *cli, struct cairn_cli_fetch *fetch,
                           struct cairn_error *err) {
    const struct cairn_version_place *place = &fetch->source->version.place;
    uint64_t started_ms = cairn_mono_ms();
    char folder[PATH_MAX];
    const char *meta = fetch->source->version.manifest.meta_json;
    struct wanted wanted = {.cli = cli, .described_apart = cairn_cli_tree_meta_is_apart(meta)};
    enum cairn_code code = add_patterns(&fetch->source->version.manifest, &wanted, err);
    if (code == CAIRN_OK) code = cairn_cli_fetch_choose(fetch, wants, &wanted, err);
    cairn_cli_patterns_release(&wanted.patterns);
    CAIRN_TRY(code);
    CAIRN_TRY(check_chosen(cli, fetch, err));
    if (cli->directory && !strcmp(cli->directory, "-")) return get_stream(fetch, err);
    int size = cli->directory ? snprintf(folder, sizeof folder, "%s", cli->directory)
                              : snprintf(folder, sizeof folder, "%s-%llu", place->name.run,
                                         (unsigned long long)place->step);
    if (size < 0 || (size_t)size >= sizeof folder)
        return cairn_fail(err, CAIRN_INVALID, "the path after --directory is too long");
    snprintf(interrupted, sizeof interrupted,
             "\ncairn get: interrupted; what was read is kept in %s, and no file has its name "
             "before it is verified. To go on: cairn get %s/%s@%s -d %s\n",
             folder, place->name.project, place->name.run, place->id.text, folder);
    CAIRN_TRY(get_tree(cli, fetch, folder, err));
    return report(cli, fetch, folder, cairn_mono_ms() - started_ms, err);
}

static enum cairn_code get_source(struct cairn_cli_source *source, struct cairn_error *err) {
    struct cairn_cli_fetch fetch = {.source = source, .verb = "get"};
    enum cairn_code code = get(source->cli, &fetch, err);
    cairn_cli_fetch_release(&fetch);
    return code;
}

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_TRY(cairn_cli_interrupt_says(interrupted, err));
    return cairn_cli_source_use(cli, cairn_cli_source_open, get_source, err);
}

const struct cairn_cli_verb cairn_cli_verb_get = {
    .name = "get",
    .synopsis = "cairn get [flags] project/run[@step|@latest|@ckpt_...]",
    .purpose = "Get a checkpoint back, every block verified.",
    .examples =
        "  cairn get llm/7b@latest -d ./restored\n"
        "  cairn get llm/7b@1200 --rank 3 -d /scratch/resume\n"
        "  cairn get llm/7b@1200 --store s3://bucket/cairn -d ./restored   (no server needed)\n",
    .flags = flags,
    .flag_count = CAIRN_COUNT(flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run,
};

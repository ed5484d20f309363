/* SPDX-License-Identifier: Apache-2.0 */
/* cairn get: a version, one rank's shards or one shard, verified, into a folder or a pipe. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/fetch.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/target.h"
#include "common/clock.h"
#include "common/text.h"

static const struct cairn_cli_flag flags[] = {
    {"directory", 'd', CAIRN_CLI_TEXT, CAIRN_CLI_AT(directory), 0, "DIR",
     "Where the tree is written; default ./RUN-STEP. - is standard output, for one shard."},
    {"shard", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(shard), 0, "NAME", "Only this shard."},
    {"rank", 'r', CAIRN_CLI_NUMBER, CAIRN_CLI_AT(rank), CAIRN_CLI_AT(rank_given), "N",
     "Only the shards that rank N wrote."},
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "Read the store itself, without a server: a folder or s3://bucket/prefix."},
    {"workers", 'j', CAIRN_CLI_NUMBER, CAIRN_CLI_AT(workers), 0, "N",
     "Readers at work at once; default 8."},
};

/* What an interrupted get says; made before anything is written. */
static char interrupted[3 * PATH_MAX] = "cairn get: interrupted; nothing was written\n";

static void take_signal(void *owner, int signal) {
    (void)owner;
    fputs(interrupted, stderr);
    cairn_cli_interrupt_exit(signal);
}
static struct cairn_cli_interrupt interrupt = {.take = take_signal};

static bool chosen(const struct cairn_cli *cli, const struct cairn_manifest_shard *shard) {
    if (cli->shard) return !strcmp(cli->shard, shard->name);
    return !cli->rank_given || shard->rank == cli->rank;
}

/* Standard output takes one shard, in order: one worker. */
static enum cairn_code write_stream(void *owner, uint32_t shard, uint64_t offset, const void *bytes,
                                    size_t size, struct cairn_error *err) {
    (void)owner, (void)shard, (void)offset;
    if (fwrite(bytes, 1, size, stdout) != size) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}

/* What damage refuses must not look like a checkpoint, nor be gone on with. */
static bool worth_keeping(enum cairn_code code) {
    return code != CAIRN_CORRUPT && code != CAIRN_CONFLICT;
}

static enum cairn_code get_tree(const struct cairn_cli *cli, struct cairn_cli_fetch *fetch,
                                const char *folder, struct cairn_error *err) {
    struct cairn_cli_target target = {.source = fetch->source,
                                      .shards = fetch->shards,
                                      .shard_count = fetch->shard_count,
                                      .whole = !cli->shard && !cli->rank_given};
    enum cairn_code code = cairn_cli_target_open(&target, folder, err);
    if (code == CAIRN_OK) {
        fetch->sink = cairn_cli_target_write;
        fetch->have = cairn_cli_target_have;
        fetch->owner = &target;
        code = cairn_cli_fetch(fetch, err);
    }
    if (code == CAIRN_OK) code = cairn_cli_target_finish(&target, err);
    cairn_cli_target_close(&target, code != CAIRN_OK && worth_keeping(code));
    return code;
}

static enum cairn_code get_stream(struct cairn_cli_fetch *fetch, struct cairn_error *err) {
    if (fetch->shard_count != 1)
        return cairn_fail(err, CAIRN_INVALID,
                          "standard output takes one shard: name it with --shard");
    fetch->sink = write_stream;
    fetch->workers = 1;
    CAIRN_TRY(cairn_cli_fetch(fetch, err));
    if (fflush(stdout)) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}

static enum cairn_code choose(const struct cairn_cli *cli, const struct cairn_cli_source *source,
                              uint32_t *shards, size_t *ret_count, uint64_t *ret_bytes,
                              struct cairn_error *err) {
    const struct cairn_manifest *manifest = &source->version.manifest;
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        if (!chosen(cli, &manifest->shards[i])) continue;
        shards[(*ret_count)++] = i;
        *ret_bytes += manifest->shards[i].size_bytes;
    }
    if (*ret_count || (!cli->shard && !cli->rank_given)) return CAIRN_OK;
    if (cli->shard)
        return cairn_fail(err, CAIRN_NOT_FOUND, "step %llu has no shard %s; see cairn show",
                          (unsigned long long)source->version.place.step, cli->shard);
    return cairn_fail(err, CAIRN_NOT_FOUND, "rank %llu wrote no shard of step %llu (world size %u)",
                      (unsigned long long)cli->rank, (unsigned long long)source->version.place.step,
                      manifest->world_size);
}

static enum cairn_code get_source(const struct cairn_cli *cli, struct cairn_cli_source *source,
                                  struct cairn_error *err) {
    size_t count = 0;
    uint64_t bytes = 0, started_ms = cairn_mono_ms();
    CAIRN_AUTO_HEAP uint32_t *shards =
        calloc(source->version.manifest.shard_count + 1, sizeof *shards);
    if (!shards) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of shards");
    CAIRN_TRY(choose(cli, source, shards, &count, &bytes, err));
    char job[320];
    snprintf(job, sizeof job, "get %s/%s@%llu", source->version.place.name.project,
             source->version.place.name.run, (unsigned long long)source->version.place.step);
    struct cairn_cli_meter meter;
    cairn_cli_meter_init(&meter, cli, job, bytes, count);
    struct cairn_cli_fetch fetch = {.source = source,
                                    .shards = shards,
                                    .shard_count = count,
                                    .workers = (uint32_t)cairn_min_u64(cli->workers, 64),
                                    .meter = &meter};
    bool stream = cli->directory && !strcmp(cli->directory, "-");
    char folder[PATH_MAX];
    if (cli->directory)
        cairn_text_copy(folder, sizeof folder, cli->directory);
    else
        snprintf(folder, sizeof folder, "%s-%llu", source->version.place.name.run,
                 (unsigned long long)source->version.place.step);
    if (!stream)
        snprintf(interrupted, sizeof interrupted,
                 "\ncairn get: interrupted; what was read is kept in %s, and no file has its name "
                 "before it is verified. To go on: cairn get %s/%s@%s -d %s\n",
                 folder, source->version.place.name.project, source->version.place.name.run,
                 source->version.manifest.id.text, folder);
    enum cairn_code code = stream ? get_stream(&fetch, err) : get_tree(cli, &fetch, folder, err);
    cairn_cli_meter_end(&meter, code == CAIRN_OK);
    if (code != CAIRN_OK || stream) return code;
    char size[24];
    cairn_size_text(bytes, size);
    if (cli->output == CAIRN_CLI_TABLE)
        printf("restored %s/%s step %llu into %s: %s, %s, every block verified, %.1fs\n",
               source->version.place.name.project, source->version.place.name.run,
               (unsigned long long)source->version.place.step, folder,
               cairn_cli_counted(count, "shard", "shards").text, size,
               (double)(cairn_mono_ms() - started_ms) / 1000);
    if (cli->output == CAIRN_CLI_TABLE) return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *answer =
        json_pack("{s:s, s:I, s:I, s:I, s:s, s:b}", "version", source->version.manifest.id.text,
                  "step", (json_int_t)source->version.place.step, "shards", (json_int_t)count,
                  "bytes", (json_int_t)bytes, "folder", folder, "verified", 1);
    if (!answer) return cairn_fail(err, CAIRN_INVALID, "the folder's name is not UTF-8");
    return cairn_cli_print_json(answer, false, err);
}

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    struct cairn_cli_source source;
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
    CAIRN_TRY(cairn_cli_interrupt_start(&interrupt, err));
    CAIRN_TRY(cairn_cli_source_open(cli, &ref, &source, err));
    enum cairn_code code = get_source(cli, &source, err);
    cairn_cli_source_release(&source);
    return code;
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

/* SPDX-License-Identifier: Apache-2.0 */
/* cairn get: a version, one rank's shards or one shard, verified, into a folder or a pipe. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/fetch.h"
#include "cli/output.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/text.h"

static const struct cairn_cli_flag flags[] = {
    {"directory", 'd', CAIRN_CLI_TEXT, CAIRN_CLI_AT(directory), 0, "DIR",
     "Where the tree is written; must not hold files of the same names."},
    {"shard", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(shard), 0, "NAME", "Only this shard."},
    {"rank", 'r', CAIRN_CLI_NUMBER, CAIRN_CLI_AT(rank), CAIRN_CLI_AT(rank_given), "N",
     "Only the shards that rank N wrote."},
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "Read the store itself, without a server: a folder or s3://bucket/prefix."},
    {"workers", 'j', CAIRN_CLI_NUMBER, CAIRN_CLI_AT(workers), 0, "N",
     "Readers at work at once; default 4."},
};

struct target {
    const struct cairn_manifest *manifest;
    int root_fd;
    int *fds; /* one per shard of the manifest; -1 not chosen */
};

static bool chosen(const struct cairn_cli *cli, const struct cairn_manifest_shard *shard) {
    if (cli->shard) return !strcmp(cli->shard, shard->name);
    return !cli->rank_given || shard->rank == cli->rank;
}

/* Folders on the way to name, below root_fd; the manifest's decoder checked each component. */
static enum cairn_code make_folders(int root_fd, const char *name, struct cairn_error *err) {
    char path[CAIRN_SHARD_NAME_BYTES_MAX + 1];
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        memcpy(path, name, (size_t)(slash - name));
        path[slash - name] = '\0';
        if (mkdirat(root_fd, path, 0777) && errno != EEXIST)
            return cairn_fail_errno(err, "folder %s", path);
    }
    return CAIRN_OK;
}

static enum cairn_code create_file(struct target *target, uint32_t index, struct cairn_error *err) {
    const struct cairn_manifest_shard *shard = &target->manifest->shards[index];
    CAIRN_TRY(make_folders(target->root_fd, shard->name, err));
    int fd = openat(target->root_fd, shard->name,
                    O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0 && errno == EEXIST)
        return cairn_fail(err, CAIRN_CONFLICT, "%s is already there; give an empty folder with -d",
                          shard->name);
    if (fd < 0) return cairn_fail_errno(err, "%s", shard->name);
    target->fds[index] = fd;
    if (shard->size_bytes && ftruncate(fd, (off_t)shard->size_bytes))
        return cairn_fail_errno(err, "%s", shard->name);
    return CAIRN_OK;
}

static enum cairn_code write_piece(void *owner, uint32_t shard, uint64_t offset, const void *bytes,
                                   size_t size, struct cairn_error *err) {
    struct target *target = owner;
    for (size_t done = 0; done < size;) {
        ssize_t wrote = pwrite(target->fds[shard], (const char *)bytes + done, size - done,
                               (off_t)(offset + done));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return cairn_fail_errno(err, "%s", target->manifest->shards[shard].name);
        done += (size_t)wrote;
    }
    return CAIRN_OK;
}

/* Standard output takes one shard, in order: one worker. */
static enum cairn_code write_stream(void *owner, uint32_t shard, uint64_t offset, const void *bytes,
                                    size_t size, struct cairn_error *err) {
    (void)owner, (void)shard, (void)offset;
    if (fwrite(bytes, 1, size, stdout) != size) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}

static enum cairn_code sync_files(struct target *target, struct cairn_error *err) {
    for (size_t i = 0; i < target->manifest->shard_count; i++) {
        int fd = target->fds[i];
        if (fd < 0) continue;
        target->fds[i] = -1;
        bool synced = fdatasync(fd) == 0 || errno == EINVAL;
        if (close(fd) || !synced)
            return cairn_fail_errno(err, "%s", target->manifest->shards[i].name);
    }
    return CAIRN_OK;
}

/* What was begun and is not whole must not look like a checkpoint. */
static void remove_files(struct target *target) {
    for (size_t i = 0; i < target->manifest->shard_count; i++) {
        if (target->fds[i] < 0) continue;
        close(target->fds[i]);
        target->fds[i] = -1;
        unlinkat(target->root_fd, target->manifest->shards[i].name, 0);
    }
}

static enum cairn_code get_tree(const struct cairn_cli *cli, struct cairn_cli_fetch *fetch,
                                struct cairn_error *err) {
    const struct cairn_manifest *manifest = &fetch->source->manifest;
    const char *folder = cli->directory ? cli->directory : ".";
    CAIRN_TRY(cairn_dir_make(folder, 0777, err));
    CAIRN_AUTO_FD root_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0) return cairn_fail_errno(err, "%s", folder);
    CAIRN_AUTO_HEAP int *fds = calloc(manifest->shard_count + 1, sizeof *fds);
    if (!fds) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of files");
    for (size_t i = 0; i < manifest->shard_count; i++) fds[i] = -1;
    struct target target = {.manifest = manifest, .root_fd = root_fd, .fds = fds};
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; code == CAIRN_OK && i < fetch->shard_count; i++)
        code = create_file(&target, fetch->shards[i], err);
    fetch->sink = write_piece;
    fetch->owner = &target;
    if (code == CAIRN_OK) code = cairn_cli_fetch(fetch, err);
    if (code == CAIRN_OK) code = sync_files(&target, err);
    if (code != CAIRN_OK) remove_files(&target);
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
    const struct cairn_manifest *manifest = &source->manifest;
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        if (!chosen(cli, &manifest->shards[i])) continue;
        shards[(*ret_count)++] = i;
        *ret_bytes += manifest->shards[i].size_bytes;
    }
    if (*ret_count || (!cli->shard && !cli->rank_given)) return CAIRN_OK;
    if (cli->shard)
        return cairn_fail(err, CAIRN_NOT_FOUND, "step %llu has no shard %s; see cairn show",
                          (unsigned long long)source->place.step, cli->shard);
    return cairn_fail(err, CAIRN_NOT_FOUND, "rank %llu wrote no shard of step %llu (world size %u)",
                      (unsigned long long)cli->rank, (unsigned long long)source->place.step,
                      manifest->world_size);
}

static enum cairn_code get_source(const struct cairn_cli *cli, struct cairn_cli_source *source,
                                  struct cairn_error *err) {
    size_t count = 0;
    uint64_t bytes = 0, started_ms = cairn_mono_ms();
    CAIRN_AUTO_HEAP uint32_t *shards = calloc(source->manifest.shard_count + 1, sizeof *shards);
    if (!shards) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of shards");
    CAIRN_TRY(choose(cli, source, shards, &count, &bytes, err));
    char job[320];
    snprintf(job, sizeof job, "get %s/%s@%llu", source->name.project, source->name.run,
             (unsigned long long)source->place.step);
    struct cairn_cli_meter meter;
    cairn_cli_meter_init(&meter, cli, job, bytes, count);
    struct cairn_cli_fetch fetch = {.source = source,
                                    .shards = shards,
                                    .shard_count = count,
                                    .workers = (uint32_t)cairn_min_u64(cli->workers, 64),
                                    .meter = &meter};
    bool stream = cli->directory && !strcmp(cli->directory, "-");
    enum cairn_code code = stream ? get_stream(&fetch, err) : get_tree(cli, &fetch, err);
    cairn_cli_meter_end(&meter, code == CAIRN_OK);
    if (code != CAIRN_OK || stream) return code;
    char size[24];
    cairn_size_text(bytes, size);
    if (cli->output == CAIRN_CLI_TABLE)
        printf("restored %s/%s step %llu: %zu shards, %s, every block verified, %.1fs\n",
               source->name.project, source->name.run, (unsigned long long)source->place.step,
               count, size, (double)(cairn_mono_ms() - started_ms) / 1000);
    else
        printf(
            "{\"version\":\"%s\",\"step\":%llu,\"shards\":%zu,\"bytes\":%llu,\"verified\":true}\n",
            source->manifest.id.text, (unsigned long long)source->place.step, count,
            (unsigned long long)bytes);
    return CAIRN_OK;
}

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    struct cairn_cli_source source;
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
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

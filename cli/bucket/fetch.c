/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that take the next piece of the next shard until none is left. */
#include "cli/bucket/fetch.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/shell/output.h"
#include "common/pages.h"

/* Enough that while some write their piece (8 MiB each), others wait for the store. */
#define WORKERS_DEFAULT 8
#define WORKERS_MAX 64

struct job {
    struct cairn_cli_fetch *fetch;
    struct cairn_lock lock;
    struct {
        size_t shard;    /* position in fetch->shards */
        uint64_t offset; /* next piece of it */
        bool *bad;       /* one per position: named once */
        bool stop;       /* an error that is not about one shard's bytes */
        uint64_t taken, ended; /* pieces: equal when every thread has ended */
        enum cairn_code code;
        struct cairn_error error;
    } locked;
};
struct task {
    size_t position;
    const struct cairn_manifest_shard *shard;
    uint64_t offset;
    size_t size;
};

static bool next_piece(struct job *job, struct task *ret) {
    const struct cairn_cli_fetch *fetch = job->fetch;
    CAIRN_HOLD(&job->lock);
    for (; !job->locked.stop && job->locked.shard < fetch->shard_count;
         job->locked.shard++, job->locked.offset = 0) {
        size_t position = job->locked.shard;
        const struct cairn_manifest_shard *shard =
            &fetch->source->version.manifest.shards[fetch->shards[position]];
        uint64_t offset = job->locked.offset;
        bool first = offset == 0;
        bool over = fetch->stat_only || !shard->size_bytes ? !first : offset >= shard->size_bytes;
        if (over || job->locked.bad[position]) continue;
        uint64_t size = cairn_min_u64(CAIRN_CLI_PIECE_BYTES, shard->size_bytes - offset);
        *ret = (struct task){position, shard, offset, (size_t)size};
        job->locked.offset += size ? size : 1;
        if (fetch->stat_only) job->locked.offset = UINT64_MAX;
        job->locked.taken++;
        return true;
    }
    return false;
}

static void note_failure(struct job *job, const struct task *piece, enum cairn_code code,
                         const struct cairn_error *why) {
    CAIRN_HOLD(&job->lock);
    if (job->locked.code == CAIRN_OK || job->locked.code == CAIRN_CORRUPT) {
        if (job->locked.code == CAIRN_OK || code != CAIRN_CORRUPT) {
            job->locked.code = code;
            job->locked.error = *why;
        }
    }
    if (code != CAIRN_CORRUPT || !piece) job->locked.stop = true;
    if (code == CAIRN_CORRUPT && piece && !job->locked.bad[piece->position]) {
        job->locked.bad[piece->position] = true;
        job->fetch->bad_shards++;
        cairn_cli_note("bad: %s", why->message);
        if (job->fetch->bad)
            job->fetch->bad(job->fetch->owner, job->fetch->shards[piece->position], why->message);
    }
}

static enum cairn_code fetch_piece(struct job *job, struct cairn_cli_reader *reader,
                                   const struct task *piece, void *memory,
                                   struct cairn_error *err) {
    struct cairn_cli_fetch *fetch = job->fetch;
    bool last = piece->offset + piece->size >= piece->shard->size_bytes || fetch->stat_only;
    if (fetch->have && piece->size &&
        fetch->have(fetch->owner, fetch->shards[piece->position], piece->offset, memory,
                    piece->size)) {
        cairn_cli_meter_add(&fetch->meter, piece->size, last);
        return CAIRN_OK;
    }
    if (fetch->stat_only) {
        uint64_t found = 0;
        CAIRN_TRY(cairn_cli_stat(reader, piece->shard, &found, err));
        if (found != piece->shard->size_bytes)
            return cairn_fail(
                err, CAIRN_CORRUPT,
                "run %s/%s step %llu shard %s: the object has %llu bytes, expected %llu",
                fetch->source->version.place.name.project, fetch->source->version.place.name.run,
                (unsigned long long)fetch->source->version.place.step, piece->shard->name,
                (unsigned long long)found, (unsigned long long)piece->shard->size_bytes);
    } else if (piece->size) {
        CAIRN_TRY(cairn_cli_read(reader, piece->shard, piece->offset, memory, piece->size, err));
    } else {
        uint64_t found = 0;
        CAIRN_TRY(cairn_cli_stat(reader, piece->shard, &found, err));
    }
    if (fetch->sink)
        CAIRN_TRY(fetch->sink(fetch->owner, fetch->shards[piece->position], piece->offset, memory,
                              piece->size, err));
    cairn_cli_meter_add(&fetch->meter, fetch->stat_only ? piece->shard->size_bytes : piece->size,
                        last);
    return CAIRN_OK;
}

static void count_end(struct job *job) {
    CAIRN_HOLD(&job->lock);
    job->locked.ended++;
}

static void *work(void *argument) {
    struct job *job = argument;
    struct cairn_error err = {0};
    CAIRN_AUTO_PTR(cli_reader) reader = NULL;
    enum cairn_code code = cairn_cli_reader_new(job->fetch->source, &reader, &err);
    void *memory = cairn_pages_map(CAIRN_CLI_PIECE_BYTES);
    if (code == CAIRN_OK && !memory)
        code = cairn_fail(&err, CAIRN_NO_MEMORY, "no memory for one piece");
    if (code != CAIRN_OK) note_failure(job, NULL, code, &err);
    struct task piece;
    while (code == CAIRN_OK && next_piece(job, &piece)) {
        enum cairn_code result = fetch_piece(job, reader, &piece, memory, &err);
        if (result != CAIRN_OK) note_failure(job, &piece, result, &err);
        count_end(job);
    }
    cairn_pages_unmap(memory, CAIRN_CLI_PIECE_BYTES);
    return NULL;
}

/* ---- the whole ---- */

enum cairn_code cairn_cli_fetch_choose(struct cairn_cli_fetch *fetch,
                                       bool (*wants)(const void *owner, uint32_t index,
                                                     const struct cairn_manifest_shard *shard),
                                       const void *owner, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &fetch->source->version.manifest;
    fetch->shards = calloc(manifest->shard_count + 1, sizeof *fetch->shards);
    if (!fetch->shards) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of shards");
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        if (!wants(owner, i, &manifest->shards[i])) continue;
        fetch->shards[fetch->shard_count++] = i;
        fetch->total_bytes += manifest->shards[i].size_bytes;
    }
    return CAIRN_OK;
}

void cairn_cli_fetch_release(struct cairn_cli_fetch *fetch) {
    free(fetch->shards);
    fetch->shards = NULL;
}

static uint32_t workers_of(const struct cairn_cli_fetch *fetch) {
    uint64_t workers = fetch->source->cli->workers;
    if (fetch->one_worker) return 1;
    return workers ? (uint32_t)cairn_min_u64(workers, WORKERS_MAX) : WORKERS_DEFAULT;
}

enum cairn_code cairn_cli_fetch_run(struct cairn_cli_fetch *fetch, struct cairn_error *err) {
    const struct cairn_version_place *place = &fetch->source->version.place;
    struct job job = {.fetch = fetch};
    pthread_t threads[WORKERS_MAX];
    uint32_t workers = workers_of(fetch), started = 0;
    char title[320];
    CAIRN_AUTO_HEAP bool *bad = calloc(fetch->shard_count + 1, sizeof *bad);
    if (!bad) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of shards");
    job.locked.bad = bad;
    fetch->bad_shards = 0;
    snprintf(title, sizeof title, "%s %s/%s@%llu", fetch->verb, place->name.project,
             place->name.run, (unsigned long long)place->step);
    cairn_cli_meter_init(&fetch->meter, fetch->source->cli, title, fetch->total_bytes,
                         fetch->shard_count);
    cairn_lock_init(&job.lock, CAIRN_LOCK_client_session);
    while (started < workers && !pthread_create(&threads[started], NULL, work, &job)) started++;
    for (uint32_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    cairn_lock_release(&job.lock);
    CAIRN_ASSERT(job.locked.ended == job.locked.taken);
    CAIRN_ASSERT(!started || job.locked.stop || job.locked.shard == fetch->shard_count);
    CAIRN_ASSERT(fetch->bad_shards <= fetch->shard_count);
    if (!started) job.locked.code = CAIRN_NO_MEMORY;
    cairn_cli_meter_end(&fetch->meter, job.locked.code == CAIRN_OK);
    if (!started) return cairn_fail(err, CAIRN_NO_MEMORY, "no thread could be started");
    if (job.locked.code != CAIRN_OK && err) *err = job.locked.error;
    return job.locked.code;
}

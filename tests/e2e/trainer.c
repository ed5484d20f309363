/* SPDX-License-Identifier: Apache-2.0 */
/* One rank that saves checkpoints of its own making; a victim for kill -9, and a witness of what
 * libcairn tells a job:  trainer RUN RANK WORLD STEP...   One JSON line for the opening and each
 * step. TRAINER_ROWS is the size in MiB; TRAINER_HOLD names a path: step N waits for PATH.N;
 * TRAINER_TIMEOUT_MS: how long each call may wait, 5 min by default.
 * TRAINER_WAIT_STAGED: for how many milliseconds saves of an older attempt are waited for.
 * TRAINER_SUPERSEDE: a step that is there is superseded, not refused. TRAINER_META: meta, as JSON.
 * TRAINER_AHEAD: it saves on without waiting for any commit, as a real job does; "staged" is then
 * what a step's line says, and whatever cairn_session_problem tells is a line of its own: before
 * each step, and after the last one until nothing was told for TRAINER_AHEAD milliseconds.
 * TRAINER_PARTNERED: each step waits so many milliseconds for a copy on another node, and says
 * "partnered" where it has one or is committed. TRAINER_FILE: each step has that file, too.
 * TRAINER_STREAMS: each step has so many streams, none of which the session's memory holds.
 * TRAINER_RAW: what it calls the bytes beside its tensors, "state" by default.
 * TRAINER_EVERY: so many milliseconds lie between the ends of two saves.
 * TRAINER_RESTORES: before each step, and beside its save, the rank restores its part of the newest
 * version and compares it; it reserves memory for saves behind the first restore, with
 * TRAINER_RESERVED when it opens the run. All ranks are of one node.
 * CAIRN_TEST_BEHIND: a save is copied beside the training, and its memory is overwritten as soon as
 * its fence says so. */
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <cairn/items.h>
#include <cairn/stage.h>

#define ROWS_PER_RANK 16
#define COLUMNS (1024 * 256)
#define TIMEOUT_MS 300000
#define GONE_PAUSE_MS 100
#define STEPS_MAX 64
#define RAW_BYTES 12345
#define STREAM_BYTES 300000 /* and one more each; as in tests/e2e/test_partner.py */
#define STREAM_STEP 4096

struct job {
    const char *hold;
    uint32_t timeout_ms, ahead_ms, partnered_ms, every_ms;
    unsigned rank, ranks;
    uint64_t rows, bytes, steps[STEPS_MAX];
    int step_count;
    bool restores, reserved;
};

static uint32_t *memory_of(const struct job *job, uint64_t step) {
    uint64_t count = job->rows * COLUMNS;
    uint32_t *memory = malloc(count * sizeof *memory + RAW_BYTES);
    if (!memory) exit(1);
    for (uint64_t i = 0; i < count; i++)
        memory[i] = (uint32_t)((i + step) * 2654435761u) ^ (job->rank << 20);
    return memory;
}

static enum cairn_code wait_committed(const struct job *job, struct cairn_save *save,
                                      struct cairn_error *err) {
    enum cairn_code code = CAIRN_UPLOADER_GONE;
    for (uint32_t tries = 0; tries < job->timeout_ms / GONE_PAUSE_MS && code == CAIRN_UPLOADER_GONE;
         tries++) {
        if (tries) (void)poll(NULL, 0, GONE_PAUSE_MS); /* step of a poll */
        code = cairn_save_wait(save, CAIRN_COMMITTED, job->timeout_ms, err);
    }
    return code;
}

static void say(uint64_t step, const char *what) {
    printf("{\"step\":%llu,\"code\":\"%s\"}\n", (unsigned long long)step, what);
    fflush(stdout);
}

static enum cairn_code save_file(struct cairn_save *save, const struct job *job,
                                 struct cairn_error *err) {
    const char *path = getenv("TRAINER_FILE");
    char name[64];
    struct stat found;
    if (!path) return CAIRN_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &found)) exit(1);
    snprintf(name, sizeof name, "files/of-rank-%u", job->rank);
    enum cairn_code code = cairn_save_file(save, name, fd, (uint64_t)found.st_size, err);
    close(fd);
    return code;
}

static enum cairn_code write_stream(struct cairn_stream *stream, const uint8_t *from,
                                    uint64_t bytes, struct cairn_error *err) {
    enum cairn_code code = CAIRN_OK;
    for (uint64_t done = 0; done < bytes && code == CAIRN_OK;) {
        uint64_t size = bytes - done < 100000 ? bytes - done : 100000;
        code = cairn_stream_write(stream, from + done, size, err);
        done += size;
    }
    return code;
}

static enum cairn_code save_stream(struct cairn_save *save, unsigned number, const uint8_t *memory,
                                   struct cairn_error *err) {
    struct cairn_stream *stream = NULL;
    char name[64];
    snprintf(name, sizeof name, "stream %u", number);
    enum cairn_code code = cairn_save_stream(save, name, CAIRN_LOCAL, &stream, err);
    if (code == CAIRN_OK)
        code = write_stream(stream, memory + number * STREAM_STEP, STREAM_BYTES + number, err);
    if (code == CAIRN_OK) code = cairn_stream_close(stream, err);
    cairn_stream_free(stream);
    return code;
}

/* An open stream has taken the session's memory meanwhile, and is dropped. */
static enum cairn_code save_streams(struct cairn_save *save, const struct job *job,
                                    const uint8_t *memory, struct cairn_error *err) {
    const char *count = getenv("TRAINER_STREAMS");
    struct cairn_stream *full = NULL;
    if (!count) return CAIRN_OK;
    enum cairn_code code = cairn_save_stream(save, "full", CAIRN_LOCAL, &full, err);
    for (uint64_t done = 0; done < job->bytes && code == CAIRN_OK; done += STREAM_STEP)
        code = cairn_stream_write(full, memory, STREAM_STEP, err);
    for (unsigned i = 0; i < strtoul(count, NULL, 10) && code == CAIRN_OK; i++)
        code = save_stream(save, i, memory, err);
    cairn_stream_free(full);
    return code;
}

static enum cairn_code stage(struct cairn_save *save, const struct job *job, uint32_t *memory,
                             struct cairn_error *err) {
    if (!getenv("CAIRN_TEST_BEHIND")) return cairn_save_stage(save, err);
    enum cairn_code code = cairn_save_stage_begin(save, err);
    if (code == CAIRN_OK) code = cairn_save_fence(save, job->timeout_ms, err);
    if (code == CAIRN_OK) memset(memory, 0xA5, sizeof *memory * job->rows * COLUMNS);
    return code;
}

static enum cairn_code read_rows(const struct job *job, struct cairn_restore *restore,
                                 uint64_t step, struct cairn_error *err) {
    uint64_t start[2] = {job->rows * job->rank, 0}, count[2] = {job->rows, COLUMNS};
    uint64_t bytes = sizeof(uint32_t) * job->rows * COLUMNS;
    uint32_t *saved = memory_of(job, step), *into = malloc(bytes);
    if (!into) exit(1);
    const struct cairn_read read = {.size = sizeof read,
                                    .tensor = "w",
                                    .form = CAIRN_BOX,
                                    .start = start,
                                    .count = count,
                                    .into = into,
                                    .into_bytes = bytes};
    enum cairn_code code = cairn_restore_read(restore, &read, 1, 0, err);
    if (code == CAIRN_OK && memcmp(into, saved, bytes) != 0) {
        snprintf(err->message, sizeof err->message, "other bytes than were saved");
        code = CAIRN_CORRUPT;
    }
    free(into);
    free(saved);
    return code;
}

static enum cairn_code restore_newest(struct cairn_session *session, const struct job *job,
                                      struct cairn_error *err) {
    struct cairn_restore *restore = NULL;
    struct cairn_restore_info info;
    const struct cairn_restore_options options = {.size = sizeof options, .ref = "latest"};
    if (!job->restores) return CAIRN_OK;
    enum cairn_code code = cairn_restore_open(session, &options, &restore, &info, err);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    if (code == CAIRN_OK) code = read_rows(job, restore, info.step, err);
    cairn_restore_free(restore);
    return code;
}

/* *ret_staged: the bytes are copied, be it that the uploader is away. */
static enum cairn_code save_step(struct cairn_session *session, const struct job *job,
                                 uint64_t step, uint32_t *memory, bool *ret_staged,
                                 struct cairn_error *err) {
    struct cairn_save *save = NULL;
    const char *raw = getenv("TRAINER_RAW");
    uint64_t shape[2] = {job->rows * job->ranks, COLUMNS};
    uint64_t start[2] = {job->rows * job->rank, 0}, count[2] = {job->rows, COLUMNS};
    struct cairn_tensor_piece piece = {.size = sizeof piece,
                                       .name = "w",
                                       .dtype = "U32",
                                       .dimension_count = 2,
                                       .shape = shape,
                                       .kind = CAIRN_SHARDED,
                                       .form = CAIRN_BOX,
                                       .start = start,
                                       .count = count,
                                       .source = memory,
                                       .source_bytes = sizeof *memory * job->rows * COLUMNS};
    struct cairn_save_options options = {
        .size = sizeof(struct cairn_save_options),
        .on_exists = getenv("TRAINER_SUPERSEDE") ? CAIRN_EXISTS_SUPERSEDE : CAIRN_EXISTS_ERROR,
        .meta_json = getenv("TRAINER_META")};
    enum cairn_code code = cairn_save_begin(session, step, &options, &save, err);
    if (code == CAIRN_OK) code = cairn_save_tensor(save, &piece, err);
    if (code == CAIRN_OK) code = cairn_save_raw(save, raw ? raw : "state", memory, RAW_BYTES, err);
    if (code == CAIRN_OK) code = save_file(save, job, err);
    if (code == CAIRN_OK) code = save_streams(save, job, (uint8_t *)memory, err);
    if (code == CAIRN_OK) code = stage(save, job, memory, err);
    *ret_staged = code == CAIRN_OK; /* its uploader may be away: the next one seals it */
    if (code == CAIRN_OK) code = restore_newest(session, job, err);
    if (code == CAIRN_OK && job->partnered_ms &&
        !cairn_save_wait(save, CAIRN_PARTNERED, job->partnered_ms, err))
        say(step, "partnered");
    if (!job->ahead_ms && *ret_staged) code = wait_committed(job, save, err);
    cairn_save_free(save);
    return code;
}

static void pause_for(const char *prefix, uint64_t step) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%llu", prefix, (unsigned long long)step);
    while (access(path, F_OK)) (void)poll(NULL, 0, 5); /* step of a poll */
}

static enum cairn_code tell_problems(struct cairn_session *session) {
    enum cairn_code worst = CAIRN_OK, code;
    struct cairn_error why = {0};
    while ((code = cairn_session_problem(session, &why)) != CAIRN_OK) {
        printf("{\"problem\":\"%s\"}\n", cairn_code_info(code)->slug);
        fflush(stdout);
        fprintf(stderr, "%s\n", why.message);
        worst = code;
    }
    return worst;
}

static enum cairn_code play(const struct job *job, struct cairn_session *session,
                            struct cairn_error *err) {
    enum cairn_code worst = CAIRN_OK;
    for (int i = 0; i < job->step_count; i++) {
        uint64_t step = job->steps[i];
        if (job->hold) pause_for(job->hold, step);
        if (i) (void)poll(NULL, 0, (int)job->every_ms); /* pause of a stand-in: it trains */
        if (job->ahead_ms && tell_problems(session) != CAIRN_OK) worst = CAIRN_ABORTED;
        uint32_t *memory = memory_of(job, step);
        bool staged = false;
        enum cairn_code code = restore_newest(session, job, err);
        if (code == CAIRN_OK && job->restores && !job->reserved && !i)
            code = cairn_session_reserve(session, job->bytes, 0, 0, err);
        if (code == CAIRN_OK) code = save_step(session, job, step, memory, &staged, err);
        free(memory);
        staged &= job->ahead_ms > 0;
        say(step, staged ? "staged" : cairn_code_info(code)->slug);
        if (code != CAIRN_OK) fprintf(stderr, "%s\n", err->message);
        if (code != CAIRN_OK && !staged) worst = code;
    }
    for (uint32_t waited = 0; waited < job->ahead_ms; waited += GONE_PAUSE_MS) {
        if (tell_problems(session) != CAIRN_OK) worst = CAIRN_ABORTED;
        (void)poll(NULL, 0, GONE_PAUSE_MS); /* pause of a stand-in: it trains */
    }
    return worst;
}

/* TRAINER_WARMUP: the way of a save is gone before the first one, and what is wrong is said. */
static enum cairn_code warm_up(struct cairn_session *session, struct cairn_error *err) {
    if (!getenv("TRAINER_WARMUP")) return CAIRN_OK;
    enum cairn_code code = cairn_warmup(session, NULL, err);
    printf("{\"warmup\":\"%s\"}\n", cairn_code_info(code)->slug);
    fflush(stdout);
    if (code != CAIRN_OK) fprintf(stderr, "%s\n", err->message);
    return code;
}

int main(int argc, char **argv) {
    struct job job = {.rows = ROWS_PER_RANK,
                      .hold = getenv("TRAINER_HOLD"),
                      .restores = getenv("TRAINER_RESTORES") != NULL,
                      .reserved = getenv("TRAINER_RESERVED") != NULL};
    struct cairn_session *session = NULL;
    struct cairn_resume resume = {0};
    struct cairn_error err;
    memset(&err, 0, sizeof err);
    if (argc < 5) return 2;
    const char *rows = getenv("TRAINER_ROWS"), *timeout = getenv("TRAINER_TIMEOUT_MS");
    job.timeout_ms = timeout ? (uint32_t)strtoul(timeout, NULL, 10) : TIMEOUT_MS;
    const char *ahead = getenv("TRAINER_AHEAD");
    job.ahead_ms = ahead ? (uint32_t)strtoul(ahead, NULL, 10) : 0;
    const char *partnered = getenv("TRAINER_PARTNERED");
    job.partnered_ms = partnered ? (uint32_t)strtoul(partnered, NULL, 10) : 0;
    const char *staged = getenv("TRAINER_WAIT_STAGED");
    uint32_t staged_ms = staged ? (uint32_t)strtoul(staged, NULL, 10) : 0;
    const char *every = getenv("TRAINER_EVERY");
    job.every_ms = every ? (uint32_t)strtoul(every, NULL, 10) : 0;
    if (rows) job.rows = strtoull(rows, NULL, 10);
    job.bytes = job.rows * COLUMNS * 4 + (UINT64_C(4) << 20);
    job.rank = (unsigned)strtoul(argv[2], NULL, 10);
    job.ranks = (unsigned)strtoul(argv[3], NULL, 10);
    for (int i = 4; i < argc && job.step_count < STEPS_MAX; i++)
        job.steps[job.step_count++] = strtoull(argv[i], NULL, 10);
    unsigned of_this_node = job.ranks > 1 && !job.restores ? job.ranks / 2 : job.ranks;
    struct cairn_open_options options = {.size = sizeof options,
                                         .run = argv[1],
                                         .rank = job.rank,
                                         .world_size = job.ranks,
                                         .local_rank = job.restores ? job.rank : 0,
                                         .local_world_size = of_this_node,
                                         .bytes = job.restores && !job.reserved ? 0 : job.bytes,
                                         .wait_staged_ms = staged_ms,
                                         .resume = getenv("CAIRN_RESUME"),
                                         .timeout_ms = job.timeout_ms};
    enum cairn_code code = cairn_open(&options, &session, &resume, &err);
    if (code != CAIRN_OK) {
        printf("{\"open\":\"%s\"}\n", cairn_code_info(code)->slug);
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    printf("{\"open\":\"ok\",\"attempt\":%llu,\"resumed\":%lld}\n",
           (unsigned long long)resume.attempt, resume.found ? (long long)resume.step : -1);
    fflush(stdout);
    code = warm_up(session, &err);
    if (code == CAIRN_OK) code = play(&job, session, &err);
    enum cairn_code last = cairn_close(session, &err);
    if (last != CAIRN_OK) {
        printf("{\"problem\":\"%s\"}\n", cairn_code_info(last)->slug);
        fprintf(stderr, "%s\n", err.message);
        code = last;
    }
    return code == CAIRN_OK ? 0 : 1;
}

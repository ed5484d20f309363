/* SPDX-License-Identifier: Apache-2.0 */
/* A queue of background reads and the thread that runs them. */
#include "client/restore/restore.h"

#include <cairn/reads.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/table/table.h"
#include "common/hooks.h"

#define READINGS_MAX 65536
#define GROUP_MAX 256

struct copied { /* copies of what a struct cairn_read points to */
    char *shard, *tensor, *dtype;
    uint64_t start[CAIRN_DIMENSIONS_MAX], count[CAIRN_DIMENSIONS_MAX];
    int64_t stride[CAIRN_DIMENSIONS_MAX];
};
struct cairn_reading {
    TAILQ_ENTRY(cairn_reading) place, queued;
    struct cairn_session *session; /* NULL: closed */
    struct cairn_restore *restore;
    struct cairn_read *reads; /* owned */
    struct copied *copied;    /* owned, one per read */
    size_t count;
    uint64_t deadline_ms;
    /* guarded by the session's lock */
    bool waits, cancelled, done; /* waits: in the queue */
    enum cairn_code code;
    struct cairn_error why;
    int fd; /* -1: cairn_read_fd was not called */
};
struct cairn_client_reader { /* guarded by the session's lock */
    TAILQ_HEAD(, cairn_reading) all;
    TAILQ_HEAD(, cairn_reading) queue;
    size_t count;
    pthread_t thread;
};
struct group {
    struct cairn_session *session;
    struct cairn_reading *readings[GROUP_MAX];
    size_t count;
};

/* ---- copies made at the begin ---- */

static void destroy(struct cairn_reading *reading) {
    for (size_t i = 0; i < reading->count && reading->copied; i++) {
        free(reading->copied[i].shard);
        free(reading->copied[i].tensor);
        free(reading->copied[i].dtype);
    }
    if (reading->fd >= 0) close(reading->fd);
    free(reading->copied);
    free(reading->reads);
    free(reading);
}
static void destroy_at(struct cairn_reading **reading) {
    if (*reading) destroy(*reading);
}

static bool copy_text(const char **text, char **ret) {
    if (!*text) return true;
    *ret = strdup(*text);
    *text = *ret;
    return *ret != NULL;
}

/* Length of a read's start, count and stride arrays; 0: unknown tensor, reported by the plan. */
static unsigned dimensions_of(struct cairn_restore *restore, const struct cairn_read *read) {
    struct cairn_tensor_info info;
    if (read->form == CAIRN_FLAT) return 1;
    if (!read->tensor || cairn_restore_tensor_find(restore, read->tensor, &info, NULL)) return 0;
    return info.dimension_count;
}

static enum cairn_code copy_one(struct cairn_restore *restore, struct cairn_read *read,
                                struct copied *ret, struct cairn_error *err) {
    unsigned count = dimensions_of(restore, read);
    if (!copy_text(&read->shard, &ret->shard) || !copy_text(&read->tensor, &ret->tensor) ||
        !copy_text(&read->into_dtype, &ret->dtype))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the reads");
    bool boxed = read->form != CAIRN_WHOLE;
    if (boxed && read->start) memcpy(ret->start, read->start, count * sizeof ret->start[0]);
    if (boxed && read->count) memcpy(ret->count, read->count, count * sizeof ret->count[0]);
    if (read->into_stride) memcpy(ret->stride, read->into_stride, count * sizeof ret->stride[0]);
    read->start = read->start ? ret->start : NULL;
    read->count = read->count ? ret->count : NULL;
    read->into_stride = read->into_stride ? ret->stride : NULL;
    return CAIRN_OK;
}

static enum cairn_code make_reading(struct cairn_restore *restore, const struct cairn_read *reads,
                                    size_t count, struct cairn_reading **ret,
                                    struct cairn_error *err) {
    __attribute__((cleanup(destroy_at))) struct cairn_reading *made = calloc(1, sizeof *made);
    if (!made) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    made->fd = -1;
    made->session = restore->session;
    made->restore = restore;
    CAIRN_TRY(cairn_client_reads_copy(restore, reads, count, &made->reads, &made->count, err));
    made->copied = calloc(made->count + 1, sizeof *made->copied);
    if (!made->copied) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the reads");
    for (size_t i = 0; i < made->count; i++)
        CAIRN_TRY(copy_one(restore, &made->reads[i], &made->copied[i], err));
    *ret = CAIRN_TAKE(made);
    return CAIRN_OK;
}

/* ---- the thread ---- */

/* Called once per read. The lock is held. */
static void finish(struct cairn_reading *reading, enum cairn_code code,
                   const struct cairn_error *why) {
    CAIRN_PROMISE(!reading->done, return );
    reading->done = true;
    reading->code = code;
    if (code) reading->why = *why;
    if (reading->fd >= 0) (void)!eventfd_write(reading->fd, 1);
    cairn_client_changed(reading->session);
}

static void finish_cancelled(struct cairn_reading *reading) {
    struct cairn_error why = {0};
    (void)cairn_fail(&why, CAIRN_CANCELLED, "%s: the read was cancelled", reading->restore->run);
    (void)cairn_client_restore_about(reading->restore, CAIRN_CANCELLED, &why);
    finish(reading, CAIRN_CANCELLED, &why);
}

/* The lock is held. */
static bool is_stopped(const void *owner) {
    const struct group *group = owner;
    if (group->session->locked.stop) return true;
    for (size_t i = 0; i < group->count; i++)
        if (group->readings[i]->cancelled) return true;
    return false;
}

static enum cairn_code read_group(struct group *group, struct cairn_error *err) {
    size_t count = 0;
    uint64_t deadline_ms = UINT64_MAX;
    CAIRN_CRASHPOINT("client.reading.taken");
    CAIRN_TRY(cairn_client_enter(group->session, err));
    __attribute__((cleanup(cairn_client_leave_at))) CAIRN_UNUSED struct cairn_session *entered =
        group->session;
    for (size_t i = 0; i < group->count; i++) count += group->readings[i]->count;
    CAIRN_AUTO_HEAP struct cairn_read *reads = calloc(count + 1, sizeof *reads);
    if (!reads) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the reads");
    count = 0;
    for (size_t i = 0; i < group->count; i++) {
        const struct cairn_reading *reading = group->readings[i];
        memcpy(reads + count, reading->reads, reading->count * sizeof *reads);
        count += reading->count;
        deadline_ms = cairn_min_u64(deadline_ms, reading->deadline_ms);
    }
    const struct cairn_client_reads call = {.restore = group->readings[0]->restore,
                                            .reads = reads,
                                            .count = count,
                                            .deadline_ms = deadline_ms,
                                            .stopped = is_stopped,
                                            .owner = group};
    cairn_client_stoppable(group->session, is_stopped, group);
    enum cairn_code code = cairn_client_reads_run(&call, err);
    cairn_client_stoppable(group->session, NULL, NULL);
    return code;
}

/* restore.h#5 */
static void run_and_finish(struct group *group) {
    struct cairn_error why = {0};
    enum cairn_code code = read_group(group, &why);
    struct group alone = {.session = group->session, .count = 1};
    cairn_lock_take(&group->session->lock);
    for (size_t i = 0; i < group->count; i++) {
        struct cairn_reading *reading = group->readings[i];
        if (!code)
            finish(reading, CAIRN_OK, NULL);
        else if (reading->cancelled || group->session->locked.leaving)
            finish_cancelled(reading); /* restore.h#6 */
        else if (group->count == 1)
            finish(reading, code, &why);
        else
            alone.readings[0] = reading;
        if (reading->done) continue;
        cairn_lock_give(&group->session->lock);
        run_and_finish(&alone);
        cairn_lock_take(&group->session->lock);
    }
    cairn_lock_give(&group->session->lock);
}

/* Takes the first queued read and all others of its restore. False: the session ends. */
static bool take_group(struct cairn_session *session, struct group *ret) {
    struct cairn_client_reader *reader = session->reader;
    struct cairn_reading *at, *next;
    CAIRN_HOLD(&session->lock);
    while (!session->locked.stop && TAILQ_EMPTY(&reader->queue))
        (void)cairn_condition_wait(&session->changed, &session->lock, UINT64_MAX);
    *ret = (struct group){.session = session};
    if (session->locked.stop) return false;
    for (at = TAILQ_FIRST(&reader->queue); at && ret->count < GROUP_MAX; at = next) {
        next = TAILQ_NEXT(at, queued);
        if (ret->count && at->restore != ret->readings[0]->restore) continue;
        TAILQ_REMOVE(&reader->queue, at, queued);
        at->waits = false;
        ret->readings[ret->count++] = at;
    }
    return true;
}

static void *read_main(void *argument) {
    struct group group;
    while (take_group(argument, &group)) run_and_finish(&group);
    return NULL;
}

/* The lock is held. */
static enum cairn_code start_reader(struct cairn_session *session, struct cairn_error *err) {
    if (session->reader) return CAIRN_OK;
    struct cairn_client_reader *made = calloc(1, sizeof *made);
    if (!made) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for reads");
    TAILQ_INIT(&made->all);
    TAILQ_INIT(&made->queue);
    session->reader = made;
    int failed = cairn_client_thread(&made->thread, NULL, read_main, session);
    if (!failed) return CAIRN_OK;
    session->reader = NULL;
    free(made);
    return cairn_fail_at(err, CAIRN_NO_MEMORY, failed, CAIRN_ORIGIN, "start a thread that reads");
}

void cairn_client_readings_stop(struct cairn_session *session) {
    struct cairn_client_reader *reader = session->reader;
    struct cairn_reading *reading;
    if (!reader) return;
    pthread_join(reader->thread, NULL); /* session->locked.stop is set */
    cairn_lock_take(&session->lock);
    TAILQ_FOREACH(reading, &reader->all, place) {
        if (!reading->done) finish_cancelled(reading);
        reading->session = NULL;
    }
    session->reader = NULL;
    cairn_lock_give(&session->lock);
    free(reader);
}

/* ---- the calls ---- */

enum cairn_code cairn_read_begin(struct cairn_restore *restore, const struct cairn_read *reads,
                                 size_t count, uint32_t timeout_ms, struct cairn_reading **ret,
                                 struct cairn_error *err) {
    if (!restore || !ret || (count && !reads))
        return cairn_fail(err, CAIRN_INVALID, "nothing to read from");
    CAIRN_TRY(cairn_client_restore_readable(restore, err));
    struct cairn_session *session = restore->session;
    CAIRN_CLIENT_CALL(session, err);
    __attribute__((cleanup(destroy_at))) struct cairn_reading *made = NULL;
    CAIRN_TRY(make_reading(restore, reads, count, &made, err));
    made->deadline_ms = cairn_client_deadline(session, timeout_ms);
    CAIRN_HOLD(&session->lock);
    CAIRN_TRY(start_reader(session, err));
    if (session->reader->count >= READINGS_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%d reads of this session are not freed",
                          READINGS_MAX);
    session->reader->count++;
    TAILQ_INSERT_TAIL(&session->reader->all, made, place);
    TAILQ_INSERT_TAIL(&session->reader->queue, made, queued);
    made->waits = true;
    cairn_client_changed(session);
    *ret = CAIRN_TAKE(made);
    return CAIRN_OK;
}

/* False: the session is closed; the read is done and does not change any more. */
static bool lock_session(const struct cairn_reading *reading) {
    bool there = reading->session && reading->session->pid == getpid();
    if (there) cairn_lock_take(&reading->session->lock);
    return there;
}

int cairn_read_poll(struct cairn_reading *reading, enum cairn_code *ret_code) {
    if (!reading) { /* done, so that a polling loop ends */
        if (ret_code) *ret_code = CAIRN_INVALID;
        return 1;
    }
    bool locked = lock_session(reading);
    int done = reading->done;
    if (done && ret_code) *ret_code = reading->code;
    if (locked) cairn_lock_give(&reading->session->lock);
    return done;
}

enum cairn_code cairn_read_wait(struct cairn_reading *reading, uint32_t timeout_ms,
                                struct cairn_error *err) {
    if (!reading) return cairn_fail(err, CAIRN_INVALID, "no read");
    struct cairn_session *session = reading->session;
    enum cairn_code code = CAIRN_OK;
    if (session && !cairn_read_poll(reading, NULL)) {
        CAIRN_CLIENT_CALL(session, err);
        uint64_t deadline_ms = cairn_client_deadline(session, timeout_ms);
        CAIRN_HOLD(&session->lock);
        while (!reading->done && !code) {
            if (session->locked.stop) /* cairn_close finishes the read later */
                return cairn_fail(err, CAIRN_CANCELLED, "%s: the session is closed", session->run);
            code = cairn_client_pause(session, deadline_ms, err);
        }
        if (!reading->done && code == CAIRN_TIMEOUT)
            return cairn_fail(err, code, "%s: the read is still under way", session->run);
        if (!reading->done) return code;
    }
    if (reading->code && err) *err = reading->why;
    return reading->code;
}

void cairn_read_cancel(struct cairn_reading *reading) {
    if (!reading || !lock_session(reading)) return;
    struct cairn_session *session = reading->session;
    if (!reading->done) reading->cancelled = true;
    if (reading->waits) {
        TAILQ_REMOVE(&session->reader->queue, reading, queued);
        reading->waits = false;
        finish_cancelled(reading);
    }
    cairn_client_changed(session); /* the reading thread re-checks is_stopped */
    cairn_lock_give(&session->lock);
}

int cairn_read_fd(struct cairn_reading *reading) {
    if (!reading) return -1;
    bool locked = lock_session(reading);
    if (reading->fd < 0) {
        reading->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (reading->fd >= 0 && reading->done) (void)!eventfd_write(reading->fd, 1);
    }
    int fd = reading->fd;
    if (locked) cairn_lock_give(&reading->session->lock);
    return fd;
}

void cairn_read_free(struct cairn_reading *reading) {
    if (!reading) return;
    struct cairn_session *session = reading->session;
    if (session && session->pid != getpid()) return; /* belongs to the parent */
    cairn_read_cancel(reading);
    if (session) {
        CAIRN_HOLD(&session->lock);
        while (!reading->done)
            (void)cairn_condition_wait(&session->changed, &session->lock, UINT64_MAX);
        TAILQ_REMOVE(&session->reader->all, reading, place);
        session->reader->count--;
    }
    destroy(reading);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Open a session: check the options, connect, open the attempt, map the slabs.
 * Everything here runs before the session's thread starts or after it ended. */
#include "client/session/open.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/session/alone.h"
#include "client/session/dispatch.h"
#include "client/session/io.h"
#include "client/session/options.h"
#include "client/session/origin.h"
#include "client/session/process.h"
#include "client/session/window.h"
#include "client/session/wire.h"
#include "common/text.h"

#define SOCKET_DEFAULT "/run/cairn/uploader.sock"
#define OPEN_AGAIN_MS 10000
#define OPEN_PAUSE_MS 50
#define COPY_THREADS_MAX CAIRN_CLIENT_COPY_THREADS_MAX

/* ---- options ---- */

static enum cairn_code read_ranks(const struct cairn_open_options *options,
                                  struct cairn_session *ret, struct cairn_error *err) {
    ret->rank = options->rank;
    ret->world_size = options->world_size ? options->world_size : 1;
    ret->local_rank = options->local_rank;
    ret->local_world_size = options->local_world_size ? options->local_world_size : 1;
    if (ret->rank >= ret->world_size || ret->local_rank >= ret->local_world_size ||
        ret->local_world_size > ret->world_size)
        return cairn_fail(err, CAIRN_INVALID, "rank %u of %u, local rank %u of %u: not possible",
                          ret->rank, ret->world_size, ret->local_rank, ret->local_world_size);
    return CAIRN_OK;
}

/* The header of the tensors shard and padding come on top of the caller's own bytes. */
enum cairn_code cairn_client_bytes_check(const struct cairn_session *session, uint64_t bytes,
                                         uint64_t *node_bytes, struct cairn_error *err) {
    const uint64_t most = UINT64_C(1) << 60;
    uint64_t ranks = session->local_world_size;
    if (bytes > most || *node_bytes > most)
        return cairn_fail(err, CAIRN_INVALID, "bytes: at most %" PRIu64, most);
    if (*node_bytes && *node_bytes < bytes)
        return cairn_fail(err, CAIRN_INVALID,
                          "node_bytes %" PRIu64 " are less than this rank's %" PRIu64, *node_bytes,
                          bytes);
    if (!*node_bytes && (cairn_mul_overflows(ranks, bytes, node_bytes) || *node_bytes > most))
        return cairn_fail(err, CAIRN_INVALID, "bytes of all ranks of the node: at most %" PRIu64,
                          most);
    return CAIRN_OK;
}

static enum cairn_code read_bytes(const struct cairn_open_options *options,
                                  struct cairn_session *ret, struct cairn_error *err) {
    uint64_t node_bytes = options->node_bytes;
    CAIRN_TRY(cairn_client_bytes_check(ret, options->bytes, &node_bytes, err));
    ret->bytes = options->bytes;
    ret->node_bytes = node_bytes;
    return CAIRN_OK;
}

static enum cairn_code read_threads(const struct cairn_open_options *options,
                                    struct cairn_session *ret, struct cairn_error *err) {
    const char *text = getenv("CAIRN_COPY_THREADS");
    uint64_t threads = options->copy_threads;
    if (!threads && text && text[0]) {
        enum cairn_code code = cairn_parse_u64(cairn_view_of(text), &threads, err);
        if (code) return cairn_within(err, CAIRN_INVALID, "CAIRN_COPY_THREADS");
    }
    if (threads > COPY_THREADS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "copy_threads %" PRIu64 ": at most %d", threads,
                          COPY_THREADS_MAX);
    ret->copy_threads = (uint32_t)threads;
    return CAIRN_OK;
}

static enum cairn_code copy_text(const char *from, char **ret, struct cairn_error *err) {
    *ret = strdup(from);
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the options");
}

static enum cairn_code read_options(const struct cairn_open_options *options,
                                    struct cairn_session *ret, struct cairn_error *err) {
    struct cairn_run_name name;
    if (!options->run) return cairn_fail(err, CAIRN_INVALID, "no run was named");
    CAIRN_TRY(cairn_run_name_parse(options->run, &name, err));
    (void)cairn_text_copy(ret->run, sizeof ret->run, options->run);
    CAIRN_TRY(read_ranks(options, ret, err));
    CAIRN_TRY(read_bytes(options, ret, err));
    CAIRN_TRY(read_threads(options, ret, err));
    const char *path = options->socket ? options->socket : getenv("CAIRN_SOCKET");
    CAIRN_TRY(copy_text(path && path[0] ? path : SOCKET_DEFAULT, &ret->socket, err));
    CAIRN_TRY(copy_text(options->resume ? options->resume : "latest", &ret->resume, err));
    ret->timeout_ms = options->timeout_ms ? options->timeout_ms : CAIRN_CLIENT_TIMEOUT_MS;
    ret->wait_staged_ms =
        options->wait_staged_ms ? options->wait_staged_ms : CAIRN_CLIENT_WAIT_STAGED_MS;
    ret->read_only = options->read_only != 0;
    ret->interruptible = options->interruptible != 0;
    if (options->on_disconnect < CAIRN_DISCONNECT_FINISH ||
        options->on_disconnect > CAIRN_DISCONNECT_ABORT)
        return cairn_fail(err, CAIRN_INVALID, "on_disconnect %d is unknown",
                          (int)options->on_disconnect);
    ret->abort_on_disconnect = options->on_disconnect == CAIRN_DISCONNECT_ABORT;
    if (ret->read_only) return CAIRN_OK;
    const struct cairn_client_job_sources sources = {.job = options->job,
                                                     .world_size = ret->world_size};
    CAIRN_TRY(cairn_client_incarnation(&sources, ret->incarnation, err));
    return cairn_client_job(&sources, ret->job, err);
}

/* ---- hello, attempt, slabs ---- */

static enum cairn_code open_attempt(struct cairn_session *session, uint64_t deadline_ms,
                                    struct cairn_error *err) {
    CAIRN_AUTO(frame) answer = {0};
    CAIRN_AUTO_JSON json_t *counts = cairn_client_process_counts(session->rank);
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(attempt, .job = session->job, .resume = session->resume,
                             .wait_staged_ms = session->wait_staged_ms,
                             .timeout_ms = cairn_client_left_ms(deadline_ms),
                             .incarnation = session->incarnation, .counts = counts),
        .deadline_ms = deadline_ms};
    CAIRN_TRY(cairn_client_call_alone(session, &request, &answer, err));
    struct cairn_msg_attempted told = {0};
    if (cairn_msg_attempted_read(answer.message, "", &told, err) != CAIRN_OK ||
        !cairn_text_copy(session->nonce, sizeof session->nonce, told.nonce))
        return cairn_fail(err, CAIRN_PROTOCOL, "attempted without an attempt and its nonce");
    session->attempt = told.attempt;
    free(session->weights); /* of a try whose link ended, or of the attempt before a renewal */
    session->weights = NULL;
    if (told.weights && strlen(told.weights) == session->world_size &&
        !told.weights[strspn(told.weights, "12345678")])
        session->weights = strdup(told.weights);
    session->resumed = (struct cairn_resume){.attempt = told.attempt, .found = told.found};
    if (!told.found) return CAIRN_OK;
    if (!cairn_version_id_valid(cairn_view_of(told.resume_version)))
        return cairn_fail(err, CAIRN_PROTOCOL, "attempted with a resume but without its version");
    session->resumed.step = told.resume_step;
    (void)cairn_text_copy(session->resumed.version, sizeof session->resumed.version,
                          told.resume_version);
    return CAIRN_OK;
}

enum cairn_code cairn_client_slabs_map(struct cairn_frame *answer, uint64_t bytes,
                                       struct cairn_client_slabs *ret, struct cairn_error *err) {
    struct cairn_msg_slabs_given told = {0};
    if (cairn_msg_slabs_given_read(answer->message, "", &told, err) != CAIRN_OK || told.count < 1 ||
        told.count > CAIRN_CLIENT_GENERATIONS_MAX || answer->fd_count != told.count ||
        told.bytes < bytes)
        return cairn_fail(err, CAIRN_PROTOCOL, "slabs without the memory that was asked for");
    for (uint32_t i = 0; i < told.count; i++) {
        struct cairn_slab *slab = &ret->slabs[i];
        int fd = answer->fds[i];
        answer->fds[i] = -1;
        CAIRN_TRY(cairn_slab_attach(fd, told.bytes, true, slab, err));
        ret->count = i + 1;
        cairn_client_process_watch(slab->fd);
        (void)madvise(slab->data, slab->size_bytes, MADV_DONTFORK);
    }
    return CAIRN_OK;
}

void cairn_client_slabs_unmap(struct cairn_client_slabs *slabs) {
    for (uint32_t i = 0; i < slabs->count; i++) {
        cairn_client_process_unwatch(slabs->slabs[i].fd);
        cairn_slab_release(&slabs->slabs[i]);
    }
    slabs->count = 0;
}

void cairn_client_slabs_take(struct cairn_session *session, struct cairn_client_slabs *ret) {
    ret->count = session->slab_count;
    memcpy(ret->slabs, session->slabs, sizeof ret->slabs);
    session->slab_count = 0;
}

void cairn_client_slabs_set(struct cairn_session *session, struct cairn_client_slabs *take_slabs) {
    CAIRN_PROMISE(!session->slab_count, return);
    memcpy(session->slabs, take_slabs->slabs, sizeof session->slabs);
    session->slab_count = take_slabs->count;
    take_slabs->count = 0;
}

static enum cairn_code open_slabs(struct cairn_session *session, uint64_t deadline_ms,
                                  struct cairn_error *err) {
    CAIRN_AUTO(frame) slabs = {0}, done = {0};
    if (!session->bytes) return CAIRN_OK;
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(slabs, .wait_staged_ms = session->wait_staged_ms),
        .deadline_ms = deadline_ms};
    CAIRN_TRY(cairn_client_call_alone(session, &request, &slabs, err));
    struct cairn_client_slabs made = {0};
    enum cairn_code code = cairn_client_slabs_map(&slabs, session->bytes, &made, err);
    cairn_client_slabs_set(session, &made);
    CAIRN_TRY(code);
    const struct cairn_client_request mapped = {CAIRN_CLIENT_REQUEST(mapped, 0),
                                                .deadline_ms = deadline_ms};
    return cairn_client_call_alone(session, &mapped, &done, err);
}

static enum cairn_code converse(struct cairn_session *session, uint64_t deadline_ms, bool *ret_met,
                                struct cairn_error *err) {
    uint64_t soon_ms = session->read_only ? deadline_ms : cairn_client_deadline(session, 0);
    bool left = false;
    enum cairn_code code = cairn_client_link_open(session->socket, &session->link, &left, err);
    if (code == CAIRN_OK || left) *ret_met = true;
    if (code) return code;
    session->link.interruptible = session->interruptible;
    session->link.signals = session->open_signals;
    CAIRN_TRY(cairn_client_hello(session, soon_ms, err));
    if (!session->read_only) {
        CAIRN_TRY(open_attempt(session, soon_ms + session->wait_staged_ms, err));
        uint64_t until_ms = cairn_client_deadline(session, 0) + session->wait_staged_ms;
        CAIRN_TRY(open_slabs(session, until_ms, err));
    }
    session->locked.state = CAIRN_CLIENT_UP;
    session->locked.epoch = 1;
    session->link.interruptible = false; /* its thread takes no signals */
    return cairn_client_thread_start(session, err);
}

void cairn_client_session_forget(struct cairn_session *session) {
    cairn_client_link_close(&session->link);
    struct cairn_client_slabs slabs;
    cairn_client_slabs_take(session, &slabs);
    cairn_client_slabs_unmap(&slabs);
    session->uuid[0] = '\0';
}

/* When the link ends before the session is open, all is tried again: the same process gets the same
 * attempt (Q2). The same where a socket's file is there and nobody listens, as after a kill.
 * Without a socket's file a trainer may be on the wrong node, and the call fails at once; a
 * read_only session waits until its deadline, since an uploader has no socket for a moment while it
 * is restarted. */
static enum cairn_code open_until(struct cairn_session *session, struct cairn_error *err) {
    uint64_t deadline_ms = cairn_client_deadline(session, 0), until_ms = deadline_ms;
    bool met = session->read_only;
    if (!session->read_only) until_ms = cairn_min_u64(deadline_ms, cairn_mono_ms() + OPEN_AGAIN_MS);
    for (;;) {
        enum cairn_code code = converse(session, deadline_ms, &met, err);
        if (code != CAIRN_UPLOADER_GONE || !met || cairn_mono_ms() >= until_ms) return code;
        cairn_client_session_forget(session);
        CAIRN_HOLD(&session->lock);
        uint64_t again_ms = cairn_min_u64(until_ms, cairn_mono_ms() + OPEN_PAUSE_MS);
        if (cairn_client_pause(session, again_ms, err) == CAIRN_INTERRUPTED)
            return CAIRN_INTERRUPTED;
    }
}

/* Opening waits several times. A signal between two of them would be handled by the program and
 * seen by no wait, so all but those of faults are blocked, and taken inside the waits alone. */
enum cairn_code cairn_client_session_open(struct cairn_session *session, struct cairn_error *err) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t blocked, before;
    if (!session->interruptible) return open_until(session, err);
    sigfillset(&blocked);
    for (size_t i = 0; i < CAIRN_COUNT(faults); i++) sigdelset(&blocked, faults[i]);
    if (pthread_sigmask(SIG_SETMASK, &blocked, &before))
        return cairn_fail(err, CAIRN_INTERNAL, "the signals of this thread");
    session->open_signals = &before;
    enum cairn_code code = open_until(session, err);
    session->open_signals = NULL;
    session->link.signals = NULL;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

/* ---- life ---- */

void cairn_client_session_stop(struct cairn_session *session) {
    cairn_client_thread_stop(session);
    cairn_client_wire_close(session);
    cairn_lock_take(&session->lock);
    cairn_client_link_ended(session);
    while (session->locked.calls) /* none of them waits any more; one may still copy */
        (void)cairn_condition_wait(&session->changed, &session->lock, UINT64_MAX);
    cairn_lock_give(&session->lock);
    cairn_client_thread_release(session);
}

void cairn_client_session_free(struct cairn_session *session) {
    cairn_client_device_release(&session->device); /* before the memory goes that it has locked */
    cairn_client_session_forget(session);
    cairn_client_window_release(session);
    cairn_condition_release(&session->changed);
    cairn_lock_release(&session->lock);
    free(session->socket);
    free(session->resume);
    free(session->weights);
    json_decref(session->origin);
    free(session);
}

enum cairn_code cairn_client_session_new(const struct cairn_open_options *options,
                                         const struct cairn_client_sink *sink,
                                         struct cairn_session **ret, struct cairn_error *err) {
    struct cairn_session *session = calloc(1, sizeof *session);
    if (!session) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a session");
    session->sink = sink;
    session->pid = getpid();
    session->link.fd = -1;
    session->wake_fd = session->heard_fd = -1;
    session->next_id = 1;
    STAILQ_INIT(&session->locked.queue);
    cairn_lock_init(&session->lock, CAIRN_LOCK_client_session);
    cairn_condition_init(&session->changed);
    cairn_client_window_init(session);
    cairn_client_process_nonce(session->proc);
    struct cairn_open_options own;
    enum cairn_code code = CAIRN_CLIENT_OPTIONS(options, &own, err);
    if (!code) code = read_options(&own, session, err);
    if (code) {
        cairn_client_session_free(session);
        return code;
    }
    if (session->rank == 0 && !session->read_only) session->origin = cairn_client_origin();
    *ret = session;
    return CAIRN_OK;
}

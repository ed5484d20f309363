/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a session (options, connection, attempt, slabs), frees it and renews it. This file runs
 * before the session's thread starts or after it ended.
 */

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/session/memory.h"
#include "client/session/options.h"
#include "client/session/process.h"
#include "client/session/wire.h"
#include "common/text.h"

#define SOCKET_DEFAULT "/run/cairn/uploader.sock"
#define OPEN_AGAIN_MS 10000
#define OPEN_PAUSE_MS 50

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

static enum cairn_code read_threads(const struct cairn_open_options *options,
                                    struct cairn_session *ret, struct cairn_error *err) {
    const char *text = getenv("CAIRN_COPY_THREADS");
    uint64_t threads = options->copy_threads;
    if (!threads && text && text[0]) {
        enum cairn_code code = cairn_parse_u64(cairn_view_of(text), &threads, err);
        if (code) return cairn_within(err, CAIRN_INVALID, "CAIRN_COPY_THREADS");
    }
    if (threads > CAIRN_CLIENT_COPY_THREADS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "copy_threads %" PRIu64 ": at most %d", threads,
                          CAIRN_CLIENT_COPY_THREADS_MAX);
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
    ret->has_run = options->run != NULL;
    if (!options->run && !options->read_only)
        return cairn_fail(err, CAIRN_INVALID, "no run was named");
    if (options->run) CAIRN_TRY(cairn_run_name_parse(options->run, &name, err));
    (void)cairn_text_copy(ret->run, sizeof ret->run, options->run ? options->run : "(no run)");
    if (options->run) ret->run_number = cairn_error_run(options->run);
    CAIRN_TRY(read_ranks(options, ret, err));
    uint64_t node_bytes = options->node_bytes;
    CAIRN_TRY(cairn_client_bytes_check(ret, options->bytes, &node_bytes, err));
    ret->bytes = options->bytes;
    ret->node_bytes = node_bytes;
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

static enum cairn_code open_slabs(struct cairn_session *session, uint64_t deadline_ms,
                                  struct cairn_error *err) {
    CAIRN_AUTO(frame) slabs = {0}, done = {0};
    if (!session->bytes) return CAIRN_OK;
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(slabs, .wait_staged_ms = session->wait_staged_ms,
                             .numa_node = (uint32_t)CAIRN_MESSAGE_NONE),
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

static enum cairn_code connect_and_open(struct cairn_session *session, uint64_t deadline_ms,
                                        bool *ret_met, struct cairn_error *err) {
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
    session->link.interruptible = false; /* the session's thread blocks signals */
    return cairn_client_thread_start(session, err);
}

/* Releases the link and everything received over it: the slabs and the session's uuid. */
static void forget_link(struct cairn_session *session) {
    cairn_client_link_close(&session->link);
    struct cairn_client_slabs slabs;
    cairn_client_slabs_take(session, &slabs);
    cairn_client_slabs_unmap(&slabs);
    session->uuid[0] = '\0';
}

/* Retries from the start if the link ends before the session is open (the same process gets the
 * same attempt, Q2), or if the socket's file exists without a listener, as after a kill. Without
 * that file the trainer may be on the wrong node, so the call fails at once; a read_only session
 * waits until its deadline, because a restarting uploader briefly has no socket. */
static enum cairn_code open_until(struct cairn_session *session, struct cairn_error *err) {
    uint64_t deadline_ms = cairn_client_deadline(session, 0), until_ms = deadline_ms;
    bool met = session->read_only;
    if (!session->read_only) until_ms = cairn_min_u64(deadline_ms, cairn_mono_ms() + OPEN_AGAIN_MS);
    for (;;) {
        enum cairn_code code = connect_and_open(session, deadline_ms, &met, err);
        if (code != CAIRN_UPLOADER_GONE || !met || cairn_mono_ms() >= until_ms) return code;
        forget_link(session);
        CAIRN_HOLD(&session->lock);
        uint64_t again_ms = cairn_min_u64(until_ms, cairn_mono_ms() + OPEN_PAUSE_MS);
        if (cairn_client_pause(session, again_ms, err) == CAIRN_INTERRUPTED)
            return CAIRN_INTERRUPTED;
    }
}

/* Opening waits several times; a signal handled between two waits would interrupt none of them. So
 * all signals except faults are blocked, and delivered only inside the waits. */
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

void cairn_client_session_free(struct cairn_session *session) {
    cairn_client_device_release(&session->device); /* unlocks memory that is unmapped next */
    forget_link(session);
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
    session->window.slab.fd = -1;
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

/* ---- renewal ---- */

static enum cairn_code check_same(const struct cairn_session *session,
                                  const struct cairn_session *made, struct cairn_error *err) {
    if (strcmp(session->run, made->run) != 0 || strcmp(session->socket, made->socket) != 0)
        return cairn_fail(err, CAIRN_INVALID,
                          "a session is renewed on its own run and socket (%s at %s); open another "
                          "one for %s at %s",
                          session->run, session->socket, made->run, made->socket);
    if (session->read_only || made->read_only)
        return cairn_fail(err, CAIRN_INVALID, "a read_only session has no attempt to renew");
    if (session->attempt && strcmp(session->job, made->job) == 0)
        return cairn_fail(err, CAIRN_INVALID,
                          "job '%s' is the present attempt's; give `job` a string that is new and "
                          "the same on all ranks",
                          made->job);
    return CAIRN_OK;
}

enum cairn_code cairn_client_session_renewal(const struct cairn_session *session,
                                             const struct cairn_open_options *options,
                                             struct cairn_session **ret, struct cairn_error *err) {
    struct cairn_open_options own;
    struct cairn_session *made = NULL;
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own, err));
    if (!own.run) own.run = session->run;
    if (!own.socket) own.socket = session->socket;
    if (!own.timeout_ms) own.timeout_ms = session->timeout_ms;
    if (!own.wait_staged_ms) own.wait_staged_ms = session->wait_staged_ms;
    if (!own.copy_threads) own.copy_threads = session->copy_threads;
    if (!own.bytes) own.bytes = session->bytes;
    own.interruptible = session->interruptible;
    CAIRN_TRY(cairn_client_session_new(&own, session->sink, &made, err));
    enum cairn_code code = check_same(session, made, err);
    if (code)
        cairn_client_session_free(made);
    else
        *ret = made;
    return code;
}

static void swap_texts(char **one, char **other) {
    char *kept = *one;
    *one = *other;
    *other = kept;
}

void cairn_client_session_take(struct cairn_session *session, struct cairn_session *take_made) {
    CAIRN_PROMISE(!session->thread_started && session->link.fd < 0, return );
    cairn_client_device_release(&session->device); /* unlocks memory that is unmapped next */
    forget_link(session);
    cairn_client_window_release(session);
    memcpy(session->job, take_made->job, sizeof session->job);
    memcpy(session->incarnation, take_made->incarnation, sizeof session->incarnation);
    swap_texts(&session->resume, &take_made->resume);
    json_t *origin = session->origin;
    session->origin = take_made->origin;
    take_made->origin = origin;
    session->rank = take_made->rank;
    session->world_size = take_made->world_size;
    session->local_rank = take_made->local_rank;
    session->local_world_size = take_made->local_world_size;
    session->bytes = take_made->bytes;
    session->node_bytes = take_made->node_bytes;
    session->timeout_ms = take_made->timeout_ms;
    session->wait_staged_ms = take_made->wait_staged_ms;
    session->copy_threads = take_made->copy_threads;
    session->abort_on_disconnect = take_made->abort_on_disconnect;
    session->resumed = (struct cairn_resume){0};
    session->attempt = 0;
    session->nonce[0] = '\0';
    cairn_client_session_free(take_made);
    CAIRN_HOLD(&session->lock); /* `leaving` refuses calls until the session is open */
    session->locked.stop = false;
}

void cairn_client_session_refuse(struct cairn_session *session, const struct cairn_error *why) {
    cairn_client_session_stop(session);
    CAIRN_HOLD(&session->lock);
    session->locked.refusal = *why;
    session->locked.state = CAIRN_CLIENT_REFUSED;
    session->locked.stop = false;
    session->locked.leaving = false;
    cairn_client_changed(session);
}

/* ---- upload weights of the attempt ---- */

enum cairn_code cairn_session_weights(struct cairn_session *session, const uint32_t *ranks,
                                      size_t count, uint32_t *ret_weights,
                                      struct cairn_error *err) {
    CAIRN_CLIENT_CALL(session, err);
    if (count && (!ranks || !ret_weights)) return cairn_fail(err, CAIRN_INVALID, "no ranks");
    for (size_t i = 0; i < count; i++)
        if (ranks[i] >= session->world_size)
            return cairn_fail(err, CAIRN_INVALID, "rank %u of a world of %u", ranks[i],
                              session->world_size);
    for (size_t i = 0; i < count; i++)
        ret_weights[i] = session->weights ? (uint32_t)(session->weights[ranks[i]] - '0') : 1;
    return CAIRN_OK;
}

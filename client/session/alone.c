/* SPDX-License-Identifier: Apache-2.0 */
/* Send, then read until the answer is there. Nothing wakes this poll when the session is closed, so
 * a wait checks for it every STOP_LOOK_MS. */
#include "client/session/alone.h"

#include <unistd.h>

#include "client/session/dispatch.h"
#include "client/session/process.h"
#include "common/file.h"
#include "common/text.h"
#include "common/trace.h"

#define STOP_LOOK_MS 100

struct wait {
    const char *wanted;
    uint64_t since_ms, deadline_ms;
};

static uint64_t next_look_ms(const struct wait *wait) {
    return cairn_min_u64(wait->deadline_ms, cairn_mono_ms() + STOP_LOOK_MS);
}

/* CAIRN_OK: go on waiting. */
static enum cairn_code check_deadline(struct cairn_session *session, const struct wait *wait,
                                      struct cairn_error *err) {
    CAIRN_HOLD(&session->lock);
    if (cairn_mono_ms() >= wait->deadline_ms)
        return cairn_client_timed_out(session, wait->wanted, wait->since_ms, err);
    if (session->locked.stop) return cairn_fail(err, CAIRN_CANCELLED, "the session is closed");
    return CAIRN_OK;
}

static enum cairn_code send_alone(struct cairn_session *session, const struct wait *wait,
                                  struct cairn_client_message *message, struct cairn_error *err) {
    for (;;) {
        enum cairn_code code =
            cairn_client_link_send(&session->link, message, next_look_ms(wait), err);
        if (code != CAIRN_TIMEOUT) return code;
        CAIRN_TRY(check_deadline(session, wait, err));
    }
}

static enum cairn_code next_alone(struct cairn_session *session, const struct wait *wait,
                                  struct cairn_frame *ret, struct cairn_error *err) {
    for (;;) {
        enum cairn_code code = cairn_client_link_wait(&session->link, next_look_ms(wait), ret, err);
        if (code != CAIRN_TIMEOUT) return code;
        CAIRN_TRY(check_deadline(session, wait, err));
    }
}

/* An `error` without an id: the uploader ends the connection, and says why. */
static bool is_refusal(const struct cairn_frame *frame) {
    return strcmp(frame->name, "error") == 0 && !json_object_get(frame->message, "id");
}

/* The uploader has ended the connection, and what it said before that counts more. */
static enum cairn_code ended(struct cairn_session *session, enum cairn_code code,
                             struct cairn_error *err) {
    for (bool ready = true; ready;) {
        CAIRN_AUTO(frame) frame = {0};
        if (cairn_client_link_next(&session->link, &frame, &ready, NULL) != CAIRN_OK) break;
        if (ready && is_refusal(&frame)) return cairn_client_answer_check(&frame, "", err);
    }
    return code;
}

static void note_received(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    session->locked.received_ms = cairn_mono_ms();
}

enum cairn_code cairn_client_call_alone(struct cairn_session *session,
                                        const struct cairn_client_request *request,
                                        struct cairn_frame *ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = request->take_message;
    CAIRN_AUTO_PTR(client_message) message = NULL;
    uint64_t id = session->next_id++, answered = 0;
    const struct wait wait = {request->wanted ? request->wanted : "room for a message",
                              cairn_mono_ms(), request->deadline_ms};
    if (!body ||
        (request->wanted && json_object_set_new(body, "id", json_integer((json_int_t)id)) != 0))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a frame");
    CAIRN_TRY(cairn_client_message_new(body, request->blob, request->fds, request->fd_count,
                                       &message, err));
    enum cairn_code code = send_alone(session, &wait, message, err);
    if (code == CAIRN_UPLOADER_GONE) return ended(session, code, err);
    CAIRN_TRY(code);
    while (request->wanted) {
        CAIRN_AUTO(frame) frame = {0};
        CAIRN_TRY(next_alone(session, &wait, &frame, err));
        if (is_refusal(&frame)) return cairn_client_answer_check(&frame, request->wanted, err);
        if (cairn_client_u64_of(frame.message, "id", &answered) && answered == id) {
            note_received(session);
            CAIRN_TRY(cairn_client_answer_check(&frame, request->wanted, err));
            *ret = frame;
            frame = (struct cairn_frame){0};
            return CAIRN_OK;
        }
        CAIRN_HOLD(&session->lock);
        if (!cairn_client_dispatch(session, &frame))
            return cairn_fail(err, CAIRN_PROTOCOL, "the uploader sent an unknown event");
    }
    return CAIRN_OK;
}

/* The journal goes by the node's name, so that under another one its saves are not known. */
static void note_node(struct cairn_session *session, const char *node) {
    char *now = session->locked.node, *before = session->locked.renamed;
    if (strcmp(now, node) == 0) return;
    (void)cairn_text_copy(before, sizeof session->locked.renamed, now);
    (void)cairn_text_copy(now, sizeof session->locked.node, node);
}

enum cairn_code cairn_client_hello(struct cairn_session *session, uint64_t deadline_ms,
                                   struct cairn_error *err) {
    CAIRN_AUTO(frame) answer = {0};
    cairn_lock_take(&session->lock);
    session->locked.uploader_pid = session->link.pid;
    cairn_lock_give(&session->lock);
    uint64_t bytes = session->bytes ? session->bytes + CAIRN_CLIENT_HEADER_BYTES : 0;
    uint64_t node_bytes =
        session->bytes ? session->node_bytes + session->local_world_size * CAIRN_CLIENT_HEADER_BYTES
                       : 0;
    CAIRN_AUTO_FD process = session->read_only ? -1 : cairn_client_process_fd();
    char trace[CAIRN_TRACE_TEXT_BYTES];
    cairn_trace_of_environment(trace);
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(hello, .min = CAIRN_SOCKET_VERSION_MIN,
                             .max = CAIRN_SOCKET_VERSION_MAX, .run = session->run,
                             .rank = session->rank, .world_size = session->world_size,
                             .local_world_size = session->local_world_size, .bytes = bytes,
                             .node_bytes = node_bytes, .read_only = session->read_only,
                             .proc = session->proc, .client = "libcairn " CAIRN_VERSION,
                             .pid = (uint64_t)getpid(), .local_rank = session->local_rank,
                             .traceparent = trace[0] ? trace : NULL),
        .fds = &process, .fd_count = process >= 0, .deadline_ms = deadline_ms};
    CAIRN_TRY(cairn_client_call_alone(session, &request, &answer, err));
    struct cairn_msg_welcome told = {0};
    if (cairn_msg_welcome_read(answer.message, "", &told, err) != CAIRN_OK ||
        told.version < CAIRN_SOCKET_VERSION_MIN || told.version > CAIRN_SOCKET_VERSION_MAX ||
        !cairn_uuid_text_valid(cairn_view_of(told.session)))
        return cairn_fail(err, CAIRN_PROTOCOL, "welcome without a version and a session");
    CAIRN_HOLD(&session->lock);
    session->locked.version = told.version;
    memcpy(session->locked.welcome_uuid, told.session, CAIRN_UUID_TEXT_BYTES);
    note_node(session, told.node);
    if (!session->uuid[0]) memcpy(session->uuid, told.session, CAIRN_UUID_TEXT_BYTES);
    return CAIRN_OK;
}

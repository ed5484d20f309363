/* SPDX-License-Identifier: Apache-2.0 */
/* restore, window, read and release: what a trainer asks when it reads. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/text.h"
#include "uploader/fetch/fetch.h"
#include "uploader/trainers/inside.h"

/* One request that a helper works on. */
struct pending {
    struct cairn_up *up;
    struct cairn_up_mail_item item;
    uint64_t conn;
    int64_t request;
    struct cairn_run_name name;
    char ref[64], format[64], known_version[CAIRN_VERSION_ID_BYTES];
    bool insists;
    uint64_t known_step, bytes, answer_by_ms, asked_us;
    /* the answer */
    enum cairn_code code;
    struct cairn_error error;
    struct cairn_up_version *version;
    struct cairn_up_window *window;
};

static void pending_free(void *owner) {
    struct pending *pending = owner;
    cairn_up_version_leave(pending->version);
    cairn_up_window_leave(pending->window);
    free(pending);
}

static struct pending *pending_new(const struct cairn_up_session *session,
                                   const struct cairn_up_request *request,
                                   struct cairn_error *err) {
    struct pending *pending = calloc(1, sizeof(*pending));
    if (!pending) {
        cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
        return NULL;
    }
    pending->up = session->up;
    pending->conn = session->conn;
    pending->request = request->id;
    pending->name = session->name;
    pending->asked_us = cairn_mono_us();
    return pending;
}

static enum cairn_code hand_over(struct pending *pending,
                                 void (*run)(struct cairn_up_helper *helper, void *owner),
                                 struct cairn_error *err) {
    enum cairn_code code = cairn_up_tasks_add(pending->up->tasks, run, pending_free, pending, err);
    if (code != CAIRN_OK) pending_free(pending);
    return code;
}

static void refuse(struct pending *pending) {
    cairn_up_mail_refuse(pending->up->mail, pending->conn, pending->request, &pending->error);
}

/* ---- restore ---- */

static int free_restore(const struct cairn_up_session *session) {
    for (int i = 0; i < CAIRN_UP_RESTORES_MAX; i++) {
        if (!session->restores[i].number) return i;
    }
    return -1;
}

static void restore_done(void *owner, struct cairn_up_session *session) {
    struct pending *pending = owner;
    int place = session ? free_restore(session) : -1;
    int fd = -1;
    if (pending->code == CAIRN_OK && session && place < 0)
        pending->code =
            cairn_fail(&pending->error, CAIRN_BUSY, "at most %d restores at once in a session",
                       CAIRN_UP_RESTORES_MAX);
    if (pending->code == CAIRN_OK && session) {
        fd = fcntl(pending->version->documents_fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            pending->code = cairn_fail_errno(&pending->error, "a descriptor for the manifest");
    }
    if (pending->code != CAIRN_OK) refuse(pending);
    if (pending->code == CAIRN_OK && session) {
        struct cairn_up_version *version = CAIRN_TAKE(pending->version);
        session->restores[place].number = ++session->restore_last;
        session->restores[place].version = version;
        session->restores[place].asked_us = pending->asked_us;
        cairn_metrics_shift(session->up->metrics, CAIRN_UP_METRIC(restores_open), 1);
        cairn_up_mail_answer_fds(
            pending->up->mail, pending->conn, pending->request,
            CAIRN_PACK(
                restored, .restore = session->restore_last, .version = version->place.id.text,
                .step = version->place.step, .attempt = version->manifest.origin.attempt,
                .world_size = version->manifest.world_size,
                .manifest_bytes = version->manifest_bytes, .layout_bytes = version->layout_bytes),
            &fd, 1);
    }
    pending_free(pending);
}

static void restore_task(struct cairn_up_helper *helper, void *owner) {
    struct pending *pending = owner;
    struct cairn_up_version_request request = {
        .name = &pending->name,
        .ref = pending->ref,
        .known_version = pending->known_version,
        .known_step = pending->known_step,
        .answer_by_ms = pending->answer_by_ms,
    };
    pending->code = cairn_up_version_load(helper, &request, &pending->version, &pending->error);
    if (pending->code == CAIRN_OK && pending->insists &&
        strcmp(pending->version->manifest.format_tag, pending->format) != 0)
        pending->code =
            cairn_fail(&pending->error, CAIRN_UNSUPPORTED,
                       "%s has format \"%.64s\", wanted: \"%s\"", pending->version->place.id.text,
                       pending->version->manifest.format_tag, pending->format);
    cairn_up_mail_call(helper->up->mail, pending->conn, restore_done, pending, &pending->item);
}

enum cairn_code cairn_up_on_restore(struct cairn_up_session *session,
                                    const struct cairn_up_request *request,
                                    struct cairn_error *err) {
    struct cairn_msg_restore told = {.ref = "latest"};
    CAIRN_TRY(cairn_msg_restore_read(request->frame->message, "", &told, err));
    if (!strcmp(told.ref, "resume")) {
        if (!session->resume_version[0])
            return cairn_fail(err, CAIRN_NOT_FOUND, "this attempt resumed from nothing");
        told.ref = session->resume_version;
    }
    struct pending *pending = pending_new(session, request, err);
    if (!pending) return CAIRN_NO_MEMORY;
    (void)cairn_text_copy(pending->ref, sizeof(pending->ref), told.ref);
    pending->insists = told.format != NULL;
    (void)cairn_text_copy(pending->format, sizeof(pending->format), told.format ? told.format : "");
    (void)cairn_text_copy(pending->known_version, sizeof(pending->known_version),
                          session->resume_version);
    pending->known_step = session->resume_step;
    pending->answer_by_ms = cairn_up_answer_by_ms(told.timeout_ms);
    return hand_over(pending, restore_task, err);
}

static int find_restore(const struct cairn_up_session *session, uint64_t number) {
    for (int i = 0; i < CAIRN_UP_RESTORES_MAX; i++) {
        if (number && session->restores[i].number == number) return i;
    }
    return -1;
}

static enum cairn_code no_restore(uint64_t number, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NOT_FOUND, "this session has no restore %" PRIu64, number);
}

/* Ends the restore in that place. */
static void end_restore(struct cairn_up_session *session, int place,
                        enum cairn_up_restore_end end) {
    struct cairn_up *up = session->up;
    session->restores[place].number = 0;
    cairn_up_version_leave(CAIRN_TAKE(session->restores[place].version));
    cairn_metrics_shift(up->metrics, CAIRN_UP_METRIC(restores_open), -1);
    cairn_metrics_observe(
        up->metrics, (struct cairn_metric_at){CAIRN_UP_METRIC_restore_duration_seconds, end, 0},
        cairn_mono_us() - session->restores[place].asked_us);
}

enum cairn_code cairn_up_on_release(struct cairn_up_session *session,
                                    const struct cairn_up_request *request,
                                    struct cairn_error *err) {
    struct cairn_msg_release told = {0};
    CAIRN_TRY(cairn_msg_release_read(request->frame->message, "", &told, err));
    int place = find_restore(session, told.restore);
    if (place < 0) return no_restore(told.restore, err);
    end_restore(session, place, CAIRN_UP_RESTORE_RELEASED);
    cairn_up_mail_answer(session->up->mail, session->conn, request->id, CAIRN_PACK(ok, 0));
    return CAIRN_OK;
}

static void leave_window(struct cairn_up_helper *helper, void *owner) {
    (void)helper;
    cairn_up_window_leave(owner);
}

static void drop_window(void *owner) {
    cairn_up_window_leave(owner);
}

void cairn_up_session_drop_restores(struct cairn_up_session *session) {
    for (int i = 0; i < CAIRN_UP_RESTORES_MAX; i++)
        if (session->restores[i].number) end_restore(session, i, CAIRN_UP_RESTORE_LEFT);
    struct cairn_up_window *window = CAIRN_TAKE(session->window);
    /* Giving pages back takes long where they are many; this thread has other trainers. */
    if (window &&
        cairn_up_tasks_add(session->up->tasks, leave_window, drop_window, window, NULL) != CAIRN_OK)
        cairn_up_window_leave(window);
}

/* ---- window ---- */

static enum cairn_code answer_window(struct cairn_up_session *session, int64_t request,
                                     struct cairn_error *err) {
    int fd = fcntl(session->window->memory.fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return cairn_fail_errno(err, "a descriptor for the window");
    cairn_up_mail_answer_fds(
        session->up->mail, session->conn, request,
        CAIRN_PACK(window_given, .window = 1, .bytes = session->window->memory.size_bytes), &fd, 1);
    return CAIRN_OK;
}

static void window_done(void *owner, struct cairn_up_session *session) {
    struct pending *pending = owner;
    if (pending->code == CAIRN_OK && session) {
        /* Asked for twice, since the first call was given up: it is one window. */
        if (!session->window) session->window = CAIRN_TAKE(pending->window);
        pending->code = answer_window(session, pending->request, &pending->error);
    }
    if (pending->code != CAIRN_OK) refuse(pending);
    pending_free(pending);
}

static void window_task(struct cairn_up_helper *helper, void *owner) {
    struct pending *pending = owner;
    pending->code =
        cairn_up_window_new(helper->up, pending->bytes, &pending->window, &pending->error);
    cairn_up_mail_call(helper->up->mail, pending->conn, window_done, pending, &pending->item);
}

enum cairn_code cairn_up_on_window(struct cairn_up_session *session,
                                   const struct cairn_up_request *request,
                                   struct cairn_error *err) {
    struct cairn_msg_window told = {0};
    CAIRN_TRY(cairn_msg_window_read(request->frame->message, "", &told, err));
    if (session->window) return answer_window(session, request->id, err);
    struct pending *pending = pending_new(session, request, err);
    if (!pending) return CAIRN_NO_MEMORY;
    pending->bytes = told.bytes;
    return hand_over(pending, window_task, err);
}

/* ---- read ---- */

struct reply_to {
    struct cairn_up *up;
    uint64_t conn;
    int64_t request;
};

static void read_done(void *owner, enum cairn_code code, const struct cairn_error *why) {
    struct reply_to *reply = owner;
    if (code == CAIRN_OK)
        cairn_up_mail_answer(reply->up->mail, reply->conn, reply->request,
                             CAIRN_PACK(read_done, 0));
    else
        cairn_up_mail_refuse(reply->up->mail, reply->conn, reply->request, why);
    free(reply);
}

static enum cairn_code read_ranges(const json_t *array, struct cairn_up_range **ret,
                                   size_t *ret_count, struct cairn_error *err) {
    size_t count = json_array_size(array);
    if (count > CAIRN_UP_RANGES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%zu ranges, at most %d", count,
                          CAIRN_UP_RANGES_MAX);
    CAIRN_AUTO_HEAP struct cairn_up_range *ranges = calloc(count + 1, sizeof(*ranges));
    if (!ranges) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    for (size_t i = 0; i < count; i++) {
        struct cairn_msg_read_range told = {0};
        CAIRN_TRY(cairn_msg_read_range_read(json_array_get(array, i), "/ranges", &told, err));
        ranges[i] = (struct cairn_up_range){told.shard, told.offset, told.bytes, told.at};
    }
    *ret = CAIRN_TAKE(ranges);
    *ret_count = count;
    return CAIRN_OK;
}

enum cairn_code cairn_up_on_read(struct cairn_up_session *session,
                                 const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_msg_read told = {0};
    size_t count = 0;
    CAIRN_TRY(cairn_msg_read_read(request->frame->message, "", &told, err));
    int place = find_restore(session, told.restore);
    if (place < 0) return no_restore(told.restore, err);
    if (!session->window) return cairn_fail(err, CAIRN_INVALID, "this session has no window");
    CAIRN_AUTO_HEAP struct cairn_up_range *ranges = NULL;
    CAIRN_TRY(read_ranges(told.ranges, &ranges, &count, err));
    struct reply_to *reply = calloc(1, sizeof(*reply));
    if (!reply) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    *reply = (struct reply_to){session->up, session->conn, request->id};
    enum cairn_code code =
        cairn_up_fetch_read(session->up->fetch, session->restores[place].version, session->window,
                            ranges, count, read_done, reply, err);
    if (code != CAIRN_OK) free(reply);
    return code;
}

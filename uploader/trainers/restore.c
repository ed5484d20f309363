/* SPDX-License-Identifier: Apache-2.0 */
/* restore, window, read, release and list: what a trainer asks when it reads. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/messages.h"
#include "common/encode.h"
#include "common/text.h"
#include "uploader/fetch/fetch.h"
#include "uploader/tasks.h"
#include "uploader/trainers/session.h"

/* One question on its way through a helper. */
struct asking {
    struct cairn_up *up;
    struct cairn_up_letter letter;
    uint64_t conn;
    int64_t request;
    struct cairn_run_name name;
    char ref[64], format[64], known_version[CAIRN_VERSION_ID_BYTES];
    bool insists;
    uint64_t known_step, bytes, limit;
    char cursor[512];
    /* the answer */
    enum cairn_code code;
    struct cairn_error error;
    struct cairn_up_version *version;
    struct cairn_up_window *window;
    json_t *reply;
};

static void asking_free(void *owner) {
    struct asking *asking = owner;
    cairn_up_version_leave(asking->version);
    cairn_up_window_leave(asking->window);
    json_decref(asking->reply);
    free(asking);
}

static struct asking *asking_new(const struct cairn_up_session *session,
                                 const struct cairn_up_ask *ask, struct cairn_error *err) {
    struct asking *asking = calloc(1, sizeof(*asking));
    if (!asking) {
        cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
        return NULL;
    }
    asking->up = session->up;
    asking->conn = session->conn;
    asking->request = ask->request;
    asking->name = session->name;
    return asking;
}

static enum cairn_code hand_over(struct asking *asking,
                                 void (*run)(struct cairn_up_helper *helper, void *owner),
                                 struct cairn_error *err) {
    enum cairn_code code = cairn_up_tasks_add(asking->up->tasks, run, asking_free, asking, err);
    if (code != CAIRN_OK) asking_free(asking);
    return code;
}

static void refuse(struct asking *asking) {
    cairn_up_mail_refuse(asking->up->mail, asking->conn, asking->request, &asking->error);
}

/* ---- restore ---- */

static int free_restore(const struct cairn_up_session *session) {
    for (int i = 0; i < CAIRN_UP_RESTORES_MAX; i++) {
        if (!session->restores[i].number) return i;
    }
    return -1;
}

static void restore_done(void *owner, struct cairn_up_session *session) {
    struct asking *asking = owner;
    int place = session ? free_restore(session) : -1;
    int fd = -1;
    if (asking->code == CAIRN_OK && session && place < 0)
        asking->code =
            cairn_fail(&asking->error, CAIRN_BUSY, "at most %d restores at once in a session",
                       CAIRN_UP_RESTORES_MAX);
    if (asking->code == CAIRN_OK && session) {
        fd = fcntl(asking->version->documents_fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            asking->code = cairn_fail_errno(&asking->error, "a descriptor for the manifest");
    }
    if (asking->code != CAIRN_OK) refuse(asking);
    if (asking->code == CAIRN_OK && session) {
        struct cairn_up_version *version = CAIRN_TAKE(asking->version);
        session->restores[place].number = ++session->restore_last;
        session->restores[place].version = version;
        cairn_up_mail_answer_fds(
            asking->up->mail, asking->conn, asking->request,
            CAIRN_PACK(
                restored, .restore = session->restore_last, .version = version->place.id.text,
                .step = version->place.step, .attempt = version->manifest.origin.attempt,
                .world_size = version->manifest.world_size,
                .manifest_bytes = version->manifest_bytes, .layout_bytes = version->layout_bytes),
            &fd, 1);
    }
    asking_free(asking);
}

static void restore_task(struct cairn_up_helper *helper, void *owner) {
    struct asking *asking = owner;
    struct cairn_up_version_wish wish = {
        .name = &asking->name,
        .ref = asking->ref,
        .known_version = asking->known_version,
        .known_step = asking->known_step,
    };
    asking->code = cairn_up_version_load(helper, &wish, &asking->version, &asking->error);
    if (asking->code == CAIRN_OK && asking->insists &&
        strcmp(asking->version->manifest.format_tag, asking->format) != 0)
        asking->code = cairn_fail(
            &asking->error, CAIRN_UNSUPPORTED, "%s has format \"%.64s\", wanted: \"%s\"",
            asking->version->place.id.text, asking->version->manifest.format_tag, asking->format);
    cairn_up_mail_call(helper->up->mail, asking->conn, restore_done, asking, &asking->letter);
}

enum cairn_code cairn_up_on_restore(struct cairn_up_session *session,
                                    const struct cairn_up_ask *ask, struct cairn_error *err) {
    struct cairn_msg_restore told = {.ref = "latest"};
    CAIRN_TRY(cairn_msg_restore_read(ask->frame->message, "", &told, err));
    if (!strcmp(told.ref, "resume")) {
        if (!session->resume_version[0])
            return cairn_fail(err, CAIRN_NOT_FOUND, "this attempt resumed from nothing");
        told.ref = session->resume_version;
    }
    struct asking *asking = asking_new(session, ask, err);
    if (!asking) return CAIRN_NO_MEMORY;
    (void)cairn_text_copy(asking->ref, sizeof(asking->ref), told.ref);
    asking->insists = told.format != NULL;
    (void)cairn_text_copy(asking->format, sizeof(asking->format), told.format ? told.format : "");
    (void)cairn_text_copy(asking->known_version, sizeof(asking->known_version),
                          session->resume_version);
    asking->known_step = session->resume_step;
    return hand_over(asking, restore_task, err);
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

enum cairn_code cairn_up_on_release(struct cairn_up_session *session,
                                    const struct cairn_up_ask *ask, struct cairn_error *err) {
    struct cairn_msg_release told = {0};
    CAIRN_TRY(cairn_msg_release_read(ask->frame->message, "", &told, err));
    int place = find_restore(session, told.restore);
    if (place < 0) return no_restore(told.restore, err);
    session->restores[place].number = 0;
    cairn_up_version_leave(CAIRN_TAKE(session->restores[place].version));
    cairn_up_mail_answer(session->up->mail, session->conn, ask->request, CAIRN_PACK(ok, 0));
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
    for (int i = 0; i < CAIRN_UP_RESTORES_MAX; i++) {
        session->restores[i].number = 0;
        cairn_up_version_leave(CAIRN_TAKE(session->restores[i].version));
    }
    struct cairn_up_window *window = CAIRN_TAKE(session->window);
    /* Giving pages back takes long where they are many; this thread has other trainers. */
    if (window &&
        cairn_up_tasks_add(session->up->tasks, leave_window, drop_window, window, NULL) != CAIRN_OK)
        cairn_up_window_leave(window);
}

/* ---- window ---- */

static void window_done(void *owner, struct cairn_up_session *session) {
    struct asking *asking = owner;
    int fd = -1;
    if (asking->code == CAIRN_OK && session && session->window)
        asking->code = cairn_fail(&asking->error, CAIRN_PROTOCOL, "a second window");
    if (asking->code == CAIRN_OK && session) {
        fd = fcntl(asking->window->memory.fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0) asking->code = cairn_fail_errno(&asking->error, "a descriptor for the window");
    }
    if (asking->code != CAIRN_OK) refuse(asking);
    if (asking->code == CAIRN_OK && session) {
        session->window = CAIRN_TAKE(asking->window);
        cairn_up_mail_answer_fds(
            asking->up->mail, asking->conn, asking->request,
            CAIRN_PACK(window_given, .window = 1, .bytes = session->window->memory.size_bytes), &fd,
            1);
    }
    asking_free(asking);
}

static void window_task(struct cairn_up_helper *helper, void *owner) {
    struct asking *asking = owner;
    asking->code = cairn_up_window_new(helper->up, asking->bytes, &asking->window, &asking->error);
    cairn_up_mail_call(helper->up->mail, asking->conn, window_done, asking, &asking->letter);
}

enum cairn_code cairn_up_on_window(struct cairn_up_session *session, const struct cairn_up_ask *ask,
                                   struct cairn_error *err) {
    struct cairn_msg_window told = {0};
    CAIRN_TRY(cairn_msg_window_read(ask->frame->message, "", &told, err));
    if (session->window) return cairn_fail(err, CAIRN_INVALID, "this session has a window already");
    struct asking *asking = asking_new(session, ask, err);
    if (!asking) return CAIRN_NO_MEMORY;
    asking->bytes = told.bytes;
    return hand_over(asking, window_task, err);
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

enum cairn_code cairn_up_on_read(struct cairn_up_session *session, const struct cairn_up_ask *ask,
                                 struct cairn_error *err) {
    struct cairn_msg_read told = {0};
    size_t count = 0;
    CAIRN_TRY(cairn_msg_read_read(ask->frame->message, "", &told, err));
    int place = find_restore(session, told.restore);
    if (place < 0) return no_restore(told.restore, err);
    if (!session->window) return cairn_fail(err, CAIRN_INVALID, "this session has no window");
    CAIRN_AUTO_HEAP struct cairn_up_range *ranges = NULL;
    CAIRN_TRY(read_ranges(told.ranges, &ranges, &count, err));
    struct reply_to *reply = calloc(1, sizeof(*reply));
    if (!reply) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    *reply = (struct reply_to){session->up, session->conn, ask->request};
    enum cairn_code code =
        cairn_up_fetch_read(session->up->fetch, session->restores[place].version, session->window,
                            ranges, count, read_done, reply, err);
    if (code != CAIRN_OK) free(reply);
    return code;
}

/* ---- list ---- */

static void list_done(void *owner, struct cairn_up_session *session) {
    struct asking *asking = owner;
    (void)session;
    if (asking->code == CAIRN_OK)
        cairn_up_mail_answer(asking->up->mail, asking->conn, asking->request,
                             CAIRN_PACK(listed, .reply = asking->reply));
    else
        refuse(asking);
    asking_free(asking);
}

static enum cairn_code ask_list(struct cairn_up_helper *helper, struct asking *asking,
                                struct cairn_error *err) {
    struct cairn_rest *rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_up_helper_rest(helper, &rest, err));
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/%s/checkpoints?limit=%" PRIu64,
                               asking->name.project, asking->name.run, asking->limit));
    if (asking->cursor[0]) {
        CAIRN_TRY(cairn_buf_append_text(&path, "&cursor=", err));
        CAIRN_TRY(cairn_percent_encode(cairn_view_of(asking->cursor), false, &path, err));
    }
    CAIRN_TRY(cairn_rest_call(rest, "GET", path.data, NULL, 0, &asking->reply, err));
    return asking->reply ? CAIRN_OK
                         : cairn_fail(err, CAIRN_PROTOCOL, "the server's list is empty text");
}

static void list_task(struct cairn_up_helper *helper, void *owner) {
    struct asking *asking = owner;
    asking->code = ask_list(helper, asking, &asking->error);
    cairn_up_mail_call(helper->up->mail, asking->conn, list_done, asking, &asking->letter);
}

enum cairn_code cairn_up_on_list(struct cairn_up_session *session, const struct cairn_up_ask *ask,
                                 struct cairn_error *err) {
    struct cairn_msg_list told = {.limit = 100, .cursor = ""};
    CAIRN_TRY(cairn_msg_list_read(ask->frame->message, "", &told, err));
    struct asking *asking = asking_new(session, ask, err);
    if (!asking) return CAIRN_NO_MEMORY;
    asking->limit = told.limit;
    (void)cairn_text_copy(asking->cursor, sizeof(asking->cursor), told.cursor);
    return hand_over(asking, list_task, err);
}

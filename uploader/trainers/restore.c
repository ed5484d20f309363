/* SPDX-License-Identifier: Apache-2.0 */
/* restore, window, read, release and list: what a trainer asks when it reads. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
        cairn_up_mail_post_fds(
            asking->up->mail, asking->conn,
            json_pack("{s:s, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I}", "t", "restored", "id",
                      (json_int_t)asking->request, "restore", (json_int_t)session->restore_last,
                      "version", version->place.id.text, "step", (json_int_t)version->place.step,
                      "attempt", (json_int_t)version->manifest.origin.attempt, "world_size",
                      (json_int_t)version->manifest.world_size, "manifest_bytes",
                      (json_int_t)version->manifest_bytes, "layout_bytes",
                      (json_int_t)version->layout_bytes),
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
    const char *ref = "latest", *format = NULL;
    const struct cairn_json_field fields[] = {
        {"ref", CAIRN_JSON_TEXT, false, &ref, 63},
        {"format", CAIRN_JSON_TEXT, false, &format, 63},
    };
    CAIRN_TRY(cairn_json_read(ask->frame->message, "", fields, CAIRN_COUNT(fields), true, err));
    if (!strcmp(ref, "resume")) {
        if (!session->resume_version[0])
            return cairn_fail(err, CAIRN_NOT_FOUND, "this attempt resumed from nothing");
        ref = session->resume_version;
    }
    struct asking *asking = asking_new(session, ask, err);
    if (!asking) return CAIRN_NO_MEMORY;
    (void)cairn_text_copy(asking->ref, sizeof(asking->ref), ref);
    asking->insists = format != NULL;
    (void)cairn_text_copy(asking->format, sizeof(asking->format), format ? format : "");
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
    uint64_t number = 0;
    const struct cairn_json_field field = {"restore", CAIRN_JSON_U64, true, &number, 0};
    CAIRN_TRY(cairn_json_read(ask->frame->message, "", &field, 1, true, err));
    int place = find_restore(session, number);
    if (place < 0) return no_restore(number, err);
    session->restores[place].number = 0;
    cairn_up_version_leave(CAIRN_TAKE(session->restores[place].version));
    cairn_up_mail_answer(session->up->mail, session->conn, ask->request, "ok", NULL);
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
        cairn_up_mail_post_fds(asking->up->mail, asking->conn,
                               json_pack("{s:s, s:I, s:i, s:I}", "t", "window", "id",
                                         (json_int_t)asking->request, "window", 1, "bytes",
                                         (json_int_t)session->window->memory.size_bytes),
                               &fd, 1);
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
    uint64_t bytes = 0;
    const struct cairn_json_field field = {"bytes", CAIRN_JSON_U64, true, &bytes, 0};
    CAIRN_TRY(cairn_json_read(ask->frame->message, "", &field, 1, true, err));
    if (session->window) return cairn_fail(err, CAIRN_INVALID, "this session has a window already");
    struct asking *asking = asking_new(session, ask, err);
    if (!asking) return CAIRN_NO_MEMORY;
    asking->bytes = bytes;
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
        cairn_up_mail_answer(reply->up->mail, reply->conn, reply->request, "read", NULL);
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
        const struct cairn_json_field fields[] = {
            {"shard", CAIRN_JSON_U32, true, &ranges[i].shard, 0},
            {"offset", CAIRN_JSON_U64, true, &ranges[i].offset, 0},
            {"bytes", CAIRN_JSON_U64, true, &ranges[i].bytes, 0},
            {"at", CAIRN_JSON_U64, true, &ranges[i].at, 0},
        };
        CAIRN_TRY(cairn_json_read(json_array_get(array, i), "/ranges", fields, CAIRN_COUNT(fields),
                                  true, err));
    }
    *ret = CAIRN_TAKE(ranges);
    *ret_count = count;
    return CAIRN_OK;
}

enum cairn_code cairn_up_on_read(struct cairn_up_session *session, const struct cairn_up_ask *ask,
                                 struct cairn_error *err) {
    uint64_t number = 0;
    json_t *array = NULL;
    size_t count = 0;
    const struct cairn_json_field fields[] = {
        {"restore", CAIRN_JSON_U64, true, &number, 0},
        {"ranges", CAIRN_JSON_ARRAY, true, &array, 0},
    };
    CAIRN_TRY(cairn_json_read(ask->frame->message, "", fields, CAIRN_COUNT(fields), true, err));
    int place = find_restore(session, number);
    if (place < 0) return no_restore(number, err);
    if (!session->window) return cairn_fail(err, CAIRN_INVALID, "this session has no window");
    CAIRN_AUTO_HEAP struct cairn_up_range *ranges = NULL;
    CAIRN_TRY(read_ranges(array, &ranges, &count, err));
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
        cairn_up_mail_answer(asking->up->mail, asking->conn, asking->request, "listed",
                             json_pack("{s:O}", "reply", asking->reply));
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
    uint64_t limit = 100;
    const char *cursor = "";
    const struct cairn_json_field fields[] = {
        {"limit", CAIRN_JSON_U64, false, &limit, 1000},
        {"cursor", CAIRN_JSON_TEXT, false, &cursor, 511},
    };
    CAIRN_TRY(cairn_json_read(ask->frame->message, "", fields, CAIRN_COUNT(fields), true, err));
    struct asking *asking = asking_new(session, ask, err);
    if (!asking) return CAIRN_NO_MEMORY;
    asking->limit = limit;
    (void)cairn_text_copy(asking->cursor, sizeof(asking->cursor), cursor);
    return hand_over(asking, list_task, err);
}

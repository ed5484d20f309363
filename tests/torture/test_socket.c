/* SPDX-License-Identifier: Apache-2.0 */
/* K07: what the uploader says while memory is short arrives, or the connection ends. */
#include "api/wire/frame.h"
#include "tests/torture/torture.h"
#include "uploader/mail.h"
#include "uploader/send/shards.h"
#include "uploader/trainers/socket.h"

#define WAIT_MS 300000

struct talk {
    struct cairn_up *up;
    uint64_t connects; /* the socket numbers its connections as they come */
};

/* The next frame, or CAIRN_UPLOADER_GONE: the connection ended. */
static enum cairn_code hear(int fd, struct cairn_frame_reader *reader, struct cairn_frame *ret,
                            struct cairn_error *err) {
    for (;;) {
        bool closed = false, ready = false;
        CAIRN_TRY(cairn_frame_fill(reader, fd, &closed, err));
        CAIRN_TRY(cairn_frame_next(reader, ret, &ready, err));
        if (ready) return CAIRN_OK;
        if (closed) return cairn_fail(err, CAIRN_UPLOADER_GONE, "the connection ended");
        struct pollfd waiting = {.fd = fd, .events = POLLIN};
        if (poll(&waiting, 1, WAIT_MS) <= 0)
            return cairn_fail(err, CAIRN_TIMEOUT, "neither an answer nor the end came");
    }
}

static enum cairn_code greet(int fd, struct cairn_frame_reader *reader, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *hello =
        json_pack("{s:s, s:i, s:i, s:i, s:s, s:b}", "t", "hello", "id", 1, "min", 2, "max", 2,
                  "run", "llm/seven", "read_only", 1);
    CAIRN_AUTO(buf) bytes = {0};
    CAIRN_AUTO(frame) welcome = {0};
    CAIRN_TRY(cairn_frame_encode(hello, (struct cairn_view){NULL, 0}, &bytes, err));
    CAIRN_TRY(cairn_net_send(fd, cairn_buf_view(&bytes), NULL, 0, cairn_mono_ms() + WAIT_MS, err));
    return hear(fd, reader, &welcome, err);
}

static enum cairn_code answered(void *context, struct cairn_error *err) {
    struct talk *talk = context;
    CAIRN_AUTO_FD fd = -1;
    CAIRN_TRY(cairn_net_connect_unix(talk->up->places.socket_path, &fd, err));
    uint64_t conn = ++talk->connects;
    struct cairn_frame_reader reader = {0};
    enum cairn_code code = greet(fd, &reader, err);
    if (code == CAIRN_OK) {
        CAIRN_AUTO(frame) answer = {0};
        struct cairn_error why = {0};
        (void)cairn_fail(&why, CAIRN_NO_SPACE, "no room");
        cairn_up_mail_refuse(talk->up->mail, conn, 7, &why);
        code = hear(fd, &reader, &answer, err);
        if (code == CAIRN_OK) EXPECT_EQ_TEXT(answer.name, "error");
    }
    cairn_frame_reader_release(&reader);
    return code;
}

TEST(k07_an_answer_for_which_there_is_no_memory_ends_its_connection_alone, err) { /* U04 */
    struct talk talk = {.up = calloc(1, sizeof(struct cairn_up))};
    REQUIRE(talk.up != NULL);
    cairn_log_start("torture", CAIRN_LOG_ERROR, STDERR_FILENO);
    cairn_lock_init(&talk.up->lock, CAIRN_LOCK_uploader_state);
    cairn_condition_init(&talk.up->changed);
    cairn_budget_init(&talk.up->budget, 4 * CAIRN_MIB);
    talk.up->settings.connections_max = 100000;
    talk.up->settings.workers = 1;
    talk.up->settings.part_size_bytes = CAIRN_MIB;
    talk.up->places.any_uid = true;
    snprintf(talk.up->places.node, sizeof talk.up->places.node, "n1");
    snprintf(talk.up->places.socket_path, sizeof talk.up->places.socket_path, "%.90s/up.sock",
             cairn_test_folder());
    REQUIRE_OK(cairn_up_queue_new(talk.up, &talk.up->queue, &err));
    REQUIRE_OK(cairn_up_mail_new(&talk.up->mail, &err));
    REQUIRE_OK(cairn_up_socket_new(talk.up, &talk.up->socket, &err));
    REQUIRE_OK(cairn_up_socket_start(talk.up->socket, &err));
    cairn_torture_loosely("an answer", answered, &talk);
    /* Nobody could make the message at all, for more connections than are kept in mind. */
    for (uint64_t conn = 1; conn <= 200; conn++) cairn_up_mail_post(talk.up->mail, conn, NULL);
    enum cairn_code code = CAIRN_UPLOADER_GONE; /* one that comes at that moment ends, too */
    for (int i = 0; i < 3 && code != CAIRN_OK; i++) code = answered(&talk, &err);
    EXPECT(code == CAIRN_OK);
    cairn_up_socket_free(talk.up->socket);
    cairn_up_mail_free(talk.up->mail);
    cairn_up_queue_free(talk.up->queue);
    cairn_budget_release(&talk.up->budget);
    cairn_condition_release(&talk.up->changed);
    cairn_lock_release(&talk.up->lock);
    free(talk.up);
}

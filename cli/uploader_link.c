/* SPDX-License-Identifier: Apache-2.0 */
/* A frame out, frames in until the answer is there; see uploader_link.h. */
#include "cli/uploader_link.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/net.h"

enum cairn_code cairn_cli_uploader_open(const char *socket_path, struct cairn_cli_uploader *ret,
                                        struct cairn_error *err) {
    *ret = (struct cairn_cli_uploader){.fd = -1};
    enum cairn_code code = cairn_net_connect_unix(socket_path, &ret->fd, err);
    if (!code)
        code = cairn_net_listener_check(ret->fd, socket_path, getenv("CAIRN_UPLOADER_USERS"),
                                        "CAIRN_UPLOADER_USERS", err);
    if (code == CAIRN_FORBIDDEN) return cairn_within(err, code, "%s", socket_path);
    if (code != CAIRN_NOT_FOUND && code != CAIRN_UNAVAILABLE) return code;
    return cairn_fail(err, CAIRN_UPLOADER_GONE, "no uploader listens at %s (--socket)",
                      socket_path);
}

void cairn_cli_uploader_close(struct cairn_cli_uploader *uploader) {
    if (uploader->fd >= 0) close(uploader->fd);
    cairn_frame_reader_release(&uploader->reader);
    uploader->fd = -1;
}

static enum cairn_code send_request(struct cairn_cli_uploader *uploader, const json_t *request,
                                    uint64_t deadline_ms, struct cairn_error *err) {
    CAIRN_AUTO(buf) bytes = {0};
    CAIRN_TRY(cairn_frame_encode(request, (struct cairn_view){NULL, 0}, &bytes, err));
    return cairn_net_send(uploader->fd, cairn_buf_view(&bytes), NULL, 0, deadline_ms, err);
}

static enum cairn_code next_frame(struct cairn_cli_uploader *uploader, uint64_t deadline_ms,
                                  struct cairn_frame *ret, struct cairn_error *err) {
    for (bool closed = false, ready = false;;) {
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, deadline_ms);
        struct pollfd waiting = {.fd = uploader->fd, .events = POLLIN};
        CAIRN_TRY(cairn_frame_next(&uploader->reader, ret, &ready, err));
        if (ready) return CAIRN_OK;
        if (closed)
            return cairn_fail(err, CAIRN_UPLOADER_GONE, "the uploader has ended");
        if (!left_ms) return cairn_fail(err, CAIRN_TIMEOUT, "the uploader does not answer");
        (void)poll(&waiting, 1, (int)cairn_min_u64(left_ms, 1000));
        CAIRN_TRY(cairn_frame_fill(&uploader->reader, uploader->fd, &closed, err));
    }
}

static enum cairn_code read_answer(const struct cairn_frame *frame, json_t **ret,
                                   struct cairn_error *err) {
    if (strcmp(frame->name, cairn_message_form(CAIRN_MESSAGE_error)->text) != 0) {
        *ret = json_incref(frame->message);
        return CAIRN_OK;
    }
    struct cairn_error why = {0};
    cairn_failure_get(frame->message, "message", &why);
    return cairn_fail(err, why.code ? why.code : CAIRN_PROTOCOL, "%s", why.message);
}

enum cairn_code cairn_cli_uploader_ask(struct cairn_cli_uploader *uploader, json_t *take_request,
                                       uint64_t deadline_ms, json_t **ret,
                                       struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *request = take_request;
    uint64_t id = ++uploader->numbered;
    if (!request || json_object_set_new(request, "id", json_integer((json_int_t)id)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
    enum cairn_code code = send_request(uploader, request, deadline_ms, err);
    if (code != CAIRN_UNAVAILABLE) CAIRN_TRY(code); /* it may have said why it ends */
    for (;;) {
        CAIRN_AUTO(frame) frame = {0};
        CAIRN_TRY(next_frame(uploader, deadline_ms, &frame, err));
        const json_t *of = json_object_get(frame.message, "id");
        bool refusal = !of && strcmp(frame.name, "error") == 0;
        if (refusal || (json_is_integer(of) && (uint64_t)json_integer_value(of) == id))
            return read_answer(&frame, ret, err);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* call: requests and replies; long polls with retries, operations, frames to the uploader. */
#include "cli/shell/call.h"

#include <cairn/cairn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "api/wire/routes.h"
#include "cli/shell/output.h"
#include "common/clock.h"
#include "common/net.h"
#include "common/text.h"

#define PAGE_ITEMS 1000

enum cairn_code cli_call(const struct cli *cli, const struct cli_ref *ref, struct cli_call call,
                         json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cli_connect(cli, &rest, err));
    CAIRN_TRY(cli_path(ref, call.tail ? call.tail : "", &path, err));
    if (call.wait_ms) return cairn_rest_wait(rest, path.data, call.wait_ms, ret, err);
    CAIRN_TRY(cairn_rest_set_if_match(rest, call.if_match, err));
    return cairn_rest_call(rest, call.method ? call.method : "GET", path.data, call.body,
                           call.timeout_ms, ret, err);
}

enum cairn_code cli_version_or_failed(const struct cli *cli, const struct cli_ref *ref,
                                      json_t **ret, struct cairn_error *err) {
    uint64_t step;
    struct cairn_error why = {0};
    enum cairn_code code = cli_call(cli, ref, (struct cli_call){0}, ret, &why);
    bool of_step = cairn_parse_u64(cairn_view_of(ref->version), &step, NULL) == CAIRN_OK;
    if (code == CAIRN_NOT_FOUND && of_step) {
        struct cli_call failed = {.tail = "?for=committed"}; /* without a long poll */
        if (cli_call(cli, ref, failed, ret, NULL) == CAIRN_OK) {
            json_object_del(*ret, "awaited");
            return CAIRN_OK;
        }
    }
    return cairn_pass(err, code, &why);
}

enum cairn_code cli_reply_read(enum cairn_message form, const json_t *json, void *ret,
                               struct cairn_error *err) {
    enum cairn_code code = cairn_message_read(form, json, "", ret, err);
    return code ? cairn_within(err, CAIRN_PROTOCOL, "the server's answer") : CAIRN_OK;
}

enum cairn_code cli_ask(const struct cli *cli, const struct cli_ref *ref, struct cli_call call,
                        enum cairn_message form, json_t **ret, void *ret_row,
                        struct cairn_error *err) {
    CAIRN_TRY(cli_call(cli, ref, call, ret, err));
    return cli_reply_read(form, *ret, ret_row, err);
}

enum cairn_code cli_get(const struct cli *cli, const struct cli_ref *ref, const char *tail,
                        enum cairn_message form, json_t **ret, void *ret_row,
                        struct cairn_error *err) {
    struct cli_call call = {.tail = tail};
    return cli_ask(cli, ref, call, form, ret, ret_row, err);
}

enum cairn_code cli_list(const struct cli *cli, const struct cli_ref *ref, const char *tail,
                         uint64_t limit, json_t *items, bool *ret_more, struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO(buf) path = {0}, url = {0}, cursor = {0}, next = {0};
    bool more = true;
    CAIRN_TRY(cli_connect(cli, &rest, err));
    CAIRN_TRY(cli_path(ref, tail, &path, err));
    while (more && json_array_size(items) < limit) {
        CAIRN_AUTO_JSON json_t *reply = NULL;
        uint64_t some = cairn_min_u64(PAGE_ITEMS, limit - json_array_size(items));
        cairn_buf_clear(&url);
        CAIRN_TRY(cairn_buf_printf(&url, err, "%s%climit=%llu", path.data,
                                   strchr(path.data, '?') ? '&' : '?', (unsigned long long)some));
        if (cursor.size) CAIRN_TRY(cairn_buf_printf(&url, err, "&cursor=%s", cursor.data));
        CAIRN_TRY(cairn_rest_call(rest, "GET", url.data, NULL, 0, &reply, err));
        CLI_READ(page, page, reply, err);
        if (json_array_extend(items, page.items))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
        /* A filtered page may be empty and still have successors. */
        more = page.next_cursor && *page.next_cursor;
        if (!more) break;
        cairn_buf_clear(&next);
        CAIRN_TRY(cairn_percent_encode(cairn_view_of(page.next_cursor), false, &next, err));
        if (cursor.size == next.size && !strcmp(cursor.data, next.data))
            return cairn_fail(err, CAIRN_PROTOCOL, "the list goes in circles");
        cairn_buf_clear(&cursor);
        CAIRN_TRY(cairn_buf_append(&cursor, next.data, next.size, err));
    }
    if (ret_more) *ret_more = more;
    return CAIRN_OK;
}

enum cairn_code cli_list_add(json_t *items, json_t *take_item, struct cairn_error *err) {
    if (!json_array_append_new(items, take_item)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
}

/* The server may lack the path, method, parameter or member, or its answer a member. These codes
 * have other causes, too, so a newer release is only suggested. */
static bool may_be_of_releases(const struct cli *cli, enum cairn_code code,
                               const struct cairn_error *err) {
    bool refused = (code == CAIRN_NOT_FOUND || code == CAIRN_INVALID) && err->http_status;
    return !cli->store && (refused || code == CAIRN_METHOD || code == CAIRN_PROTOCOL);
}

void cli_name_older_server(const struct cli *cli, enum cairn_code code, struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    if (may_be_of_releases(cli, code, err) && cli_connect(cli, &rest, NULL) == CAIRN_OK)
        cairn_rest_name_older(rest, "this command", cairn_version(), err);
}

enum cairn_code cli_ref_latest(const struct cli *cli, struct cli_ref *ret,
                               struct cairn_error *err) {
    CAIRN_TRY(cli_ref_parse(cli->arguments[0], ret, err));
    if (!ret->version[0]) cairn_text_copy(ret->version, sizeof ret->version, "latest");
    return CAIRN_OK;
}

enum cairn_code cli_ref_parse(const char *text, struct cli_ref *ret, struct cairn_error *err) {
    struct cli_ref ref = {0};
    if (cairn_text_starts(text, "cairn://")) text += strlen("cairn://");
    const char *at = strchr(text, '@');
    char name[2 * CAIRN_NAME_BYTES_MAX + 2] = "";
    size_t name_bytes = at ? (size_t)(at - text) : strlen(text);
    if (name_bytes >= sizeof name)
        return cairn_fail(err, CAIRN_INVALID, "\"%.60s...\" is too long for project/run", text);
    memcpy(name, text, name_bytes);
    struct cairn_error why = {0};
    if (!strchr(name, '/'))
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%.80s\" has no slash: a run is project/run, a checkpoint of it "
                          "project/run@step",
                          text);
    if (cairn_run_name_parse(name, &ref.name, &why) != CAIRN_OK)
        return cairn_fail(err, CAIRN_INVALID, "%s (wanted: project/run or project/run@step)",
                          why.message);
    if (at) {
        if (!cairn_text_copy(ref.version, sizeof ref.version, at + 1) ||
            cairn_ref_check(ref.version, "", NULL))
            return cairn_fail(
                err, CAIRN_INVALID,
                "\"%.60s\" after @ names no checkpoint: it is a step, latest, best, an "
                "alias, or an id (ckpt_ and 36 characters)",
                at + 1);
    }
    *ret = ref;
    return CAIRN_OK;
}

enum cairn_code cli_ref_run(const char *verb, const char *text, struct cli_ref *ret,
                            struct cairn_error *err) {
    CAIRN_TRY(cli_ref_parse(text, ret, err));
    if (!ret->version[0]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%s takes a run without @: %s/%s", verb,
                      ret->name.project, ret->name.run);
}

enum cairn_code cli_ref_checkpoint(const char *text, struct cli_ref *ret, struct cairn_error *err) {
    CAIRN_TRY(cli_ref_parse(text, ret, err));
    if (ret->version[0]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "name the checkpoint: %s@step", text);
}

enum cairn_code cli_path(const struct cli_ref *ref, const char *tail, struct cairn_buf *ret,
                         struct cairn_error *err) {
    cairn_buf_clear(ret);
    if (!ref) return cairn_buf_printf(ret, err, "/v1%s", tail);
    CAIRN_TRY(cairn_buf_printf(ret, err, "/v1/runs/%s/%s", ref->name.project, ref->name.run));
    if (ref->version[0]) CAIRN_TRY(cairn_buf_printf(ret, err, "/checkpoints/%s", ref->version));
    return cairn_buf_append_text(ret, tail, err);
}

/* ---- patience: transient failures and the retry loop ---- */

#define AGAIN_MS 500

static bool is_transient(enum cairn_code code) {
    switch (code) {
    case CAIRN_UNAVAILABLE:
    case CAIRN_TIMEOUT:
    case CAIRN_BUSY:
    case CAIRN_RATE_LIMITED:
        return true;
    default:
        return false;
    }
}

bool cli_failure_is_transient(bool answered, enum cairn_code code, const struct cairn_error *why) {
    return is_transient(code) && (answered || why->http_status >= 500);
}

uint64_t cli_begin_wait(struct cli *cli, uint64_t otherwise_ms) {
    uint64_t timeout_ms = cli->timeout_ms ? cli->timeout_ms : otherwise_ms;
    cli->timeout_ms = 0;
    return timeout_ms ? cairn_deadline_in(&cairn_clock_real, timeout_ms) : UINT64_MAX;
}

/* Decides whether to retry and, if so, sleeps first. */
static bool bears(struct cli_patience *patience, enum cairn_code code,
                  const struct cairn_error *why) {
    uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, patience->deadline);
    if (!left_ms || !cli_failure_is_transient(patience->answered, code, why)) return false;
    if (!patience->away) cli_note("note: %s; waiting for it", why->message);
    patience->away = true;
    (void)poll(NULL, 0, (int)cairn_min_u64(left_ms, AGAIN_MS));
    return true;
}

enum cairn_code cli_patient_call(struct cli_patience *patience, const struct cli *cli,
                                 const struct cli_ref *ref, struct cli_call call, json_t **ret,
                                 struct cairn_error *err) {
    uint64_t most_ms = cairn_min_u64(call.wait_ms, CLI_LONG_POLL_MS);
    for (;;) {
        struct cairn_error why = {0};
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, patience->deadline);
        call.wait_ms = (uint32_t)cairn_min_u64(left_ms, most_ms);
        enum cairn_code code = cli_call(cli, ref, call, ret, &why);
        if (code && bears(patience, code, &why)) continue;
        /* A refusal is an answer, too. */
        if (!is_transient(code)) {
            if (patience->away) cli_note("note: the server answers again");
            patience->answered = true;
            patience->away = false;
        }
        return cairn_pass(err, code, &why);
    }
}

/* ---- operations: short long polls; the meter starts with the first known total ---- */

#define TIMEOUT_DEFAULT_MS 3600000
#define POLL_MS 1000

struct wait {
    struct cli cli; /* timeouts cleared: the deadline bounds the whole wait */
    const char *job, *id;
    struct cli_patience patience;
    struct cli_meter meter;
    char unit[24]; /* of the meter, which outlives the reply */
    bool metered;
};

enum cairn_code cli_operation_end(const struct cairn_msg_operation_row *row,
                                  struct cairn_error *err) {
    struct cairn_error why = {0};
    if (!strcmp(row->state, "done")) return CAIRN_OK;
    if (row->problem) cairn_failure_get(row->problem, "detail", &why);
    return cairn_fail(err, why.code ? why.code : CAIRN_CANCELLED, "%s %s: %s", row->id, row->state,
                      why.message);
}

static enum cairn_code to_its_end(struct wait *wait, json_t **ret, struct cairn_error *err) {
    char tail[100];
    snprintf(tail, sizeof tail, "/operations/%.64s", wait->id);
    for (;;) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, wait->patience.deadline);
        struct cli_call call = {.tail = tail, .wait_ms = POLL_MS};
        CAIRN_TRY(cli_patient_call(&wait->patience, &wait->cli, NULL, call, &json, err));
        CLI_READ(operation_row, row, json, err);
        struct cairn_msg_operation_progress at = {0};
        if (!cairn_msg_operation_progress_read(row.progress, "", &at, NULL) && at.total) {
            if (!wait->metered) cli_meter_init(&wait->meter, &wait->cli, wait->job, at.total, 0);
            wait->metered = true;
            if (strcmp(at.unit, "bytes") != 0) {
                (void)cairn_text_copy(wait->unit, sizeof wait->unit, at.unit);
                wait->meter.unit = wait->unit;
            }
            wait->meter.total_bytes = at.total; /* grows while work is found */
            cli_meter_set(&wait->meter, at.done, NULL);
        }
        bool over = strcmp(row.state, "queued") != 0 && strcmp(row.state, "running") != 0;
        if (over) {
            CAIRN_TRY(cli_operation_end(&row, err));
            if (ret) *ret = CAIRN_TAKE(json);
            return CAIRN_OK;
        }
        if (!left_ms)
            return cairn_fail(err, CAIRN_TIMEOUT, "%s is %s yet; the server goes on", row.id,
                              row.state);
    }
}

/* patience.answered: the server has created the operation. */
static struct wait begin_wait(const struct cli *cli, const char *job) {
    struct wait wait = {.cli = *cli, .job = job, .patience.answered = true};
    uint64_t timeout_ms = cli->timeout_ms ? cli->timeout_ms : TIMEOUT_DEFAULT_MS;
    wait.cli.timeout_ms = 0;
    wait.patience.deadline = cairn_deadline_in(&cairn_clock_real, timeout_ms);
    return wait;
}

enum cairn_code cli_operation_follow(const struct cli *cli, const char *job, const char *id,
                                     json_t **ret, struct cairn_error *err) {
    struct wait wait = begin_wait(cli, job);
    wait.id = id;
    enum cairn_code code = to_its_end(&wait, ret, err);
    if (wait.metered) cli_meter_end(&wait.meter, !code);
    return code;
}

enum cairn_code cli_operation_run(const struct cli *cli, const char *job, const struct cli_ref *ref,
                                  struct cli_call call, json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *begun = NULL;
    struct cairn_msg_operation_row row = {0};
    struct cli_ref same = *ref;
    struct cairn_error why = {0};
    struct wait wait = begin_wait(cli, job);
    CAIRN_TRY(cli_ask(cli, ref, call, CAIRN_MESSAGE_operation_row, &begun, &row, err));
    const char *version = json_string_value(json_object_get(row.request, "version"));
    if (version) (void)cairn_text_copy(same.version, sizeof same.version, version); /* not latest */
    for (;;) {
        wait.id = row.id;
        enum cairn_code code = to_its_end(&wait, ret, &why);
        bool again = code == CAIRN_INTERRUPTED &&
                     cairn_deadline_left_ms(&cairn_clock_real, wait.patience.deadline);
        if (again) {
            cli_note("note: %s; asking again", why.message);
            json_decref(begun);
            begun = NULL;
            code = cli_patient_call(&wait.patience, &wait.cli, &same, call, &begun, &why);
            if (!code) code = cli_reply_read(CAIRN_MESSAGE_operation_row, begun, &row, &why);
        }
        if (again && !code) continue;
        if (wait.metered) cli_meter_end(&wait.meter, !code);
        return cairn_pass(err, code, &why);
    }
}

/* ---- the uploader: sends one frame, reads frames until the reply ---- */

enum cairn_code cli_uploader_open(const char *socket_path, struct cli_uploader *ret,
                                  struct cairn_error *err) {
    *ret = (struct cli_uploader){.fd = -1};
    enum cairn_code code = cairn_net_connect_unix(socket_path, &ret->fd, err);
    if (!code)
        code = cairn_net_listener_check(ret->fd, socket_path, getenv("CAIRN_UPLOADER_USERS"),
                                        "CAIRN_UPLOADER_USERS", err);
    if (code == CAIRN_FORBIDDEN) return cairn_within(err, code, "%s", socket_path);
    if (code != CAIRN_NOT_FOUND && code != CAIRN_UNAVAILABLE) return code;
    return cairn_fail(err, CAIRN_UPLOADER_GONE, "no uploader listens at %s (--socket)",
                      socket_path);
}

void cli_uploader_close(struct cli_uploader *uploader) {
    if (uploader->fd >= 0) close(uploader->fd);
    cairn_frame_reader_release(&uploader->reader);
    uploader->fd = -1;
}

static enum cairn_code send_request(struct cli_uploader *uploader, const json_t *request,
                                    uint64_t deadline_ms, struct cairn_error *err) {
    CAIRN_AUTO(buf) bytes = {0};
    CAIRN_TRY(cairn_frame_encode(request, (struct cairn_view){NULL, 0}, &bytes, err));
    return cairn_net_send(uploader->fd, cairn_buf_view(&bytes), NULL, 0, deadline_ms, err);
}

static enum cairn_code next_frame(struct cli_uploader *uploader, uint64_t deadline_ms,
                                  struct cairn_frame *ret, struct cairn_error *err) {
    for (bool closed = false, ready = false;;) {
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, deadline_ms);
        struct pollfd waiting = {.fd = uploader->fd, .events = POLLIN};
        CAIRN_TRY(cairn_frame_next(&uploader->reader, ret, &ready, err));
        if (ready) return CAIRN_OK;
        if (closed) return cairn_fail(err, CAIRN_UPLOADER_GONE, "the uploader has ended");
        if (!left_ms) return cairn_fail(err, CAIRN_TIMEOUT, "the uploader does not answer");
        (void)poll(&waiting, 1, (int)cairn_min_u64(left_ms, 1000));
        CAIRN_TRY(cairn_frame_fill(&uploader->reader, uploader->fd, &closed, err));
    }
}

enum cairn_code cli_uploader_ask(struct cli_uploader *uploader, json_t *take_request,
                                 uint64_t deadline_ms, json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *request = take_request;
    uint64_t id = ++uploader->numbered;
    if (!request || json_object_set_new(request, "id", json_integer((json_int_t)id)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request");
    enum cairn_code code = send_request(uploader, request, deadline_ms, err);
    if (code != CAIRN_UNAVAILABLE) CAIRN_TRY(code); /* the uploader may have sent why it ends */
    for (;;) {
        CAIRN_AUTO(frame) frame = {0};
        CAIRN_TRY(next_frame(uploader, deadline_ms, &frame, err));
        const json_t *of = json_object_get(frame.message, "id");
        bool refusal = !of && strcmp(frame.name, "error") == 0;
        if (refusal || (json_is_integer(of) && (uint64_t)json_integer_value(of) == id)) {
            if (strcmp(frame.name, cairn_message_form(CAIRN_MESSAGE_error)->text) != 0) {
                *ret = json_incref(frame.message);
                return CAIRN_OK;
            }
            struct cairn_error why = {0};
            cairn_failure_get(frame.message, "message", &why);
            return cairn_fail(err, why.code ? why.code : CAIRN_PROTOCOL, "%s", why.message);
        }
    }
}

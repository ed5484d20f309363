/* SPDX-License-Identifier: Apache-2.0 */
/* The message `begin`, built once and sent as often as needed, and its answer. */
#include "client/save/begun.h"

#include <inttypes.h>

#include "client/save/look.h"
#include "client/save/meta.h"
#include "client/save/share.h"
#include "client/session/alone.h"

#define VERSION_OF_FOLLOWING 7 /* of the socket */

static const char *on_exists_text(enum cairn_on_exists on_exists) {
    if (on_exists == CAIRN_EXISTS_NEW_VERSION) return "new-version";
    return on_exists == CAIRN_EXISTS_SUPERSEDE ? "supersede" : "error";
}

static bool format_valid(const char *format) {
    return !format ||
           (strlen(format) < 64 && format[0] && cairn_name_valid(cairn_view_of(format)));
}

/* Rank 0 follows nobody: its own seal is the decision. */
static enum cairn_code check_follows(struct cairn_save *save, struct cairn_error *err) {
    if (!save->session->rank)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s step %" PRIu64 ": rank 0 decides, and follows no rank",
                          save->session->run, save->step);
    CAIRN_TRY(cairn_client_speaks(save->session, VERSION_OF_FOLLOWING, "to follow rank 0", err));
    save->follows = true;
    return CAIRN_OK;
}

enum cairn_code cairn_client_begin_body(struct cairn_save *save,
                                        const struct cairn_save_options *options,
                                        struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *labels = NULL, *meta = NULL, *splits = NULL;
    const char *on_exists = on_exists_text(options->on_exists);
    /* What the report of a refusal below must say. */
    save->begin = CAIRN_PACK(begin, .step = save->step, .n = save->n, .on_exists = on_exists,
                             .skip = options->skip != 0,
                             .format = format_valid(options->format) ? options->format : NULL);
    if (save->session->rank == 0) {
        const struct cairn_client_meta_text text = {options->labels_json, options->meta_json};
        CAIRN_TRY(cairn_client_meta_read(&text, &labels, &meta, err));
        CAIRN_TRY(cairn_client_meta_origin(save->session, &meta, err));
    }
    if (!format_valid(options->format))
        return cairn_fail(err, CAIRN_INVALID,
                          "format tag: 1 to 63 of A-Za-z0-9._- are allowed, beginning with one of "
                          "A-Za-z0-9");
    if (options->follow) CAIRN_TRY(check_follows(save, err));
    bool finer = options->split_count && cairn_client_can_look(save->session);
    CAIRN_TRY(cairn_client_shares_open(&save->shares, options->splits, options->split_count, finer,
                                       &splits, err));
    if (finer) CAIRN_TRY(cairn_client_lists_keep(save, err));
    json_decref(save->begin);
    save->begin =
        CAIRN_PACK(begin, .splits = splits, .step = save->step, .n = save->n,
                   .on_exists = on_exists, .skip = options->skip != 0, .format = options->format,
                   .labels = labels, .meta = meta,
                   .abort_on_disconnect = save->session->abort_on_disconnect,
                   .follow = save->follows);
    if (!save->begin) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the begin");
    return CAIRN_OK;
}

static bool read_begun(const json_t *answer, struct cairn_msg_begun *ret) {
    return cairn_msg_begun_read(answer, "", ret, NULL) == CAIRN_OK && ret->save && ret->owner &&
           cairn_version_id_valid(cairn_view_of(ret->version));
}

/* The lock is held. */
static void take_begun(struct cairn_save *save, const json_t *answer) {
    struct cairn_msg_begun told = {0};
    if (!read_begun(answer, &told)) return; /* the call fails: cairn_client_save_begin_again */
    save->id = told.save;
    save->owner = told.owner;
    memcpy(save->version, told.version, strlen(told.version) + 1);
    if (save->generation < 0) return;
    /* The generation was taken before this uploader knew the save. */
    struct cairn_client_generation *own = &save->session->saves->generations[save->generation];
    if (own->held == save) own->owner = told.owner;
}

static void on_begun(void *subject, const struct cairn_frame *answer) {
    struct cairn_save *save = subject;
    if (strcmp(answer->name, "begun") == 0)
        take_begun(save, answer->message);
    else
        cairn_client_stopping_note(save->session, answer);
}

/* For a save that is begun, an uploader that stops is one that is away: the save is copied into
 * memory that is free, and the next uploader gets it (Q43). */
static enum cairn_code refuse_stopping(const struct cairn_session *session,
                                       struct cairn_error *err) {
    return cairn_fail(err, CAIRN_UPLOADER_GONE,
                      "the uploader at %s is stopping; the next one begins the save",
                      session->socket);
}

static bool is_stopping(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    return cairn_client_stopping(session);
}

enum cairn_code cairn_client_save_begin_again(struct cairn_save *save, uint32_t epoch, bool alone,
                                              uint64_t deadline_ms, struct cairn_error *err) {
    struct cairn_session *session = save->session;
    CAIRN_AUTO(frame) answer = {0};
    struct cairn_msg_begun told = {0};
    if (!alone && is_stopping(session)) return refuse_stopping(session, err);
    const struct cairn_client_request request = {.take_message = json_deep_copy(save->begin),
                                                 .wanted = cairn_client_wanted(CAIRN_MESSAGE_begin),
                                                 .on_answer = on_begun,
                                                 .subject = save,
                                                 .epoch = epoch,
                                                 .deadline_ms = deadline_ms};
    enum cairn_code code = alone ? cairn_client_call_alone(session, &request, &answer, err)
                                 : cairn_client_call(session, &request, &answer, err);
    if (code == CAIRN_UNAVAILABLE) return refuse_stopping(session, err);
    CAIRN_TRY(code);
    if (!read_begun(answer.message, &told))
        return cairn_fail(err, CAIRN_PROTOCOL, "begun without a save, its owner and version");
    CAIRN_HOLD(&session->lock);
    if (alone) take_begun(save, answer.message);
    return CAIRN_OK;
}

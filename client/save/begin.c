/* SPDX-License-Identifier: Apache-2.0 */
/* Begins a save: counts it, sends `begin`, takes a slab generation. Reserves the slab. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "client/save/arrange.h"
#include "client/save/save.h"
#include "client/save/split.h"
#include "client/session/memory.h"
#include "client/session/options.h"
#include "client/session/process.h"
#include "client/session/wire.h"
#include "common/hooks.h"

/* A label of the save, not of the API: server/ui/timeline.js draws a flag where it is. */
#define PREEMPTED "cairn.preempted"
#define SKIP_WAIT_MS 1000
#define BEGIN_TRIES 3
#define META_TEXT_BYTES_MAX (4 * CAIRN_META_BYTES_MAX) /* as given, with white space */
#define VERSION_OF_SEALED_META 4
#define VERSION_OF_FOLLOWING 7 /* socket version that introduced it */
#define ROW 2                  /* consecutive begins that find an earlier save under way */
#define MEMORY_WAIT_US 10000   /* shorter waits do not count */
#define VERSION_OF_RESIZING 4
#define RESERVE_BEHIND_MS 600000 /* some nodes need more than a minute to fill 40 GB */

/* ---- labels and meta: checked by the server's rules, kept for the seal ---- */

struct meta_text {
    const char *labels, *meta; /* JSON objects; NULL: none */
};

static enum cairn_code parse_object(const char *what, const char *text, bool of_text, json_t **ret,
                                    struct cairn_error *err) {
    if (!text) return CAIRN_OK;
    const struct cairn_json_limits limits = {META_TEXT_BYTES_MAX, 0};
    CAIRN_AUTO_JSON json_t *value = NULL;
    enum cairn_code code = cairn_json_parse(cairn_view_of(text), limits, &value, err);
    if (code) return cairn_within(err, code, "%s", what);
    CAIRN_TRY(cairn_meta_check(value, what, of_text, NULL, err));
    *ret = CAIRN_TAKE(value);
    return CAIRN_OK;
}

static enum cairn_code read_meta(const struct meta_text *text, json_t **ret_labels,
                                 json_t **ret_meta, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *labels = NULL;
    CAIRN_TRY(parse_object("labels", text->labels, true, &labels, err));
    CAIRN_TRY(parse_object("meta", text->meta, false, ret_meta, err));
    *ret_labels = CAIRN_TAKE(labels);
    return CAIRN_OK;
}

/* Adds the member "origin" if the session has one and it fits (client/session/options.h#7). */
static enum cairn_code add_origin(const struct cairn_session *session, json_t **meta,
                                  struct cairn_error *err) {
    if (!session->origin || json_object_get(*meta, "origin")) return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *both = *meta ? json_copy(*meta) : json_object();
    if (!both || json_object_set(both, "origin", session->origin))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the begin");
    if (cairn_meta_check(both, "meta", false, NULL, NULL)) return CAIRN_OK;
    json_decref(*meta);
    *meta = CAIRN_TAKE(both);
    return CAIRN_OK;
}

static const char *signal_name(int number) {
    static const struct {
        int number;
        const char *name;
    } names[] = {{SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"},
                 {SIGINT, "SIGINT"},   {SIGHUP, "SIGHUP"},   {SIGXCPU, "SIGXCPU"}};
    for (size_t i = 0; i < CAIRN_COUNT(names); i++)
        if (names[i].number == number) return names[i].name;
    return "signal";
}

/* A save after the signal of cairn_last_chance bears the label PREEMPTED, so that pages
 * and policies tell it from others. The trainer's own labels come first: where there is no room for
 * one more, or one of that name, nothing is added. */
static enum cairn_code add_preempted(json_t **labels, struct cairn_error *err) {
    int number = cairn_last_chance(NULL);
    if (!number || json_object_get(*labels, PREEMPTED)) return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *both = *labels ? json_copy(*labels) : json_object();
    if (!both || json_object_set_new(both, PREEMPTED, json_string(signal_name(number))))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the begin");
    if (cairn_meta_check(both, "labels", true, NULL, NULL)) return CAIRN_OK;
    json_decref(*labels);
    *labels = CAIRN_TAKE(both);
    return CAIRN_OK;
}

enum cairn_code cairn_client_meta_can_be_sealed(struct cairn_session *session,
                                                struct cairn_error *err) {
    return cairn_client_speaks(session, VERSION_OF_SEALED_META, "labels and meta after the begin",
                               err);
}

static void replace_json(json_t **kept, json_t **given) {
    if (!*given) return;
    json_decref(*kept);
    *kept = CAIRN_TAKE(*given);
}

enum cairn_code cairn_save_set_meta(struct cairn_save *save, const char *labels_json,
                                    const char *meta_json, struct cairn_error *err) {
    CAIRN_CLIENT_DESCRIBE_CALL(save, err);
    CAIRN_TRY(cairn_client_save_describable(save, err));
    const struct meta_text text = {labels_json, meta_json};
    CAIRN_AUTO_JSON json_t *labels = NULL, *meta = NULL;
    CAIRN_TRY(read_meta(&text, &labels, &meta, err));
    if (save->session->rank != 0) return CAIRN_OK;
    if (meta) CAIRN_TRY(add_origin(save->session, &meta, err));
    if (labels) CAIRN_TRY(add_preempted(&labels, err));
    CAIRN_TRY(cairn_client_meta_can_be_sealed(save->session, err));
    replace_json(&save->labels, &labels);
    replace_json(&save->meta, &meta);
    return CAIRN_OK;
}

/* ---- the message `begin`, built once and sent as often as needed, and its answer ---- */

static const char *on_exists_text(enum cairn_on_exists on_exists) {
    if (on_exists == CAIRN_EXISTS_NEW_VERSION) return "new-version";
    return on_exists == CAIRN_EXISTS_SUPERSEDE ? "supersede" : "error";
}

static bool format_valid(const char *format) {
    return !format || (strlen(format) < 64 && format[0] && cairn_name_valid(cairn_view_of(format)));
}

static enum cairn_code make_begin(struct cairn_save *save, const struct cairn_save_options *options,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *labels = NULL, *meta = NULL, *splits = NULL;
    const char *on_exists = on_exists_text(options->on_exists);
    /* The fields that a report of a refusal below must carry. */
    save->begin = CAIRN_PACK(begin, .step = save->step, .n = save->n, .on_exists = on_exists,
                             .skip = options->skip != 0,
                             .format = format_valid(options->format) ? options->format : NULL);
    if (save->session->rank == 0) {
        const struct meta_text text = {options->labels_json, options->meta_json};
        CAIRN_TRY(read_meta(&text, &labels, &meta, err));
        CAIRN_TRY(add_origin(save->session, &meta, err));
        CAIRN_TRY(add_preempted(&labels, err));
    }
    if (!format_valid(options->format))
        return cairn_fail(err, CAIRN_INVALID,
                          "format tag: 1 to 63 of A-Za-z0-9._- are allowed, beginning with one of "
                          "A-Za-z0-9");
    if (options->follow && !save->session->rank) /* its own seal is the decision */
        return CAIRN_CLIENT_REFUSE(save, err, "rank 0 decides, and follows no rank");
    if (options->follow)
        CAIRN_TRY(
            cairn_client_speaks(save->session, VERSION_OF_FOLLOWING, "to follow rank 0", err));
    bool finer = options->split_count && cairn_client_can_look(save->session);
    CAIRN_TRY(cairn_client_shares_open(&save->shares, options->splits, options->split_count, finer,
                                       &splits, err));
    if (finer) CAIRN_TRY(cairn_client_lists_keep(save, err));
    json_decref(save->begin);
    save->begin = CAIRN_PACK(
        begin, .splits = splits, .step = save->step, .n = save->n, .on_exists = on_exists,
        .skip = options->skip != 0, .format = options->format, .labels = labels, .meta = meta,
        .abort_on_disconnect = save->session->abort_on_disconnect, .follow = options->follow != 0);
    if (!save->begin) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the begin");
    if (!options->follow) return CAIRN_OK;
    CAIRN_CRASHPOINT("client.begin.made");
    CAIRN_HOLD(&save->session->lock);
    save->follows = true; /* from here on the session's thread may send the begin */
    return CAIRN_OK;
}

static bool read_begun(const json_t *answer, struct cairn_msg_begun *ret) {
    return cairn_msg_begun_read(answer, "", ret, NULL) == CAIRN_OK && ret->save && ret->owner &&
           cairn_version_id_valid(cairn_view_of(ret->version));
}

/* The lock is held. */
static void take_begun(struct cairn_save *save, const json_t *answer) {
    struct cairn_msg_begun told = {0};
    if (!read_begun(answer, &told)) return; /* cairn_client_save_begin_again fails the call */
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

/* Q43: a stopping uploader counts as away: the copied save is begun with the next uploader. */
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

/* The present uploader has the begin, and its answer is due or was not taken. */
static bool is_sent(const struct cairn_save *save) {
    CAIRN_HOLD(&save->session->lock);
    return save->late_begin.id || save->late_begin.answered;
}

static enum cairn_code take_late(struct cairn_save *save, uint64_t deadline_ms,
                                 struct cairn_error *err) {
    struct cairn_session *session = save->session;
    enum cairn_code code =
        cairn_client_late_await(session, &save->late_begin, "begun", deadline_ms, err);
    if (!code && !save->id)
        return cairn_fail(err, CAIRN_PROTOCOL, "begun without a save, its owner and version");
    return code == CAIRN_UNAVAILABLE ? refuse_stopping(session, err) : code;
}

void cairn_client_save_begun_late(struct cairn_save *save, const struct cairn_frame *answer) {
    on_begun(save, answer);
    save->late_begin = (struct cairn_client_late){.answered = true};
    (void)!cairn_client_answer_check(answer, "begun", &save->late_begin.why);
    cairn_client_changed(save->session);
}

enum cairn_code cairn_client_save_begin_again(struct cairn_save *save, uint32_t epoch, bool alone,
                                              uint64_t deadline_ms, struct cairn_error *err) {
    struct cairn_session *session = save->session;
    CAIRN_AUTO(frame) answer = {0};
    struct cairn_msg_begun told = {0};
    if (!alone && is_sent(save)) return take_late(save, deadline_ms, err);
    if (!alone && is_stopping(session)) return refuse_stopping(session, err);
    const struct cairn_client_request request = {.take_message = json_deep_copy(save->begin),
                                                 .wanted = cairn_client_wanted(CAIRN_MESSAGE_begin),
                                                 .on_answer = on_begun,
                                                 .subject = save,
                                                 .epoch = epoch,
                                                 .goes_on = true,
                                                 .late = &save->late_begin,
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

/* ---- the slab generation of a save ---- */

/* Takes a generation that no save writes and no uploader reads. The lock is held. */
static bool generation_take_free(struct cairn_save *save) {
    struct cairn_session *session = save->session;
    for (uint32_t i = 0; i < session->slab_count && !session->saves->reserving; i++) {
        struct cairn_client_generation *at = &session->saves->generations[i];
        if (at->held || at->lent) continue;
        CAIRN_PROMISE(save->generation < 0, return false); /* else the previous stays held */
        at->held = save;
        at->owner = save->owner;
        save->generation = (int)i;
        return true;
    }
    return false;
}

/* Waits for a change; a timeout's error says what holds the generations. The lock is held. */
static enum cairn_code generation_await(struct cairn_session *session, uint64_t deadline_ms,
                                        struct cairn_error *err) {
    enum cairn_code code = cairn_client_pause(session, deadline_ms, err);
    if (code != CAIRN_TIMEOUT) return code;
    if (session->saves->reserving)
        return cairn_fail(err, code, "memory for saves is being reserved");
    for (uint32_t i = 0; i < session->slab_count; i++) {
        const struct cairn_client_generation *at = &session->saves->generations[i];
        if (at->held && at->held->parked)
            return cairn_fail(err, code,
                              "step %" PRIu64 " was copied and neither sealed nor freed; it holds "
                              "the memory",
                              at->held->step);
        if (at->held && at->held->state.phase == CAIRN_CLIENT_PHASE_COUNTED)
            return cairn_fail(err, code,
                              "step %" PRIu64 " was begun and neither staged nor freed; it holds "
                              "the memory",
                              at->held->step);
    }
    return cairn_fail(err, code, "%u of %u slab generations are still being sent",
                      session->slab_count, session->slab_count);
}

/* Q14: waits for this rank's own generations, until a verdict on the save. The lock is held. */
static enum cairn_code generation_take(struct cairn_save *save, uint64_t deadline_ms,
                                       struct cairn_error *err) {
    struct cairn_session *session = save->session;
    for (;;) {
        uint32_t epoch = 0;
        if (cairn_client_save_over(save) || generation_take_free(save)) return CAIRN_OK;
        if (!session->slab_count && !session->saves->reserving) return CAIRN_OK; /* no slabs */
        if (session->locked.state != CAIRN_CLIENT_UP)
            CAIRN_TRY(cairn_client_reach_next(session, deadline_ms, &epoch, err));
        else
            CAIRN_TRY(generation_await(session, deadline_ms, err));
    }
}

/* If no generation is free: an unstaged, misused save; else NULL. The lock is held. */
static struct cairn_save *left_behind(struct cairn_session *session) {
    struct cairn_save *found = NULL;
    for (uint32_t i = 0; i < session->slab_count; i++) {
        struct cairn_client_generation *at = &session->saves->generations[i];
        if (!at->held && !at->lent) return NULL; /* no need to reclaim one */
        if (at->held && at->held->misused && at->held->state.phase == CAIRN_CLIENT_PHASE_COUNTED)
            found = at->held;
    }
    return found;
}

/* Fails the save of left_behind() and reports it, to free its generation for for_step. */
static void generation_reclaim(struct cairn_session *session, uint64_t for_step) {
    struct cairn_error why = {0};
    struct cairn_client_failed failed = {0};
    cairn_lock_take(&session->lock);
    struct cairn_save *left = left_behind(session);
    if (left) {
        (void)cairn_fail(&why, CAIRN_CANCELLED,
                         "a call on it had failed, it was not staged, and step %" PRIu64
                         " needed its memory",
                         for_step);
        failed = cairn_client_failed_of(left);
        cairn_client_save_end(left, &why);
    }
    cairn_lock_give(&session->lock);
    if (left) cairn_client_report_add(session, &failed, &why);
}

static bool earlier_unsent(const struct cairn_save *save) {
    const struct cairn_save *at;
    TAILQ_FOREACH(at, &save->session->saves->all, place)
        if (at != save && cairn_client_save_under_way(at)) return true;
    return false;
}

/* Q11: the server decides `skip` for all ranks. This rank waits up to SKIP_WAIT_MS for its own
 * earlier saves, and skips if none of its generations is free then. The lock is held. */
static enum cairn_code skip_wait(struct cairn_save *save, struct cairn_error *err) {
    struct cairn_session *session = save->session;
    uint64_t until_ms = cairn_mono_ms() + SKIP_WAIT_MS;
    enum cairn_code code = CAIRN_OK;
    while (!cairn_client_save_over(save) && earlier_unsent(save) && !code)
        code = cairn_client_pause(session, until_ms, err);
    if (code == CAIRN_INTERRUPTED) return code;
    if (generation_take(save, cairn_mono_ms(), NULL) == CAIRN_OK) return CAIRN_OK;
    return cairn_fail(err, CAIRN_SKIPPED, "an earlier save is still being sent");
}

/* ---- earlier saves still under way, and their bottleneck ---- */

struct late {
    bool found; /* the oldest one, as of the next save's begin */
    uint64_t step;
    enum cairn_client_phase phase;
    enum cairn_client_reached reached;
    uint64_t staged_bytes, sent_bytes, total_bytes;
    uint64_t link_us, store_us; /* of its sent parts; both 0: unknown */
    uint64_t since_ms;          /* start of its copy, or of its durability once durable */
};

/* Called before the wait for memory, which the wanted save itself would end. */
static void look_for_late(const struct cairn_save *save, struct late *ret) {
    const struct cairn_save *at;
    *ret = (struct late){0};
    TAILQ_FOREACH(at, &save->session->saves->all, place)
        if (at != save && (at->state.phase == CAIRN_CLIENT_PHASE_STAGED ||
                           at->state.phase == CAIRN_CLIENT_PHASE_COPIED || at->behind.busy))
            break;
    if (!at) return;
    bool durable = at->state.reached >= CAIRN_CLIENT_REACHED_DURABLE;
    *ret = (struct late){.found = true,
                         .step = at->step,
                         .phase = at->state.phase,
                         .reached = at->state.reached,
                         .staged_bytes = at->staged_bytes,
                         .sent_bytes = cairn_min_u64(at->sent_bytes, at->total_bytes),
                         .total_bytes = at->total_bytes,
                         .link_us = at->link_us,
                         .store_us = at->store_us,
                         .since_ms = durable ? at->durable_ms : at->copied_ms};
}

/* Names the link or the store, whichever took more of the parts' time. */
static void say_sending(const struct cairn_save *save, const struct late *late, double seconds,
                        char *ret, size_t capacity) {
    uint64_t all_us = late->link_us + late->store_us;
    bool link = late->link_us > late->store_us;
    char share[64] = "";
    if (all_us)
        snprintf(share, sizeof share, ", %.0f %% of a part's time %s",
                 100.0 * (double)(link ? late->link_us : late->store_us) / (double)all_us,
                 link ? "on its way" : "with the store");
    snprintf(ret, capacity,
             "by the %s: %" PRIu64 " of %" PRIu64
             " bytes are sent after %.1f s, %.1f MB/s%s; this begin waited %.2f s for memory",
             !all_us ? "store or the link to it"
             : link  ? "link to the store"
                     : "store",
             late->sent_bytes, late->total_bytes, seconds,
             seconds > 0 ? (double)late->sent_bytes / seconds / 1e6 : 0, share,
             (double)save->wait_us / 1000000);
}

/* Names the bottleneck of the late save, with figures. */
static void say_cause(const struct cairn_save *save, const struct late *late, char *ret,
                      size_t capacity) {
    const struct cairn_session *session = save->session;
    double seconds = (double)(cairn_mono_ms() - late->since_ms) / 1000;
    double wait_s = (double)save->wait_us / 1000000;
    if (late->phase == CAIRN_CLIENT_PHASE_COPYING && late->staged_bytes < late->total_bytes)
        snprintf(ret, capacity,
                 "by the copy beside the training: %" PRIu64 " of %" PRIu64
                 " bytes are copied after %.1f s",
                 late->staged_bytes, late->total_bytes, seconds);
    else if (late->phase == CAIRN_CLIENT_PHASE_COPIED)
        snprintf(ret, capacity, "by the uploader, which is away");
    else if (late->reached >= CAIRN_CLIENT_REACHED_DURABLE)
        snprintf(ret, capacity,
                 "by the server or other ranks: its shards here are durable since %.1f s and it "
                 "is not committed",
                 seconds);
    else if (session->slab_count == 1 && save->wait_us >= MEMORY_WAIT_US)
        snprintf(ret, capacity,
                 "by the slab: the node's memory holds one save of this rank, so this begin waited "
                 "%.2f s for it",
                 wait_s);
    else
        say_sending(save, late, seconds, ret, capacity);
}

/* Called after the wait for memory, whose length shows whether memory is the bottleneck. */
static void warn_of_late(struct cairn_save *save, const struct late *late) {
    struct cairn_client_saves *saves = save->session->saves;
    char cause[256];
    saves->late_in_row = late->found ? saves->late_in_row + 1 : 0;
    if (saves->late_in_row != ROW) return;
    say_cause(save, late, cause, sizeof cause);
    (void)cairn_fail(&saves->late, CAIRN_UNAVAILABLE,
                     "saves take longer than the time between them: step %" PRIu64
                     " was under way when step %" PRIu64 " began, held up %s",
                     late->step, save->step, cause);
}

enum cairn_code cairn_session_warning(struct cairn_session *session, struct cairn_error *err) {
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_HOLD(&session->lock);
    struct cairn_client_saves *saves = session->saves;
    struct cairn_error *first = saves->late.code ? &saves->late : &saves->stale_warning;
    if (!first->code) return CAIRN_OK;
    if (err) *err = *first;
    *first = (struct cairn_error){0};
    return cairn_client_named(session, CAIRN_UNAVAILABLE, err);
}

/* ---- the call ---- */

/* Q43: a version needs every rank, so a failure here would fail the step for all. If no uploader
 * takes the begin, a save that has a generation, or needs none, continues, and `begin` is sent to
 * the next uploader with `stage` (client/save/stage.c). A stopping uploader still frees
 * generations, so the call waits for its end and its successor. The lock is held. */
static enum cairn_code begin_without(struct cairn_save *save, enum cairn_code code,
                                     bool *ret_later) {
    struct cairn_session *session = save->session;
    if (code != CAIRN_UPLOADER_GONE) return code;
    if (!session->attempt) return code; /* after a failed renewal there is no attempt */
    bool needs_none = !session->slab_count && !session->saves->reserving;
    *ret_later = generation_take_free(save) || needs_none;
    return *ret_later || cairn_client_stopping(session) ? CAIRN_OK : code;
}

/* Without memory a save needs the uploader, and one that is silent may only be starved, as by many
 * ranks on few cores: a failed begin would fail the step for all. True: it speaks, maybe since
 * before this call. The lock is held. */
static bool await_voice(struct cairn_session *session, uint64_t deadline_ms) {
    return session->locked.state == CAIRN_CLIENT_UP && cairn_client_heard(session, deadline_ms) &&
           session->locked.state == CAIRN_CLIENT_UP && cairn_mono_ms() < deadline_ms;
}

static enum cairn_code begin(struct cairn_save *save, const struct cairn_save_options *options,
                             struct cairn_error *err) {
    struct cairn_session *session = save->session;
    uint64_t deadline_ms = cairn_client_deadline(session, options->timeout_ms);
    save->progress = options->progress;
    save->progress_owner = options->progress_owner;
    save->verify_sources = options->verify_sources != 0;
    CAIRN_TRY(make_begin(save, options, err));
    generation_reclaim(session, save->step);
    /* Repeats `begin` if the link ends before the answer: the same n is the same begin (Q8). Fails
     * within CAIRN_CLIENT_GONE_MS if the uploader stays away. */
    enum cairn_code code = CAIRN_UPLOADER_GONE;
    for (int tries = 0; tries < BEGIN_TRIES && code == CAIRN_UPLOADER_GONE; tries++)
        code = cairn_client_save_begin_again(save, 0, false, deadline_ms, err);
    bool later = false;
    cairn_lock_take(&session->lock);
    if (code) code = begin_without(save, code, &later);
    while (code == CAIRN_UPLOADER_GONE && await_voice(session, deadline_ms)) {
        cairn_lock_give(&session->lock);
        code = cairn_client_save_begin_again(save, 0, false, deadline_ms, err);
        cairn_lock_take(&session->lock);
        if (code) code = begin_without(save, code, &later);
    }
    cairn_lock_give(&session->lock);
    if (code || later) return code;
    CAIRN_HOLD(&session->lock);
    struct late late;
    look_for_late(save, &late);
    uint64_t waits_us = cairn_mono_us();
    bool waits = session->slab_count || session->saves->reserving;
    if (waits && options->skip) CAIRN_TRY(skip_wait(save, err));
    if (waits && !options->skip) CAIRN_TRY(generation_take(save, deadline_ms, err));
    save->wait_us = cairn_mono_us() - waits_us;
    warn_of_late(save, &late);
    if (cairn_client_save_over(save)) {
        if (err) *err = save->problem;
        return save->problem.code;
    }
    return CAIRN_OK;
}

static struct cairn_save *save_new(struct cairn_session *session, uint64_t step, uint32_t n) {
    struct cairn_save *save = calloc(1, sizeof *save);
    if (!save) return NULL;
    save->session = session;
    save->step = step;
    save->n = n;
    save->generation = -1;
    save->fd = -1;
    save->number = cairn_client_known_number();
    CAIRN_HOLD(&session->lock);
    TAILQ_INSERT_TAIL(&session->saves->all, save, place);
    return save;
}

enum cairn_code cairn_save_begin(struct cairn_session *session, uint64_t step,
                                 const struct cairn_save_options *options, struct cairn_save **ret,
                                 struct cairn_error *err) {
    struct cairn_save_options own_options;
    uint64_t started_us = cairn_mono_us();
    uint32_t n = 0;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_CLIENT_RET(ret, err);
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own_options, err));
    if (session->read_only)
        return cairn_fail(err, CAIRN_INVALID, "%s: the session was opened read_only", session->run);
    if (step > CAIRN_STEP_MAX)
        return cairn_fail(err, CAIRN_INVALID, "step %" PRIu64 ": the largest is %" PRIu64, step,
                          CAIRN_STEP_MAX);
    struct cairn_error own = {0};
    if (!err) err = &own;
    const struct cairn_client_counter counter = {session->nonce, session->rank};
    CAIRN_TRY(cairn_client_process_count(&counter, step, &n, err));
    struct cairn_save *save = save_new(session, step, n);
    if (!save) {
        const struct cairn_client_failed failed = {.step = step, .n = n};
        (void)cairn_fail(err, CAIRN_NO_MEMORY, "step %" PRIu64 ": no memory for a save", step);
        (void)cairn_client_about(session, CAIRN_NO_MEMORY, err);
        cairn_client_process_settle(&counter, step, n);
        cairn_client_report_add(session, &failed, err);
        return CAIRN_NO_MEMORY;
    }
    enum cairn_code code = begin(save, &own_options, err);
    save->stall_us = cairn_mono_us() - started_us;
    if (code) {
        code = cairn_client_save_fail(save, code, err);
        cairn_save_free(save);
        return code;
    }
    *ret = save;
    return CAIRN_OK;
}

/* ---- reserving memory of another size ---- */

/* The session returns its memory before it requests the new size, so that no rank holds memory
 * while it waits for memory, and it waits only between saves (Q13, Q14). */

/* The lock is held. */
static bool any_generation_used(const struct cairn_session *session) {
    if (session->locked.slab_users) return true;
    for (uint32_t i = 0; i < session->slab_count; i++) {
        const struct cairn_client_generation *at = &session->saves->generations[i];
        if (at->held || at->lent) return true;
    }
    return false;
}

/* Waits for an uploader and until no save needs the memory, then takes the slabs out of the
 * session, so that a new uploader is offered none. The lock is held. */
static enum cairn_code take_all(struct cairn_session *session, uint64_t deadline_ms,
                                uint32_t *ret_epoch, struct cairn_client_slabs *ret,
                                struct cairn_error *err) {
    struct cairn_save *save;
    for (;;) {
        CAIRN_TRY(cairn_client_reach(session, true, deadline_ms, ret_epoch, err));
        if (!any_generation_used(session)) break;
        enum cairn_code code = cairn_client_pause(session, deadline_ms, err);
        if (code == CAIRN_TIMEOUT)
            return cairn_fail(
                err, code,
                "an earlier save, or a warm-up, still needs the memory that the session has; "
                "wait for its commit, or give this call a longer timeout_ms");
        CAIRN_TRY(code);
    }
    cairn_client_slabs_take(session, ret);
    memset(session->saves->generations, 0, sizeof session->saves->generations);
    TAILQ_FOREACH(save, &session->saves->all, place) save->generation = -1; /* it needed none */
    return CAIRN_OK;
}

/* Unlocks (if page-locked for a device) and unmaps; the lock is not held. */
static void release_slabs(struct cairn_session *session, struct cairn_client_slabs *slabs) {
    const struct cairn_client_device device = cairn_client_device_known(session);
    for (uint32_t i = 0; i < slabs->count && device.handle; i++)
        device.plugin->unlock(device.handle, slabs->slabs[i].data);
    cairn_client_slabs_unmap(slabs);
}

static enum cairn_code ask_for_slabs(struct cairn_session *session, uint32_t epoch,
                                     uint64_t deadline_ms, struct cairn_client_slabs *ret,
                                     struct cairn_error *err) {
    CAIRN_AUTO(frame) answer = {0};
    uint64_t bytes = session->bytes + CAIRN_CLIENT_HEADER_BYTES;
    uint64_t node_bytes =
        session->node_bytes + session->local_world_size * CAIRN_CLIENT_HEADER_BYTES;
    uint64_t left_ms = cairn_client_left_ms(deadline_ms) / 4 * 3; /* answered before our deadline */
    const struct cairn_client_device device = cairn_client_device_known(session);
    int numa_node = device.handle ? device.plugin->numa_node(device.handle) : -1;
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(
            slabs, .wait_staged_ms = cairn_min_u64(session->wait_staged_ms, left_ms),
            .bytes = bytes, .node_bytes = node_bytes,
            .numa_node = numa_node < 0 ? (uint32_t)CAIRN_MESSAGE_NONE : (uint32_t)numa_node),
        .epoch = epoch, .deadline_ms = deadline_ms};
    CAIRN_TRY(cairn_client_call(session, &request, &answer, err));
    CAIRN_TRY(cairn_client_slabs_map(&answer, session->bytes, ret, err));
    const struct cairn_client_request mapped = {CAIRN_CLIENT_REQUEST(mapped, 0), .epoch = epoch,
                                                .deadline_ms = deadline_ms};
    return cairn_client_call(session, &mapped, NULL, err);
}

/* Gives the memory to the session, unless the uploader changed meanwhile. */
static enum cairn_code put_slabs(struct cairn_session *session, uint32_t epoch,
                                 struct cairn_client_slabs *slabs, struct cairn_error *err) {
    CAIRN_HOLD(&session->lock);
    if (session->locked.state == CAIRN_CLIENT_UP && session->locked.epoch == epoch) {
        cairn_client_slabs_set(session, slabs);
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_UPLOADER_GONE, "the uploader at %s went away", session->socket);
}

/* Where a device is known the pages are locked here, outside of a save's stall. */
static void lock_slabs(struct cairn_session *session, const struct cairn_client_slabs *slabs) {
    bool known = cairn_client_device_known(session).handle != NULL;
    for (uint32_t i = 0; i < slabs->count && known; i++)
        cairn_client_device_lock(session, &slabs->slabs[i], false, "saves");
}

static enum cairn_code reserve(struct cairn_session *session, uint64_t deadline_ms,
                               struct cairn_error *err) {
    struct cairn_client_slabs slabs = {0};
    uint32_t epoch = 0;
    cairn_lock_take(&session->lock);
    enum cairn_code code = take_all(session, deadline_ms, &epoch, &slabs, err);
    cairn_lock_give(&session->lock);
    CAIRN_TRY(code);
    release_slabs(session, &slabs);
    cairn_client_window_give_back(session, deadline_ms);
    code = ask_for_slabs(session, epoch, deadline_ms, &slabs, err);
    if (!code) lock_slabs(session, &slabs);
    if (!code) code = put_slabs(session, epoch, &slabs, err);
    release_slabs(session, &slabs); /* only what did not go to the session */
    return code;
}

static enum cairn_code check_reserve(struct cairn_session *session, uint64_t bytes,
                                     uint64_t *node_bytes, struct cairn_error *err) {
    if (session->read_only || !bytes)
        return cairn_fail(err, CAIRN_INVALID, "%s: bytes are for sessions that save, and not 0",
                          session->run);
    CAIRN_TRY(cairn_client_bytes_check(session, bytes, node_bytes, err));
    CAIRN_TRY(cairn_client_speaks(session, VERSION_OF_RESIZING, "memory of another size", err));
    CAIRN_HOLD(&session->lock);
    if (session->saves->reserving)
        return cairn_fail(err, CAIRN_BUSY, "%s: another call reserves memory", session->run);
    session->saves->reserving = true;
    return CAIRN_OK;
}

/* Ends the reservation that check_reserve began. */
static enum cairn_code reserve_all(struct cairn_session *session, uint64_t bytes,
                                   uint64_t node_bytes, uint64_t deadline_ms,
                                   struct cairn_error *err) {
    uint64_t before = session->bytes, node_before = session->node_bytes;
    session->bytes = bytes;
    session->node_bytes = node_bytes;
    enum cairn_code code = reserve(session, deadline_ms, err);
    if (code) (void)cairn_client_named(session, code, err);
    cairn_lock_take(&session->lock);
    session->saves->reserving = false;
    if (session->slab_count && code) { /* nothing was returned: restore the old sizes */
        session->bytes = before;
        session->node_bytes = node_before;
    }
    session->saves->unreserved = (struct cairn_error){0};
    if (code && !session->slab_count && err) session->saves->unreserved = *err;
    cairn_client_changed(session);
    cairn_lock_give(&session->lock);
    return code;
}

enum cairn_code cairn_session_reserve(struct cairn_session *session, uint64_t bytes,
                                      uint64_t node_bytes, uint32_t timeout_ms,
                                      struct cairn_error *err) {
    struct cairn_error own = {0};
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_TRY(check_reserve(session, bytes, &node_bytes, err));
    uint64_t deadline_ms =
        cairn_client_deadline(session, timeout_ms) + (timeout_ms ? 0 : session->wait_staged_ms);
    return reserve_all(session, bytes, node_bytes, deadline_ms, err ? err : &own);
}

/* ---- reserving while training goes on ---- */

struct wanted {
    struct cairn_session *session;
    uint64_t bytes, node_bytes;
};

/* A failure is returned by cairn_session_problem, and by a save that needs the memory. */
static void *reserve_behind(void *owner) {
    struct wanted wanted = *(struct wanted *)owner;
    struct cairn_session *session = wanted.session;
    struct cairn_error why = {0};
    free(owner);
    uint64_t deadline_ms = cairn_client_deadline(session, RESERVE_BEHIND_MS);
    if (reserve_all(session, wanted.bytes, wanted.node_bytes, deadline_ms, &why)) {
        CAIRN_HOLD(&session->lock);
        session->saves->notice = why;
    }
    cairn_client_leave(session);
    return NULL;
}

enum cairn_code cairn_session_reserve_begin(struct cairn_session *session, uint64_t bytes,
                                            uint64_t node_bytes, struct cairn_error *err) {
    CAIRN_CLIENT_CALL(session, err);
    struct wanted *wanted = malloc(sizeof *wanted);
    if (!wanted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to reserve");
    enum cairn_code code = check_reserve(session, bytes, &node_bytes, err);
    *wanted = (struct wanted){session, bytes, node_bytes};
    if (!code && cairn_client_detached(session, reserve_behind, wanted)) return CAIRN_OK;
    free(wanted);
    if (code) return code;
    return reserve_all(session, bytes, node_bytes, cairn_client_deadline(session, 0), err);
}

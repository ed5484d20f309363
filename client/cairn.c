/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that span all rooms. cairn_open gives the session the sink of its saves; closing ends, in
 * this order, thread, saves, restores, session. A renewal closes all but the session, and reopens.
 */

#include <stdlib.h>
#include <unistd.h>

#include "api/table/dtype.h"
#include "client/restore/restore.h"
#include "client/save/arrange.h"
#include "client/save/save.h"
#include "client/session/options.h"
#include "common/crc.h"

const char *cairn_version(void) {
    return CAIRN_VERSION;
}

static void session_free(struct cairn_session *session) {
    cairn_client_session_stop(session);
    cairn_client_readings_stop(session);
    cairn_client_saves_free(session);
    cairn_client_restores_close(session);
    cairn_client_session_free(session);
    cairn_client_array_forget();
}

static void session_free_at(struct cairn_session **session) {
    if (*session) session_free(*session);
}

enum cairn_code cairn_open(const struct cairn_open_options *options, struct cairn_session **ret,
                           struct cairn_resume *ret_resume, struct cairn_error *err) {
    struct cairn_session *made = NULL;
    CAIRN_CLIENT_RET(ret, err);
    cairn_crc32c_measure(); /* here, so that the first save's stall does not include it */
    CAIRN_TRY(cairn_client_session_new(options, &cairn_client_saves_sink, &made, err));
    __attribute__((cleanup(session_free_at))) struct cairn_session *session = made;
    CAIRN_TRY(cairn_client_saves_new(session, err));
    enum cairn_code code = cairn_client_session_open(session, err);
    if (code) return cairn_client_named(session, code, err);
    CAIRN_TRY(cairn_client_sound(session, err));
    if (ret_resume) *ret_resume = session->resumed;
    *ret = CAIRN_TAKE(session);
    return CAIRN_OK;
}

/* Sends `bye`, and returns the first unreported failure. */
static enum cairn_code leave(struct cairn_session *session, struct cairn_error *err) {
    uint64_t deadline_ms = cairn_client_deadline(session, 0);
    if (!cairn_client_saves_settle(session, deadline_ms)) deadline_ms = cairn_mono_ms();
    const struct cairn_client_request bye = {CAIRN_CLIENT_REQUEST(bye, 0), .goes_on = true,
                                             .deadline_ms = deadline_ms};
    /* The socket's end means `bye`, too, so a missing answer is no failure. */
    bool gone = cairn_client_call(session, &bye, NULL, NULL) == CAIRN_UPLOADER_GONE;
    return cairn_client_saves_last_problem(session, gone, err);
}

enum cairn_code cairn_close(struct cairn_session *session, struct cairn_error *err) {
    if (!session || session->pid != getpid()) return CAIRN_OK; /* the copy ends with the child */
    enum cairn_code code = leave(session, err);
    session_free(session);
    return code;
}

/* Releases everything of the old attempt, then opens the next. */
static enum cairn_code open_again(struct cairn_session *session, struct cairn_session *take_made,
                                  struct cairn_error *err) {
    cairn_client_session_stop(session);
    cairn_client_saves_clear(session);
    cairn_client_restores_close(session);
    cairn_client_session_take(session, take_made);
    CAIRN_TRY(cairn_client_session_open(session, err));
    return cairn_client_sound(session, err);
}

enum cairn_code cairn_session_renew(struct cairn_session *session,
                                    const struct cairn_open_options *options,
                                    struct cairn_resume *ret_resume, struct cairn_error *err) {
    struct cairn_session *made = NULL;
    struct cairn_error own = {0}, left = {0};
    CAIRN_TRY(cairn_client_enter(session, err));
    enum cairn_code code = cairn_client_session_renewal(session, options, &made, err);
    cairn_client_leave(session);
    if (code) return cairn_client_named(session, code, err);
    (void)leave(session, &left);
    code = open_again(session, made, &own);
    session->saves->notice = left; /* for the next cairn_session_problem */
    if (code) {
        (void)cairn_client_named(session, code, &own);
        cairn_client_session_refuse(session, &own);
        if (err) *err = own;
        return code;
    }
    if (ret_resume) *ret_resume = session->resumed;
    CAIRN_HOLD(&session->lock);
    session->locked.leaving = false;
    cairn_client_changed(session);
    return CAIRN_OK;
}

/* ---- restoring known pieces ---- */

/* Bytes of a region in memory; sub-byte elements fill whole bytes. */
static uint64_t region_bytes(const struct cairn_tensor_piece *piece, size_t region) {
    unsigned dtype = 0;
    uint64_t elements = 1;
    const char *stored = piece->source_dtype ? piece->source_dtype : piece->dtype;
    bool flat = piece->form == CAIRN_FLAT;
    size_t places = flat ? 1 : piece->dimension_count;
    const uint64_t *count = piece->form == CAIRN_WHOLE || !piece->dimension_count
                                ? piece->shape
                                : piece->count + region * places;
    if (!cairn_dtype_parse(cairn_view_of(stored), &dtype)) return 0;
    for (size_t d = 0; d < places; d++) elements *= count[d];
    return elements * cairn_dtype_bits(dtype) / 8;
}

static size_t regions_of(const struct cairn_tensor_piece *piece) {
    return piece->region_count > 1 ? piece->region_count : 1;
}

static void make_read(const struct cairn_tensor_piece *piece, size_t region, uint8_t *into,
                      struct cairn_read *ret) {
    size_t places = piece->form == CAIRN_FLAT ? 1 : piece->dimension_count;
    *ret = (struct cairn_read){.size = sizeof *ret,
                               .tensor = piece->name,
                               .form = piece->form,
                               .start = piece->start ? piece->start + region * places : NULL,
                               .count = piece->count ? piece->count + region * places : NULL,
                               .into = into,
                               .into_bytes = region_bytes(piece, region),
                               .memory = piece->memory,
                               .stream = piece->stream,
                               .into_dtype = piece->source_dtype,
                               .into_stride = piece->source_stride};
}

enum cairn_code cairn_restore_pieces(struct cairn_restore *restore,
                                     const struct cairn_pieces *known, void *const *into,
                                     size_t into_count, int optional, uint32_t timeout_ms,
                                     struct cairn_error *err) {
    if (!restore || !known || !into || into_count != known->source_count)
        return cairn_fail(err, CAIRN_INVALID, "no restore, no pieces, or %zu addresses for %u",
                          into_count, known ? known->source_count : 0);
    if (!restore->session)
        return cairn_fail(err, CAIRN_INVALID, "the session of the restore is closed");
    size_t count = 0, room = 1;
    for (size_t i = 0; i < into_count; i++) room += regions_of(&known->described[i]);
    CAIRN_AUTO_HEAP struct cairn_read *reads = calloc(room, sizeof *reads);
    if (!reads) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the reads");
    for (size_t i = 0; i < into_count; i++) {
        const struct cairn_tensor_piece *piece = &known->described[i];
        uint8_t *at = into[i];
        if (piece->kind == CAIRN_ALIAS) continue;
        for (size_t region = 0; region < regions_of(piece); region++) {
            struct cairn_read *read = &reads[count++];
            make_read(piece, region, at, read);
            read->optional = optional;
            if (piece->kind == CAIRN_LOCAL) read->local_rank_of = restore->session->rank;
            at = at ? at + read->into_bytes : NULL;
        }
    }
    return cairn_restore_read(restore, reads, count, timeout_ms, err);
}

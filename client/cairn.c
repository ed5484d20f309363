/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that need every room: a session is opened with the sink of its saves, and closed in the
 * order thread, saves, restores, session. A renewal closes all but the session and opens it again.
 */
#include <unistd.h>

#include "client/restore/readings.h"
#include "client/restore/restore.h"
#include "client/save/sink.h"
#include "client/save/sweep.h"
#include "client/session/open.h"
#include "client/session/options.h"
#include "client/session/renew.h"
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
}

static void session_free_at(struct cairn_session **session) {
    if (*session) session_free(*session);
}

enum cairn_code cairn_open(const struct cairn_open_options *options, struct cairn_session **ret,
                           struct cairn_resume *ret_resume, struct cairn_error *err) {
    struct cairn_session *made = NULL;
    CAIRN_CLIENT_RET(ret, err);
    cairn_crc32c_measure(); /* the first save's stall would have it otherwise */
    CAIRN_TRY(cairn_client_session_new(options, &cairn_client_saves_sink, &made, err));
    __attribute__((cleanup(session_free_at))) struct cairn_session *session = made;
    CAIRN_TRY(cairn_client_saves_new(session, err));
    enum cairn_code code = cairn_client_session_open(session, err);
    if (code) return cairn_within(err, code, "%s rank %u", session->run, session->rank);
    CAIRN_TRY(cairn_client_sound(session, err));
    if (ret_resume) *ret_resume = session->resumed;
    *ret = CAIRN_TAKE(session);
    return CAIRN_OK;
}

/* Say `bye`, and return what no call has returned yet. */
static enum cairn_code leave(struct cairn_session *session, struct cairn_error *err) {
    uint64_t deadline_ms = cairn_client_deadline(session, 0);
    if (!cairn_client_saves_settle(session, deadline_ms)) deadline_ms = cairn_mono_ms();
    const struct cairn_client_request bye = {CAIRN_CLIENT_REQUEST(bye, 0),
                                             .deadline_ms = deadline_ms};
    /* The end of the socket means `bye`, so an uploader that does not answer is no failure. */
    bool gone = cairn_client_call(session, &bye, NULL, NULL) == CAIRN_UPLOADER_GONE;
    return cairn_client_saves_last_problem(session, gone, err);
}

enum cairn_code cairn_close(struct cairn_session *session, struct cairn_error *err) {
    if (!session || session->pid != getpid()) return CAIRN_OK; /* the copy goes with the child */
    enum cairn_code code = leave(session, err);
    session_free(session);
    return code;
}

/* Nothing of the former attempt is left; the session opens the next one. */
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
    if (code) return cairn_within(err, code, "%s rank %u", session->run, session->rank);
    (void)leave(session, &left);
    code = open_again(session, made, &own);
    session->saves->notice = left; /* the next cairn_session_problem says it */
    if (code) {
        (void)cairn_within(&own, code, "%s rank %u", session->run, session->rank);
        cairn_client_session_refuse(session, &own);
        if (err) *err = own;
        return code;
    }
    cairn_client_session_ready(session);
    if (ret_resume) *ret_resume = session->resumed;
    return CAIRN_OK;
}

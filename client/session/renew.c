/* SPDX-License-Identifier: Apache-2.0 */
/* What the options of a renewal leave out, and which fields of a session they are. */
#include "client/session/renew.h"

#include "client/session/open.h"
#include "client/session/options.h"
#include "client/session/window.h"

/* What a renewal does not name stays as it was. */
static void keep_present(const struct cairn_session *session, struct cairn_open_options *options) {
    if (!options->run) options->run = session->run;
    if (!options->socket) options->socket = session->socket;
    if (!options->timeout_ms) options->timeout_ms = session->timeout_ms;
    if (!options->wait_staged_ms) options->wait_staged_ms = session->wait_staged_ms;
    if (!options->copy_threads) options->copy_threads = session->copy_threads;
    if (!options->bytes) options->bytes = session->bytes;
    options->interruptible = session->interruptible;
}

static enum cairn_code check_same(const struct cairn_session *session,
                                  const struct cairn_session *made, struct cairn_error *err) {
    if (strcmp(session->run, made->run) != 0 || strcmp(session->socket, made->socket) != 0)
        return cairn_fail(err, CAIRN_INVALID,
                          "a session is renewed on its own run and socket (%s at %s); open another "
                          "one for %s at %s",
                          session->run, session->socket, made->run, made->socket);
    if (session->read_only || made->read_only)
        return cairn_fail(err, CAIRN_INVALID, "a read_only session has no attempt to renew");
    if (session->attempt && strcmp(session->job, made->job) == 0)
        return cairn_fail(err, CAIRN_INVALID,
                          "job '%s' is the present attempt's; give `job` a string that is new and "
                          "the same on all ranks",
                          made->job);
    return CAIRN_OK;
}

enum cairn_code cairn_client_session_renewal(const struct cairn_session *session,
                                             const struct cairn_open_options *options,
                                             struct cairn_session **ret, struct cairn_error *err) {
    struct cairn_open_options own;
    struct cairn_session *made = NULL;
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own, err));
    keep_present(session, &own);
    CAIRN_TRY(cairn_client_session_new(&own, session->sink, &made, err));
    enum cairn_code code = check_same(session, made, err);
    if (code)
        cairn_client_session_free(made);
    else
        *ret = made;
    return code;
}

static void swap_texts(char **one, char **other) {
    char *kept = *one;
    *one = *other;
    *other = kept;
}

void cairn_client_session_take(struct cairn_session *session, struct cairn_session *take_made) {
    CAIRN_PROMISE(!session->thread_started && session->link.fd < 0, return );
    cairn_client_device_release(&session->device); /* before the memory goes that it has locked */
    cairn_client_session_forget(session);
    cairn_client_window_release(session);
    memcpy(session->job, take_made->job, sizeof session->job);
    memcpy(session->incarnation, take_made->incarnation, sizeof session->incarnation);
    swap_texts(&session->resume, &take_made->resume);
    json_t *origin = session->origin;
    session->origin = take_made->origin;
    take_made->origin = origin;
    session->rank = take_made->rank;
    session->world_size = take_made->world_size;
    session->local_rank = take_made->local_rank;
    session->local_world_size = take_made->local_world_size;
    session->bytes = take_made->bytes;
    session->node_bytes = take_made->node_bytes;
    session->timeout_ms = take_made->timeout_ms;
    session->wait_staged_ms = take_made->wait_staged_ms;
    session->copy_threads = take_made->copy_threads;
    session->abort_on_disconnect = take_made->abort_on_disconnect;
    session->resumed = (struct cairn_resume){0};
    session->attempt = 0;
    session->nonce[0] = '\0';
    cairn_client_session_free(take_made);
    CAIRN_HOLD(&session->lock); /* `leaving` keeps calls out until it is open */
    session->locked.stop = false;
}

void cairn_client_session_ready(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    session->locked.leaving = false;
    cairn_client_changed(session);
}

void cairn_client_session_refuse(struct cairn_session *session, const struct cairn_error *why) {
    cairn_client_session_stop(session);
    CAIRN_HOLD(&session->lock);
    session->locked.refusal = *why;
    session->locked.state = CAIRN_CLIENT_REFUSED;
    session->locked.stop = false;
    session->locked.leaving = false;
    cairn_client_changed(session);
}

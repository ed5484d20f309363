/* SPDX-License-Identifier: Apache-2.0 */
/* Problems that have failed nothing, told to the ranks that wait because of them; and that another
 * node has a copy, which is told once over each connection. */
#include <inttypes.h>

#include "api/wire/messages.h"
#include "uploader/server/trouble.h"
#include "uploader/trainers/inside.h"
#include "uploader/trainers/session.h"

#define VERSION_OF_PROBLEMS 3
#define VERSION_OF_PARTNERED 5
#define SILENT_MS 4000 /* a request without an answer: it is slow, or it hangs */
#define AWAY_MS 2000   /* what is there again within moments is not worth a word */

/* save 0: about none in particular, but `about`. */
static void say(struct cairn_up_session *session, uint32_t save, const char *about,
                const struct cairn_error *why) {
    cairn_up_mail_post(
        session->up->mail, session->conn,
        CAIRN_PACK(problem, .save = save, .about = about, CAIRN_PACK_WHY(why, message)));
}

static void say_trouble(struct cairn_up_session *session, struct cairn_up_save *save) {
    struct cairn_error why = save->trouble.why;
    why.code = CAIRN_UNAVAILABLE;
    (void)cairn_within(&why, CAIRN_UNAVAILABLE,
                       "the server has failed %u times to take it, and is asked on",
                       save->trouble.tries);
    say(session, save->number, NULL, &why);
    save->trouble.reported = true;
}

static void say_partnered(struct cairn_up_session *session, struct cairn_up_save *save) {
    if (session->version < VERSION_OF_PARTNERED || !save->partner.node[0] ||
        save->partner.told_conn == session->conn)
        return;
    save->partner.told_conn = session->conn;
    cairn_up_mail_post(session->up->mail, session->conn,
                       CAIRN_PACK(partnered, .save = save->number));
}

/* Q55 */
static void say_store(struct cairn_up_session *session) {
    const struct cairn_up *up = session->up;
    struct cairn_error why = {0};
    bool waits =
        up->locked.store_waits[0] && cairn_mono_ms() - up->locked.store_waits_since_ms >= AWAY_MS;
    if (waits == session->store_wait_reported || (!waits && up->locked.store_waits[0])) return;
    if (waits)
        (void)!cairn_fail(&why, CAIRN_UNAVAILABLE,
                          "the uploader of node %s %s: %s", up->places.node,
                          up->locked.store_fails
                              ? "gets on with no save"
                              : "sends nothing, since its store is not there",
                          up->locked.store_waits);
    say(session, 0, "store", &why);
    session->store_wait_reported = waits;
}

static void say_server(struct cairn_up_session *session) {
    const struct cairn_up *up = session->up;
    struct cairn_error why = {0};
    uint64_t asked_ms = up->locked.server_asked_ms;
    bool silent = asked_ms && cairn_mono_ms() - asked_ms >= SILENT_MS;
    bool failed = up->locked.server_away[0];
    bool away =
        silent || (failed && cairn_mono_ms() - up->locked.server_away_since_ms >= AWAY_MS);
    if (away == session->server_away_reported || (!away && failed)) return;
    if (away)
        (void)!cairn_fail(&why, CAIRN_UNAVAILABLE, "%s%s",
                          failed ? up->locked.server_away : up->settings.server,
                          failed ? "" : " has a request and does not answer");
    say(session, 0, "server", &why);
    session->server_away_reported = away;
}

void cairn_up_session_tick(struct cairn_up_session *session) {
    struct cairn_up *up = session->up;
    if (session->version < VERSION_OF_PROBLEMS) return;
    CAIRN_HOLD(&up->lock);
    if (!session->read_only) say_store(session);
    if (!session->read_only) say_server(session);
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->conn != session->conn) continue;
        if (cairn_up_trouble_is_long_locked(save) && !save->trouble.reported)
            say_trouble(session, save);
        say_partnered(session, save);
    }
}

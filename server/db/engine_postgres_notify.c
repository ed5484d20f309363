/* SPDX-License-Identifier: Apache-2.0 */
/* NOTIFY in the transaction of a change, and the session that listens; see notify.h. Each catalog
 * of a database has a channel by its schema's number; what is sent is who says it, the position of
 * its transaction, and keys, in hexadecimal. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/buf.h"
#include "server/db/engine_postgres.h"
#include "server/db/notify.h"

#define ALIVE_ANSWER_MS 5000
#define CHANNEL                                                                                    \
    "SELECT 'cairn_' || CAST(oid AS TEXT) FROM pg_namespace WHERE nspname = current_schema()"

static const struct cairn_srv_statement notify_others = {"tell", "t",
                                                         "SELECT pg_notify((" CHANNEL "), ?1)"};

/* ---- telling ---- */

void cairn_srv_postgres_notify(struct cairn_srv_tx *tx, uint64_t key) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    CAIRN_ASSERT(!own->read_only);
    for (size_t i = 0; i < own->notify_count; i++)
        if (own->notify[i] == key) return;
    if (key != CAIRN_SRV_NOTIFY_ALL && own->notify_count < CAIRN_SRV_POSTGRES_NOTIFY_MAX) {
        own->notify[own->notify_count++] = key;
        return;
    }
    own->notify[0] = CAIRN_SRV_NOTIFY_ALL;
    if (!own->notify_count) own->notify_count = 1;
}

/* Nobody is told where nobody else has ever changed this catalog: a server that listens has
 * joined it by a change, which the position of this transaction shows (engine_postgres.h#6). */
enum cairn_code cairn_srv_postgres_send_notify(struct cairn_srv_postgres *own,
                                               struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    if (!own->notify_count || !own->place->shared) return CAIRN_OK;
    bool all = own->notify[0] == CAIRN_SRV_NOTIFY_ALL;
    CAIRN_TRY(cairn_buf_printf(&text, err, "%s %" PRIx64, own->place->server, own->position));
    for (size_t i = 0; i < (all ? 1 : own->notify_count); i++)
        CAIRN_TRY(cairn_buf_printf(&text, err, " %" PRIx64, own->notify[i]));
    const struct cairn_srv_value values[] = {SQL_T(text.data)};
    return cairn_srv_postgres_send(own, &notify_others, values, err);
}

/* ---- hearing ---- */

/* Out of the pipeline, in which libpq takes one statement after the other and none of these. */
static enum cairn_code begin_to_listen(struct cairn_srv_postgres *own, struct cairn_error *err) {
    char sql[120];
    PGresult *result = NULL;
    own->answer_ms = ALIVE_ANSWER_MS;
    if (!PQexitPipelineMode(own->conn))
        return cairn_srv_postgres_fail(own->conn, NULL, "pipeline", err);
    /* A listener that takes nothing holds up the queue of the whole database. */
    CAIRN_TRY(cairn_srv_postgres_exec(
        own, "SET tcp_user_timeout = '20s'; SET application_name = 'cairn-listen'", NULL, err));
    CAIRN_TRY(cairn_srv_postgres_exec(own, CHANNEL, &result, err));
    snprintf(sql, sizeof(sql), "LISTEN %s", PQntuples(result) ? PQgetvalue(result, 0, 0) : "cairn");
    PQclear(result);
    return cairn_srv_postgres_exec(own, sql, NULL, err);
}

enum cairn_code cairn_srv_postgres_listen(void *place, struct cairn_srv_tx **ret,
                                          struct cairn_error *err) {
    struct cairn_srv_tx *tx = NULL;
    CAIRN_TRY(cairn_srv_postgres_connect(place, true, &tx, err));
    enum cairn_code code = begin_to_listen(cairn_srv_postgres_of(tx), err);
    if (code)
        cairn_srv_postgres_disconnect(tx);
    else
        *ret = tx;
    return code;
}

static void read_notify(struct cairn_srv_postgres_place *place, const char *said,
                        void (*heard)(void *owner, uint64_t key), void *owner) {
    size_t size = strcspn(said, " ");
    /* notify.h#3 */
    if (size == strlen(place->server) && !memcmp(said, place->server, size)) return;
    place->shared = true;
    const char *at = strchr(said, ' ');
    if (!at) return;
    /* It is committed there, so a database without it has gone back (engine_postgres.h#6). */
    cairn_srv_postgres_note_seen(place, strtoull(at + 1, NULL, 16));
    while ((at = strchr(at + 1, ' '))) heard(owner, strtoull(at + 1, NULL, 16));
}

enum cairn_code cairn_srv_postgres_listen_for(struct cairn_srv_tx *tx, int wake_fd,
                                              uint32_t wait_ms,
                                              void (*heard)(void *owner, uint64_t key), void *owner,
                                              struct cairn_error *err) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    PGnotify *said = NULL;
    if (!own->conn) return cairn_fail(err, CAIRN_UNAVAILABLE, "catalog: the session is lost");
    struct pollfd fds[2] = {{.fd = PQsocket(own->conn), .events = POLLIN},
                            {.fd = wake_fd, .events = POLLIN}};
    int ready = poll(fds, 2, (int)wait_ms);
    if (ready < 0 && errno != EINTR) return cairn_fail_errno(err, "poll");
    if (!ready) CAIRN_TRY(cairn_srv_postgres_exec(own, "SELECT 1", NULL, err));
    if (!PQconsumeInput(own->conn))
        return cairn_srv_postgres_fail(own->conn, NULL, "listening", err);
    while ((said = PQnotifies(own->conn))) {
        read_notify(own->place, said->extra, heard, owner);
        PQfreemem(said);
    }
    return CAIRN_OK;
}

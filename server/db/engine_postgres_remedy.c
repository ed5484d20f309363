/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator does about a database that cannot be connected to; see engine_postgres.h. */
#include <stdio.h>

#include "server/db/engine_postgres.h"

/* By what libpq, or the database before it knows who asks, says. Where it says something else, for
 * one in another language, there is no remedy, and its words alone are told. */
static const struct {
    const char *said, *remedy;
} remedies[] = {
    {"session is read-only", "name the primary, or all hosts with commas between"},
    {"service", "see the file that PGSERVICEFILE names, or ~/.pg_service.conf"},
    {"database \"", "create it, or name another one in the setting catalog"},
    {"role \"", "create it, or name another one in the setting catalog"},
    {"too many clients", "raise max_connections"},
    {"remaining connection slots", "raise max_connections"},
    {"No such file or directory", "is it running, and is this its socket?"},
    {"Connection refused", "is it running, and are these its host and port?"},
    {"could not translate host name", "is it running, and is this its host?"},
    {"timeout expired", "is it running, and can it be reached from here?"},
};

static const char password[] = "see the password file (PGPASSFILE, or ~/.pgpass; its mode is 0600)";

static const char *remedy_for(const PGconn *conn, const char *said) {
    if (PQconnectionNeedsPassword(conn) || PQconnectionUsedPassword(conn)) return password;
    for (size_t i = 0; i < CAIRN_COUNT(remedies); i++)
        if (strstr(said, remedies[i].said)) return remedies[i].remedy;
    return NULL;
}

enum cairn_code cairn_srv_postgres_explain(const PGconn *conn, struct cairn_error *err) {
    if (!conn) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a catalog connection");
    const char *said = PQerrorMessage(conn), *remedy = remedy_for(conn, said);
    return cairn_fail(err, CAIRN_UNAVAILABLE, "catalog: %.*s%s%s", (int)strcspn(said, "\n"), said,
                      remedy ? ": " : "", remedy ? remedy : "");
}

enum cairn_code cairn_srv_postgres_release(const PGconn *conn, struct cairn_error *err) {
    int release = PQserverVersion(conn) / 10000;
    if (release >= CAIRN_SRV_POSTGRES_RELEASE_MIN) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "the catalog's database is PostgreSQL %s: install %d or newer",
                      PQparameterStatus(conn, "server_version"), CAIRN_SRV_POSTGRES_RELEASE_MIN);
}

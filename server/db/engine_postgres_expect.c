/* SPDX-License-Identifier: Apache-2.0 */
/* Queries that go out together before anybody asks for the first one's rows, so that a change waits
 * for the network once for all of them. See engine.h#5. */
#include <stdlib.h>

#include "common/buf.h"
#include "server/db/engine_postgres.h"

struct cairn_srv_postgres_expected {
    const struct cairn_srv_statement *statement; /* NULL: its rows were taken, or it failed */
    struct cairn_buf values;
    PGresult *result; /* NULL: not heard yet */
};

static enum cairn_code write_value(struct cairn_buf *ret, const struct cairn_srv_value *value,
                                   struct cairn_error *err) {
    struct cairn_view bytes = value->bytes;
    if (value->type == 'i') return cairn_buf_append_u64le(ret, (uint64_t)value->number, err);
    if (value->type == 't') bytes = (struct cairn_view){0};
    if (value->type == 't' && value->text) bytes = cairn_view_of(value->text);
    CAIRN_TRY(cairn_buf_append_u64le(ret, bytes.data ? bytes.size : UINT64_MAX, err));
    return bytes.size ? cairn_buf_append(ret, bytes.data, bytes.size, err) : CAIRN_OK;
}

static enum cairn_code write_values(struct cairn_buf *ret,
                                    const struct cairn_srv_statement *statement,
                                    const struct cairn_srv_value *values, struct cairn_error *err) {
    cairn_buf_clear(ret);
    for (size_t i = 0; statement->types[i]; i++) CAIRN_TRY(write_value(ret, &values[i], err));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_postgres_expect(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_statement *statement,
                                          const struct cairn_srv_value *values,
                                          struct cairn_error *err) {
    struct cairn_srv_postgres *own = cairn_srv_postgres_of(tx);
    CAIRN_ASSERT(cairn_srv_postgres_only_looks(statement));
    if (own->expected_count == CAIRN_SRV_EXPECTED_MAX) return CAIRN_OK;
    if (!own->expected) own->expected = calloc(CAIRN_SRV_EXPECTED_MAX, sizeof(*own->expected));
    if (!own->expected) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for queries");
    struct cairn_srv_postgres_expected *one = &own->expected[own->expected_count];
    CAIRN_TRY(write_values(&one->values, statement, values, err));
    CAIRN_TRY(cairn_srv_postgres_send(own, statement, values, err));
    own->ahead[own->ahead_count - 1] = 'e';
    one->statement = statement;
    one->result = NULL;
    own->expected_count++;
    if (own->unended_bytes < CAIRN_SRV_POSTGRES_UNENDED_BYTES) return CAIRN_OK;
    return cairn_srv_postgres_leave_to_it(own, err);
}

void cairn_srv_postgres_expected_heard(struct cairn_srv_postgres *own, PGresult *take_result,
                                       bool good) {
    CAIRN_ASSERT(own->expected_heard < own->expected_count);
    struct cairn_srv_postgres_expected *one = &own->expected[own->expected_heard++];
    if (!good) {
        PQclear(take_result);
        one->statement = NULL;
        return;
    }
    one->result = take_result;
}

void cairn_srv_postgres_expect_no_more(struct cairn_srv_postgres *own) {
    for (size_t i = 0; i < own->ahead_count; i++)
        if (own->ahead[i] == 'e') own->ahead[i] = 'c'; /* heard like a command, and dropped */
    for (size_t i = 0; i < own->expected_count; i++) {
        PQclear(own->expected[i].result);
        own->expected[i].result = NULL;
    }
    own->expected_count = own->expected_heard = own->expected_next = 0;
}

/* They are mostly asked for in the order in which they were sent. */
static struct cairn_srv_postgres_expected *find(struct cairn_srv_postgres *own,
                                                const struct cairn_srv_statement *statement,
                                                const struct cairn_buf *values) {
    for (size_t i = 0; i < own->expected_count; i++) {
        size_t at = (own->expected_next + i) % own->expected_count;
        struct cairn_srv_postgres_expected *one = &own->expected[at];
        if (one->statement != statement || one->values.size != values->size ||
            (values->size && memcmp(one->values.data, values->data, values->size)))
            continue;
        own->expected_next = at + 1;
        return one;
    }
    return NULL;
}

enum cairn_code cairn_srv_postgres_take_expected(struct cairn_srv_postgres *own,
                                                 const struct cairn_srv_statement *statement,
                                                 const struct cairn_srv_value *values,
                                                 PGresult **ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) written = {0};
    *ret = NULL;
    if (!own->expected_count) return CAIRN_OK;
    CAIRN_TRY(write_values(&written, statement, values, err));
    struct cairn_srv_postgres_expected *one = find(own, statement, &written);
    if (!one) return CAIRN_OK;
    if (!one->result) CAIRN_TRY(cairn_srv_postgres_hear(own, NULL, err));
    *ret = CAIRN_TAKE(one->result);
    one->statement = NULL;
    return CAIRN_OK;
}

void cairn_srv_postgres_expected_release(struct cairn_srv_postgres *own) {
    cairn_srv_postgres_expect_no_more(own);
    for (size_t i = 0; own->expected && i < CAIRN_SRV_EXPECTED_MAX; i++)
        cairn_buf_release(&own->expected[i].values);
    free(own->expected);
    own->expected = NULL;
}

bool cairn_srv_postgres_only_looks(const struct cairn_srv_statement *statement) {
    return !strncmp(statement->sql, "SELECT ", strlen("SELECT "));
}

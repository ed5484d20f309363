/* SPDX-License-Identifier: Apache-2.0 */
/* Lists that grow with what a statement gives; see lists.h. */
#include "server/ledger/lists.h"

#include <stdlib.h>

#include "common/array.h"

#define ITEMS_MAX 100000000

void cairn_srv_ids_release(struct cairn_srv_ids *ids) {
    free(ids->ids);
    *ids = (struct cairn_srv_ids){0};
}

enum cairn_code cairn_srv_ids_add(struct cairn_srv_ids *ids, const struct cairn_version_id *id,
                                  struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(ids->ids, ids->count, ids->capacity, ITEMS_MAX, "versions", err));
    ids->ids[ids->count++] = *id;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_ids_read(struct cairn_srv_rows *rows, size_t limit,
                                   struct cairn_srv_ids *ret, struct cairn_error *err) {
    bool more = true;
    ret->count = 0;
    while (ret->count < limit) {
        CAIRN_TRY(cairn_srv_rows_next(rows, &more, err));
        if (!more) break;
        struct cairn_version_id id;
        SQL_COPY(id.text, rows, 0);
        CAIRN_TRY(cairn_srv_ids_add(ret, &id, err));
    }
    return CAIRN_OK;
}

void cairn_srv_rows_name(const struct cairn_srv_rows *rows, int column,
                         struct cairn_run_name *ret) {
    SQL_COPY(ret->project, rows, column);
    SQL_COPY(ret->run, rows, column + 1);
}

void cairn_srv_run_names_release(struct cairn_srv_run_names *names) {
    free(names->names);
    *names = (struct cairn_srv_run_names){0};
}

enum cairn_code cairn_srv_run_names_read(struct cairn_srv_rows *rows, size_t limit,
                                         struct cairn_srv_run_names *ret, struct cairn_error *err) {
    bool more = true;
    for (ret->count = 0; ret->count < limit; ret->count++) {
        CAIRN_TRY(cairn_srv_rows_next(rows, &more, err));
        if (!more) break;
        CAIRN_TRY(CAIRN_ARRAY_ROOM(ret->names, ret->count, ret->capacity, ITEMS_MAX, "runs", err));
        struct cairn_run_name *name = &ret->names[ret->count];
        cairn_srv_rows_name(rows, 0, name);
    }
    return CAIRN_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A list: a node has as many tables as ranks and open saves, and a seal looks for one by its name
 * at the start of the process alone. */
#include "uploader/saves/tables.h"

#include <stdlib.h>

#include "api/documents/digest.h"
#include "api/table/table.h"
#include "api/wire/messages.h"
#include "common/text.h"
#include "uploader/journal/journal.h"

static void table_free(struct cairn_up_table *table) {
    cairn_buf_release(&table->bytes);
    free(table);
}

enum cairn_code cairn_up_table_new_locked(struct cairn_up *up, struct cairn_view bytes,
                                          uint64_t entry, struct cairn_up_table **ret,
                                          struct cairn_error *err) {
    struct cairn_table opened;
    uint8_t digest[32];
    CAIRN_TRY(cairn_table_open(bytes, &opened, err));
    struct cairn_up_table *table = calloc(1, sizeof(*table));
    if (!table) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a rank's table");
    *table = (struct cairn_up_table){.entry = entry, .rank = opened.rank, .users = 1};
    table->bytes.limit = CAIRN_TABLE_BYTES_MAX;
    enum cairn_code code = cairn_buf_append(&table->bytes, bytes.data, bytes.size, err);
    if (code != CAIRN_OK) {
        table_free(table);
        return code;
    }
    cairn_table_digest(bytes, digest);
    cairn_hex_encode(digest, sizeof(digest), table->hex);
    table->next = up->locked.tables;
    up->locked.tables = table;
    *ret = table;
    return CAIRN_OK;
}

struct cairn_up_table *cairn_up_table_find_locked(struct cairn_up *up, const char *hex) {
    for (struct cairn_up_table *table = up->locked.tables; table; table = table->next)
        if (table->written && !strcmp(table->hex, hex)) return table;
    return NULL;
}

json_t *cairn_up_table_record(const struct cairn_up_table *table) {
    return CAIRN_PACK(record_table, .table = table->hex);
}

struct cairn_up_table *cairn_up_table_use(struct cairn_up_table *table) {
    CAIRN_ASSERT(table->users < UINT32_MAX);
    table->users++;
    return table;
}

static void drop(struct cairn_up *up, struct cairn_up_table **place) {
    struct cairn_up_table *table = *place;
    CAIRN_ASSERT(!table->users);
    *place = table->next;
    if (table->entry) {
        CAIRN_AUTO_JSON json_t *over = CAIRN_PACK(record_over, 0);
        struct cairn_up_record record = {.entry = table->entry, .closes = true, .message = over};
        cairn_up_journal_note(up->journal, &record, 1);
    }
    table_free(table);
}

void cairn_up_table_leave_locked(struct cairn_up *up, struct cairn_up_table **in_table) {
    struct cairn_up_table *table = *in_table, **place = &up->locked.tables;
    *in_table = NULL;
    if (!table) return;
    CAIRN_ASSERT(table->users > 0);
    if (--table->users) return;
    while (*place != table) place = &(*place)->next;
    drop(up, place);
}

void cairn_up_tables_sweep_locked(struct cairn_up *up) {
    for (struct cairn_up_table **place = &up->locked.tables; *place;) {
        if ((*place)->users)
            place = &(*place)->next;
        else
            drop(up, place);
    }
}

void cairn_up_tables_free_all(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    for (struct cairn_up_table *table = up->locked.tables, *next; table; table = next) {
        next = table->next;
        table_free(table);
    }
    up->locked.tables = NULL;
}

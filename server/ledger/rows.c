/* SPDX-License-Identifier: Apache-2.0 */
/* The table of rows.def; see rows.h. */
#include "server/ledger/rows.h"

#include <stddef.h>

#include "server/ledger/attempts.h"
#include "server/ledger/copies.h"
#include "server/ledger/layouts.h"
#include "server/ledger/operations.h"
#include "server/ledger/shards.h"
#include "server/ledger/tokens.h"
#include "server/ledger/version_lists.h"

#define FIELD(kind, member) {kind, offsetof(__typeof__(*row), member), sizeof(row->member)},
#define N(member) FIELD('n', member)
#define T(member) FIELD('t', member)
#define O(member) FIELD('o', member)
#define P(member) FIELD('p', member)
#define V(member) FIELD('v', member)
#define D(member) FIELD('d', member)
#define IS(member) FIELD('?', member)
#define HAS(member) FIELD('#', member)
#define SKIP {'-', 0, 0},
#define NAME(member) T(member.project) T(member.run)
#define ROWS(name, type, statement, from, ...)                                                     \
    struct srv_fields srv_fields_##name(void) {                                                    \
        const struct type *row = NULL;                                                             \
        static const struct srv_field fields[] = {__VA_ARGS__};                                    \
        (void)row;                                                                                 \
        return (struct srv_fields){fields, CAIRN_COUNT(fields)};                                   \
    }                                                                                              \
    struct type srv_row_##name(const struct srv_rows *rows) {                                      \
        struct type row = {0};                                                                     \
        (void)srv_rows_take(rows, from, ROW(name), &row);                                          \
        return row;                                                                                \
    }
#include "server/ledger/rows.def"

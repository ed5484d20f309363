/* SPDX-License-Identifier: Apache-2.0 */
/* groups: a row keeps the digest in hex and, behind it as JSON, what its first rank said. */
#include "server/versions/groups.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/wire/messages.h"
#include "common/text.h"
#include "plan/split.h"
#include "server/versions/list_calls.h"

#define DIGEST_HEX 64
#define SHOWN 120 /* bytes of a tensor's name in a reason */

enum cairn_code cairn_srv_groups_check(const json_t *splits, const char *pointer,
                                       struct cairn_error *err) {
    if (json_array_size(splits) > CAIRN_SRV_GROUPS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%s/splits: at most %d groups a rank", pointer,
                          CAIRN_SRV_GROUPS_MAX);
    for (size_t i = 0; i < json_array_size(splits); i++) {
        struct cairn_msg_begin_split said = {0};
        uint8_t digest[DIGEST_HEX / 2];
        char at[64];
        snprintf(at, sizeof at, "%s/splits/%zu", pointer, i);
        CAIRN_TRY(cairn_msg_begin_split_read(json_array_get(splits, i), at, &said, err));
        enum cairn_code code =
            cairn_hex_decode(cairn_view_of(said.digest), digest, sizeof digest, err);
        if (code) return cairn_within(err, code, "%s/digest", at);
        if (json_array_size(said.marks) > CAIRN_SRV_GROUP_MARKS_MAX)
            return cairn_fail(err, CAIRN_INVALID, "%s/marks: at most %d", at,
                              CAIRN_SRV_GROUP_MARKS_MAX);
        for (size_t k = 0; k < json_array_size(said.marks); k++) {
            struct cairn_msg_split_mark mark = {0};
            CAIRN_TRY(cairn_msg_split_mark_read(json_array_get(said.marks, k), at, &mark, err));
        }
    }
    return CAIRN_OK;
}

/* What the first rank said of a group, from its row. NULL: nothing but the digest. */
static json_t *first_words(const struct cairn_buf *row) {
    const struct cairn_json_limits limits = {CAIRN_MIB, 0};
    json_t *words = NULL;
    if (row->size <= DIGEST_HEX) return NULL;
    struct cairn_view rest = {row->data + DIGEST_HEX, row->size - DIGEST_HEX};
    return cairn_json_parse(rest, limits, &words, NULL) ? NULL : words;
}

static bool read_mark(const json_t *marks, size_t at, struct cairn_msg_split_mark *ret) {
    *ret = (struct cairn_msg_split_mark){0};
    return at < json_array_size(marks) &&
           !cairn_msg_split_mark_read(json_array_get(marks, at), "", ret, NULL);
}

/* A list that is shorter than its marks may be has a mark for each tensor: then the first name that
 * one list lacks, or that both have differently, is known. */
static bool first_differing(const json_t *first, const json_t *own,
                            struct cairn_msg_split_mark *ret) {
    struct cairn_msg_split_mark a, b;
    if (json_array_size(first) >= CAIRN_PLAN_SPLIT_MARKS ||
        json_array_size(own) >= CAIRN_PLAN_SPLIT_MARKS)
        return false;
    for (size_t i = 0;; i++) {
        bool in_first = read_mark(first, i, &a), in_own = read_mark(own, i, &b);
        if (!in_first && !in_own) return false;
        int order = !in_first ? 1 : !in_own ? -1 : strcmp(a.tensor, b.tensor);
        *ret = order > 0 ? b : a;
        if (order || strcmp(a.digest, b.digest) != 0) return true;
    }
}

/* Marks stand in the order of their names, each with the digest of all tensors up to it. Which
 * tensors of a long list have one follows from their names, so only those that both lists have
 * count: the lists part behind the last whose digest is equal, and not behind the next. True: ret
 * names the tensor itself. */
static bool describe_lists(const json_t *first, const json_t *own, const char *group,
                           char ret[CAIRN_SRV_REASON_BYTES]) {
    struct cairn_msg_split_mark a, b;
    char behind[SHOWN + 16] = "", up_to[SHOWN + 16] = "";
    if (first_differing(first, own, &a)) {
        cairn_srv_lists_first(group, a.tensor, ret);
        return true;
    }
    for (size_t i = 0, k = 0; read_mark(first, i, &a) && read_mark(own, k, &b);) {
        int order = strcmp(a.tensor, b.tensor);
        i += order <= 0;
        k += order >= 0;
        if (order) continue;
        bool equal = !strcmp(a.digest, b.digest);
        snprintf(equal ? behind : up_to, sizeof behind, "%s \"%.*s\"", equal ? " behind" : " up to",
                 SHOWN, a.tensor);
        if (!equal) break;
    }
    snprintf(ret, CAIRN_SRV_REASON_BYTES, "the tensors of the replica group \"%.64s\"%s%s%s", group,
             behind[0] || up_to[0] ? ", by name" : "", behind, up_to);
    return false;
}

/* True: the lists differ in a tensor that is not known yet, and both ranks can be asked. */
static bool describe(const struct cairn_buf *row, const struct cairn_msg_begin_split *own,
                     char ret[CAIRN_SRV_REASON_BYTES]) {
    CAIRN_AUTO_JSON json_t *words = first_words(row);
    struct cairn_msg_begin_split first = {0};
    bool read = words && !cairn_msg_begin_split_read(words, "", &first, NULL), known = false;
    if (read && first.how && own->how && strcmp(first.how, own->how) != 0) {
        snprintf(ret, CAIRN_SRV_REASON_BYTES,
                 "how the replica group \"%.64s\" is split: by what, members or weights",
                 own->group);
        return false;
    }
    if (read && first.marks && own->marks)
        known = describe_lists(first.marks, own->marks, own->group, ret);
    else
        snprintf(ret, CAIRN_SRV_REASON_BYTES, "the tensors of the replica group \"%.64s\"",
                 own->group);
    return read && !known && first.finer && own->finer;
}

enum cairn_code cairn_srv_groups_join(struct cairn_srv_tx *tx, const char *version, uint64_t rank,
                                      const json_t *splits, uint64_t *ret_first,
                                      char ret_differ[CAIRN_SRV_REASON_BYTES],
                                      struct cairn_error *err) {
    ret_differ[0] = 0;
    for (size_t i = 0; i < json_array_size(splits) && !ret_differ[0]; i++) {
        struct cairn_msg_begin_split own = {0};
        CAIRN_AUTO(buf) words = {0};
        CAIRN_AUTO(buf) first = {0};
        CAIRN_TRY(cairn_msg_begin_split_read(json_array_get(splits, i), "/splits", &own, err));
        words.limit = first.limit = CAIRN_MIB;
        CAIRN_TRY(cairn_buf_append_text(&words, own.digest, err));
        CAIRN_TRY(cairn_json_dump(json_array_get(splits, i), &words, err));
        struct cairn_srv_group_said said = {own.group, words.data, rank};
        CAIRN_TRY(cairn_srv_group_join(tx, version, &said, &first, ret_first, err));
        if (strncmp(first.data, own.digest, DIGEST_HEX) == 0) continue;
        const struct cairn_srv_parties parties = {own.group, *ret_first, rank};
        if (describe(&first, &own, ret_differ))
            CAIRN_TRY(cairn_srv_lists_dispute(tx, version, &parties, err));
    }
    return CAIRN_OK;
}

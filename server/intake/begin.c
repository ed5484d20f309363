/* SPDX-License-Identifier: Apache-2.0 */
/* POST {R}/checkpoints: begin is a join (rules Q8-Q11). Every rank derives the same id; the first
 * begin makes the row, later ones are compared with it; a verdict is a row and the same for all.
 * POST {C}/lists finds the tensor in which a replica group's lists differ (intake.h#2 to #4). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/digest.h"
#include "common/hooks.h"
#include "common/log.h"
#include "plan/split.h"
#include "server/guard/jobs.h"
#include "server/http/waiters.h"
#include "server/intake/intake.h"
#include "server/ledger/policies.h"
#include "server/ledger/shards.h"
#include "server/metrics.h"
#include "server/versions/versions.h"

#define BEGINS_MAX 4096
#define GROUPS_MAX 64       /* per rank */
#define GROUP_MARKS_MAX 256 /* per group */
#define DIGEST_HEX 64
#define DIGEST_TEXT 16 /* per part of a list */
#define SHOWN 120      /* bytes of a tensor's name in a reason */

struct begin {
    struct cairn_msg_begin_save msg;
    enum srv_on_exists on_exists;
    struct cairn_buf labels_text, meta_text;
    /* the answer */
    enum cairn_code code; /* the begin could not be read */
    struct cairn_error error;
    bool placed; /* ... but its step, n, rank and world size could */
    bool first, changed;
    struct srv_version version;
};
struct batch {
    struct srv_request *request;
    struct cairn_grant grant;
    const char *node;
    struct begin *begins;
    size_t count;
    const struct begin *joined; /* the previous, if open and no rank of it has ended */
};

static void release_begins(struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++) {
        cairn_buf_release(&batch->begins[i].labels_text);
        cairn_buf_release(&batch->begins[i].meta_text);
        srv_version_release(&batch->begins[i].version);
    }
    free(batch->begins);
}

/* ---- naming how two ranks differ (Q10) ---- */

static void name_first_differing(const char *group, const char *tensor,
                                 char ret[SRV_REASON_BYTES]) {
    snprintf(ret, SRV_REASON_BYTES, "the tensors of the replica group \"%.64s\", first in \"%.*s\"",
             group, SHOWN, tensor);
}

static void say_differ(uint64_t first, uint64_t second, const char *what,
                       char ret[SRV_REASON_BYTES]) {
    snprintf(ret, SRV_REASON_BYTES, "rank %" PRIu64 " and rank %" PRIu64 " differ in %.440s", first,
             second, what);
}

struct parties {
    const char *group;
    uint64_t first, second;
};

static enum cairn_code write_row(struct srv_tx *tx, const char *version, const json_t *words,
                                 struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    if (!words) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a dispute");
    CAIRN_TRY(cairn_json_dump(words, &text, err));
    return srv_dispute_put(tx, version, text.data, err);
}

static enum cairn_code open_dispute(struct srv_tx *tx, const char *version,
                                    const struct parties *parties, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *words =
        json_pack("{s:s, s:I, s:I, s:I, s:I}", "group", parties->group, "first",
                  (json_int_t)parties->first, "second", (json_int_t)parties->second, "from",
                  (json_int_t)0, "to", (json_int_t)CAIRN_PLAN_SPLIT_ITEMS_MAX);
    return write_row(tx, version, words, err);
}

/* ---- replica groups: the first rank's list counts (intake.h#2) ---- */

/* A group's row is the digest in hex, followed by the first rank's begin_split as JSON. */
static enum cairn_code check_groups(const json_t *splits, const char *pointer,
                                    struct cairn_error *err) {
    if (json_array_size(splits) > GROUPS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%s/splits: at most %d groups a rank", pointer,
                          GROUPS_MAX);
    for (size_t i = 0; i < json_array_size(splits); i++) {
        struct cairn_msg_begin_split said = {0};
        uint8_t digest[DIGEST_HEX / 2];
        char at[64];
        snprintf(at, sizeof at, "%s/splits/%zu", pointer, i);
        CAIRN_TRY(cairn_msg_begin_split_read(json_array_get(splits, i), at, &said, err));
        enum cairn_code code =
            cairn_hex_decode(cairn_view_of(said.digest), digest, sizeof digest, err);
        if (code) return cairn_within(err, code, "%s/digest", at);
        if (json_array_size(said.marks) > GROUP_MARKS_MAX)
            return cairn_fail(err, CAIRN_INVALID, "%s/marks: at most %d", at, GROUP_MARKS_MAX);
        for (size_t k = 0; k < json_array_size(said.marks); k++) {
            struct cairn_msg_split_mark mark = {0};
            CAIRN_TRY(cairn_msg_split_mark_read(json_array_get(said.marks, k), at, &mark, err));
        }
    }
    return CAIRN_OK;
}

/* The first rank's begin_split from the group's row; NULL: the row has only the digest. */
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

/* Fewer marks than CAIRN_PLAN_SPLIT_MARKS: one per tensor, so the first difference is known. */
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

/* Marks are sorted by name, each with the digest of all tensors up to it. Names decide which
 * tensors of a long list have marks, so only marks that both lists have count: the lists part after
 * the last equal digest and no later than the next. True: ret names the tensor itself. */
static bool describe_lists(const json_t *first, const json_t *own, const char *group,
                           char ret[SRV_REASON_BYTES]) {
    struct cairn_msg_split_mark a, b;
    char behind[SHOWN + 16] = "", up_to[SHOWN + 16] = "";
    if (first_differing(first, own, &a)) {
        name_first_differing(group, a.tensor, ret);
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
    snprintf(ret, SRV_REASON_BYTES, "the tensors of the replica group \"%.64s\"%s%s%s", group,
             behind[0] || up_to[0] ? ", by name" : "", behind, up_to);
    return false;
}

/* True: the differing tensor is not known yet, and both ranks support POST {C}/lists. */
static bool describe(const struct cairn_buf *row, const struct cairn_msg_begin_split *own,
                     char ret[SRV_REASON_BYTES]) {
    CAIRN_AUTO_JSON json_t *words = first_words(row);
    struct cairn_msg_begin_split first = {0};
    bool read = words && !cairn_msg_begin_split_read(words, "", &first, NULL), known = false;
    if (read && first.how && own->how && strcmp(first.how, own->how) != 0) {
        snprintf(ret, SRV_REASON_BYTES,
                 "how the replica group \"%.64s\" is split: by what, members or weights",
                 own->group);
        return false;
    }
    if (read && first.marks && own->marks)
        known = describe_lists(first.marks, own->marks, own->group, ret);
    else
        snprintf(ret, SRV_REASON_BYTES, "the tensors of the replica group \"%.64s\"", own->group);
    return read && !known && first.finer && own->finer;
}

static enum cairn_code join_groups(struct srv_tx *tx, const char *version, uint64_t rank,
                                   const json_t *splits, uint64_t *ret_first,
                                   char ret_differ[SRV_REASON_BYTES], struct cairn_error *err) {
    ret_differ[0] = 0;
    for (size_t i = 0; i < json_array_size(splits) && !ret_differ[0]; i++) {
        struct cairn_msg_begin_split own = {0};
        CAIRN_AUTO(buf) words = {0};
        CAIRN_AUTO(buf) first = {0};
        CAIRN_TRY(cairn_msg_begin_split_read(json_array_get(splits, i), "/splits", &own, err));
        words.limit = first.limit = CAIRN_MIB;
        CAIRN_TRY(cairn_buf_append_text(&words, own.digest, err));
        CAIRN_TRY(cairn_json_dump(json_array_get(splits, i), &words, err));
        struct srv_group_said said = {own.group, words.data, rank};
        CAIRN_TRY(srv_group_join(tx, version, &said, &first, ret_first, err));
        if (strncmp(first.data, own.digest, DIGEST_HEX) == 0) continue;
        const struct parties parties = {own.group, *ret_first, rank};
        if (describe(&first, &own, ret_differ)) CAIRN_TRY(open_dispute(tx, version, &parties, err));
    }
    return CAIRN_OK;
}

/* ---- reading ---- */

static enum cairn_code parse_exists(struct begin *begin, const char *pointer,
                                    struct cairn_error *err) {
    static const char *const choices[] = {"error", "new-version", "supersede"};
    for (size_t i = 0; i < CAIRN_COUNT(choices); i++) {
        begin->on_exists = (enum srv_on_exists)i;
        if (!strcmp(begin->msg.on_exists, choices[i])) return CAIRN_OK;
    }
    begin->on_exists = SRV_EXISTS_ERROR;
    return cairn_fail(err, CAIRN_INVALID, "%s/on_exists: wanted error, new-version or supersede",
                      pointer);
}

/* The fields that identify a begin: enough to give all ranks the same refusal (Q50). */
static enum cairn_code parse_place(const json_t *item, const char *pointer, struct begin *begin,
                                   struct cairn_error *err) {
    struct cairn_msg_begin_place place = {0};
    CAIRN_TRY(cairn_msg_begin_place_read(item, pointer, &place, err));
    if (!place.n || !place.world_size || place.rank >= place.world_size)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s: n and world_size count from 1, rank %" PRIu64
                          " must be below the world size %" PRIu64,
                          pointer, place.rank, place.world_size);
    begin->msg = (struct cairn_msg_begin_save){.step = place.step,
                                               .n = place.n,
                                               .rank = place.rank,
                                               .world_size = place.world_size,
                                               .on_exists = "error",
                                               .format = ""};
    begin->placed = true;
    return CAIRN_OK;
}

static enum cairn_code parse_begin(const json_t *item, const char *pointer, struct begin *begin,
                                   struct cairn_error *err) {
    char labels[48], meta[48];
    struct cairn_msg_begin_save *msg = &begin->msg;
    CAIRN_TRY(parse_place(item, pointer, begin, err));
    CAIRN_TRY(cairn_msg_begin_save_read(item, pointer, msg, err));
    CAIRN_TRY(parse_exists(begin, pointer, err));
    CAIRN_TRY(check_groups(msg->splits, pointer, err));
    snprintf(labels, sizeof(labels), "%s/labels", pointer);
    snprintf(meta, sizeof(meta), "%s/meta", pointer);
    CAIRN_TRY(cairn_meta_check(msg->labels, labels, true, &begin->labels_text, err));
    return cairn_meta_check(msg->meta, meta, false, &begin->meta_text, err);
}

/* ---- comparing with the first begin (Q10) ---- */

static enum cairn_code give_up(struct srv_tx *tx, struct begin *begin, enum cairn_code why,
                               const char *reason, struct cairn_error *err) {
    struct srv_move move = {CAIRN_EVENT_GIVE_UP, why, reason};
    begin->changed = true;
    return srv_version_move(tx, &begin->version, &move, err);
}

/* Aborts the version for all ranks; the reason names what differs and both ranks. */
static enum cairn_code differ(struct srv_tx *tx, struct begin *begin, const char *what,
                              uint64_t first_rank, struct cairn_error *err) {
    char reason[SRV_REASON_BYTES];
    say_differ(first_rank, begin->msg.rank, what, reason);
    return give_up(tx, begin, CAIRN_BEGIN_DIFFERS, reason, err);
}

static enum cairn_code compare_fields(struct srv_tx *tx, struct begin *begin,
                                      struct cairn_error *err) {
    const struct srv_version *version = &begin->version;
    const char *what = version->world_size != begin->msg.world_size ? "world_size"
                       : version->on_exists != begin->on_exists     ? "on_exists"
                       : version->skip != begin->msg.skip           ? "skip"
                       : strcmp(version->format, begin->msg.format) ? "format"
                                                                    : NULL;
    if (!what) return CAIRN_OK;
    uint64_t other = 0;
    CAIRN_TRY(srv_rank_other(tx, begin->version.id.text, begin->msg.rank, &other, err));
    return differ(tx, begin, what, other, err);
}

static enum cairn_code compare_groups(struct srv_tx *tx, struct begin *begin,
                                      struct cairn_error *err) {
    uint64_t first = 0;
    char what[SRV_REASON_BYTES];
    if (begin->version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    CAIRN_TRY(join_groups(tx, begin->version.id.text, begin->msg.rank, begin->msg.splits, &first,
                          what, err));
    return what[0] ? differ(tx, begin, what, first, err) : CAIRN_OK;
}

static enum cairn_code join(struct srv_tx *tx, const struct batch *batch, struct begin *begin,
                            struct cairn_error *err) {
    if (begin->version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    CAIRN_TRY(compare_fields(tx, begin, err));
    CAIRN_TRY(compare_groups(tx, begin, err));
    if (begin->version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    const char *id = begin->version.id.text;
    CAIRN_TRY(srv_rank_join(tx, id, begin->msg.rank, batch->node, err));
    if (begin->msg.rank != 0) return CAIRN_OK;
    /* Labels and meta are rank 0's; its seal may replace them. */
    return srv_version_set_meta(tx, id, begin->labels_text.data, begin->meta_text.data, err);
}

/* ---- the first begin and its verdict (Q11) ---- */

static enum cairn_code judge(struct srv_tx *tx, const struct srv_run *run, struct begin *begin,
                             struct cairn_error *err) {
    struct cairn_version_id by;
    char reason[SRV_REASON_BYTES];
    enum cairn_code why = CAIRN_OK;
    if (begin->on_exists == SRV_EXISTS_ERROR) {
        CAIRN_TRY(srv_version_at_step(tx, run->id, begin->msg.step, begin->msg.n, &by, err));
        if (by.text[0]) {
            why = CAIRN_STEP_EXISTS;
            snprintf(reason, sizeof(reason), "step %" PRIu64 " is already there as %s",
                     begin->msg.step, by.text);
        }
    }
    if (!why && begin->msg.skip) {
        const char *id = begin->version.id.text;
        CAIRN_TRY(srv_version_unfinished(tx, run->id, run->attempt, id, &by, err));
        if (by.text[0]) {
            why = CAIRN_SKIPPED;
            snprintf(reason, sizeof(reason), "an earlier save (%s) is still being sent", by.text);
        }
    }
    struct cairn_quota_excess excess = {0};
    bool over = false;
    if (!why) CAIRN_TRY(srv_quota_judge(tx, run->name.project, &excess, &over, err));
    if (over) {
        why = CAIRN_QUOTA_EXCEEDED;
        cairn_quota_excess_text(&excess, run->name.project, reason, sizeof(reason));
    }
    return why ? give_up(tx, begin, why, reason, err) : CAIRN_OK;
}

static enum cairn_code insert(struct srv_tx *tx, const struct batch *batch,
                              const struct srv_run *run, const struct begin *begin,
                              const struct cairn_version_id *id, struct cairn_error *err) {
    struct srv_version_new opened = {.id = *id,
                                     .run = run,
                                     .step = begin->msg.step,
                                     .n = begin->msg.n,
                                     .world_size = begin->msg.world_size,
                                     .on_exists = begin->on_exists,
                                     .skip = begin->msg.skip,
                                     .format = begin->msg.format,
                                     .wall_ms = srv_wall_ms(batch->request->server)};
    return srv_version_insert(tx, &opened, err);
}

/* Q50: an unreadable begin of one rank fails the save for all; the reason names the rank. */
static enum cairn_code refuse(struct srv_tx *tx, struct begin *begin, struct cairn_error *err) {
    if (begin->version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    char reason[SRV_REASON_BYTES];
    snprintf(reason, sizeof(reason), "rank %" PRIu64 "'s begin was refused: %.400s",
             begin->msg.rank, begin->error.message);
    return give_up(tx, begin, begin->code, reason, err);
}

static void id_of(const struct batch *batch, const struct begin *begin,
                  struct cairn_version_id *ret) {
    struct cairn_version_origin origin = {.name = batch->grant.name,
                                          .attempt = batch->grant.attempt,
                                          .step = begin->msg.step,
                                          .n = (uint32_t)begin->msg.n};
    (void)cairn_text_copy(origin.nonce, sizeof(origin.nonce), batch->grant.nonce);
    cairn_version_id_make(&origin, ret);
}

/* Ranks of one node begin one version in one call: the previous rank's checks still hold. */
static enum cairn_code join_too(struct srv_tx *tx, struct batch *batch, struct begin *begin,
                                struct cairn_error *err) {
    CAIRN_TRY(srv_version_copy(&batch->joined->version, &begin->version, err));
    CAIRN_TRY(begin->code ? refuse(tx, begin, err) : join(tx, batch, begin, err));
    if (begin->version.state != CAIRN_STATE_OPEN) batch->joined = NULL;
    return CAIRN_OK;
}

static enum cairn_code open_version(struct srv_tx *tx, const struct batch *batch,
                                    const struct srv_run *run, struct begin *begin,
                                    const struct cairn_version_id *id, struct cairn_error *err) {
    bool forgotten = false;
    CAIRN_TRY(srv_version_forgotten_expect(tx, run->id, run->attempt, id->text, err));
    CAIRN_TRY(srv_tick_expect(tx, err));
    /* The row of an ended version is trimmed, but its id must not be used again. */
    CAIRN_TRY(srv_version_forgotten(tx, run->id, run->attempt, id->text, &forgotten, err));
    if (forgotten) return cairn_fail(err, CAIRN_DELETED, "%s was over long ago", id->text);
    CAIRN_TRY(srv_run_renew(tx, run, NULL, srv_wall_ms(batch->request->server), err));
    CAIRN_TRY(insert(tx, batch, run, begin, id, err));
    CAIRN_TRY(srv_version_expect(tx, id->text, err));
    CAIRN_TRY(srv_quota_expect(tx, run->name.project, err));
    if (!begin->code && begin->on_exists == SRV_EXISTS_ERROR)
        CAIRN_TRY(srv_version_at_step_expect(tx, run->id, begin->msg.step, begin->msg.n, err));
    const struct srv_version opened = {.id = *id,
                                       .run_id = run->id,
                                       .attempt = run->attempt,
                                       .world_size = (uint32_t)begin->msg.world_size};
    CAIRN_TRY(srv_members_gone_expect(tx, &opened, err));
    CAIRN_TRY(srv_version_get(tx, id->text, &begin->version, err));
    begin->first = true;
    return begin->code ? CAIRN_OK : judge(tx, run, begin, err);
}

static enum cairn_code begin_one(struct srv_tx *tx, struct batch *batch, const struct srv_run *run,
                                 struct begin *begin, struct cairn_error *err) {
    struct cairn_version_id id;
    id_of(batch, begin, &id);
    srv_version_release(&begin->version);
    begin->first = begin->changed = false;
    if (batch->joined && !strcmp(batch->joined->version.id.text, id.text))
        return join_too(tx, batch, begin, err);
    enum cairn_code code = srv_version_get(tx, id.text, &begin->version, err);
    if (code == CAIRN_NOT_FOUND) code = open_version(tx, batch, run, begin, &id, err);
    if (code) return code;
    if (begin->code) return refuse(tx, begin, err);
    char gone[SRV_REASON_BYTES] = "";
    if (begin->version.state == CAIRN_STATE_OPEN) /* before the join, which ends no rank */
        CAIRN_TRY(srv_members_gone(tx, &begin->version, gone, err));
    CAIRN_TRY(join(tx, batch, begin, err));
    /* Q56: fails a save that needs a rank whose end was reported before. */
    if (begin->version.state == CAIRN_STATE_OPEN && gone[0])
        CAIRN_TRY(give_up(tx, begin, CAIRN_SOURCE_GONE, gone, err));
    batch->joined = begin->version.state == CAIRN_STATE_OPEN ? begin : NULL;
    return CAIRN_OK;
}

SRV_CHANGE(begin_all, struct batch *batch) {
    struct cairn_version_id id;
    batch->joined = NULL;
    id_of(batch, &batch->begins[0], &id);
    CAIRN_TRY(srv_run_expect(tx, &batch->grant.name, err));
    CAIRN_TRY(srv_version_expect(tx, id.text, err));
    SRV_GET(run, run, srv_admit(tx, &batch->grant, &run, err));
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->begins[i].code && !(batch->begins[i].placed && CAIRN_RULE(Q50))) continue;
        CAIRN_TRY(begin_one(tx, batch, &run, &batch->begins[i], err));
    }
    return CAIRN_OK;
}

/* ---- answers ---- */

/* A refused or aborted begin gets the same problem on every rank and every repeat. */
static enum cairn_code refusal(const struct begin *begin, struct cairn_error *err) {
    const struct srv_version *version = &begin->version;
    if (begin->code) {
        *err = begin->error;
        return begin->code;
    }
    if (version->state == CAIRN_STATE_OPEN || version->state == CAIRN_STATE_COMMITTED)
        return CAIRN_OK;
    if (version->code == CAIRN_STEP_EXISTS || version->code == CAIRN_SKIPPED ||
        version->code == CAIRN_BEGIN_DIFFERS || version->code == CAIRN_QUOTA_EXCEEDED)
        return cairn_fail(err, version->code, "%s", version->reason);
    return CAIRN_OK;
}

static bool add_numbers(json_t *problem, const struct begin *begin) {
    struct cairn_quota_excess excess = {0};
    if (begin->code || begin->version.code != CAIRN_QUOTA_EXCEEDED) return true;
    return !cairn_quota_excess_read(begin->version.reason, &excess) ||
           cairn_quota_excess_put(problem, &excess);
}

static json_t *result_of(const struct batch *batch, const struct begin *begin) {
    struct cairn_error why = {0};
    enum cairn_code code = refusal(begin, &why);
    bool known = begin->version.id.text[0]; /* else step, n, rank or world size is invalid */
    CAIRN_ASSERT(known || code);
    CAIRN_AUTO_JSON json_t *problem =
        code ? srv_problem(code, &why, batch->request->path, 0) : NULL;
    if (code && (!problem || !add_numbers(problem, begin))) return NULL;
    struct cairn_msg_brief brief = {.step = CAIRN_MESSAGE_NONE, .n = UINT32_MAX};
    struct cairn_error cause = {0};
    if (known) brief = srv_version_brief_of(&begin->version, &cause);
    return CAIRN_PACK(begin_result, .version = brief.version, .step = brief.step, .n = brief.n,
                      .state = brief.state, .recorded = brief.recorded, .reason = brief.reason,
                      .code = brief.code, .http_status = brief.http_status,
                      .request_id = brief.request_id,
                      .status = (uint32_t)(code           ? cairn_code_info(code)->http_status
                                           : begin->first ? 201
                                                          : 200),
                      .problem = problem);
}

static enum cairn_code answer_batch(const struct batch *batch, struct srv_reply *reply,
                                    struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *results = json_array();
    for (size_t i = 0; i < batch->count; i++)
        CAIRN_TRY(
            cairn_json_append(results, result_of(batch, &batch->begins[i]), "the answer", err));
    return srv_reply_json(reply, 200, CAIRN_PACK(begin_results, .results = results), err);
}

static enum cairn_code answer_single(const struct batch *batch, struct srv_reply *reply,
                                     struct cairn_error *err) {
    const struct begin *begin = &batch->begins[0];
    enum cairn_code code = refusal(begin, err);
    if (code && !begin->version.id.text[0]) return code;
    if (code) {
        srv_reply_extra(reply, "version", json_string(begin->version.id.text));
        srv_reply_extra(reply, "state", json_string(cairn_state_text(begin->version.state)));
        if (reply->extra && !add_numbers(reply->extra, begin)) return srv_no_memory(err);
        return code;
    }
    srv_reply_header(reply, "Location", "%s/v1/runs/%s/%s/checkpoints/%s",
                     srv_public_path(batch->request->server->settings), begin->version.name.project,
                     begin->version.name.run, begin->version.id.text);
    return srv_reply_json(reply, begin->first ? 201 : 200, srv_version_brief(&begin->version), err);
}

static enum cairn_code parse_all(json_t *body, json_t *items, struct batch *batch,
                                 struct cairn_error *err) {
    size_t count = items ? json_array_size(items) : 1;
    CAIRN_AUTO_JSON json_t *alone = items ? NULL : json_copy(body);
    if (!items && !alone) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the begin");
    /* A single begin shares its object with grant and node, which are no fields of a begin. */
    (void)(json_object_del(alone, "grant") | json_object_del(alone, "node"));
    if (!count || count > BEGINS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/begins: wanted 1 to %d", BEGINS_MAX);
    batch->begins = calloc(count, sizeof(*batch->begins));
    if (!batch->begins) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the begins");
    batch->count = count;
    for (size_t i = 0; i < count; i++) {
        struct begin *begin = &batch->begins[i];
        char pointer[32] = "";
        if (items) snprintf(pointer, sizeof(pointer), "/begins/%zu", i);
        begin->code =
            parse_begin(items ? json_array_get(items, i) : alone, pointer, begin, &begin->error);
    }
    return CAIRN_OK;
}

static void announce(const struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++) {
        const struct begin *begin = &batch->begins[i];
        if (!begin->changed) continue;
        if (begin->version.code == CAIRN_QUOTA_EXCEEDED)
            cairn_metrics_add(batch->request->server->metrics, SRV_METRIC(quota_refused_total), 1);
        cairn_log(INFO, "save.refused", "version=%s code=%s reason=\"%s\"", begin->version.id.text,
                  cairn_code_info(begin->version.code)->slug, begin->version.reason);
        srv_waiters_wake_version(batch->request->server->waiters, &begin->version.id,
                                 &begin->version.name);
        srv_jobs_sweep(batch->request->server);
    }
}

SRV_HANDLER(checkpoint_begin) {
    CAIRN_TRY(srv_thawed(request->server, err));
    CAIRN_AUTO_JSON json_t *body = NULL;
    CAIRN_TRY(srv_body(request, 400000, &body, err));
    CAIRN_RELEASED(release_begins) struct batch batch = {.request = request};
    struct cairn_msg_granted granted = {0};
    struct cairn_msg_begins msg = {0};
    if (json_object_get(body, "begins")) CAIRN_TRY(cairn_msg_begins_read(body, "", &msg, err));
    CAIRN_TRY(cairn_msg_granted_read(body, "", &granted, err));
    batch.node = granted.node;
    if (!cairn_name_valid(cairn_view_of(batch.node)))
        return cairn_fail(err, CAIRN_INVALID, "/node: " CAIRN_NAME_WANTED);
    CAIRN_TRY(srv_grant_read(request, granted.grant, &batch.grant, err));
    CAIRN_TRY(parse_all(body, msg.begins, &batch, err));
    CAIRN_TRY(srv_catalog_write(request->server->catalog, begin_all, &batch, err));
    announce(&batch);
    return msg.begins ? answer_batch(&batch, reply, err) : answer_single(&batch, reply, err);
}

/* ---- POST {C}/lists: finds the differing tensor of two ranks' lists (intake.h#3) ---- */

struct dispute {
    json_t *words; /* owned: group, first, second, from, to; the ranks' looks */
    const char *group;
    json_int_t first, second, from, to;
};
struct lists_call {
    struct srv_request *request;
    struct cairn_msg_lists_look msg;
    struct cairn_msg_list_look look;
    struct cairn_grant grant;
    struct srv_version version;
    struct dispute dispute; /* words NULL: settled */
};

static void cairn_lists_call_release(struct lists_call *call) {
    srv_version_release(&call->version);
    json_decref(call->dispute.words);
}

static enum cairn_code read_row(struct srv_tx *tx, const char *version, struct dispute *ret,
                                struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(srv_dispute_get(tx, version, &text, err));
    json_decref(ret->words);
    *ret = (struct dispute){0};
    if (!text.size) return CAIRN_OK;
    CAIRN_TRY(
        cairn_json_parse(cairn_buf_view(&text), (struct cairn_json_limits){0}, &ret->words, err));
    if (json_unpack(ret->words, "{s:s, s:I, s:I, s:I, s:I}", "group", &ret->group, "first",
                    &ret->first, "second", &ret->second, "from", &ret->from, "to", &ret->to) ||
        ret->from < 0 || ret->from >= ret->to || ret->to > CAIRN_PLAN_SPLIT_ITEMS_MAX)
        return cairn_fail(err, CAIRN_INTERNAL, "the row of a dispute cannot be read");
    return CAIRN_OK;
}

static const char *said(const json_t *look, const char *what) {
    const char *text = json_string_value(json_object_get(look, what));
    return text ? text : "";
}

/* intake.h#3; both "": intake.h#4 */
static const char *lesser(const char *a, const char *b) {
    if (!a[0] || !b[0]) return a[0] ? a : b;
    return strcmp(a, b) <= 0 ? a : b;
}

/* False: the search has ended, and *ret_tensor is the tensor, or "" (intake.h#4). */
static bool narrow(struct dispute *dispute, const json_t *first, const json_t *second,
                   const char **ret_tensor) {
    const char *a = said(first, "digests"), *b = said(second, "digests");
    uint32_t from = (uint32_t)dispute->from, to = (uint32_t)dispute->to;
    uint32_t part = cairn_plan_split_part(from, to);
    size_t size = (size_t)DIGEST_TEXT * ((to - from + part - 1) / part);
    *ret_tensor = "";
    if (to - from == 1) *ret_tensor = lesser(said(first, "tensor"), said(second, "tensor"));
    if (to - from == 1 || strlen(a) != size || strlen(b) != size) return false;
    for (size_t at = 0; at < size; at += DIGEST_TEXT, from += part) {
        if (!memcmp(a + at, b + at, DIGEST_TEXT)) continue;
        dispute->from = from;
        dispute->to = (json_int_t)cairn_min_u64((uint64_t)from + part, to);
        return true;
    }
    return false;
}

static enum cairn_code settle(struct srv_tx *tx, struct lists_call *call, const char *tensor,
                              struct cairn_error *err) {
    struct srv_version *version = &call->version;
    char what[SRV_REASON_BYTES];
    if (tensor[0]) {
        name_first_differing(call->dispute.group, tensor, what);
        say_differ((uint64_t)call->dispute.first, (uint64_t)call->dispute.second, what,
                   version->reason);
    }
    CAIRN_TRY(srv_dispute_settle(tx, version->id.text, version->reason, err));
    json_decref(CAIRN_TAKE(call->dispute.words));
    return CAIRN_OK;
}

static enum cairn_code take_look(struct srv_tx *tx, struct lists_call *call,
                                 struct cairn_error *err) {
    struct dispute *dispute = &call->dispute;
    const struct cairn_msg_list_look *look = &call->look;
    bool is_first = call->msg.rank == dispute->first, is_second = call->msg.rank == dispute->second;
    if (!call->msg.look || (!is_first && !is_second) || look->from != dispute->from ||
        look->to != dispute->to || strcmp(look->group, dispute->group) != 0)
        return CAIRN_OK;
    json_object_set(dispute->words, is_first ? "of_first" : "of_second", call->msg.look);
    const json_t *first = json_object_get(dispute->words, "of_first");
    const json_t *second = json_object_get(dispute->words, "of_second");
    const char *tensor = "";
    if (first && second) {
        if (!narrow(dispute, first, second, &tensor)) return settle(tx, call, tensor, err);
        json_object_del(dispute->words, "of_first");
        json_object_del(dispute->words, "of_second");
        json_object_set_new(dispute->words, "from", json_integer(dispute->from));
        json_object_set_new(dispute->words, "to", json_integer(dispute->to));
    }
    return write_row(tx, call->version.id.text, dispute->words, err);
}

SRV_CHANGE(look_in, struct lists_call *call) {
    srv_version_release(&call->version);
    CAIRN_TRY(srv_save_version(tx, call->request, &call->version, err));
    CAIRN_TRY(srv_save_admit(tx, &call->grant, &call->version, err));
    CAIRN_TRY(read_row(tx, call->version.id.text, &call->dispute, err));
    return call->dispute.words ? take_look(tx, call, err) : CAIRN_OK;
}

static json_t *seen_json(const struct lists_call *call) {
    const struct dispute *dispute = &call->dispute;
    if (!dispute->words)
        return CAIRN_PACK(lists_seen, .settled = true, .reason = call->version.reason,
                          .first = CAIRN_MESSAGE_NONE, .second = CAIRN_MESSAGE_NONE,
                          .from = CAIRN_MESSAGE_NONE, .to = CAIRN_MESSAGE_NONE);
    return CAIRN_PACK(lists_seen, .reason = call->version.reason, .group = dispute->group,
                      .first = (uint64_t)dispute->first, .second = (uint64_t)dispute->second,
                      .from = (uint64_t)dispute->from, .to = (uint64_t)dispute->to);
}

SRV_HANDLER(lists_look) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    CAIRN_RELEASED(cairn_lists_call_release) struct lists_call call = {.request = request};
    CAIRN_TRY(srv_thawed(request->server, err));
    CAIRN_TRY(srv_body(request, 100, &body, err));
    CAIRN_TRY(cairn_msg_lists_look_read(body, "", &call.msg, err));
    if (call.msg.look) CAIRN_TRY(cairn_msg_list_look_read(call.msg.look, "/look", &call.look, err));
    CAIRN_TRY(srv_grant_read(request, call.msg.grant, &call.grant, err));
    CAIRN_TRY(srv_catalog_write(request->server->catalog, look_in, &call, err));
    return srv_reply_json(reply, 200, seen_json(&call), err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Copies received from another node: first the description (saves/save.h), read strictly, for which
 * all memory is reserved, then pieces in any order, each compared on arrival. A copy that must be
 * sent becomes a save of this node, as if journaled here: the same code reports begin, seal and
 * shards and sends them, under the tokens of the copy's node. */
#include <inttypes.h>
#include <stdlib.h>

#include "api/documents/digest.h"
#include "api/table/table.h"
#include "api/wire/messages.h"
#include "common/hash/hash.h"
#include "common/memory.h"
#include "common/text.h"
#include "common/trace.h"
#include "store/multipart.h"
#include "store/range.h"
#include "uploader/journal/format.h"
#include "uploader/journal/journal.h"
#include "uploader/partner/inside.h"

#define NODES_MAX (1 << 20)

static enum cairn_code no_memory(struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a copy");
}

/* The caller gives back the copy's attempt and its share of partner_memory. */
static void copy_free(struct cairn_up_copy *copy) {
    if (!copy) return;
    for (size_t i = 0; i < copy->shard_count; i++) cairn_buf_release(&copy->shards[i].blocks_le);
    free(copy->shards);
    cairn_buf_release(&copy->table);
    cairn_pages_unmap(copy->data, copy->data_bytes);
    free(copy->pieces);
    json_decref(copy->head);
    free(copy);
}

static bool same_shard(const struct cairn_up_copy_shard *one,
                       const struct cairn_up_copy_shard *other) {
    return !strcmp(one->told.name, other->told.name) && one->told.tensors == other->told.tensors &&
           one->told.bytes == other->told.bytes && one->blocks_le.size == other->blocks_le.size &&
           (!one->blocks_le.size ||
            !memcmp(one->blocks_le.data, other->blocks_le.data, one->blocks_le.size));
}

/* Compares checksums; process and tokens of the descriptions may differ. */
static bool same_bytes(const struct cairn_up_copy *one, const struct cairn_up_copy *other) {
    if (one->shard_count != other->shard_count) return false;
    for (size_t i = 0; i < one->shard_count; i++)
        if (!same_shard(&one->shards[i], &other->shards[i])) return false;
    return true;
}

static bool same_tokens(const struct cairn_up_copy *one, const struct cairn_up_copy *other) {
    CAIRN_ASSERT(one->shard_count == other->shard_count);
    for (size_t i = 0; i < one->shard_count; i++)
        if (strcmp(one->shards[i].told.token, other->shards[i].told.token) != 0) return false;
    return true;
}

/* Reads the begin of the description; *ret borrows from the copy. */
static enum cairn_code copy_begin(const struct cairn_up_copy *copy, struct cairn_up_begin *ret,
                                  struct cairn_error *err) {
    struct cairn_msg_begin_place place = {0};
    CAIRN_TRY(cairn_msg_begin_place_read(copy->told.begin, "/begin", &place, err));
    *ret = (struct cairn_up_begin){.attempt = copy->attempt,
                                   .proc = copy->told.proc,
                                   .rank = (uint32_t)place.rank,
                                   .world_size = (uint32_t)place.world_size,
                                   .of_partner = true};
    return cairn_up_begin_read(copy->told.begin, "/begin", ret, err);
}

static enum cairn_code read_table(struct cairn_up_copy *copy, const char *text,
                                  struct cairn_error *err) {
    struct cairn_table table;
    if (!text) return CAIRN_OK;
    copy->table.limit = CAIRN_UP_DESCRIPTION_BYTES_MAX;
    CAIRN_TRY(cairn_base64_decode(cairn_view_of(text), &copy->table, err));
    CAIRN_TRY(cairn_table_open(cairn_buf_view(&copy->table), &table, err));
    if (table.rank == copy->rank) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TABLE_INVALID, "the table is of rank %u, the save of rank %u",
                      table.rank, copy->rank);
}

static enum cairn_code read_shard(struct cairn_up_copy *copy, const json_t *item,
                                  struct cairn_shard_names *names, struct cairn_error *err) {
    struct cairn_up_copy_shard *shard = &copy->shards[copy->shard_count++];
    const struct cairn_msg_copy_shard *told = &shard->told;
    *shard = (struct cairn_up_copy_shard){.offset = copy->data_bytes,
                                          .first_piece = copy->piece_count,
                                          .blocks_le.limit = CAIRN_UP_DESCRIPTION_BYTES_MAX};
    CAIRN_TRY(cairn_msg_copy_shard_read(item, "/shards", &shard->told, err));
    CAIRN_TRY(cairn_shard_name_check(cairn_view_of(told->name), err));
    CAIRN_TRY(cairn_shard_names_add(names, cairn_view_of(told->name), err));
    CAIRN_TRY(cairn_base64_decode(cairn_view_of(told->blocks), &shard->blocks_le, err));
    if (told->bytes > CAIRN_UP_COPY_BYTES_MAX - copy->data_bytes ||
        shard->blocks_le.size != 4 * cairn_div_up(told->bytes, CAIRN_BLOCK_BYTES) ||
        !cairn_uuid_text_valid(cairn_view_of(told->token)))
        return cairn_fail(err, CAIRN_INVALID, "shard %s: its size, checksums or token", told->name);
    enum cairn_code code = cairn_multipart_check(told->bytes, told->part_bytes, err);
    if (code) return cairn_within(err, code, "shard %s", told->name);
    copy->data_bytes += cairn_round_up(told->bytes, CAIRN_BLOCK_BYTES);
    copy->piece_count += cairn_div_up(told->bytes, CAIRN_UP_COPY_PIECE_BYTES);
    return CAIRN_OK;
}

static enum cairn_code read_head(struct cairn_up_copy *copy, const struct cairn_up_attempt *attempt,
                                 struct cairn_error *err) {
    copy->told.proc = "";
    CAIRN_TRY(cairn_msg_copy_read(copy->head, "", &copy->told, err));
    struct cairn_up_begin begin = {0};
    CAIRN_TRY(copy_begin(copy, &begin, err));
    cairn_up_attempt_version(attempt, begin.told.step, begin.told.n, &copy->version);
    copy->rank = begin.rank;
    copy->step = begin.told.step;
    copy->n = begin.told.n;
    CAIRN_TRY(read_table(copy, copy->told.table, err));
    CAIRN_AUTO(shard_names) names = {0};
    size_t count = json_array_size(copy->told.shards);
    if (count > CAIRN_UP_SHARDS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/shards: more than %d", CAIRN_UP_SHARDS_MAX);
    copy->shards = calloc(count + 1, sizeof(*copy->shards));
    if (!copy->shards) return no_memory(err);
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(read_shard(copy, json_array_get(copy->told.shards, i), &names, err));
    copy->missing = copy->piece_count;
    copy->pieces = calloc(copy->piece_count + 1, 1);
    return copy->pieces ? CAIRN_OK : no_memory(err);
}

/* Makes a checked, unlisted copy without bytes; take_head describes it. attempt is the caller's. */
static enum cairn_code copy_new(const struct cairn_up_attempt *attempt, json_t *take_head,
                                struct cairn_up_copy **ret, struct cairn_error *err) {
    struct cairn_up_copy *copy = calloc(1, sizeof(*copy));
    if (!copy) {
        json_decref(take_head);
        return no_memory(err);
    }
    copy->head = take_head;
    enum cairn_code code = read_head(copy, attempt, err);
    if (code) {
        copy->data_bytes = 0; /* no memory is mapped yet */
        copy_free(copy);
        return code;
    }
    *ret = copy;
    return CAIRN_OK;
}

#define HEAD_TIMES 4 /* memory of a parsed description, in multiples of its text */
#define HEAD_NODES_MAX (1 << 20)
#define QUIET_MS 60000 /* of a node that began a copy and sent nothing since */
#define PARTS 4

struct asked { /* the path's parts after the route's */
    char text[CAIRN_UP_PATH_BYTES_MAX];
    char *parts[PARTS];
    size_t count;
    uint64_t rank;
};

static bool read_path(const struct cairn_up_call *call, struct asked *ret) {
    char *at = ret->text;
    ret->count = 0;
    if (!cairn_text_copy(ret->text, sizeof(ret->text), call->rest)) return false;
    for (char *part; (part = strsep(&at, "/"));) {
        if (ret->count == PARTS) return false;
        ret->parts[ret->count++] = part;
    }
    return ret->count > 2 && cairn_version_id_valid(cairn_view_of(ret->parts[0])) &&
           !cairn_parse_u64(cairn_view_of(ret->parts[1]), &ret->rank, NULL) &&
           ret->rank <= UINT32_MAX;
}

struct cairn_up_copy *cairn_up_copy_find_locked(struct cairn_up_partner *partner,
                                                const char *version, uint32_t rank) {
    struct cairn_up_copy *at = partner->copies;
    while (at && (at->over || at->rank != rank || strcmp(at->version.text, version) != 0))
        at = at->next;
    return at;
}

/* Finds a copy that the calling node owns. */
static struct cairn_up_copy *find_own_locked(struct cairn_up_partner *partner,
                                             const struct cairn_up_call *call,
                                             const struct asked *asked) {
    struct cairn_up_copy *copy =
        cairn_up_copy_find_locked(partner, asked->parts[0], (uint32_t)asked->rank);
    bool own = copy && !strcmp(copy->node, call->right.from) &&
               copy->attempt->grant.attempt == call->right.attempt;
    return own ? copy : NULL;
}

/* True for a copy kept only for restores of its run; it does not hold the attempt (Q7). */
static bool is_worth_restoring(struct cairn_up *up, struct cairn_up_copy *copy) {
    cairn_up_attempt_leave(up, CAIRN_TAKE(copy->attempt));
    return copy->kept && (copy->kept->pins || cairn_up_kept_copy_stays_locked(up, copy->kept));
}

static bool is_needed(struct cairn_up *up, struct cairn_up_copy *copy) {
    if (copy->entry && cairn_up_save_find_locked(up, copy->entry)) return true;
    if (copy->users) return true;
    if (copy->entry) copy->over = true; /* the save that sent it is over */
    if (!copy->over && copy->attempt->foreign.code) return false;
    if (!copy->over && copy->attempt->stale) copy->over = true;
    if (copy->over) return is_worth_restoring(up, copy);
    return !copy->missing || cairn_mono_ms() < copy->heard_ms + QUIET_MS;
}

void cairn_up_copies_sweep_locked(struct cairn_up_partner *partner) {
    for (struct cairn_up_copy **at = &partner->copies; *at;) {
        struct cairn_up_copy *copy = *at;
        if (is_needed(partner->up, copy)) {
            at = &copy->next;
            continue;
        }
        *at = copy->next;
        partner->free_bytes += copy->reserved_bytes;
        cairn_log(DEBUG, "partner.dropped", "version=%s rank=%u node=%s", copy->version.text,
                  copy->rank, copy->node);
        cairn_up_kept_copy_remove_locked(partner->up, copy->kept);
        cairn_up_attempt_leave(partner->up, copy->attempt);
        copy_free(copy);
    }
}

/* Marks the copy as whole and right. Without memory for the mark it serves no restore. */
static void keep_whole_locked(struct cairn_up_partner *partner, struct cairn_up_copy *copy) {
    if (copy->missing || copy->kept) return;
    CAIRN_AUTO_HEAP struct cairn_up_kept_shard *shards =
        calloc(copy->shard_count + 1, sizeof(*shards));
    const struct cairn_up_kept_copy wanted = {.attempt = copy->attempt,
                                              .version = &copy->version,
                                              .step = copy->step,
                                              .n = copy->n,
                                              .rank = copy->rank,
                                              .data = copy->data,
                                              .shards = shards,
                                              .shard_count = copy->shard_count};
    for (size_t i = 0; shards && i < copy->shard_count; i++) {
        const struct cairn_up_copy_shard *from = &copy->shards[i];
        shards[i] = (struct cairn_up_kept_shard){.name = (char *)(uintptr_t)from->told.name,
                                                 .offset = from->offset,
                                                 .bytes = from->told.bytes};
    }
    if (shards) copy->kept = cairn_up_kept_copy_add_locked(partner->up, &wanted);
}

/* Drops the oldest copy kept only for restores, for a copy that its node needs. False: none. */
static bool drop_oldest_locked(struct cairn_up_partner *partner) {
    struct cairn_up_copy *found = NULL;
    for (struct cairn_up_copy *at = partner->copies; at; at = at->next) {
        if (!at->over || !at->kept || at->kept->gone || at->kept->pins) continue;
        if (!found || at->heard_ms < found->heard_ms) found = at;
    }
    if (!found) return false;
    found->kept->gone = true;
    cairn_up_copies_sweep_locked(partner);
    return true;
}

static enum cairn_code reserve(struct cairn_up_partner *partner, uint64_t bytes,
                               struct cairn_error *err) {
    CAIRN_HOLD(&partner->up->lock);
    cairn_up_copies_sweep_locked(partner);
    while (bytes > partner->free_bytes && drop_oldest_locked(partner)) continue;
    if (bytes > partner->free_bytes)
        return cairn_fail(err, CAIRN_NO_MEMORY,
                          "a copy wants %" PRIu64 " bytes of partner_memory, %" PRIu64 " are free",
                          bytes, partner->free_bytes);
    partner->free_bytes -= bytes;
    return CAIRN_OK;
}

static void give_back(struct cairn_up_partner *partner, uint64_t bytes) {
    CAIRN_HOLD(&partner->up->lock);
    partner->free_bytes += bytes;
}

/* Reads and discards the body: this node already has the bytes. */
static enum cairn_code pass_over(struct cairn_up_call *call, struct cairn_error *err) {
    char ignored[16384];
    for (uint64_t left = call->head.body_bytes; left;) {
        uint64_t bytes = cairn_min_u64(left, sizeof(ignored));
        CAIRN_TRY(cairn_up_call_receive(call, ignored, bytes, err));
        left -= bytes;
    }
    return CAIRN_OK;
}

static enum cairn_code receive_head(struct cairn_up_call *call, const char *digest, json_t **ret,
                                    struct cairn_error *err) {
    size_t size = (size_t)call->head.body_bytes;
    CAIRN_AUTO_HEAP char *text = malloc(size + 1);
    uint8_t sum[CAIRN_SHA256_BYTES];
    char hex[2 * CAIRN_SHA256_BYTES + 1];
    if (!text) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a copy's description");
    CAIRN_TRY(cairn_up_call_receive(call, text, size, err));
    cairn_sha256_of((struct cairn_view){text, size}, sum);
    cairn_hex_encode(sum, sizeof(sum), hex);
    /* The MAC covers the path, and so the description's digest in it. */
    if (strcmp(hex, digest) != 0)
        return cairn_fail(err, CAIRN_CORRUPT, "the description is not that of its path");
    struct cairn_json_limits limits = {.bytes = CAIRN_UP_DESCRIPTION_BYTES_MAX,
                                       .nodes = HEAD_NODES_MAX};
    return cairn_json_parse((struct cairn_view){text, size}, limits, ret, err);
}

static enum cairn_code make_copy(struct cairn_up_partner *partner, struct cairn_up_call *call,
                                 const struct asked *asked, struct cairn_up_copy **ret,
                                 struct cairn_error *err) {
    json_t *head = NULL;
    CAIRN_TRY(receive_head(call, asked->parts[2], &head, err));
    CAIRN_HOLD(&partner->up->lock);
    struct cairn_up_attempt *attempt = partner->up->locked.attempts;
    while (attempt && (attempt->grant.attempt != call->right.attempt ||
                       strcmp(attempt->grant.name.run, call->right.run.run) != 0 ||
                       strcmp(attempt->grant.name.project, call->right.run.project) != 0))
        attempt = attempt->next;
    if (!attempt) {
        json_decref(head);
        return cairn_fail(err, CAIRN_FORBIDDEN, "this node does not hold the attempt any more");
    }
    CAIRN_TRY(copy_new(attempt, head, ret, err));
    (*ret)->attempt = attempt;
    attempt->users++;
    (void)cairn_text_copy((*ret)->node, sizeof((*ret)->node), call->right.from);
    (void)cairn_text_copy((*ret)->digest, sizeof((*ret)->digest), asked->parts[2]);
    return CAIRN_OK;
}

static enum cairn_code check_path(const struct cairn_up_copy *copy, const struct asked *asked,
                                  struct cairn_error *err) {
    if (!strcmp(copy->version.text, asked->parts[0]) && copy->rank == asked->rank) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "the description is of %s, rank %u", copy->version.text,
                      copy->rank);
}

static void insert_locked(struct cairn_up_partner *partner, struct cairn_up_copy **take) {
    struct cairn_up_copy *copy = *take;
    copy->heard_ms = cairn_mono_ms();
    copy->next = partner->copies;
    partner->copies = copy;
    keep_whole_locked(partner, copy);
    *take = NULL;
}

/* Lists *take, unless the same copy or one of higher worth is listed. */
static enum cairn_code insert(struct cairn_up_partner *partner, struct cairn_up_copy **take,
                              struct cairn_error *err) {
    struct cairn_up_copy *copy = *take;
    CAIRN_HOLD(&partner->up->lock);
    struct cairn_up_copy *there =
        cairn_up_copy_find_locked(partner, copy->version.text, copy->rank);
    if (there && !strcmp(there->digest, copy->digest)) return CAIRN_OK;
    if (there && (there->users || !there->missing || there->entry))
        return cairn_fail(err, CAIRN_CONFLICT, "another copy of %s, rank %u is there",
                          copy->version.text, copy->rank);
    if (there) there->over = true; /* its node has begun it again */
    insert_locked(partner, take);
    return CAIRN_OK;
}

/* Adopts a copy of the same bytes, which a node describes again as another process when it
 * restarted before journaling its partner. Received bytes stay, under the newer description; a copy
 * being sent continues only under the same tokens. False: the new copy needs its own memory. */
static bool is_had(struct cairn_up_partner *partner, struct cairn_up_copy **take) {
    struct cairn_up_copy *copy = *take;
    CAIRN_HOLD(&partner->up->lock);
    struct cairn_up_copy *there =
        cairn_up_copy_find_locked(partner, copy->version.text, copy->rank);
    if (!there || there->users || strcmp(there->node, copy->node) != 0 || !same_bytes(there, copy))
        return false;
    if (there->entry) return same_tokens(there, copy);
    CAIRN_ASSERT(!there->data || there->data_bytes == copy->data_bytes);
    there->reserved_bytes -= there->data_bytes;
    copy->reserved_bytes += there->data_bytes;
    copy->data = CAIRN_TAKE(there->data);
    copy->kept = CAIRN_TAKE(there->kept); /* the same shards in the same memory */
    there->data_bytes = 0;
    free(copy->pieces);
    copy->pieces = CAIRN_TAKE(there->pieces);
    copy->missing = there->missing;
    there->over = true;
    insert_locked(partner, take);
    return true;
}

static void drop_copy(struct cairn_up_partner *partner, struct cairn_up_copy *copy) {
    if (!copy) return;
    CAIRN_HOLD(&partner->up->lock);
    partner->free_bytes += copy->reserved_bytes;
    cairn_up_attempt_leave(partner->up, copy->attempt);
    copy_free(copy);
}

static enum cairn_code map_copy(struct cairn_up_partner *partner, struct cairn_up_copy *copy,
                                struct cairn_error *err) {
    uint64_t bytes = copy->data_bytes;
    copy->data_bytes = 0;
    CAIRN_TRY(reserve(partner, bytes, err));
    copy->reserved_bytes += bytes;
    if (!bytes) return CAIRN_OK;
    copy->data = cairn_pages_map((size_t)bytes);
    if (!copy->data) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a copy");
    copy->data_bytes = bytes;
    return CAIRN_OK;
}

/* True when this description was received before and its answer was lost. */
static bool is_there(struct cairn_up_partner *partner, const struct cairn_up_call *call,
                     const struct asked *asked) {
    CAIRN_HOLD(&partner->up->lock);
    const struct cairn_up_copy *copy = find_own_locked(partner, call, asked);
    return copy && !strcmp(copy->digest, asked->parts[2]);
}

static enum cairn_code take_head(struct cairn_up_partner *partner, struct cairn_up_call *call,
                                 const struct asked *asked, struct cairn_error *err) {
    uint64_t bytes = HEAD_TIMES * call->head.body_bytes;
    struct cairn_up_copy *copy = NULL;
    if (is_there(partner, call, asked)) return pass_over(call, err);
    if (call->head.body_bytes > CAIRN_UP_DESCRIPTION_BYTES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a description of more than %d bytes",
                          (int)CAIRN_UP_DESCRIPTION_BYTES_MAX);
    CAIRN_TRY(reserve(partner, bytes, err));
    enum cairn_code code = make_copy(partner, call, asked, &copy, err);
    if (!copy) {
        give_back(partner, bytes);
        return code;
    }
    copy->reserved_bytes = bytes;
    code = check_path(copy, asked, err);
    if (!code && !is_had(partner, &copy)) {
        code = map_copy(partner, copy, err);
        if (!code) code = insert(partner, &copy, err);
    }
    drop_copy(partner, copy);
    return code;
}

struct piece {
    struct cairn_up_copy *copy;
    const struct cairn_up_copy_shard *shard;
    uint64_t offset, index; /* offset in the shard; index among all pieces */
    size_t bytes;
};

/* Claims the piece: only this request writes it. *ret_there: the bytes are already present. */
static enum cairn_code claim(struct cairn_up_partner *partner, const struct cairn_up_call *call,
                             const struct asked *asked, struct piece *ret, bool *ret_there,
                             struct cairn_error *err) {
    uint64_t shard = 0;
    CAIRN_HOLD(&partner->up->lock);
    struct cairn_up_copy *copy = find_own_locked(partner, call, asked);
    if (!copy) return cairn_fail(err, CAIRN_NOT_FOUND, "there is no such copy");
    if (cairn_parse_u64(cairn_view_of(asked->parts[2]), &shard, NULL) ||
        cairn_parse_u64(cairn_view_of(asked->parts[3]), &ret->offset, NULL) ||
        shard >= copy->shard_count || ret->offset % CAIRN_UP_COPY_PIECE_BYTES ||
        ret->offset >= copy->shards[shard].told.bytes)
        return cairn_fail(err, CAIRN_INVALID, "the copy has no such piece");
    ret->copy = copy;
    ret->shard = &copy->shards[shard];
    ret->index = ret->shard->first_piece + ret->offset / CAIRN_UP_COPY_PIECE_BYTES;
    ret->bytes =
        (size_t)cairn_min_u64(CAIRN_UP_COPY_PIECE_BYTES, ret->shard->told.bytes - ret->offset);
    if (call->head.body_bytes != ret->bytes)
        return cairn_fail(err, CAIRN_INVALID, "the piece has %zu bytes", ret->bytes);
    if (copy->pieces[ret->index] == CAIRN_UP_PIECE_COMES)
        return cairn_fail(err, CAIRN_CONFLICT, "the piece comes already");
    *ret_there = copy->pieces[ret->index] == CAIRN_UP_PIECE_THERE;
    if (*ret_there) return CAIRN_OK;
    copy->pieces[ret->index] = CAIRN_UP_PIECE_COMES;
    copy->users++;
    return CAIRN_OK;
}

static enum cairn_code receive_piece(struct cairn_up_call *call, const struct piece *piece,
                                     struct cairn_error *err) {
    uint8_t *into = piece->copy->data + piece->shard->offset + piece->offset;
    const uint8_t *checksums =
        (const uint8_t *)piece->shard->blocks_le.data + 4 * (piece->offset / CAIRN_BLOCK_BYTES);
    CAIRN_TRY(cairn_up_call_receive(call, into, piece->bytes, err));
    return cairn_store_blocks_check(checksums, piece->offset,
                                    (struct cairn_view){into, piece->bytes}, err);
}

static enum cairn_code take_piece(struct cairn_up_partner *partner, struct cairn_up_call *call,
                                  const struct asked *asked, struct cairn_error *err) {
    struct piece piece = {0};
    bool there = false;
    CAIRN_TRY(claim(partner, call, asked, &piece, &there, err));
    if (there) return pass_over(call, err);
    enum cairn_code code = receive_piece(call, &piece, err);
    CAIRN_HOLD(&partner->up->lock);
    piece.copy->users--;
    piece.copy->heard_ms = cairn_mono_ms();
    piece.copy->pieces[piece.index] = code ? CAIRN_UP_PIECE_MISSING : CAIRN_UP_PIECE_THERE;
    piece.copy->missing -= !code;
    if (!code) keep_whole_locked(partner, piece.copy);
    return code;
}

static enum cairn_code is_whole(struct cairn_up_partner *partner, const struct cairn_up_call *call,
                                const struct asked *asked, struct cairn_error *err) {
    CAIRN_HOLD(&partner->up->lock);
    const struct cairn_up_copy *copy = find_own_locked(partner, call, asked);
    if (!copy) return cairn_fail(err, CAIRN_NOT_FOUND, "there is no such copy");
    if (!copy->missing) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT, "%" PRIu64 " pieces are missing", copy->missing);
}

/* After a restart while sending the copy is gone; the objects already sent may suffice. */
static bool still_sends(struct cairn_up *up, const struct asked *asked) {
    CAIRN_HOLD(&up->lock);
    const struct cairn_up_save *save =
        cairn_up_save_known_locked(up, asked->parts[0], (uint32_t)asked->rank);
    if (!save || save->state.phase != CAIRN_UP_PHASE_SEALED) return false;
    for (size_t i = 0; i < save->state.shard_count; i++)
        if (cairn_up_shard_lacks_source(up->queue, save->shards[i])) return false;
    return true;
}

/* True for a copy of another node: the caller may not touch it, even while this node sends it. */
static bool is_anothers(struct cairn_up_partner *partner, const struct cairn_up_call *call,
                        const struct asked *asked) {
    CAIRN_HOLD(&partner->up->lock);
    return cairn_up_copy_find_locked(partner, asked->parts[0], (uint32_t)asked->rank) &&
           !find_own_locked(partner, call, asked);
}

static enum cairn_code serve(struct cairn_up_partner *partner, struct cairn_up_call *call,
                             struct cairn_error *err) {
    struct asked asked;
    if (!read_path(call, &asked)) return cairn_fail(err, CAIRN_INVALID, "no such path");
    if (asked.count == 4) return take_piece(partner, call, &asked, err);
    if (!strcmp(asked.parts[2], "whole")) return is_whole(partner, call, &asked, err);
    if (!strcmp(asked.parts[2], "finish")) {
        if (!is_anothers(partner, call, &asked) && still_sends(partner->up, &asked))
            return CAIRN_OK;
        CAIRN_TRY(is_whole(partner, call, &asked, err));
        return cairn_up_partner_finish(partner, asked.parts[0], (uint32_t)asked.rank, err);
    }
    return take_head(partner, call, &asked, err);
}

/* Rate-limited: a refused node retries twice a second. */
static void log_refusal(struct cairn_up_partner *partner, const struct cairn_up_call *call,
                        const struct cairn_error *why) {
    uint64_t unsaid = 0;
    CAIRN_HOLD(&partner->lock);
    if (cairn_log_limit_allows(&partner->locked.log_limit, cairn_code_info(why->code)->slug,
                               cairn_mono_ms(), &unsaid))
        cairn_log(INFO, "partner.refused", "node=%s path=%s cause=\"%s\" unsaid=%" PRIu64,
                  call->right.from, call->head.path, why->message, unsaid);
}

void cairn_up_copies_serve(struct cairn_up_call *call, void *owner) {
    struct cairn_error why = {0};
    enum cairn_code code = serve(owner, call, &why);
    if (code) log_refusal(owner, call, &why);
    if (call->broken) return;
    if (code)
        cairn_up_call_refuse(call, code);
    else
        (void)!cairn_up_call_answer(call, 200, "", 0, &why);
}

static enum cairn_code note_stage(struct cairn_up_notes *notes, const struct cairn_up_copy *copy,
                                  uint64_t entry, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *shards = json_array();
    for (size_t i = 0; i < copy->shard_count; i++) {
        const struct cairn_up_copy_shard *shard = &copy->shards[i];
        json_t *item =
            CAIRN_PACK(stage_shard, .name = shard->told.name, .offset = shard->offset,
                       .bytes = shard->told.bytes, .kind = shard->told.tensors ? "tensors" : "raw");
        if (json_array_append_new(shards, item)) return no_memory(err);
    }
    return cairn_up_notes_add(
        notes, entry,
        CAIRN_PACK(record_stage, .owner = entry, .bytes = copy->data_bytes, .shards = shards),
        (struct cairn_view){0}, err);
}

/* Journals table, begin, stage, an intent and checksums of each shard, and seal. */
static enum cairn_code note_all(struct cairn_up_notes *notes, const struct cairn_up_copy *copy,
                                const struct cairn_up_save *save, struct cairn_error *err) {
    const struct cairn_view none = {0};
    uint64_t entry = save->entry;
    if (save->table)
        CAIRN_TRY(cairn_up_notes_add(notes, save->table->entry, cairn_up_table_record(save->table),
                                     cairn_buf_view(&save->table->bytes), err));
    CAIRN_TRY(cairn_up_notes_add(notes, entry, cairn_up_save_begin_record(save), none, err));
    CAIRN_TRY(note_stage(notes, copy, entry, err));
    for (size_t i = 0; i < copy->shard_count; i++) {
        const struct cairn_up_copy_shard *shard = &copy->shards[i];
        CAIRN_TRY(cairn_up_notes_add(notes, entry,
                                     CAIRN_PACK(record_intent, .s = i, .token = shard->told.token,
                                                .part_bytes = shard->told.part_bytes),
                                     none, err));
        CAIRN_TRY(cairn_up_notes_add(notes, entry, CAIRN_PACK(record_blocks, .s = i),
                                     cairn_buf_view(&shard->blocks_le), err));
    }
    return cairn_up_notes_add(notes, entry,
                              CAIRN_PACK(record_seal, .replicated = copy->told.replicated,
                                         .table = save->table ? save->table->hex : NULL,
                                         .labels = copy->told.labels, .meta = copy->told.meta),
                              none, err);
}

static enum cairn_code add_shard(struct cairn_up *up, struct cairn_up_save *save,
                                 const struct cairn_up_copy_shard *from, struct cairn_error *err) {
    size_t count = from->blocks_le.size / 4;
    CAIRN_AUTO_HEAP uint32_t *blocks = calloc(count + 1, sizeof(*blocks));
    if (!blocks) return no_memory(err);
    for (size_t i = 0; i < count; i++)
        blocks[i] = cairn_load_u32le((const uint8_t *)from->blocks_le.data + 4 * i);
    struct cairn_up_shard_options options = {.name = from->told.name,
                                             .tensors = from->told.tensors,
                                             .slab_offset = from->offset,
                                             .size_bytes = from->told.bytes,
                                             .take_fd = -1,
                                             .token = from->told.token,
                                             .part_bytes = from->told.part_bytes};
    const struct cairn_up_shard_past past = {
        .intent = true, .blocks = blocks, .source_wait = CAIRN_UP_SOURCE_FOREVER};
    return cairn_up_save_shard_new_locked(up, save, &options, &past, err);
}

static enum cairn_code fill_save(struct cairn_up *up, const struct cairn_up_copy *copy,
                                 struct cairn_up_save *save, struct cairn_error *err) {
    const struct cairn_up_save_past past = {.staged = true, .sealed = true, .sent = true};
    cairn_up_save_state_recover(save->entry, &past, &save->state);
    for (size_t i = 0; i < copy->shard_count; i++)
        CAIRN_TRY(add_shard(up, save, &copy->shards[i], err));
    save->stage_count = copy->shard_count;
    CAIRN_TRY(cairn_up_save_set_sealed(save, copy->told.replicated, copy->told.labels,
                                       copy->told.meta, err));
    if (copy->table.size)
        CAIRN_TRY(cairn_up_table_new_locked(up, cairn_buf_view(&copy->table),
                                            cairn_up_journal_entry_new(up->journal), &save->table,
                                            err));
    struct cairn_up_notes notes = {0};
    enum cairn_code code = note_all(&notes, copy, save, err);
    if (!code)
        code = cairn_up_journal_post(up->journal, notes.records, notes.count, NULL, NULL, err);
    if (!code) cairn_up_journal_hurry(up->journal); /* it will be sent soon */
    if (!code && save->table) save->table->written = true;
    cairn_up_notes_release(&notes);
    return code;
}

enum cairn_code cairn_up_copy_finish_locked(struct cairn_up *up, struct cairn_up_copy *copy,
                                            struct cairn_error *err) {
    struct cairn_up_begin begin = {0};
    struct cairn_up_save *save = NULL;
    CAIRN_TRY(copy_begin(copy, &begin, err));
    CAIRN_TRY(
        cairn_up_save_new_locked(up, cairn_up_journal_entry_new(up->journal), &begin, &save, err));
    enum cairn_code code = fill_save(up, copy, save, err);
    if (code) {
        cairn_up_save_drop_locked(up, save);
        return code;
    }
    copy->entry = save->entry;
    for (size_t i = 0; i < save->state.shard_count; i++) {
        cairn_up_queue_add(up->queue, save->shards[i]);
        static const uint8_t nothing[1];
        cairn_up_shard_source(up->queue, save->shards[i],
                              copy->data ? copy->data + copy->shards[i].offset : nothing);
    }
    cairn_log(WARN, "partner.finishes", "run=%s step=%" PRIu64 " rank=%u version=%s node=%s",
              save->attempt->run_text, save->place.step, save->rank, save->place.id.text,
              copy->node);
    cairn_up_wakeup_raise(&up->outbox_work);
    return CAIRN_OK;
}

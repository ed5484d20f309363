/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multipart: chooses the next action and judges each answer. store/README.md has the drawing.
 *
 * Only parts run in parallel; any other action waits until every part has ended.
 */
#include "store/multipart.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/crc.h"
#include "common/hooks.h"
#include "common/text.h"

#define PART_COUNT_MAX 10000
#define TRIES_MAX 5
/* As store/retry.h's put_offs_max; with the worker's delays more than a minute. */
#define PUT_OFFS_MAX 20
#define ROUNDS_MAX 3
/* Pauses after an unclear PUT or COMPLETE. The count bounds a caller that never waits. */
#define PAUSE_MS_MIN UINT64_C(100)
#define PAUSE_MS_MAX UINT64_C(10000)
#define WAITS_MAX 64
/* HEADs for an object that must exist but is not visible yet: 25 s with their pauses. */
#define LOOKS_MAX 8
#define REFUSALS_MAX 2 /* COMPLETEs refused for their parts; the next one is final */

enum cairn_multipart_state {
    STATE_BEGIN,    /* PUT or CREATE is next */
    STATE_PARTS,    /* parts are sent */
    STATE_COMPLETE, /* all parts acknowledged */
    STATE_HEAD,     /* HEAD for the object */
    STATE_LIST,     /* LIST_PARTS for the parts that arrived */
    STATE_CHECK,    /* our object exists; checksums must come with the source */
    STATE_ABORT,
    STATE_DURABLE,
    STATE_FAILED,
};

#define FAIL(mp, fail_code, ...)                                                                   \
    do {                                                                                           \
        struct cairn_error fail_why = {0};                                                         \
        cairn_fail(&fail_why, (fail_code), __VA_ARGS__);                                           \
        cairn_multipart_give_up((mp), &fail_why);                                                  \
    } while (0)

uint64_t cairn_multipart_part_bytes(const struct cairn_store_profile *profile, uint64_t size_bytes,
                                    uint64_t most_bytes, uint32_t connections) {
    uint64_t least = cairn_div_up(size_bytes, profile->part_count_max ? profile->part_count_max
                                                                      : PART_COUNT_MAX);
    uint64_t most = profile->part_bytes_max - profile->part_bytes_max % CAIRN_MIB;
    /* Parts below 8 MiB are dominated by their round trip: two requests instead of five for a small
     * shard are worth more than its second connection. */
    uint64_t share = cairn_div_up(size_bytes, connections ? connections : 1);
    if (size_bytes <= 2 * CAIRN_MULTIPART_LEAST_BYTES) share = size_bytes;
    uint64_t wanted = cairn_min_u64(cairn_max_u64(share, CAIRN_MULTIPART_LEAST_BYTES), most_bytes);
    uint64_t bytes = cairn_max_u64(wanted, cairn_max_u64(least, profile->part_bytes_min));
    if (bytes > most) bytes = most;
    return cairn_max_u64(cairn_round_up(bytes, CAIRN_MIB), CAIRN_MIB);
}

static uint64_t block_count(const struct cairn_multipart *mp) {
    return cairn_div_up(mp->size_bytes, CAIRN_BLOCK_BYTES);
}

/* The only place that changes the state of a shard after its beginning or recovery. */
static void enter_state(struct cairn_multipart *mp, enum cairn_multipart_state state) {
    mp->state = state;
    mp->tries = mp->put_offs = 0;
}

static bool has_ended(const struct cairn_multipart *mp) {
    return mp->state == STATE_DURABLE || mp->state == STATE_FAILED;
}

enum cairn_code cairn_multipart_check(uint64_t size_bytes, uint64_t part_bytes,
                                      struct cairn_error *err) {
    if (part_bytes == 0 || part_bytes % CAIRN_BLOCK_BYTES)
        return cairn_fail(err, CAIRN_INVALID, "a part size of %" PRIu64 " is no multiple of 1 MiB",
                          part_bytes);
    uint64_t part_count = cairn_div_up(size_bytes, part_bytes);
    if (part_count > PART_COUNT_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%" PRIu64 " parts; at most %d are possible",
                          part_count, PART_COUNT_MAX);
    return CAIRN_OK;
}

enum cairn_code cairn_multipart_init(struct cairn_multipart *mp, uint64_t size_bytes,
                                     uint64_t part_bytes, const char *token,
                                     struct cairn_error *err) {
    *mp = (struct cairn_multipart){
        .size_bytes = size_bytes, .part_bytes = part_bytes, .clock = &cairn_clock_real};
    CAIRN_TRY(cairn_multipart_check(size_bytes, part_bytes, err));
    uint64_t part_count = cairn_div_up(size_bytes, part_bytes);
    if (!cairn_text_copy(mp->token, sizeof mp->token, token))
        return cairn_fail(err, CAIRN_INVALID, "the upload token is too long");
    mp->has_source = true;
    mp->blocks = calloc(block_count(mp) + 1, sizeof *mp->blocks);
    if (part_count > 1) {
        mp->part_count = (uint32_t)part_count;
        mp->parts = calloc(part_count, sizeof *mp->parts);
    }
    if (mp->blocks && (mp->parts || part_count <= 1)) return CAIRN_OK;
    cairn_multipart_release(mp);
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for %" PRIu64 " parts", part_count);
}

enum cairn_code cairn_multipart_recover(struct cairn_multipart *mp, const char *upload_id,
                                        const uint32_t *blocks, struct cairn_error *err) {
    CAIRN_ASSERT(mp->state == STATE_BEGIN && mp->ready_bytes == 0);
    if (upload_id && !cairn_text_copy(mp->upload_id, sizeof mp->upload_id, upload_id))
        return cairn_fail(err, CAIRN_INVALID, "the upload's id is too long");
    if (blocks) {
        memcpy(mp->blocks, blocks, block_count(mp) * sizeof *blocks);
        mp->blocks_known = block_count(mp);
    }
    mp->has_source = false;
    mp->recovered = true;
    mp->state = STATE_HEAD;
    return CAIRN_OK;
}

void cairn_multipart_proven(struct cairn_multipart *mp) {
    mp->proven = true;
}

void cairn_multipart_remember(struct cairn_multipart *mp, const struct cairn_store_part *part) {
    if (!mp->parts || part->number < 1 || part->number > mp->part_count) return;
    mp->parts[part->number - 1].sent = *part;
}

void cairn_multipart_release(struct cairn_multipart *mp) {
    free(mp->parts);
    free(mp->blocks);
    *mp = (struct cairn_multipart){0};
}

enum cairn_code cairn_multipart_ready(struct cairn_multipart *mp, uint64_t ready_bytes,
                                      const uint32_t *blocks, uint64_t first_block, uint64_t count,
                                      struct cairn_error *err) {
    bool all = ready_bytes == mp->size_bytes;
    uint64_t whole = all ? block_count(mp) : ready_bytes / CAIRN_BLOCK_BYTES, end;
    if (ready_bytes > mp->size_bytes || ready_bytes < mp->ready_bytes)
        return cairn_fail(err, CAIRN_INVALID,
                          "%" PRIu64 " bytes ready after %" PRIu64 ", of %" PRIu64, ready_bytes,
                          mp->ready_bytes, mp->size_bytes);
    if (cairn_add_overflows(first_block, count, &end) || end > whole ||
        first_block > mp->blocks_known || cairn_max_u64(end, mp->blocks_known) < whole)
        return cairn_fail(err, CAIRN_INVALID,
                          "checksums of blocks %" PRIu64 " to %" PRIu64 " leave a gap", first_block,
                          end);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = first_block + i;
        if (at >= mp->blocks_known) {
            mp->blocks[at] = blocks[i];
        } else if (mp->blocks[at] != blocks[i]) {
            return cairn_fail(err, CAIRN_SOURCE_CHANGED,
                              "block %" PRIu64 " has checksum %08" PRIx32 ", it had %08" PRIx32, at,
                              blocks[i], mp->blocks[at]);
        }
    }
    mp->blocks_known = cairn_max_u64(mp->blocks_known, end);
    mp->ready_bytes = ready_bytes;
    return CAIRN_OK;
}

void cairn_multipart_source(struct cairn_multipart *mp) {
    mp->has_source = true;
    if (mp->blocks_known == block_count(mp)) mp->ready_bytes = mp->size_bytes;
}

void cairn_multipart_restage(struct cairn_multipart *mp) {
    mp->has_source = true;
    mp->ready_bytes = 0;
}

/* Checksum of [offset, offset + length), which must consist of whole blocks or reach the end. */
static uint32_t range_crc32c(const struct cairn_multipart *mp, uint64_t offset, uint64_t length) {
    uint32_t crc = 0;
    for (uint64_t at = offset; at < offset + length; at += CAIRN_BLOCK_BYTES) {
        uint64_t size = cairn_min_u64(CAIRN_BLOCK_BYTES, mp->size_bytes - at);
        crc = cairn_crc32c_combine(crc, mp->blocks[at / CAIRN_BLOCK_BYTES], size);
    }
    return crc;
}

/* True if mp->crc32c holds the checksum of the whole shard. */
static bool whole_known(struct cairn_multipart *mp) {
    if (mp->crc32c_known) return true;
    if (mp->blocks_known < block_count(mp)) return false;
    mp->crc32c = range_crc32c(mp, 0, mp->size_bytes);
    mp->crc32c_known = true;
    return true;
}

static uint64_t part_length(const struct cairn_multipart *mp, uint32_t index) {
    uint64_t offset = (uint64_t)index * mp->part_bytes;
    return cairn_min_u64(mp->part_bytes, mp->size_bytes - offset);
}

void cairn_multipart_doubt(struct cairn_multipart *mp) {
    bool sent = mp->parts_acked > 0 && (mp->state == STATE_PARTS || mp->state == STATE_COMPLETE);
    if (!mp->give_up && !mp->busy && sent) enter_state(mp, STATE_LIST);
}

/* Keeps the first reason. An open upload is aborted before FAILED. */
void cairn_multipart_give_up(struct cairn_multipart *mp, const struct cairn_error *why) {
    if (has_ended(mp) || mp->give_up) return;
    mp->error = *why;
    mp->give_up = true;
    mp->pause_ms = 0;
}

static void fail_with(struct cairn_multipart *mp, const struct cairn_store_request *request,
                      const char *doing) {
    struct cairn_error why = request->error;
    if (!why.message[0])
        cairn_fail(&why, request->code, "%s", cairn_code_info(request->code)->name);
    cairn_within(&why, request->code, "%s", doing);
    cairn_multipart_give_up(mp, &why);
}

/* True if a retry may succeed. CORRUPT: damaged bytes. PROTOCOL: damaged answer. CONFLICT: 409. */
static bool may_pass(enum cairn_code code) {
    return code == CAIRN_BUSY || code == CAIRN_UNAVAILABLE || code == CAIRN_TIMEOUT ||
           code == CAIRN_CORRUPT || code == CAIRN_PROTOCOL || code == CAIRN_CONFLICT;
}

/* A full or read-only folder, a bucket beyond its quota or a lack of descriptors may pass: a sweep
 * frees room, a mount becomes writable. The bytes stay staged meanwhile, and no try counts. */
static bool is_put_off(const struct cairn_store_request *request, uint32_t *put_offs) {
    int os_errno = request->code == CAIRN_OK ? 0 : request->error.os_errno;
    bool full = request->code == CAIRN_NO_SPACE;
    bool passes = os_errno == EROFS || os_errno == EMFILE || os_errno == ENFILE;
    return (full || passes) && ++*put_offs <= PUT_OFFS_MAX;
}

/* Tries of TRIES_MAX that a failed request has used: its own count, since its retry policy gave up
 * (P11); one if it only waited for its deadline. */
static uint32_t tries_of(const struct cairn_store_request *request) {
    bool waited = request->code == CAIRN_TIMEOUT || request->tries == 0;
    return waited ? 1 : (uint32_t)cairn_min_u64(request->tries, TRIES_MAX);
}

/* Repeats the action, up to TRIES_MAX; a cancelled one does not count. */
static void again_or_fail(struct cairn_multipart *mp, const struct cairn_store_request *request,
                          const char *doing) {
    if (request->code == CAIRN_CANCELLED || is_put_off(request, &mp->put_offs)) return;
    mp->tries += tries_of(request);
    if (may_pass(request->code) && mp->tries < TRIES_MAX) return;
    fail_with(mp, request, doing);
}

/* ---- the next action ---- */

static void next_check(struct cairn_multipart *mp, struct cairn_multipart_action *ret);

static void take_action(struct cairn_multipart *mp, enum cairn_multipart_kind kind,
                        struct cairn_multipart_action *ret) {
    mp->busy = true;
    *ret = (struct cairn_multipart_action){.kind = kind, .crc32c = mp->crc32c};
    if (kind == CAIRN_MULTIPART_LIST_PARTS) ret->length = mp->part_bytes;
    if (kind == CAIRN_MULTIPART_PUT || kind == CAIRN_MULTIPART_CREATE ||
        kind == CAIRN_MULTIPART_COMPLETE)
        ret->length = mp->size_bytes;
}

static uint64_t waited_ms(const struct cairn_multipart *mp) {
    return mp->waits ? mp->clock->mono_ms(mp->clock) - mp->waiting_since_ms : 0;
}

static bool is_patient(const struct cairn_multipart *mp) {
    return mp->waits < WAITS_MAX && waited_ms(mp) < CAIRN_MULTIPART_PATIENCE_MS;
}

/* Pauses before the next action, longer each time. */
static void wait_longer(struct cairn_multipart *mp) {
    if (!mp->waits) mp->waiting_since_ms = mp->clock->mono_ms(mp->clock);
    mp->pause_ms = cairn_min_u64(PAUSE_MS_MAX, PAUSE_MS_MIN << cairn_min_u64(mp->waits, 16));
    mp->waits++;
}

static bool look_again(struct cairn_multipart *mp) {
    if (mp->looks == LOOKS_MAX || !is_patient(mp)) return false;
    mp->looks++;
    wait_longer(mp);
    return true;
}

/* Bounds PUT or COMPLETE per round, since each may lead back here through HEAD. */
static void take_publishing(struct cairn_multipart *mp, enum cairn_multipart_kind kind,
                            struct cairn_multipart_action *ret) {
    if (!is_patient(mp)) {
        FAIL(mp, CAIRN_STORE,
             "%s was asked for %" PRIu32 " times within %" PRIu64 " s and the object is not there; "
             "last: %s",
             kind == CAIRN_MULTIPART_PUT ? "a put" : "complete", mp->attempts, waited_ms(mp) / 1000,
             mp->refusal);
        cairn_multipart_next(mp, ret);
        return;
    }
    mp->attempts++;
    take_action(mp, kind, ret);
}

static void next_begin(struct cairn_multipart *mp, struct cairn_multipart_action *ret) {
    if (!mp->has_source) {
        ret->kind = CAIRN_MULTIPART_NEED_SOURCE;
    } else if (mp->parts) {
        if (mp->ready_bytes > 0) take_action(mp, CAIRN_MULTIPART_CREATE, ret);
    } else if (mp->ready_bytes == mp->size_bytes && whole_known(mp)) {
        take_publishing(mp, CAIRN_MULTIPART_PUT, ret);
    }
}

static void next_part(struct cairn_multipart *mp, struct cairn_multipart_action *ret) {
    for (uint32_t i = 0; i < mp->part_count; i++) {
        struct cairn_multipart_part *part = &mp->parts[i];
        if (part->state != CAIRN_PART_TODO) continue;
        uint64_t offset = (uint64_t)i * mp->part_bytes, length = part_length(mp, i);
        if (!mp->has_source) ret->kind = CAIRN_MULTIPART_NEED_SOURCE;
        if (!mp->has_source || offset + length > mp->ready_bytes) return;
        part->state = CAIRN_PART_SENDING;
        mp->parts_sending++;
        *ret = (struct cairn_multipart_action){.kind = CAIRN_MULTIPART_PART,
                                               .part_number = i + 1,
                                               .offset = offset,
                                               .length = length,
                                               .crc32c = range_crc32c(mp, offset, length)};
        return;
    }
}

void cairn_multipart_next(struct cairn_multipart *mp, struct cairn_multipart_action *ret) {
    *ret = (struct cairn_multipart_action){.kind = CAIRN_MULTIPART_WAIT};
    if (mp->state == STATE_DURABLE) ret->kind = CAIRN_MULTIPART_DURABLE;
    if (mp->state == STATE_FAILED) ret->kind = CAIRN_MULTIPART_FAILED;
    if (has_ended(mp) || mp->busy) return;
    if (mp->give_up) {
        /* Waits for requests under way, so that no part lands after the abort (S26). */
        if (!mp->parts_sending) {
            if (mp->state != STATE_ABORT)
                enter_state(mp, mp->upload_id[0] && !mp->upload_gone ? STATE_ABORT : STATE_FAILED);
            if (mp->state == STATE_FAILED)
                ret->kind = CAIRN_MULTIPART_FAILED;
            else
                take_action(mp, CAIRN_MULTIPART_ABORT, ret);
        }
        return;
    }
    if (mp->state == STATE_PARTS && mp->parts_acked == mp->part_count)
        enter_state(mp, STATE_COMPLETE);
    if (mp->state == STATE_PARTS) {
        next_part(mp, ret);
        return;
    }
    if (mp->parts_sending) return;
    switch ((enum cairn_multipart_state)mp->state) {
    case STATE_BEGIN:
        next_begin(mp, ret);
        return;
    case STATE_COMPLETE:
        CAIRN_ASSERT(whole_known(mp));
        take_publishing(mp, CAIRN_MULTIPART_COMPLETE, ret);
        return;
    case STATE_HEAD:
        take_action(mp, CAIRN_MULTIPART_HEAD, ret);
        return;
    case STATE_LIST:
        whole_known(mp);
        take_action(mp, CAIRN_MULTIPART_LIST_PARTS, ret);
        return;
    case STATE_CHECK:
        next_check(mp, ret);
        return;
    default:
        CAIRN_ASSERT(false);
    }
}

void cairn_multipart_unsent(struct cairn_multipart *mp,
                            const struct cairn_multipart_action *action) {
    if (action->kind == CAIRN_MULTIPART_PART) {
        struct cairn_multipart_part *part = &mp->parts[action->part_number - 1];
        CAIRN_ASSERT(part->state == CAIRN_PART_SENDING);
        part->state = CAIRN_PART_TODO;
        mp->parts_sending--;
        return;
    }
    CAIRN_ASSERT(mp->busy);
    mp->busy = false;
    bool publishing =
        action->kind == CAIRN_MULTIPART_PUT || action->kind == CAIRN_MULTIPART_COMPLETE;
    if (publishing) mp->attempts--;
}

/* ---- results ---- */

static void part_result(struct cairn_multipart *mp, const struct cairn_multipart_action *action,
                        const struct cairn_store_request *request) {
    struct cairn_multipart_part *part = &mp->parts[action->part_number - 1];
    CAIRN_ASSERT(part->state == CAIRN_PART_SENDING && mp->parts_sending > 0);
    mp->parts_sending--;
    if (request->code == CAIRN_OK) {
        mp->disputed |= request->disputed;
        part->state = CAIRN_PART_ACKED;
        part->sent = (struct cairn_store_part){.number = action->part_number,
                                               .size_bytes = action->length,
                                               .has_crc32c = true,
                                               .crc32c = action->crc32c};
        memcpy(part->sent.etag, request->etag, sizeof part->sent.etag);
        mp->parts_acked++;
        return;
    }
    part->state = CAIRN_PART_TODO;
    if (request->code == CAIRN_CANCELLED) return;
    if (request->code == CAIRN_NOT_FOUND) { /* S07: the upload is gone; HEAD finds out why */
        mp->upload_gone = true;
        if (!mp->give_up) enter_state(mp, STATE_HEAD);
        return;
    }
    if (is_put_off(request, &part->put_offs)) return;
    part->tries += tries_of(request);
    if (may_pass(request->code) && part->tries < TRIES_MAX) return;
    char doing[64];
    snprintf(doing, sizeof doing, "part %" PRIu32 " of %" PRIu32, action->part_number,
             mp->part_count);
    fail_with(mp, request, doing);
}

static void create_result(struct cairn_multipart *mp, const struct cairn_store_request *request) {
    if (request->code != CAIRN_OK) {
        /* An upload whose id was lost with the reply is left to the sweep (Q21). */
        again_or_fail(mp, request, "begin the upload");
        return;
    }
    if (!cairn_text_copy(mp->upload_id, sizeof mp->upload_id, request->upload_id) ||
        !mp->upload_id[0]) {
        FAIL(mp, CAIRN_PROTOCOL, "the store began an upload and gave it no id");
        return;
    }
    mp->upload_gone = false;
    enter_state(mp, STATE_PARTS);
}

/* Result of PUT and COMPLETE; HEAD settles one that may have been applied (multipart.h#2). */
static void publishing_result(struct cairn_multipart *mp,
                              const struct cairn_multipart_action *action,
                              const struct cairn_store_request *request) {
    bool complete = action->kind == CAIRN_MULTIPART_COMPLETE;
    enum cairn_code code = request->code;
    bool parts_refused = code == CAIRN_INVALID || code == CAIRN_CORRUPT || code == CAIRN_INCOMPLETE;
    mp->certain = code == CAIRN_OK;
    mp->taken = code == CAIRN_PRECONDITION;
    mp->perhaps |= code == CAIRN_OK || mp->taken || request->ambiguous;
    mp->disputed |= request->disputed;
    mp->looks = 0;
    if (complete && code == CAIRN_NOT_FOUND) mp->upload_gone = true; /* S06 */
    if (code && code != CAIRN_CANCELLED)
        (void)cairn_text_copy(mp->refusal, sizeof mp->refusal, request->error.message);
    bool unclear = mp->taken || request->ambiguous || may_pass(code);
    if (unclear && code != CAIRN_OK) wait_longer(mp);
    if (code == CAIRN_OK || code == CAIRN_PRECONDITION || request->ambiguous ||
        (complete && code == CAIRN_NOT_FOUND)) {
        enter_state(mp, STATE_HEAD);
    } else if (complete && parts_refused && mp->refusals++ < REFUSALS_MAX) { /* S02 */
        mp->parts_doubted = true;
        enter_state(mp, STATE_LIST);
    } else if (code == CAIRN_CANCELLED || is_put_off(request, &mp->put_offs)) {
        mp->attempts--;
    } else if (!may_pass(code) || !is_patient(mp)) {
        fail_with(mp, request, complete ? "complete the upload" : "put");
    }
}

/* Neither object nor upload exists: sends the whole shard again. */
static void begin_round(struct cairn_multipart *mp) {
    if (mp->rounds == ROUNDS_MAX) {
        FAIL(mp, CAIRN_STORE, "the upload vanished; begun anew %d times", ROUNDS_MAX);
        return;
    }
    mp->rounds++;
    mp->upload_id[0] = '\0';
    mp->upload_gone = mp->parts_doubted = mp->parts_resent = mp->perhaps = false;
    mp->attempts = mp->refusals = mp->parts_acked = mp->waits = mp->looks = 0;
    for (uint32_t i = 0; i < mp->part_count; i++) {
        mp->parts[i] = (struct cairn_multipart_part){.state = CAIRN_PART_TODO};
    }
    enter_state(mp, STATE_BEGIN);
}

/* Some stores show an object late: after OK, 412 or a vanished upload HEAD is repeated first. */
static void nothing_there(struct cairn_multipart *mp) {
    bool due = mp->certain || mp->taken || (mp->perhaps && mp->upload_gone);
    if (due && look_again(mp)) return;
    mp->certain = mp->taken = mp->proven = false;
    if (!mp->parts)
        enter_state(mp, STATE_BEGIN);
    else if (mp->upload_id[0] && !mp->upload_gone)
        enter_state(mp, STATE_LIST);
    else
        begin_round(mp);
}

/* ---- whether an existing object is ours (R3) ---- */

/* An object is ours by its token, by OK of our PUT or COMPLETE, or by the journal's word that it
 * was durable. Without these, or if the store states a checksum that differs from ours (some state
 * wrong ones), its bytes are read: equal length and checksum are as good as a token. */

static void refuse_foreign(struct cairn_multipart *mp, const struct cairn_store_request *request) {
    FAIL(mp, CAIRN_CONFLICT,
         "an object of %" PRIu64 " bytes with token \"%s\" is there; ours has %" PRIu64
         " bytes and token \"%s\"",
         request->object_bytes, request->object_token, mp->size_bytes, mp->token);
}

static void something_there(struct cairn_multipart *mp, const struct cairn_store_request *request) {
    bool stated = request->object_token[0] != '\0';
    bool foreign = stated && strcmp(request->object_token, mp->token) != 0;
    if (foreign || request->object_bytes != mp->size_bytes) {
        refuse_foreign(mp, request);
        return;
    }
    mp->found_has_crc32c = request->object_has_crc32c;
    mp->found_crc32c = request->object_crc32c;
    mp->found_token = stated;
    bool known = mp->certain || (mp->proven && CAIRN_RULE(Q46));
    if (!stated && !known && !CAIRN_RULE(Q46)) {
        refuse_foreign(mp, request);
        return;
    }
    /* A single PUT may not have been compared with the staged bytes (O8); COMPLETE follows that. */
    bool uncompared = mp->recovered && !mp->parts && CAIRN_RULE(Q42);
    mp->reads = mp->disputed || (!known && !mp->found_has_crc32c && (!stated || uncompared));
    mp->read_bytes = 0;
    enter_state(mp, STATE_CHECK);
}

/* Without list permission 403 also stands for an absent object (multipart.h#6). */
static void refused_head(struct cairn_multipart *mp, const struct cairn_store_request *request) {
    mp->head_refused = true;
    if (!mp->certain && !mp->taken)
        nothing_there(mp);
    else if (!look_again(mp))
        again_or_fail(mp, request, "look at the object");
}

static void head_result(struct cairn_multipart *mp, const struct cairn_store_request *request) {
    if (request->code == CAIRN_OK)
        something_there(mp, request);
    else if (request->code == CAIRN_NOT_FOUND)
        nothing_there(mp);
    else if (request->code == CAIRN_FORBIDDEN && request->error.http_status == 403)
        refused_head(mp, request);
    else
        again_or_fail(mp, request, "look at the object");
}

static void read_result(struct cairn_multipart *mp, const struct cairn_multipart_action *action,
                        const struct cairn_store_request *request) {
    if (request->code != CAIRN_OK) {
        again_or_fail(mp, request, "read the object that is there");
        return;
    }
    if (request->got_crc32c == action->crc32c) {
        mp->read_bytes += action->length;
        mp->tries = 0;
        return;
    }
    bool ours = mp->found_token || mp->disputed;
    FAIL(mp, ours ? CAIRN_CORRUPT : CAIRN_CONFLICT,
         "an object of our length is there with other bytes: from %" PRIu64 " on, %" PRIu64
         " of them have checksum %08" PRIx32 ", ours have %08" PRIx32,
         action->offset, action->length, request->got_crc32c, action->crc32c);
}

/* Checksums missing from the journal come with the source (Q17). */
static void next_check(struct cairn_multipart *mp, struct cairn_multipart_action *ret) {
    if (!whole_known(mp)) {
        if (!mp->has_source) ret->kind = CAIRN_MULTIPART_NEED_SOURCE;
        return;
    }
    if (mp->found_has_crc32c && mp->found_crc32c != mp->crc32c) mp->disputed = true;
    if ((mp->reads || mp->disputed) && mp->read_bytes < mp->size_bytes) {
        take_action(mp, CAIRN_MULTIPART_READ, ret);
        ret->offset = mp->read_bytes;
        ret->length = cairn_min_u64(CAIRN_MULTIPART_READ_BYTES, mp->size_bytes - mp->read_bytes);
        ret->crc32c = range_crc32c(mp, ret->offset, ret->length);
        return;
    }
    mp->misstated = mp->disputed;
    enter_state(mp, STATE_DURABLE);
    cairn_multipart_next(mp, ret);
}

/* ---- ListParts ---- */

static bool part_agrees(const struct cairn_multipart *mp, uint32_t index,
                        const struct cairn_store_part *listed) {
    const struct cairn_multipart_part *part = &mp->parts[index];
    uint64_t offset = (uint64_t)index * mp->part_bytes, length = part_length(mp, index);
    if (listed->size_bytes != length) return false;
    if (listed->has_crc32c)
        return mp->crc32c_known && listed->crc32c == range_crc32c(mp, offset, length);
    if (!part->sent.etag[0] || strcmp(part->sent.etag, listed->etag) != 0) return false;
    /* Bytes may have been staged anew since another process had the part acknowledged. */
    return part->state == CAIRN_PART_ACKED ||
           (mp->crc32c_known && part->sent.size_bytes == length &&
            part->sent.crc32c == range_crc32c(mp, offset, length));
}

static const struct cairn_store_part *find_listed(const struct cairn_store_request *request,
                                                  uint32_t number) {
    /* Listings are in order of number, mostly without gaps. */
    if (number <= request->part_count && request->parts[number - 1].number == number)
        return &request->parts[number - 1];
    for (size_t i = 0; i < request->part_count; i++) {
        if (request->parts[i].number == number) return &request->parts[i];
    }
    return NULL;
}

/* Keeps matching parts, requests others again; returns the first trusted misfit, or 0. */
static uint32_t take_listing(struct cairn_multipart *mp,
                             const struct cairn_store_request *request) {
    uint32_t differs = 0;
    mp->parts_acked = 0;
    for (uint32_t i = 0; i < mp->part_count; i++) {
        struct cairn_multipart_part *part = &mp->parts[i];
        const struct cairn_store_part *listed = find_listed(request, i + 1);
        if (listed && part_agrees(mp, i, listed)) {
            part->sent = *listed;
            part->sent.has_crc32c = true;
            uint64_t offset = (uint64_t)i * mp->part_bytes;
            part->sent.crc32c = range_crc32c(mp, offset, part_length(mp, i));
            part->state = CAIRN_PART_ACKED;
            mp->parts_acked++;
            continue;
        }
        if (part->state == CAIRN_PART_ACKED && !differs) differs = i + 1;
        part->state = CAIRN_PART_TODO;
    }
    return differs;
}

static void list_result(struct cairn_multipart *mp, const struct cairn_store_request *request) {
    if (request->code == CAIRN_NOT_FOUND) {
        /* The upload vanished since HEAD found nothing: a late COMPLETE may have used it up. */
        mp->upload_gone = true;
        enter_state(mp, STATE_HEAD);
        return;
    }
    if (request->code == CAIRN_UNSUPPORTED) { /* trust the acknowledgements */
        enter_state(mp, STATE_PARTS);
        return;
    }
    if (request->code != CAIRN_OK) {
        again_or_fail(mp, request,
                      mp->head_refused
                          ? "a HEAD is refused (403), and so is the list of parts that would "
                            "tell whether the object is there; allow s3:ListBucket or "
                            "s3:ListMultipartUploadParts"
                          : "list the parts that arrived");
        return;
    }
    uint32_t differs = take_listing(mp, request);
    if (differs && mp->parts_doubted) {
        if (mp->parts_resent) {
            FAIL(mp, CAIRN_CORRUPT, "part %" PRIu32 " is refused, also after it was sent again",
                 differs);
            return;
        }
        mp->parts_resent = true;
    }
    enter_state(mp, STATE_PARTS);
}

static void abort_result(struct cairn_multipart *mp, const struct cairn_store_request *request) {
    bool gone = request->code == CAIRN_OK || request->code == CAIRN_NOT_FOUND;
    /* An upload that cannot be aborted is left to the sweep of the version (Q21). */
    mp->tries += tries_of(request);
    if (gone || mp->tries >= TRIES_MAX) enter_state(mp, STATE_FAILED);
}

void cairn_multipart_result(struct cairn_multipart *mp, const struct cairn_multipart_action *action,
                            const struct cairn_store_request *request) {
    if (action->kind == CAIRN_MULTIPART_PART) {
        part_result(mp, action, request);
        return;
    }
    CAIRN_ASSERT(mp->busy);
    mp->busy = false;
    mp->pause_ms = 0;
    switch (action->kind) {
    case CAIRN_MULTIPART_CREATE:
        create_result(mp, request);
        return;
    case CAIRN_MULTIPART_PUT:
    case CAIRN_MULTIPART_COMPLETE:
        publishing_result(mp, action, request);
        return;
    case CAIRN_MULTIPART_HEAD:
        head_result(mp, request);
        return;
    case CAIRN_MULTIPART_LIST_PARTS:
        list_result(mp, request);
        return;
    case CAIRN_MULTIPART_READ:
        read_result(mp, action, request);
        return;
    case CAIRN_MULTIPART_ABORT:
        abort_result(mp, request);
        return;
    default:
        CAIRN_ASSERT(false);
    }
}

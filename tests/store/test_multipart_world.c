/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The multipart state machine against a model of a store that loses replies, applies late, forgets
 * uploads and holds foreign objects; restarts included. CAIRN_TEST_SEED replays.
 */
#include "store/multipart.h"
#include "tests/harness.h"

#define TOKEN "6f0f1c1e-5a55-4c6b-9d4b-0b3f6a5f9f01"
#define PARTS_MAX 6
#define UPLOADS_MAX 64
#define FLIGHT_MAX 8
#define LATE_MAX 64
#define ACTIONS_MAX 2000 /* far above the rules: 4 rounds of 6 parts and 64 completes */

struct world_part {
    bool there;
    uint64_t size;
    uint32_t crc32c;
    unsigned version; /* another one when the store lost and replaced it */
};
struct world_upload {
    bool alive;
    struct world_part parts[PARTS_MAX];
};
/* What a request carried, so that it can be applied late. */
struct world_order {
    struct cairn_multipart_action action;
    unsigned upload;
    char etags[PARTS_MAX][16];
};
struct world {
    uint64_t random;
    /* How this store behaves; percent. */
    unsigned fail, lose, vanish, spoil, give_up, restart, source_lost;
    bool keeps_token, keeps_crc32c, create_only, lists, lists_crc32c;
    /* What it holds. */
    bool there, foreign, rots; /* rots: what is published is damaged */
    bool misstates;            /* HEAD says another checksum than that of the bytes */
    uint64_t object_size;
    uint32_t object_crc32c;
    struct world_upload uploads[UPLOADS_MAX]; /* id: index from 1 */
    unsigned upload_count;
    struct world_order late[LATE_MAX];
    unsigned late_count;
    /* The shard as it was staged. */
    uint64_t size, part_bytes;
    uint32_t part_count, blocks[PARTS_MAX * 2];
    /* The journal. */
    char journal_upload[32];
    bool journal_blocks;
    /* What was seen. */
    struct world_order flight[FLIGHT_MAX];
    unsigned flight_count, actions, parts_acked, aborts_failed, creates_lost;
    bool nothing_seen; /* the last answer was a HEAD's: nothing is there */
    bool broken;
};

static uint64_t draw(struct world *w, uint64_t below) {
    return cairn_test_random(&w->random) % below;
}
static bool happens(struct world *w, unsigned percent) {
    return draw(w, 100) < percent;
}
static void broken(struct world *w, const char *what) {
    if (!w->broken) cairn_test_check(false, __FILE__, __LINE__, "%s", what);
    w->broken = true;
}

static uint32_t crc_of(const struct world *w, uint64_t offset, uint64_t length) {
    uint32_t crc = 0;
    for (uint64_t at = offset; at < offset + length; at += CAIRN_MIB) {
        crc = cairn_crc32c_combine(crc, w->blocks[at / CAIRN_MIB],
                                   cairn_min_u64(CAIRN_MIB, w->size - at));
    }
    return crc;
}
static void etag_of(const struct world_part *part, char ret[16]) {
    snprintf(ret, 16, "%08x-%u", part->crc32c, part->version);
}

/* ---- the store ---- */

static void object_put(struct world *w, uint64_t size, uint32_t crc) {
    if (w->there && w->foreign) broken(w, "a foreign object was replaced");
    w->there = true;
    w->object_size = size;
    w->object_crc32c = crc ^ w->rots;
}

static struct world_upload *upload_of(struct world *w, unsigned id) {
    struct world_upload *upload = id ? &w->uploads[id - 1] : NULL;
    return upload && upload->alive ? upload : NULL;
}

static enum cairn_code apply_complete(struct world *w, const struct world_order *order) {
    struct world_upload *upload = upload_of(w, order->upload);
    if (!upload) return CAIRN_NOT_FOUND;
    if (w->there && w->create_only) return CAIRN_PRECONDITION;
    uint64_t size = 0;
    uint32_t crc = 0;
    for (uint32_t i = 0; i < w->part_count; i++) {
        struct world_part *part = &upload->parts[i];
        char etag[16];
        etag_of(part, etag);
        if (!part->there || strcmp(etag, order->etags[i]) != 0) return CAIRN_INVALID;
        size += part->size;
        crc = cairn_crc32c_combine(crc, part->crc32c, part->size);
    }
    upload->alive = false;
    object_put(w, size, crc);
    return CAIRN_OK;
}

static enum cairn_code apply(struct world *w, const struct world_order *order,
                             struct cairn_store_request *request) {
    const struct cairn_multipart_action *action = &order->action;
    struct world_upload *upload = upload_of(w, order->upload);
    switch (action->kind) {
    case CAIRN_MULTIPART_PUT:
        if (w->there && w->create_only) return CAIRN_PRECONDITION;
        object_put(w, action->length, action->crc32c);
        return CAIRN_OK;
    case CAIRN_MULTIPART_CREATE:
        if (w->upload_count == UPLOADS_MAX) return CAIRN_FORBIDDEN;
        w->uploads[w->upload_count++].alive = true;
        snprintf(request->upload_id, sizeof request->upload_id, "%u", w->upload_count);
        return CAIRN_OK;
    case CAIRN_MULTIPART_PART:
        if (!upload) return CAIRN_NOT_FOUND;
        upload->parts[action->part_number - 1] =
            (struct world_part){true, action->length, action->crc32c, 0};
        etag_of(&upload->parts[action->part_number - 1], request->etag);
        return CAIRN_OK;
    case CAIRN_MULTIPART_COMPLETE:
        return apply_complete(w, order);
    case CAIRN_MULTIPART_ABORT:
        if (!upload) return CAIRN_NOT_FOUND;
        upload->alive = false;
        return CAIRN_OK;
    default:
        return CAIRN_INTERNAL;
    }
}

static enum cairn_code look(struct world *w, const struct world_order *order,
                            struct cairn_store_request *request) {
    if (order->action.kind == CAIRN_MULTIPART_HEAD) {
        if (!w->there) return CAIRN_NOT_FOUND;
        request->object_bytes = w->object_size;
        const char *token = w->foreign ? "somebody-else" : TOKEN;
        if (w->keeps_token) {
            snprintf(request->object_token, sizeof request->object_token, "%s", token);
        }
        request->object_has_crc32c = w->keeps_crc32c;
        request->object_crc32c = w->keeps_crc32c ? w->object_crc32c ^ (w->misstates ? 2 : 0) : 0;
        return CAIRN_OK;
    }
    if (order->action.kind == CAIRN_MULTIPART_READ) {
        if (!w->there) return CAIRN_NOT_FOUND;
        bool ours = !w->foreign && w->object_crc32c == crc_of(w, 0, w->size);
        request->got_crc32c = order->action.crc32c ^ (ours ? 0 : 1);
        return CAIRN_OK;
    }
    struct world_upload *upload = upload_of(w, order->upload);
    if (!w->lists) return CAIRN_UNSUPPORTED;
    if (!upload) return CAIRN_NOT_FOUND;
    request->part_count = 0;
    for (uint32_t i = 0; i < w->part_count; i++) {
        struct world_part *part = &upload->parts[i];
        if (!part->there) continue;
        struct cairn_store_part *listed = &request->parts[request->part_count++];
        *listed = (struct cairn_store_part){.number = i + 1, .size_bytes = part->size};
        listed->has_crc32c = w->lists_crc32c;
        listed->crc32c = w->lists_crc32c ? part->crc32c : 0;
        etag_of(part, listed->etag);
    }
    return CAIRN_OK;
}

/* Time passes in the store: late requests land, uploads and parts vanish. */
static void weather(struct world *w) {
    if (w->late_count && happens(w, 20)) {
        unsigned at = (unsigned)draw(w, w->late_count);
        struct world_order order = w->late[at];
        w->late[at] = w->late[--w->late_count];
        struct cairn_store_request nobody = {0};
        apply(w, &order, &nobody);
    }
    if (!w->upload_count) return;
    struct world_upload *upload = &w->uploads[draw(w, w->upload_count)];
    if (happens(w, w->vanish)) upload->alive = false;
    if (happens(w, w->spoil)) {
        struct world_part *part = &upload->parts[draw(w, PARTS_MAX)];
        part->version++;
        if (happens(w, 50)) part->there = false;
    }
}

/* ---- one request ---- */

static void lose(struct world *w, const struct world_order *order) {
    struct cairn_store_request nobody = {0};
    unsigned fate = (unsigned)draw(w, 3);
    if (order->action.kind == CAIRN_MULTIPART_CREATE) w->creates_lost++;
    if (fate == 0) apply(w, order, &nobody);
    if (fate == 1 && w->late_count < LATE_MAX) w->late[w->late_count++] = *order;
}

static bool only_looks(enum cairn_multipart_kind kind) {
    return kind == CAIRN_MULTIPART_HEAD || kind == CAIRN_MULTIPART_LIST_PARTS ||
           kind == CAIRN_MULTIPART_READ;
}

static void perform(struct world *w, const struct world_order *order,
                    struct cairn_store_request *request) {
    static const enum cairn_code passing[] = {CAIRN_BUSY, CAIRN_UNAVAILABLE, CAIRN_TIMEOUT,
                                              CAIRN_CONFLICT, CAIRN_CANCELLED};
    bool looks = only_looks(order->action.kind);
    weather(w);
    if (happens(w, w->fail)) {
        request->code = passing[draw(w, CAIRN_COUNT(passing))];
        if (happens(w, 3)) request->code = CAIRN_FORBIDDEN;
    } else if (!looks && happens(w, w->lose)) {
        lose(w, order);
        request->code = CAIRN_UNAVAILABLE;
        request->ambiguous = true;
    } else {
        request->code = looks ? look(w, order, request) : apply(w, order, request);
    }
    if (order->action.kind == CAIRN_MULTIPART_ABORT && request->code != CAIRN_OK &&
        request->code != CAIRN_NOT_FOUND) {
        w->aborts_failed++;
    }
    if (request->code != CAIRN_OK) cairn_fail(&request->error, request->code, "by the world");
    if (request->code == CAIRN_FORBIDDEN) request->error.http_status = 403;
}

static void check_action(struct world *w, const struct cairn_multipart_action *action) {
    if (++w->actions > ACTIONS_MAX) broken(w, "actions without end");
    if (action->kind == CAIRN_MULTIPART_CREATE && !w->nothing_seen) { /* R3 */
        broken(w, "begun anew without having looked");
    }
    for (unsigned i = 0; i < w->flight_count; i++) {
        const struct cairn_multipart_action *other = &w->flight[i].action;
        bool both = other->kind == CAIRN_MULTIPART_PART && action->kind == CAIRN_MULTIPART_PART;
        if (!both) broken(w, "something is under way beside a part"); /* drained first */
        if (both && other->part_number == action->part_number)
            broken(w, "a part twice"); /* multipart.h#3 */
    }
    if (action->kind != CAIRN_MULTIPART_PART) return;
    uint64_t offset = (action->part_number - 1) * w->part_bytes;
    if (action->offset != offset ||
        action->length != cairn_min_u64(w->part_bytes, w->size - offset) ||
        action->crc32c != crc_of(w, offset, action->length)) {
        broken(w, "a part's bytes moved"); /* multipart.h#3 */
    }
}

static void launch(struct world *w, const struct cairn_multipart *mp,
                   const struct cairn_multipart_action *action) {
    struct world_order *order = &w->flight[w->flight_count];
    uint64_t upload = 0;
    if (cairn_parse_u64(cairn_view_of(mp->upload_id), &upload, NULL) != CAIRN_OK) upload = 0;
    *order = (struct world_order){.action = *action, .upload = (unsigned)upload};
    bool publishing =
        action->kind == CAIRN_MULTIPART_PUT || action->kind == CAIRN_MULTIPART_COMPLETE;
    if (publishing) w->journal_blocks = true;
    if (publishing && action->crc32c != crc_of(w, 0, w->size)) broken(w, "another checksum");
    for (uint32_t i = 0; action->kind == CAIRN_MULTIPART_COMPLETE && i < w->part_count; i++) {
        if (mp->parts[i].sent.number != i + 1) broken(w, "complete with a part missing");
        snprintf(order->etags[i], sizeof order->etags[i], "%.15s", mp->parts[i].sent.etag);
    }
    w->flight_count++;
}

static void land(struct world *w, struct cairn_multipart *mp) {
    unsigned at = (unsigned)draw(w, w->flight_count);
    struct world_order order = w->flight[at];
    w->flight[at] = w->flight[--w->flight_count];
    if (happens(w, w->fail / 4)) {
        cairn_multipart_unsent(mp, &order.action);
        return;
    }
    struct cairn_store_part listed[PARTS_MAX];
    struct cairn_store_request request = {.parts = listed, .part_count = PARTS_MAX};
    perform(w, &order, &request);
    cairn_multipart_result(mp, &order.action, &request);
    if (order.action.kind == CAIRN_MULTIPART_PART && request.code == CAIRN_OK) w->parts_acked++;
    bool create = order.action.kind == CAIRN_MULTIPART_CREATE;
    if (!create || request.code == CAIRN_OK) {
        /* Without the right to list, 403 is what a missing object gets (multipart.h#6). */
        bool missing = request.code == CAIRN_NOT_FOUND || request.code == CAIRN_FORBIDDEN;
        w->nothing_seen = order.action.kind == CAIRN_MULTIPART_HEAD && missing;
    }
    if (create && request.code == CAIRN_OK) {
        snprintf(w->journal_upload, sizeof w->journal_upload, "%.31s", request.upload_id);
    }
}

/* ---- the uploader ---- */

static void supply(struct world *w, struct cairn_multipart *mp) {
    struct cairn_error err = {0};
    uint64_t ready = mp->ready_bytes + draw(w, w->size - mp->ready_bytes + 1);
    if (happens(w, 50)) ready = w->size;
    uint64_t whole = ready == w->size ? cairn_div_up(w->size, CAIRN_MIB) : ready / CAIRN_MIB;
    uint64_t first = cairn_min_u64(mp->ready_bytes / CAIRN_MIB, whole);
    enum cairn_code code =
        cairn_multipart_ready(mp, ready, w->blocks + first, first, whole - first, &err);
    if (code != CAIRN_OK) broken(w, err.message);
}

static void give_up(struct cairn_multipart *mp, enum cairn_code code) {
    struct cairn_error why = {0};
    cairn_fail(&why, code, "given up");
    cairn_multipart_give_up(mp, &why);
}

/* The process dies: what was under way may be applied, now, late or never. */
static void restart(struct world *w, struct cairn_multipart *mp) {
    struct cairn_error err = {0};
    for (unsigned i = 0; i < w->flight_count; i++) {
        if (!only_looks(w->flight[i].action.kind)) lose(w, &w->flight[i]);
    }
    w->flight_count = 0;
    w->nothing_seen = false;
    cairn_multipart_release(mp);
    const char *upload = w->journal_upload[0] ? w->journal_upload : NULL;
    if (cairn_multipart_init(mp, w->size, w->part_bytes, TOKEN, &err) != CAIRN_OK ||
        cairn_multipart_recover(mp, upload, w->journal_blocks ? w->blocks : NULL, &err) !=
            CAIRN_OK) {
        broken(w, err.message);
    }
    w->restart /= 2;
}

static void need_source(struct world *w, struct cairn_multipart *mp) {
    if (happens(w, w->source_lost)) {
        give_up(mp, CAIRN_SOURCE_GONE);
        return;
    }
    struct cairn_error err = {0};
    cairn_multipart_source(mp);
    if (cairn_multipart_ready(mp, w->size, w->blocks, 0, cairn_div_up(w->size, CAIRN_MIB), &err) !=
        CAIRN_OK) {
        broken(w, err.message);
    }
}

static enum cairn_multipart_kind run(struct world *w, struct cairn_multipart *mp) {
    for (unsigned turn = 0; turn < 100000 && !w->broken; turn++) {
        if (mp->has_source && mp->ready_bytes < w->size && happens(w, 30)) supply(w, mp);
        if (happens(w, w->give_up)) give_up(mp, CAIRN_CANCELLED);
        if (w->restart && happens(w, w->restart)) restart(w, mp);
        if (w->flight_count == FLIGHT_MAX || (w->flight_count && happens(w, 50))) {
            land(w, mp);
            continue;
        }
        struct cairn_multipart_action action;
        cairn_multipart_next(mp, &action);
        switch (action.kind) {
        case CAIRN_MULTIPART_DURABLE:
        case CAIRN_MULTIPART_FAILED:
            if (w->flight_count) broken(w, "the end came before the answers");
            return action.kind;
        case CAIRN_MULTIPART_NEED_SOURCE:
            need_source(w, mp);
            break;
        case CAIRN_MULTIPART_WAIT:
            if (w->flight_count)
                land(w, mp);
            else if (mp->has_source && mp->ready_bytes < w->size)
                supply(w, mp);
            else if (!mp->busy)
                broken(w, "waits for nothing");
            break;
        default:
            check_action(w, &action);
            launch(w, mp, &action);
        }
    }
    broken(w, "no end");
    return CAIRN_MULTIPART_WAIT;
}

/* ---- what must hold at the end ---- */

static void check_end(struct world *w, struct cairn_multipart *mp, enum cairn_multipart_kind end) {
    struct cairn_multipart_action action;
    cairn_multipart_next(mp, &action);
    if (action.kind != end) broken(w, "an action after the end"); /* multipart.h#4 */
    if (end == CAIRN_MULTIPART_FAILED && mp->error.code == CAIRN_OK)
        broken(w, "failed, unexplained");
    for (int late = 0; late < 2; late++) { /* now, and after all that is late has landed */
        bool ours = w->there && !w->foreign && w->object_size == w->size &&
                    w->object_crc32c == crc_of(w, 0, w->size);
        /* Without tokens equal bytes are ours, and no bytes are equal to no bytes. */
        bool whose = !w->keeps_token || !w->foreign;
        ours |= w->there && whose && !w->size && !w->object_size;
        if (end == CAIRN_MULTIPART_DURABLE && !ours) broken(w, "durable, but not there");
        if (end == CAIRN_MULTIPART_DURABLE && mp->misstated && !w->misstates && w->size)
            broken(w, "a right statement is called wrong");
        if (w->there && !w->foreign && !w->rots && !ours) broken(w, "a wrong object");
        while (w->late_count) {
            struct cairn_store_request nobody = {0};
            apply(w, &w->late[--w->late_count], &nobody);
        }
    }
    if (end != CAIRN_MULTIPART_FAILED || w->aborts_failed || w->creates_lost) return;
    for (unsigned i = 0; i < w->upload_count; i++) {
        if (w->uploads[i].alive) broken(w, "an upload was left behind");
    }
}

static void world_draw(struct world *w, uint64_t seed) {
    *w = (struct world){.random = seed, .nothing_seen = true};
    w->part_count = (uint32_t)draw(w, PARTS_MAX) + 1;
    w->part_bytes = (draw(w, 2) + 1) * CAIRN_MIB;
    w->size = w->part_count * w->part_bytes - draw(w, 3) * 1000;
    if (w->part_count == 1 && happens(w, 20)) w->size = 0;
    for (size_t i = 0; i < CAIRN_COUNT(w->blocks); i++)
        w->blocks[i] = (uint32_t)draw(w, UINT32_MAX);
    w->keeps_token = happens(w, 80);
    w->keeps_crc32c = happens(w, 60);
    w->create_only = happens(w, 60);
    w->lists = happens(w, 85);
    w->lists_crc32c = happens(w, 70);
}

static void world_trouble(struct world *w) {
    w->fail = happens(w, 50) ? (unsigned)draw(w, 40) : 0;
    w->misstates = happens(w, 10);
    w->lose = happens(w, 60) ? (unsigned)draw(w, 50) : 0;
    w->vanish = happens(w, 40) ? (unsigned)draw(w, 15) : 0;
    if (happens(w, 5)) w->vanish = 95;
    w->rots = w->keeps_crc32c && happens(w, 5);
    w->spoil = happens(w, 30) ? (unsigned)draw(w, 10) : 0;
    w->give_up = happens(w, 15) ? 2 : 0;
    w->restart = happens(w, 40) ? (unsigned)draw(w, 16) : 0;
    w->source_lost = happens(w, 50) ? 50 : 0;
    /* A store that honours no condition cannot keep a foreign object from a Complete. */
    if (w->create_only && happens(w, 15)) {
        w->there = w->foreign = true;
        w->object_size = happens(w, 50) ? w->size : 5;
    }
}

static enum cairn_multipart_kind live(struct world *w) {
    struct cairn_multipart mp = {0};
    struct cairn_error err = {0};
    enum cairn_multipart_kind end = CAIRN_MULTIPART_WAIT;
    if (cairn_multipart_init(&mp, w->size, w->part_bytes, TOKEN, &err) != CAIRN_OK) {
        broken(w, err.message);
    } else {
        end = run(w, &mp);
        check_end(w, &mp, end);
    }
    cairn_multipart_release(&mp);
    return end;
}

TEST(without_faults_every_part_is_sent_once_and_the_shard_is_durable) {
    struct world w;
    uint64_t seed = cairn_test_seed();
    for (int i = 0; i < 2000; i++) {
        world_draw(&w, cairn_test_random(&seed));
        EXPECT_EQ_U64(live(&w), CAIRN_MULTIPART_DURABLE);
        unsigned parts = w.part_count > 1 ? w.part_count : 0;
        EXPECT_EQ_U64(w.parts_acked, parts);
        EXPECT_EQ_U64(w.actions, parts ? parts + 3 : 2); /* create, parts, complete, head */
        if (w.broken) break;
    }
}

TEST(in_any_weather_durable_is_true_and_nothing_foreign_is_replaced) {
    struct world w;
    uint64_t seed = cairn_test_seed() ^ 0x5eed;
    unsigned durable = 0, failed = 0;
    for (int i = 0; i < 20000; i++) {
        uint64_t own = cairn_test_random(&seed);
        world_draw(&w, own);
        world_trouble(&w);
        enum cairn_multipart_kind end = live(&w);
        durable += end == CAIRN_MULTIPART_DURABLE;
        failed += end == CAIRN_MULTIPART_FAILED;
        if (w.broken) {
            fprintf(stderr, "world %d, its own seed %" PRIu64 "\n", i, own);
            break;
        }
    }
    EXPECT_EQ_U64(durable + failed, 20000);
    EXPECT(durable > 8000);
    if (!EXPECT(failed > 0)) fprintf(stderr, "%u failed\n", failed);
}

TEST(lost_replies_alone_never_lose_a_shard) {
    struct world w;
    uint64_t seed = cairn_test_seed() ^ 0x1057;
    for (int i = 0; i < 3000; i++) {
        world_draw(&w, cairn_test_random(&seed));
        w.keeps_token = w.lists = true;
        w.lose = 5; /* five losses in a row of one request are as good as impossible */
        EXPECT_EQ_U64(live(&w), CAIRN_MULTIPART_DURABLE);
        if (w.broken) break;
    }
}

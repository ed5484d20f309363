/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3run: stages one shard and has it sent by the uploader's own senders (s3send.c). Where a test
 * stops it at an action, interferes before one, or turns the clock, the same state machine
 * (store/multipart.h) is driven here, step by step on this thread.
 */
#include "tests/harness.h"
#include "tests/support/s3world.h"

#define IN_FLIGHT_MAX 8

struct sending {
    struct cairn_store_request request;
    struct cairn_multipart_action action;
    struct cairn_store_part *parts;
    bool used, finished;
};
struct runner {
    struct cairn_s3world *world;
    struct cairn_s3run *run;
    struct cairn_multipart mp;
    struct sending sendings[IN_FLIGHT_MAX];
    bool stopped;
};

/* No 4 KiB of it repeat. */
void cairn_s3world_pattern(uint8_t *bytes, uint64_t size) {
    uint64_t state = 1;
    for (uint64_t at = 0; at < size; at += 8) {
        uint64_t value = cairn_test_random(&state);
        memcpy(bytes + at, &value, size - at < 8 ? size - at : 8);
    }
}

void cairn_s3run_release(struct cairn_s3run *run) {
    free(run->bytes);
}

static void sending_done(struct cairn_store_request *request) {
    struct sending *sending = request->owner;
    sending->finished = true;
}

static enum cairn_store_op op_of(enum cairn_multipart_kind kind) {
    switch (kind) {
    case CAIRN_MULTIPART_PUT:
        return CAIRN_STORE_PUT;
    case CAIRN_MULTIPART_CREATE:
        return CAIRN_STORE_UPLOAD_CREATE;
    case CAIRN_MULTIPART_PART:
        return CAIRN_STORE_UPLOAD_PART;
    case CAIRN_MULTIPART_COMPLETE:
        return CAIRN_STORE_UPLOAD_COMPLETE;
    case CAIRN_MULTIPART_LIST_PARTS:
        return CAIRN_STORE_UPLOAD_PARTS;
    case CAIRN_MULTIPART_ABORT:
        return CAIRN_STORE_UPLOAD_ABORT;
    case CAIRN_MULTIPART_READ:
        return CAIRN_STORE_GET;
    default:
        return CAIRN_STORE_HEAD;
    }
}

static void fill_request(struct runner *runner, struct sending *sending) {
    const struct cairn_multipart_action *action = &sending->action;
    const struct cairn_multipart *mp = &runner->mp;
    struct cairn_store_request *request = &sending->request;
    bool put = action->kind == CAIRN_MULTIPART_PUT, part = action->kind == CAIRN_MULTIPART_PART;
    bool complete = action->kind == CAIRN_MULTIPART_COMPLETE;
    *request = (struct cairn_store_request){.op = op_of(action->kind),
                                            .key = runner->run->key,
                                            .token = mp->token,
                                            .upload_id_in = mp->upload_id,
                                            .part_number = action->part_number,
                                            .offset = action->offset,
                                            .length = action->length,
                                            .create = put || complete,
                                            .has_crc32c = put || part || complete,
                                            .crc32c = part ? action->crc32c : mp->crc32c,
                                            .done = sending_done,
                                            .owner = sending};
    if (put || part)
        request->body =
            (struct cairn_view){runner->run->bytes + action->offset, (size_t)action->length};
    if (action->kind == CAIRN_MULTIPART_READ) {
        request->into = sending->parts = malloc((size_t)action->length);
        request->wants_crc32c = true;
    }
    if (!complete && action->kind != CAIRN_MULTIPART_LIST_PARTS) return;
    sending->parts = calloc(mp->part_count + 1, sizeof *sending->parts);
    for (uint32_t i = 0; complete && i < mp->part_count; i++) sending->parts[i] = mp->parts[i].sent;
    request->parts = sending->parts;
    request->part_count = mp->part_count;
}

static void collect(struct runner *runner) {
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++) {
        struct sending *sending = &runner->sendings[i];
        if (!sending->used || !sending->finished) continue;
        cairn_multipart_result(&runner->mp, &sending->action, &sending->request);
        free(sending->parts);
        *sending = (struct sending){0};
    }
}

static bool is_end(enum cairn_multipart_kind kind) {
    return kind == CAIRN_MULTIPART_DURABLE || kind == CAIRN_MULTIPART_FAILED;
}

/* As many actions as there is room for; the kind of the last one. */
static enum cairn_multipart_kind send_more(struct runner *runner) {
    struct cairn_multipart_action action = {0};
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++) {
        struct sending *sending = &runner->sendings[i];
        if (sending->used) continue;
        cairn_multipart_next(&runner->mp, &action);
        if (action.kind == CAIRN_MULTIPART_WAIT || is_end(action.kind) ||
            action.kind == CAIRN_MULTIPART_NEED_SOURCE)
            break;
        if (runner->run->stop && runner->run->stop(runner->world, &action, runner->run)) {
            runner->stopped = true;
            cairn_multipart_unsent(&runner->mp, &action);
            break;
        }
        runner->run->actions++;
        runner->run->count_of[action.kind]++;
        sending->used = true;
        sending->action = action;
        if (runner->run->before) runner->run->before(runner->world, &action, runner->run);
        fill_request(runner, sending);
        cairn_store_submit(runner->world->worker, &sending->request);
    }
    return action.kind;
}

static void cancel_all(struct runner *runner) {
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++)
        if (runner->sendings[i].used && !runner->sendings[i].finished)
            cairn_store_cancel(runner->world->worker, &runner->sendings[i].request);
    collect(runner);
}

static enum cairn_code run_machine(struct runner *runner) {
    struct cairn_s3run *run = runner->run;
    struct cairn_error *err = &run->error;
    uint64_t end = cairn_mono_ms() + cairn_test_hang_ms();
    for (;;) {
        collect(runner);
        enum cairn_multipart_kind kind = send_more(runner);
        run->rounds = runner->mp.rounds;
        snprintf(run->upload_id, sizeof run->upload_id, "%s", runner->mp.upload_id);
        if (runner->stopped) return cairn_fail(err, CAIRN_INTERRUPTED, "the process ended");
        if (kind == CAIRN_MULTIPART_NEED_SOURCE) {
            struct cairn_error gone = {0};
            cairn_fail(&gone, CAIRN_SOURCE_GONE, "the bytes are needed again and are not there");
            cairn_multipart_give_up(&runner->mp, &gone);
            continue;
        }
        if (kind == CAIRN_MULTIPART_DURABLE) {
            run->durable = true;
            return CAIRN_OK;
        }
        if (kind == CAIRN_MULTIPART_FAILED) {
            run->error = runner->mp.error;
            return run->error.code;
        }
        if (cairn_mono_ms() > end) return cairn_fail(err, CAIRN_TIMEOUT, "the shard had no end");
        CAIRN_TRY(cairn_store_poll(runner->world->worker, run->advance_ms ? 2 : 50, err));
        if (run->advance_ms) cairn_clock_virtual_advance(&runner->world->clock, run->advance_ms);
    }
}

/* Bytes, token and checksums; the checksums of its blocks are the caller's. */
static uint32_t *stage(struct cairn_s3run *run) {
    uint64_t count = cairn_div_up(run->size_bytes, CAIRN_BLOCK_BYTES);
    uint32_t *blocks = calloc(count + 1, sizeof *blocks);
    if (!run->bytes) {
        run->bytes = malloc(run->size_bytes + 8);
        cairn_s3world_pattern(run->bytes, run->size_bytes);
    }
    if (run->token)
        snprintf(run->used_token, sizeof run->used_token, "%s", run->token);
    else
        cairn_uuid_random(run->used_token);
    run->crc32c = cairn_crc32c(0, run->bytes, run->size_bytes);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = i * CAIRN_BLOCK_BYTES;
        blocks[i] = cairn_crc32c(0, run->bytes + at,
                                 cairn_min_u64(CAIRN_BLOCK_BYTES, run->size_bytes - at));
    }
    return blocks;
}

static enum cairn_code prepare(struct runner *runner, const uint32_t *blocks) {
    struct cairn_s3run *run = runner->run;
    struct cairn_error *err = &run->error;
    uint64_t count = cairn_div_up(run->size_bytes, CAIRN_BLOCK_BYTES);
    uint64_t part_bytes = run->part_bytes ? run->part_bytes : CAIRN_S3WORLD_PART;
    CAIRN_TRY(cairn_multipart_init(&runner->mp, run->size_bytes, part_bytes, run->used_token, err));
    if (run->recover)
        return cairn_multipart_recover(&runner->mp, run->recover,
                                       run->recover_blocks ? blocks : NULL, err);
    return cairn_multipart_ready(&runner->mp, run->size_bytes, blocks, 0, count, err);
}

static enum cairn_code step_by_step(struct cairn_s3world *world, struct cairn_s3run *run,
                                    const uint32_t *blocks) {
    struct runner runner = {.world = world, .run = run};
    enum cairn_code code = prepare(&runner, blocks);
    if (code == CAIRN_OK) code = run_machine(&runner);
    cancel_all(&runner);
    cairn_multipart_release(&runner.mp);
    return code;
}

enum cairn_code cairn_s3run_send(struct cairn_s3world *world, struct cairn_s3run *run) {
    bool watched = run->stop || run->before || run->advance_ms;
    if (!run->key) run->key = "shard";
    run->durable = false;
    run->actions = run->rounds = 0;
    memset(run->count_of, 0, sizeof run->count_of);
    CAIRN_AUTO_HEAP uint32_t *blocks = stage(run);
    enum cairn_code code =
        watched ? step_by_step(world, run, blocks) : cairn_s3run_by_uploader(world, run, blocks);
    world->error = run->error;
    return code;
}

bool cairn_s3run_is_whole(struct cairn_s3world *world, const struct cairn_s3run *run) {
    struct cairn_s3world_object object;
    if (!run->durable || !cairn_s3world_object(world, run->key, &object)) return false;
    return object.size == run->size_bytes && object.crc32c == run->crc32c &&
           !strcmp(object.token, run->used_token);
}

enum cairn_code cairn_s3world_put(struct cairn_s3world *world, const char *key,
                                  struct cairn_view bytes) {
    return cairn_store_put_small(world->worker, key, bytes, false, &world->error);
}

enum cairn_code cairn_s3world_get(struct cairn_s3world *world, const char *key, uint64_t offset,
                                  uint64_t length, void *into, char etag[128]) {
    struct cairn_store_request get = {
        .op = CAIRN_STORE_GET, .key = key, .offset = offset, .length = length, .into = into};
    memcpy(get.etag, etag, sizeof get.etag);
    enum cairn_code code = cairn_store_perform(world->worker, &get, &world->error);
    if (code == CAIRN_OK) memcpy(etag, get.etag, sizeof get.etag);
    return code;
}

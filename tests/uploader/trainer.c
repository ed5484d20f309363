/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/uploader/trainer.h"

static const struct cairn_view nothing = {NULL, 0};

uint8_t trainer_byte(uint64_t seed, uint64_t offset) {
    uint64_t word =
        (offset / 8 + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ seed * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint8_t)(word >> (8 * (offset % 8)));
}

void trainer_hang_up(struct cairn_trainer *trainer) {
    if (trainer->fd > 0) close(trainer->fd);
    trainer->fd = 0;
    cairn_frame_reader_release(&trainer->reader);
}

void trainer_drop(struct cairn_trainer *trainer) {
    cairn_trainer_release(trainer);
    *trainer = (struct cairn_trainer){0};
}

void cairn_trainer_release(struct cairn_trainer *trainer) {
    trainer_hang_up(trainer);
    for (uint32_t i = 0; i < trainer->slab_count; i++) cairn_slab_release(&trainer->slabs[i]);
    if (trainer->window.data) cairn_slab_release(&trainer->window);
    json_decref(trainer->events);
}

bool trainer_send(struct cairn_trainer *trainer, json_t *take_message, struct cairn_view blob,
                  const int *fds, size_t fd_count) {
    CAIRN_AUTO(buf) bytes = {0};
    enum cairn_code code = cairn_frame_encode(take_message, blob, &bytes, &trainer->err);
    json_decref(take_message);
    if (code == CAIRN_OK)
        code = cairn_net_send(trainer->fd, cairn_buf_view(&bytes), fds, fd_count,
                              cairn_mono_ms() + HANG_MS, &trainer->err);
    return code == CAIRN_OK;
}

/* One more frame; false: closed, broken or none in time. */
static bool next_frame(struct cairn_trainer *trainer, uint64_t deadline_ms,
                       struct cairn_frame *ret) {
    for (;;) {
        bool closed = false, ready = false;
        if (cairn_frame_fill(&trainer->reader, trainer->fd, &closed, &trainer->err) != CAIRN_OK)
            return false;
        if (cairn_frame_next(&trainer->reader, ret, &ready, &trainer->err) != CAIRN_OK)
            return false;
        if (ready) return true;
        uint64_t now_ms = cairn_mono_ms();
        if (closed) cairn_fail(&trainer->err, CAIRN_UPLOADER_GONE, "the uploader hung up");
        if (closed) return false;
        if (now_ms >= deadline_ms) {
            cairn_fail(&trainer->err, CAIRN_TIMEOUT, "no frame in time");
            return false;
        }
        struct pollfd waiting = {.fd = trainer->fd, .events = POLLIN};
        poll(&waiting, 1, (int)(deadline_ms - now_ms));
    }
}

bool trainer_is_cut(struct cairn_trainer *trainer, uint32_t ms) {
    uint64_t deadline_ms = cairn_mono_ms() + ms;
    for (;;) {
        CAIRN_AUTO(frame) frame = {0};
        if (!next_frame(trainer, deadline_ms, &frame)) return trainer->err.code != CAIRN_TIMEOUT;
    }
}

static enum cairn_code keep_or_take(struct cairn_trainer *trainer, struct cairn_frame *frame,
                                    int64_t request, bool *ret_answer) {
    const json_t *id = json_object_get(frame->message, "id");
    *ret_answer = json_is_integer(id) && json_integer_value(id) == request;
    if (!*ret_answer) {
        if (!trainer->events) trainer->events = json_array();
        json_array_append(trainer->events, frame->message);
        return CAIRN_OK;
    }
    if (strcmp(frame->name, "error") != 0) return CAIRN_OK;
    const char *slug = json_string_value(json_object_get(frame->message, "code"));
    const char *text = json_string_value(json_object_get(frame->message, "message"));
    return cairn_fail(&trainer->err, cairn_code_from_slug(slug ? slug : "internal"), "%s",
                      text ? text : "");
}

static enum cairn_code await_answer(struct cairn_trainer *trainer, int64_t request,
                                    struct cairn_frame *ret) {
    uint64_t deadline_ms = cairn_mono_ms() + HANG_MS;
    for (;;) {
        CAIRN_AUTO(frame) frame = {0};
        bool answer = false;
        if (!next_frame(trainer, deadline_ms, &frame)) return trainer->err.code;
        enum cairn_code code = keep_or_take(trainer, &frame, request, &answer);
        if (!answer) continue;
        if (code == CAIRN_OK && ret) {
            *ret = frame;
            frame = (struct cairn_frame){0};
        }
        return code;
    }
}

enum cairn_code trainer_ask(struct cairn_trainer *trainer, json_t *take_message,
                            struct cairn_view blob, const int *fds, size_t fd_count,
                            struct cairn_frame *ret) {
    int64_t request = ++trainer->request;
    json_object_set_new(take_message, "id", json_integer(request));
    if (!trainer_send(trainer, take_message, blob, fds, fd_count)) return trainer->err.code;
    return await_answer(trainer, request, ret);
}

json_t *trainer_call(struct cairn_trainer *trainer, json_t *take_message) {
    CAIRN_AUTO(frame) frame = {0};
    if (trainer_ask(trainer, take_message, nothing, NULL, 0, &frame) != CAIRN_OK) return NULL;
    return json_incref(frame.message);
}

static json_t *find_event(struct cairn_trainer *trainer, const char *name, uint32_t save) {
    for (size_t i = 0; i < json_array_size(trainer->events); i++) {
        json_t *event = json_array_get(trainer->events, i);
        const char *found = json_string_value(json_object_get(event, "t"));
        const json_t *number = json_object_get(event, "save");
        if (!found || strcmp(found, name) != 0) continue;
        if (save != UINT32_MAX && json_integer_value(number) != save) continue;
        json_incref(event);
        json_array_remove(trainer->events, i);
        return event;
    }
    return NULL;
}

json_t *trainer_event(struct cairn_trainer *trainer, const char *name, uint32_t save, uint32_t ms) {
    uint64_t deadline_ms = cairn_mono_ms() + ms;
    for (;;) {
        json_t *event = find_event(trainer, name, save);
        if (event) return event;
        CAIRN_AUTO(frame) frame = {0};
        bool answer = false;
        if (!next_frame(trainer, deadline_ms, &frame)) return NULL;
        (void)!keep_or_take(trainer, &frame, -1, &answer);
    }
}

bool trainer_comes(struct cairn_trainer *trainer, const char *name, uint32_t save) {
    CAIRN_AUTO_JSON json_t *event = trainer_event(trainer, name, save, HANG_MS);
    return event != NULL;
}

bool trainer_bye(struct cairn_trainer *trainer) {
    CAIRN_AUTO_JSON json_t *ok = trainer_call(trainer, json_pack("{s:s}", "t", "bye"));
    return ok && trainer_is_cut(trainer, HANG_MS);
}

const char *trainer_verdict(struct cairn_trainer *trainer, uint32_t save, uint32_t ms,
                            char ret[32]) {
    CAIRN_AUTO_JSON json_t *event = trainer_event(trainer, "verdict", save, ms);
    const char *state = json_string_value(json_object_get(event, "state"));
    snprintf(ret, 32, "%s", state ? state : "none");
    if (event && strcmp(ret, "committed") != 0)
        printf("  verdict: %s\n", json_string_value(json_object_get(event, "message")));
    return ret;
}

/* ---- opening ---- */

bool trainer_hello(struct cairn_trainer *trainer, const struct trainer_options *options) {
    trainer->opened = *options;
    if (cairn_net_connect_unix(options->socket, &trainer->fd, &trainer->err) != CAIRN_OK)
        return false;
    trainer->rank = options->rank;
    trainer->world_size = options->world_size ? options->world_size : 1;
    if (!trainer->proc[0]) cairn_uuid_random(trainer->proc);
    uint32_t local = options->local_world_size ? options->local_world_size : 1;
    int socket_max = options->socket_max ? options->socket_max : CAIRN_SOCKET_VERSION_MAX;
    CAIRN_AUTO_JSON json_t *welcome = trainer_call(
        trainer,
        json_pack("{s:s, s:i, s:i, s:s, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:o*}",
                  "t", "hello", "min", CAIRN_SOCKET_VERSION_MIN, "max", socket_max, "client",
                  "test", "pid", (json_int_t)getpid(), "run",
                  options->run ? options->run : "llm/seven", "rank", (json_int_t)trainer->rank,
                  "world_size", (json_int_t)trainer->world_size, "local_rank",
                  (json_int_t)trainer->rank, "local_world_size", (json_int_t)local, "bytes",
                  (json_int_t)(options->bytes ? options->bytes : 4 * CAIRN_MIB), "node_bytes",
                  (json_int_t)0, "read_only", !options->job, "proc", trainer->proc, "numa_node",
                  options->numa ? json_integer(options->numa - 1) : NULL));
    const char *session = json_string_value(json_object_get(welcome, "session"));
    snprintf(trainer->session, sizeof(trainer->session), "%s", session ? session : "");
    return welcome != NULL;
}

static bool open_attempt(struct cairn_trainer *trainer, const struct trainer_options *options) {
    snprintf(trainer->job, sizeof(trainer->job), "%s", options->job);
    CAIRN_AUTO_JSON json_t *attempted = trainer_call(
        trainer, json_pack("{s:s, s:s, s:s, s:s, s:i, s:O?}", "t", "attempt", "job", options->job,
                           "resume", options->resume ? options->resume : "latest", "incarnation",
                           options->incarnation ? options->incarnation : "", "wait_staged_ms",
                           options->wait_staged_ms ? (int)options->wait_staged_ms : 10000, "counts",
                           trainer->counts));
    const char *nonce = json_string_value(json_object_get(attempted, "nonce"));
    snprintf(trainer->nonce, sizeof(trainer->nonce), "%s", nonce ? nonce : "");
    trainer->attempt = (uint64_t)json_integer_value(json_object_get(attempted, "attempt"));
    const char *resumed = json_string_value(json_object_get(attempted, "resume_version"));
    snprintf(trainer->resumed, sizeof(trainer->resumed), "%s", resumed ? resumed : "");
    return attempted != NULL;
}

bool trainer_request_slabs(struct cairn_trainer *trainer, uint32_t wait_ms) {
    return trainer_send(trainer,
                        json_pack("{s:s, s:i, s:I}", "t", "slabs", "wait_staged_ms", (int)wait_ms,
                                  "id", (json_int_t)++trainer->request),
                        nothing, NULL, 0);
}

bool trainer_take_slabs(struct cairn_trainer *trainer) {
    CAIRN_AUTO(frame) frame = {0};
    if (await_answer(trainer, trainer->request, &frame) != CAIRN_OK) return false;
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(frame.message, "bytes"));
    for (size_t i = 0; i < frame.fd_count; i++) {
        int fd = frame.fds[i];
        frame.fds[i] = -1;
        if (cairn_slab_attach(fd, bytes, true, &trainer->slabs[i], &trainer->err) != CAIRN_OK)
            return false;
        trainer->slab_count++;
    }
    CAIRN_AUTO_JSON json_t *ok = trainer_call(trainer, json_pack("{s:s}", "t", "mapped"));
    return ok != NULL;
}

bool trainer_open(struct cairn_trainer *trainer, const struct trainer_options *options) {
    bool ok = trainer_hello(trainer, options);
    if (ok && options->job) ok = open_attempt(trainer, options);
    uint32_t wait_ms = options->slabs_wait_ms ? options->slabs_wait_ms : 1000;
    if (ok && options->job && !options->no_slabs)
        ok = trainer_request_slabs(trainer, wait_ms) && trainer_take_slabs(trainer);
    if (!ok) fprintf(stderr, "trainer: %s\n", trainer->err.message);
    return ok;
}

/* ---- saving ---- */

bool trainer_begin(struct cairn_trainer *trainer, uint64_t step, uint32_t n,
                   struct trainer_save *ret) {
    CAIRN_AUTO_JSON json_t *begun =
        trainer_call(trainer, json_pack("{s:s, s:I, s:I, s:s, s:b, s:n, s:n, s:n}", "t", "begin",
                                        "step", (json_int_t)step, "n", (json_int_t)n, "on_exists",
                                        "error", "skip", 0, "format", "labels", "meta"));
    const char *version = json_string_value(json_object_get(begun, "version"));
    uint32_t number = (uint32_t)json_integer_value(json_object_get(begun, "save"));
    *ret = (struct trainer_save){.number = number, .step = step, .n = n};
    ret->owner = (uint64_t)json_integer_value(json_object_get(begun, "owner"));
    snprintf(ret->version, sizeof(ret->version), "%s", version ? version : "");
    return begun != NULL;
}

bool trainer_staged(struct cairn_trainer *trainer, const struct trainer_save *save, size_t shard) {
    uint64_t bytes = save->shards[shard].bytes;
    const uint8_t *data = trainer->slabs[save->slab].data + save->shards[shard].offset;
    uint8_t blob[4 * 64];
    size_t count = 0;
    for (uint64_t at = 0; at < bytes; at += CAIRN_BLOCK_BYTES)
        cairn_store_u32le(
            blob + 4 * count++,
            cairn_crc32c(0, data + at, (size_t)cairn_min_u64(CAIRN_BLOCK_BYTES, bytes - at)));
    return trainer_send(trainer,
                        json_pack("{s:s, s:I, s:I, s:I}", "t", "staged", "save",
                                  (json_int_t)save->number, "shard", (json_int_t)shard, "bytes",
                                  (json_int_t)bytes),
                        (struct cairn_view){blob, 4 * count}, NULL, 0);
}

bool trainer_stage(struct cairn_trainer *trainer, struct trainer_save *save, uint32_t slab,
                   size_t shard_count, uint64_t bytes) {
    CAIRN_AUTO_JSON json_t *shards = json_array();
    uint64_t offset = 0;
    save->slab = slab;
    save->shard_count = shard_count;
    for (size_t i = 0; i < shard_count; i++) {
        if (trainer->shard_name)
            snprintf(save->shards[i].name, sizeof(save->shards[i].name), "%s", trainer->shard_name);
        else
            snprintf(save->shards[i].name, sizeof(save->shards[i].name), "rank-%05u/part-%zu.bin",
                     trainer->rank, i);
        save->shards[i].offset = offset;
        save->shards[i].bytes = bytes;
        uint8_t *data = trainer->slabs[slab].data + offset;
        uint64_t seed = trainer->rank * 16 + i;
        for (uint64_t k = 0; k < bytes; k++) data[k] = trainer_byte(seed, k);
        json_array_append_new(shards, json_pack("{s:s, s:s, s:I, s:I}", "name",
                                                save->shards[i].name, "kind", "raw", "offset",
                                                (json_int_t)offset, "bytes", (json_int_t)bytes));
        offset = cairn_round_up(offset + bytes, 4096);
    }
    CAIRN_AUTO_JSON json_t *ok =
        trainer_call(trainer, json_pack("{s:s, s:I, s:I, s:I, s:O}", "t", "stage", "save",
                                        (json_int_t)save->number, "slab", (json_int_t)slab, "owner",
                                        (json_int_t)save->owner, "shards", shards));
    bool sent = ok != NULL;
    for (size_t i = 0; sent && i + trainer->copies_later < shard_count; i++)
        sent = trainer_staged(trainer, save, i);
    return sent;
}

bool trainer_seal(struct cairn_trainer *trainer, const struct trainer_save *save) {
    CAIRN_AUTO_JSON json_t *sealed =
        trainer_call(trainer, json_pack("{s:s, s:I, s:[]}", "t", "seal", "save",
                                        (json_int_t)save->number, "replicated"));
    return sealed != NULL;
}

bool trainer_fail(struct cairn_trainer *trainer, uint32_t save, const char *reason) {
    CAIRN_AUTO_JSON json_t *ok =
        trainer_call(trainer, json_pack("{s:s, s:I, s:s}", "t", "fail", "save", (json_int_t)save,
                                        "reason", reason));
    return ok != NULL;
}

enum cairn_code trainer_file(struct cairn_trainer *trainer, uint32_t save, const char *name, int fd,
                             uint64_t bytes) {
    CAIRN_AUTO(frame) frame = {0};
    return trainer_ask(trainer,
                       json_pack("{s:s, s:I, s:s, s:I}", "t", "file", "save", (json_int_t)save,
                                 "name", name, "bytes", (json_int_t)bytes),
                       nothing, &fd, 1, &frame);
}

bool trainer_save(struct cairn_trainer *trainer, uint64_t step, uint32_t slab, size_t shard_count,
                  uint64_t bytes, struct trainer_save *ret) {
    return trainer_begin(trainer, step, 1, ret) &&
           trainer_stage(trainer, ret, slab, shard_count, bytes) && trainer_seal(trainer, ret);
}

bool trainer_offer(struct cairn_trainer *trainer, const struct trainer_save *saves, size_t count,
                   bool sealed, char states[][32]) {
    const struct trainer_options options = trainer->opened;
    trainer_hang_up(trainer);
    char old[CAIRN_UUID_TEXT_BYTES];
    memcpy(old, trainer->session, sizeof(old));
    if (!trainer_hello(trainer, &options)) return false;
    CAIRN_AUTO_JSON json_t *slabs = json_array();
    CAIRN_AUTO_JSON json_t *list = json_array();
    int fds[2] = {-1, -1};
    for (uint32_t i = 0; i < trainer->slab_count; i++) {
        const struct cairn_slab *slab = &trainer->slabs[i];
        uint64_t owner = 0; /* the last of the offered saves that used it */
        for (size_t k = 0; k < count; k++)
            if (saves[k].slab == i) owner = saves[k].owner;
        fds[i] = slab->fd;
        json_array_append_new(
            slabs, json_pack("{s:I, s:I, s:I, s:I}", "bytes", (json_int_t)slab->size_bytes,
                             "device", (json_int_t)slab->device, "inode", (json_int_t)slab->inode,
                             "owner", (json_int_t)owner));
    }
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:I, s:I, s:s, s:I, s:I, s:b}", "save",
                                              (json_int_t)saves[i].number, "slab",
                                              (json_int_t)saves[i].slab, "version",
                                              saves[i].version, "step", (json_int_t)saves[i].step,
                                              "n", (json_int_t)saves[i].n, "sealed", sealed));
    CAIRN_AUTO(frame) frame = {0};
    enum cairn_code code = trainer_ask(
        trainer,
        json_pack("{s:s, s:s, s:s, s:I, s:s, s:I, s:s, s:s, s:O, s:O, s:I, s:O?}", "t", "offer",
                  "session", old, "run", "llm/seven", "attempt", (json_int_t)trainer->attempt,
                  "nonce", trainer->nonce, "rank", (json_int_t)trainer->rank, "job", trainer->job,
                  "proc", trainer->proc, "slabs", slabs, "saves", list, "bytes",
                  (json_int_t)4194304, "counts", trainer->counts),
        nothing, fds, trainer->slab_count, &frame);
    if (code != CAIRN_OK) fprintf(stderr, "offer: %s\n", trainer->err.message);
    const json_t *answers = json_object_get(frame.message, "saves");
    for (size_t i = 0; i < count && code == CAIRN_OK; i++) {
        const char *state = json_string_value(json_object_get(json_array_get(answers, i), "state"));
        snprintf(states[i], 32, "%s", state ? state : "none");
    }
    return code == CAIRN_OK;
}

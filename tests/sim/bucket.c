/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a request to the store and back: one fiber each, of the world's process, so that it
 * goes on when its sender is killed. */
#include "tests/sim/bucket.h"

#include <sys/mman.h>

#include "common/crc.h"
#include "common/hooks.h"
#include "tests/sim/world.h"

#define APPETITE 4
#define LATE_US_MAX UINT64_C(30000000)

struct sim_store_faults sim_store_faults;
struct sim_bucket sim_bucket = {.page_entries = 1000};
struct sim_bucket sim_bucket_wrong = {.page_entries = 1000};
int sim_bucket_wrong_node = -1;

struct store {
    struct cairn_store base;
    struct sim_bucket *bucket;
};
struct flight {
    struct cairn_store_request *request; /* NULL: nobody waits any more */
    struct worker *worker;
    struct sim_process *process;
    struct sim_sent sent;
    struct sim_answer answer;
    struct flight *next;
};
struct worker {
    struct cairn_store_worker base;
    struct flight *flights, *done;
    bool woken;
};

/* ---- a request as it is sent ---- */

static void copy_text(char *to, size_t capacity, const char *from) {
    snprintf(to, capacity, "%s", from ? from : "");
}

static void write_sent(struct sim_sent *sent, const struct cairn_store_request *request) {
    *sent = (struct sim_sent){.op = request->op,
                              .key = strdup(request->key),
                              .page = request->page ? strdup(request->page) : NULL,
                              .create = request->create,
                              .up_to = request->up_to,
                              .has_crc32c = request->has_crc32c,
                              .crc32c = request->crc32c,
                              .part_number = request->part_number,
                              .offset = request->offset,
                              .length = request->length,
                              .body_bytes = request->body.size,
                              .part_count = request->part_count,
                              .deletion_count = request->deletion_count};
    copy_text(sent->token, sizeof sent->token, request->token);
    copy_text(sent->upload_id, sizeof sent->upload_id, request->upload_id_in);
    if (request->op == CAIRN_STORE_GET) copy_text(sent->etag, sizeof sent->etag, request->etag);
    sent->body = malloc(request->body.size + 1);
    if (request->op == CAIRN_STORE_UPLOAD_COMPLETE) {
        sent->parts = calloc(request->part_count + 1, sizeof *sent->parts);
        memcpy(sent->parts, request->parts, request->part_count * sizeof *sent->parts);
    }
    sent->deletions = calloc(request->deletion_count + 1, sizeof *sent->deletions);
    for (size_t i = 0; i < request->deletion_count; i++)
        sent->deletions[i] = strdup(request->deletions[i].key);
}

static void tear_up(struct flight *flight) {
    struct sim_sent *sent = &flight->sent;
    for (size_t i = 0; i < sent->deletion_count; i++) free(sent->deletions[i]);
    free(sent->deletions);
    free(sent->parts);
    free(sent->body);
    free(sent->page);
    free(sent->key);
    free(flight->answer.bytes);
    free(flight->answer.parts);
    cairn_store_listing_release(&flight->answer.listing);
    free(flight);
}

/* ---- the way there and back ---- */

static bool is_connected(const struct flight *flight) {
    return flight->request && flight->process->alive;
}

static bool ends_with(const char *text, const char *end) {
    size_t size = strlen(text), tail = strlen(end);
    return size >= tail && !strcmp(text + size - tail, end);
}

static void travel(const struct flight *flight, bool there) {
    const struct sim_store_faults *faults = &sim_store_faults;
    uint64_t us = sim_between(faults->us_min, faults->us_max);
    if (there && flight->sent.op == CAIRN_STORE_PUT &&
        ends_with(flight->sent.key, "committed.json"))
        us += sim_below(faults->record_us_max);
    if (there && flight->sent.op == CAIRN_STORE_HEAD) us += sim_below(faults->head_us_max);
    sim_sleep_us(us);
    const struct sim_process *process = flight->process;
    const uint64_t *away_us = process->kind == SIM_UPLOADER
                                  ? &faults->node_away_until_us[process->number]
                                  : &faults->away_until_us;
    while (faults->away_until_us > sim_now_us() || *away_us > sim_now_us())
        sim_sleep_us(cairn_max_u64(faults->away_until_us, *away_us) - sim_now_us() + 1);
}

/* Q20: was its memory given back meanwhile? */
static bool has_memory(const struct flight *flight) {
    const struct cairn_view *body = &flight->request->body;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)body->data / page * page;
    if (!body->size || !msync((void *)from, (uintptr_t)body->data + body->size - from, MS_ASYNC))
        return true;
    sim_violation("Q20: a request carries bytes of %s whose memory was given back",
                  flight->sent.key);
    return false;
}

/* Half of the body at a time: what is written in between is seen. */
static bool send_half(struct flight *flight, bool second) {
    if (!is_connected(flight) || !has_memory(flight)) return false;
    uint64_t half = flight->sent.body_bytes / 2;
    uint64_t from = second ? half : 0, size = second ? flight->sent.body_bytes - half : half;
    if (size)
        memcpy(flight->sent.body + from, (const uint8_t *)flight->request->body.data + from, size);
    return true;
}

static void lose_answer(struct flight *flight) {
    struct sim_answer *answer = &flight->answer;
    answer->code = CAIRN_UNAVAILABLE;
    answer->ambiguous = cairn_store_op_writes(flight->sent.op);
    snprintf(answer->why, sizeof answer->why, "the answer was lost");
}

static bool has_sum(const struct sim_sent *sent) {
    bool body = sent->op == CAIRN_STORE_PUT || sent->op == CAIRN_STORE_UPLOAD_PART;
    return body && sent->has_crc32c;
}

/* store/s3/ and store/dir/ look at the bytes again where the store has not confirmed their sum. */
static void compare_sent(struct flight *flight) {
    const struct cairn_store_request *request = flight->request;
    struct sim_answer *answer = &flight->answer;
    bool applied =
        answer->code == CAIRN_OK || answer->code == CAIRN_PRECONDITION || answer->ambiguous;
    if (!has_sum(&flight->sent) || !applied || sim_store_faults.checks_crc || !CAIRN_RULE(Q42))
        return;
    if (cairn_crc32c(0, request->body.data, request->body.size) == request->crc32c) return;
    answer->code = CAIRN_SOURCE_CHANGED;
    answer->ambiguous = false;
    snprintf(answer->why, sizeof answer->why, "the bytes that were sent are not those staged");
}

/* Q20: nobody writes to what a request carries, but for the fault that does. */
static void check_untouched(const struct flight *flight) {
    const struct sim_sent *sent = &flight->sent;
    if (!has_sum(sent) || sim_has(SIM_TORN) ||
        cairn_crc32c(0, sent->body, sent->body_bytes) == sent->crc32c)
        return;
    sim_violation("Q20: the bytes of %s changed while a request carried them", sent->key);
}

static void hand_over(struct flight *flight) {
    struct worker *worker = flight->worker;
    for (struct flight **at = &worker->flights; *at; at = &(*at)->next) {
        if (*at != flight) continue;
        *at = flight->next;
        break;
    }
    struct flight **last = &worker->done;
    while (*last) last = &(*last)->next;
    flight->next = NULL;
    *last = flight;
    sim_wake_all(worker);
}

static void *fly(void *argument) {
    struct flight *flight = argument;
    struct sim_bucket *bucket = ((struct store *)flight->worker->base.store)->bucket;
    const struct sim_store_faults *faults = &sim_store_faults;
    bool changes = cairn_store_op_writes(flight->sent.op);
    sim_sleep_us(sim_below(faults->us_max / 2 + 1));
    bool arrived = send_half(flight, false);
    if (arrived) travel(flight, true);
    arrived = arrived && send_half(flight, true);
    if (arrived) check_untouched(flight);
    if (arrived && changes && sim_chance(faults->refused)) {
        flight->answer.code = CAIRN_UNAVAILABLE;
        snprintf(flight->answer.why, sizeof flight->answer.why, "500 internal error");
    } else if (arrived && changes && sim_chance(faults->late)) {
        lose_answer(flight);
        if (is_connected(flight)) hand_over(flight);
        struct sim_sent sent = flight->sent; /* the flight is its sender's now */
        struct sim_answer nobodys = {0};
        flight->sent = (struct sim_sent){0};
        sim_sleep_us(sim_between(1000, LATE_US_MAX));
        sim_note("late: store operation %d on %s", (int)sent.op, sent.key);
        sim_bucket_apply(bucket, &sent, &nobodys);
        return NULL;
    } else if (arrived) {
        sim_bucket_apply(bucket, &flight->sent, &flight->answer);
        if (changes && sim_chance(faults->lost)) lose_answer(flight);
    }
    if (is_connected(flight)) travel(flight, false);
    if (is_connected(flight)) compare_sent(flight);
    if (is_connected(flight)) hand_over(flight);
    return NULL;
}

/* ---- the vtable ---- */

static void submit(struct cairn_store_worker *base, struct cairn_store_request *request) {
    struct worker *worker = (struct worker *)base;
    struct flight *flight = calloc(1, sizeof *flight);
    flight->request = request;
    flight->worker = worker;
    flight->process = sim_self();
    write_sent(&flight->sent, request);
    flight->next = worker->flights;
    worker->flights = flight;
    sim_spawn_alone(sim_process_of(1), fly, flight);
}

static void take_lists(struct cairn_store_request *request, struct sim_answer *answer) {
    if (request->listing && answer->code == CAIRN_OK) {
        cairn_store_listing_release(request->listing);
        *request->listing = answer->listing;
        answer->listing = (struct cairn_store_listing){0};
    }
    for (size_t i = 0; i < request->deletion_count && answer->code == CAIRN_OK; i++)
        request->deletions[i].deleted = true;
    if (request->op != CAIRN_STORE_UPLOAD_PARTS || answer->code != CAIRN_OK) return;
    size_t count = (size_t)cairn_min_u64(answer->part_count, request->part_count);
    memcpy(request->parts, answer->parts, count * sizeof *request->parts);
    request->part_count = count;
}

static void end_request(struct cairn_store_request *request, struct sim_answer *answer) {
    request->code = answer->code;
    request->ambiguous = answer->ambiguous;
    request->tries = 1;
    request->worker_private = NULL;
    if (answer->code)
        cairn_fail(&request->error, answer->code, "%s: %s", request->key, answer->why);
    memcpy(request->etag, answer->etag, sizeof answer->etag);
    memcpy(request->upload_id, answer->upload_id, sizeof answer->upload_id);
    memcpy(request->object_token, answer->token, sizeof answer->token);
    request->object_bytes = answer->object_bytes;
    request->object_has_crc32c = answer->has_crc32c;
    request->object_crc32c = answer->crc32c;
    if (answer->bytes && answer->code == CAIRN_OK) {
        if (request->up_to)
            request->length =
                cairn_min_u64(request->length, answer->object_bytes - request->offset);
        memcpy(request->into, answer->bytes, request->length);
        if (request->wants_crc32c)
            request->got_crc32c = cairn_crc32c(0, answer->bytes, request->length);
    }
    take_lists(request, answer);
    request->done(request);
}

static void cancel(struct cairn_store_worker *base, struct cairn_store_request *request) {
    struct worker *worker = (struct worker *)base;
    struct sim_answer cancelled = {.code = CAIRN_CANCELLED, .why = "cancelled", .ambiguous = true};
    for (struct flight *at = worker->done; at; at = at->next) {
        if (at->request != request) continue;
        at->request = NULL; /* it had just come back */
        end_request(request, &at->answer);
        return;
    }
    for (struct flight **at = &worker->flights; *at; at = &(*at)->next) {
        if ((*at)->request != request) continue;
        (*at)->request = NULL;
        *at = (*at)->next;
        end_request(request, &cancelled);
        return;
    }
}

static enum cairn_code poll_worker(struct cairn_store_worker *base, uint32_t timeout_ms,
                                   struct cairn_error *err) {
    struct worker *worker = (struct worker *)base;
    (void)err;
    uint64_t until_us = sim_now_us() + timeout_ms * UINT64_C(1000);
    if (!worker->done && !worker->woken && timeout_ms) (void)sim_wait(worker, until_us);
    worker->woken = false;
    while (worker->done) {
        struct flight *flight = worker->done;
        worker->done = flight->next;
        struct cairn_store_request *request = flight->request;
        flight->request = NULL;
        if (request) end_request(request, &flight->answer);
        tear_up(flight);
    }
    return CAIRN_OK;
}

static void wake(struct cairn_store_worker *base) {
    ((struct worker *)base)->woken = true;
    sim_wake_all(base);
}

static uint32_t appetite(const struct cairn_store_worker *base) {
    (void)base;
    return APPETITE;
}

static enum cairn_code worker_new(struct cairn_store *store, struct cairn_store_worker **ret,
                                  struct cairn_error *err) {
    struct worker *worker = calloc(1, sizeof *worker);
    if (!worker) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a worker");
    worker->base.store = store;
    *ret = &worker->base;
    return CAIRN_OK;
}

/* Flights keep their worker, so it is never freed. */
static void worker_free(struct cairn_store_worker *base) {
    struct worker *worker = (struct worker *)base;
    while (worker->done && worker->done->request) cancel(base, worker->done->request);
    while (worker->flights) cancel(base, worker->flights->request);
}

static void store_free(struct cairn_store *store) {
    (void)store;
}

static const struct cairn_store_vtable vtable = {.free = store_free,
                                                 .worker_new = worker_new,
                                                 .worker_free = worker_free,
                                                 .submit = submit,
                                                 .cancel = cancel,
                                                 .poll = poll_worker,
                                                 .wake = wake,
                                                 .appetite = appetite};

enum cairn_code __wrap_cairn_store_open(const struct cairn_store_options *options,
                                        struct cairn_store **ret, struct cairn_error *err);
enum cairn_code __wrap_cairn_store_open(const struct cairn_store_options *options,
                                        struct cairn_store **ret, struct cairn_error *err) {
    (void)err;
    const struct sim_store_faults *faults = &sim_store_faults;
    struct sim_process *self = sim_self();
    bool wrong = self->kind == SIM_UPLOADER && self->number == sim_bucket_wrong_node;
    struct store *store = calloc(1, sizeof *store);
    store->bucket = wrong ? &sim_bucket_wrong : &sim_bucket;
    store->base.vtable = &vtable;
    snprintf(store->base.url, sizeof store->base.url, "%s", options->url);
    store->base.profile = (struct cairn_store_profile){.create_only_put = faults->create_only,
                                                       .create_only_complete = faults->create_only,
                                                       .part_checksum = faults->checks_crc,
                                                       .head_has_token = faults->keeps_tokens,
                                                       .lists_uploads = faults->lists_uploads,
                                                       .lists_part_checksums = faults->checks_crc,
                                                       .part_bytes_min = 1,
                                                       .part_bytes_max = CAIRN_GIB,
                                                       .part_count_max = 10000,
                                                       .object_bytes_max = CAIRN_GIB};
    *ret = &store->base;
    return CAIRN_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_get --store URL --bytes N [--key served] [--range N] [--workers N] [--flying N]
 *
 * Restore's data plane: workers read ranges of one object into a touched slab and sum each.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/measure.h"
#include "common/crc.h"
#include "common/memory.h"
#include "store/open.h"
#include "store/s3/s3.h"

#define WORKERS_MAX 16
#define FLYING_MAX 64

struct get {
    struct cairn_store *store;
    struct cairn_slab slab;
    const char *key;
    uint64_t bytes, range_bytes;
    uint32_t range_count, worker_count, flying_max, *crcs;
    atomic_uint next_range, failed;
};
struct flight {
    struct cairn_store_request request;
    struct worker *worker;
    uint32_t range;
    bool flying;
};
struct worker {
    struct get *get;
    struct cairn_store_worker *store;
    struct flight flights[FLYING_MAX];
    uint32_t flying;
};

static uint64_t size_of(const struct get *get, uint32_t range) {
    return cairn_min_u64(get->range_bytes, get->bytes - range * get->range_bytes);
}

static void done(struct cairn_store_request *request) {
    struct flight *flight = request->owner;
    struct get *get = flight->worker->get;
    if (request->code == CAIRN_OK) {
        get->crcs[flight->range] = request->got_crc32c;
    } else {
        fprintf(stderr, "bench_get: %s\n", request->error.message);
        atomic_store(&get->failed, 1);
    }
    flight->flying = false;
    flight->worker->flying--;
}

static bool launch(struct worker *worker) {
    struct get *get = worker->get;
    uint32_t most = cairn_store_appetite(worker->store);
    if (most > get->flying_max) most = get->flying_max;
    for (uint32_t i = 0; i < FLYING_MAX && worker->flying < most; i++) {
        struct flight *flight = &worker->flights[i];
        if (flight->flying) continue;
        uint32_t range = atomic_fetch_add(&get->next_range, 1);
        if (range >= get->range_count) return false;
        flight->worker = worker;
        flight->range = range;
        flight->flying = true;
        uint64_t first = range * get->range_bytes;
        flight->request = (struct cairn_store_request){.op = CAIRN_STORE_GET,
                                                       .key = get->key,
                                                       .offset = first,
                                                       .length = size_of(get, range),
                                                       .into = get->slab.data + first,
                                                       .wants_crc32c = true,
                                                       .done = done,
                                                       .owner = flight};
        worker->flying++;
        cairn_store_submit(worker->store, &flight->request);
    }
    return true;
}

static void *worker_main(void *argument) {
    struct worker *worker = argument;
    struct cairn_error error = {0};
    while ((launch(worker) || worker->flying) && !atomic_load(&worker->get->failed))
        if (cairn_store_poll(worker->store, 1000, &error) != CAIRN_OK) break;
    return NULL;
}

static enum cairn_code once(void *owner, struct bench_result *ret, struct cairn_error *err) {
    struct worker *workers = owner;
    struct get *get = workers->get;
    pthread_t threads[WORKERS_MAX];
    uint32_t started = 0;
    atomic_store(&get->next_range, 0);
    while (started < get->worker_count &&
           !pthread_create(&threads[started], NULL, worker_main, &workers[started]))
        started++;
    for (uint32_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    if (atomic_load(&get->failed) || started < get->worker_count)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "a range failed");
    uint32_t crc32c = 0;
    for (uint32_t i = 0; i < get->range_count; i++)
        crc32c = cairn_crc32c_combine(crc32c, get->crcs[i], size_of(get, i));
    *ret = (struct bench_result){
        .bytes = get->bytes, .crc32c = crc32c, .memory_bytes = bench_private_bytes()};
    return CAIRN_OK;
}

static enum cairn_code prepare(struct get *get, struct worker *workers, int count, char **values,
                               struct cairn_error *err) {
    struct cairn_store_s3_options s3 = {
        .region = "us-east-1",
        .style = CAIRN_S3_STYLE_PATH,
        .endpoint = bench_flag(count, values, "--endpoint", NULL),
        .congestion = "cubic",
        .connections_max = (uint32_t)bench_flag_number(count, values, "--connections", 0),
    };
    struct cairn_store_options options = {
        .url = bench_flag(count, values, "--store", NULL), .read_only = true, .s3 = &s3};
    if (!options.url) return cairn_fail(err, CAIRN_INVALID, "--store URL is needed");
    get->key = bench_flag(count, values, "--key", "served");
    get->bytes = bench_flag_number(count, values, "--bytes", CAIRN_MIB * 1024);
    get->range_bytes = bench_flag_number(count, values, "--range", 8 * CAIRN_MIB);
    get->range_count = (uint32_t)cairn_div_up(get->bytes, get->range_bytes);
    get->worker_count =
        (uint32_t)cairn_min_u64(WORKERS_MAX, bench_flag_number(count, values, "--workers", 2));
    get->flying_max =
        (uint32_t)cairn_min_u64(FLYING_MAX, bench_flag_number(count, values, "--flying", 4));
    get->crcs = calloc(get->range_count, sizeof *get->crcs);
    if (!get->crcs) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for checksums");
    cairn_store_register(CAIRN_STORE_SCHEME_S3, cairn_store_s3_open);
    CAIRN_TRY(cairn_store_open(&options, &get->store, err));
    CAIRN_TRY(cairn_slab_create("bench-get", get->bytes, false, &get->slab, err));
    for (uint32_t i = 0; i < get->worker_count; i++) {
        workers[i].get = get;
        CAIRN_TRY(cairn_store_worker_new(get->store, &workers[i].store, err));
    }
    return CAIRN_OK;
}

int main(int count, char **values) {
    static struct get get;
    static struct worker workers[WORKERS_MAX];
    struct cairn_error error = {0};
    if (prepare(&get, workers, count, values, &error) != CAIRN_OK) {
        fprintf(stderr, "bench_get: %s\n", error.message);
        return 2;
    }
    int status = bench_loop(once, workers);
    for (uint32_t i = 0; i < get.worker_count; i++) cairn_store_worker_free(workers[i].store);
    cairn_store_free(get.store);
    cairn_slab_release(&get.slab);
    return status;
}

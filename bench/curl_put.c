/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_curl_put --url https://HOST:PORT --ca FILE --bytes N [--part N] [--threads 2]
 *
 * Reference for https, with libcurl tuned: one easy handle and one kept connection per thread, the
 * largest upload buffer, no Expect, and each part's CRC32C before it is sent.
 */
#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "common/buf.h"
#include "common/crc.h"
#include "common/memory.h"
#include "common/text.h"

#define THREADS_MAX 16
#define UPLOAD_BUFFER_BYTES 2097152L /* libcurl's maximum */

struct put {
    struct cairn_slab slab;
    const char *url, *ca;
    uint64_t bytes, part_bytes;
    uint32_t part_count, thread_count, *crcs;
    char upload[32];
    CURL *easies[THREADS_MAX];
    atomic_uint next_part, failed;
};
struct put_thread {
    struct put *put;
    CURL *easy;
};

static size_t on_reply(char *bytes, size_t one, size_t size, void *owner) {
    struct cairn_buf *reply = owner;
    (void)one;
    return cairn_buf_append(reply, bytes, size, NULL) == CAIRN_OK ? size : 0;
}

static bool send_one(struct put *put, CURL *easy, const char *method, const char *query,
                     const char *header, struct cairn_view body, struct cairn_buf *reply) {
    char url[512];
    long status = 0;
    snprintf(url, sizeof url, "%s/bench/curl?%s", put->url, query);
    struct curl_slist *headers = curl_slist_append(NULL, "Expect:");
    headers = curl_slist_append(headers, "Content-Type:");
    if (header) headers = curl_slist_append(headers, header);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body.size ? body.data : "");
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.size);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_reply);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, reply);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    if (put->ca) curl_easy_setopt(easy, CURLOPT_CAINFO, put->ca);
    CURLcode result = curl_easy_perform(easy);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    if (result != CURLE_OK) fprintf(stderr, "bench_curl_put: %s\n", curl_easy_strerror(result));
    return result == CURLE_OK && status == 200;
}

static uint64_t size_of(const struct put *put, uint32_t part) {
    return cairn_min_u64(put->part_bytes, put->bytes - part * put->part_bytes);
}

static bool send_part(struct put *put, CURL *easy, uint32_t part) {
    struct cairn_view body = {put->slab.data + part * put->part_bytes, size_of(put, part)};
    char query[128], header[128];
    CAIRN_AUTO(buf) text = {0}, reply = {0};
    put->crcs[part] = cairn_crc32c(0, body.data, body.size);
    uint32_t big = __builtin_bswap32(put->crcs[part]);
    if (cairn_base64_encode((struct cairn_view){&big, 4}, &text, NULL) != CAIRN_OK) return false;
    snprintf(query, sizeof query, "partNumber=%u&uploadId=%s", part + 1, put->upload);
    snprintf(header, sizeof header, "x-amz-checksum-crc32c: %s", text.data);
    return send_one(put, easy, "PUT", query, header, body, &reply);
}

static void *thread_main(void *argument) {
    struct put_thread *thread = argument;
    for (;;) {
        uint32_t part = atomic_fetch_add(&thread->put->next_part, 1);
        if (part >= thread->put->part_count) return NULL;
        if (send_part(thread->put, thread->easy, part)) continue;
        atomic_store(&thread->put->failed, 1);
        return NULL;
    }
}

static bool create(struct put *put) {
    CAIRN_AUTO(buf) reply = {0};
    struct cairn_view nothing = {NULL, 0};
    if (!send_one(put, put->easies[0], "POST", "uploads", NULL, nothing, &reply)) return false;
    const char *id = strstr(reply.data, "<UploadId>");
    return id && sscanf(id + 10, "%31[^<]", put->upload) == 1;
}

static bool complete(struct put *put) {
    CAIRN_AUTO(buf) body = {0}, reply = {0};
    char query[128];
    for (uint32_t i = 0; i < put->part_count; i++)
        if (cairn_buf_printf(&body, NULL, "<Part><PartNumber>%u</PartNumber></Part>", i + 1) !=
            CAIRN_OK)
            return false;
    snprintf(query, sizeof query, "uploadId=%s", put->upload);
    return send_one(put, put->easies[0], "POST", query, NULL, cairn_buf_view(&body), &reply);
}

static enum cairn_code once(void *owner, struct bench_result *ret, struct cairn_error *err) {
    struct put *put = owner;
    pthread_t threads[THREADS_MAX];
    struct put_thread arguments[THREADS_MAX];
    atomic_store(&put->next_part, 0);
    atomic_store(&put->failed, 0);
    bool good = create(put);
    for (uint32_t i = 0; good && i < put->thread_count; i++) {
        arguments[i] = (struct put_thread){put, put->easies[i]};
        good = pthread_create(&threads[i], NULL, thread_main, &arguments[i]) == 0;
    }
    for (uint32_t i = 0; good && i < put->thread_count; i++) pthread_join(threads[i], NULL);
    if (!good || atomic_load(&put->failed) || !complete(put))
        return cairn_fail(err, CAIRN_UNAVAILABLE, "the transfer failed");
    uint32_t crc32c = 0;
    for (uint32_t i = 0; i < put->part_count; i++)
        crc32c = cairn_crc32c_combine(crc32c, put->crcs[i], size_of(put, i));
    *ret = (struct bench_result){.bytes = put->bytes, .crc32c = crc32c, .note = LIBCURL_VERSION};
    return CAIRN_OK;
}

int main(int count, char **values) {
    static struct put put;
    struct cairn_error error = {0};
    put.url = bench_flag(count, values, "--url", "");
    put.ca = bench_flag(count, values, "--ca", NULL);
    put.bytes = bench_flag_number(count, values, "--bytes", CAIRN_MIB * 1024);
    put.part_bytes = bench_flag_number(count, values, "--part", 64 * CAIRN_MIB);
    put.thread_count =
        (uint32_t)cairn_min_u64(THREADS_MAX, bench_flag_number(count, values, "--threads", 2));
    put.part_count = (uint32_t)cairn_div_up(put.bytes, put.part_bytes);
    put.crcs = calloc(put.part_count, sizeof *put.crcs);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    for (uint32_t i = 0; i < put.thread_count; i++) put.easies[i] = curl_easy_init();
    if (!put.crcs ||
        cairn_slab_create("bench-curl", put.bytes, false, &put.slab, &error) != CAIRN_OK) {
        fprintf(stderr, "bench_curl_put: %s\n", error.message);
        return 2;
    }
    bench_pattern(put.slab.data, put.bytes);
    return bench_loop(once, &put);
}

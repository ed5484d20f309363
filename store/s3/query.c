/* SPDX-License-Identifier: Apache-2.0 */
/* What the bucket says of itself. Such a request is rare and small, so it goes as a presigned URL
 * over an engine of its own. */
#include "store/s3/query.h"

#include "store/s3/inside.h"
#include "store/s3/probe.h"
#include "store/s3/s3.h"
#include "store/time.h"

#define ASK_MS 10000
#define ASK_BYTES_MAX (256 * CAIRN_KIB)

static void keep_date(struct cairn_http_request *http, struct cairn_view name,
                      struct cairn_view value) {
    char *date = http->owner;
    if (name.size == 4 && !strncasecmp(name.data, "date", 4) && value.size < 64) {
        memcpy(date, value.data, value.size);
        date[value.size] = '\0';
    }
}

static uint32_t ask_ms(const struct cairn_s3_store *store) {
    uint64_t now_ms = cairn_s3_mono_ms(store);
    uint64_t deadline_ms = cairn_s3_probe_deadline_ms(store, ASK_MS);
    return deadline_ms > now_ms ? (uint32_t)(deadline_ms - now_ms) : 1;
}

static enum cairn_code make_url(struct cairn_s3_store *store, const char *subresource,
                                struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO(sigv4_signer) signer = {0};
    uint64_t generation = 0;
    bool expires = false;
    CAIRN_TRY(cairn_s3_signer_update(store, &signer, &generation, 0, &expires, err));
    const struct cairn_s3_presigned what = {.subresource = subresource, .expires_s = ASK_MS / 1000};
    return cairn_s3_presign_get(store, &signer, &what, ret, err);
}

static void compare_clocks(struct cairn_s3_store *store, const char *date, int64_t sent_ms,
                           struct cairn_store_s3_answer *ret) {
    int64_t theirs = 0;
    if (!*date || cairn_s3_time_http(date, &theirs, NULL) != CAIRN_OK) return;
    int64_t middle_ms = (sent_ms + store->clock->wall_ms(store->clock)) / 2;
    ret->has_clock = true;
    ret->clock_ahead_ms = (theirs - middle_ms) / 1000 * 1000;
}

enum cairn_code cairn_store_s3_query(struct cairn_store *base, const char *subresource,
                                     struct cairn_store_s3_answer *ret, struct cairn_error *err) {
    struct cairn_s3_store *store = NULL;
    CAIRN_TRY(cairn_s3_of(base, &store, err));
    const struct cairn_store_s3_options *options = &store->config.options;
    struct cairn_http_options http = {.ca_bundle = options->ca_bundle,
                                      .connect_ms = options->connect_ms,
                                      .interface_name =
                                          options->interface_count ? options->interfaces[0] : NULL};
    CAIRN_AUTO(buf) url = {0};
    char date[64] = "";
    CAIRN_TRY(make_url(store, subresource, &url, err));
    struct cairn_http_engine *engine = NULL;
    CAIRN_TRY(cairn_http_engine_new(&http, &engine, err));
    cairn_buf_clear(&ret->document);
    ret->document.limit = ASK_BYTES_MAX;
    struct cairn_http_request request = {.method = "GET",
                                         .url = url.data,
                                         .reply_buf = &ret->document,
                                         .total_ms = ask_ms(store),
                                         .on_header = keep_date,
                                         .owner = date};
    int64_t sent_ms = store->clock->wall_ms(store->clock);
    enum cairn_code code = cairn_http_perform(engine, &request, err);
    ret->status = request.status;
    compare_clocks(store, date, sent_ms, ret);
    cairn_http_engine_free(engine);
    return code;
}

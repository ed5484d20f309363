/* SPDX-License-Identifier: Apache-2.0 */
/* Is it a store in S3, and where do its requests go? */
#include "store/s3/place.h"

#include <stdio.h>

#include "store/s3/inside.h"

enum cairn_code cairn_s3_of(struct cairn_store *base, struct cairn_s3_store **ret,
                            struct cairn_error *err) {
    if (base->vtable->poll != cairn_s3_poll)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "store %s is not in S3", base->url);
    *ret = (struct cairn_s3_store *)base;
    return CAIRN_OK;
}

bool cairn_store_s3_place(struct cairn_store *base, struct cairn_store_s3_place *ret) {
    struct cairn_s3_store *store = NULL;
    struct cairn_s3_host host;
    if (cairn_s3_of(base, &store, NULL) != CAIRN_OK) return false;
    cairn_lock_take(&store->lock);
    memcpy(ret->region, store->locked.region, sizeof ret->region);
    cairn_lock_give(&store->lock);
    cairn_s3_config_host(&store->config, ret->region, &host);
    snprintf(ret->endpoint, sizeof ret->endpoint, "%s://%s%s", store->config.scheme, host.text,
             store->config.base_path);
    ret->addressing = store->config.by_path ? "path" : "virtual";
    return true;
}

enum cairn_http_tls_fault cairn_store_s3_tls_fault(struct cairn_store *base) {
    struct cairn_s3_store *store = NULL;
    if (cairn_s3_of(base, &store, NULL) != CAIRN_OK) return CAIRN_HTTP_TLS_FINE;
    return (enum cairn_http_tls_fault)atomic_load(&store->tls_fault);
}

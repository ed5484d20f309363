/* SPDX-License-Identifier: Apache-2.0 */
/* documents: whole small objects, by key. */
#include "store/documents.h"

static enum cairn_code get(void *owner, enum cairn_document document, const char *key, bool again,
                           struct cairn_buf *ret, struct cairn_error *err) {
    struct cairn_store_worker *worker = owner;
    CAIRN_AUTO_PTR(store_worker) other = NULL;
    (void)document;
    if (again) CAIRN_TRY(cairn_store_worker_new(worker->store, &other, err));
    return cairn_store_get_small(again ? other : worker, key, ret, err);
}

struct cairn_document_source
cairn_store_documents(struct cairn_store_worker *worker,
                      void (*tell_again)(const char *key, const struct cairn_error *why)) {
    return (struct cairn_document_source){.get = get, .tell_again = tell_again, .owner = worker};
}

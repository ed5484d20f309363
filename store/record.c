/* SPDX-License-Identifier: Apache-2.0 */
/* record: one small object, decoded. */
#include "store/record.h"

#include "api/documents/records.h"

enum cairn_code cairn_store_record_get(struct cairn_store_worker *worker, uint64_t deadline_ms,
                                       struct cairn_store_record *ret, struct cairn_error *err) {
    struct cairn_key key;
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MIB};
    cairn_key_store_json(&key);
    enum cairn_code code = cairn_store_get_small_by(worker, key.text, deadline_ms, &text, err);
    if (code == CAIRN_TOO_LARGE) return cairn_within(err, CAIRN_CORRUPT, "store.json");
    CAIRN_TRY(code);
    return cairn_store_record_decode(cairn_buf_view(&text), ret, err);
}

enum cairn_code cairn_store_record_put(struct cairn_store_worker *worker,
                                       const struct cairn_store_record *record, bool create,
                                       struct cairn_error *err) {
    struct cairn_key key;
    CAIRN_AUTO(buf) text = {0};
    cairn_key_store_json(&key);
    CAIRN_TRY(cairn_store_record_encode(record, &text, err));
    return cairn_store_put_small(worker, key.text, cairn_buf_view(&text), create, err);
}

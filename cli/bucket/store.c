/* SPDX-License-Identifier: Apache-2.0 */
/* Opening what --store names; see store.h. */
#include "cli/bucket/store.h"

#include "store/open.h"
#include "store/record.h"
#include "store/s3/settings.h"

enum cairn_code cairn_cli_store_open_url(const struct cairn_cli *cli, const char *url, bool writes,
                                         struct cairn_store **ret, struct cairn_error *err) {
    struct cairn_store_s3_environment said;
    CAIRN_TRY(cairn_store_s3_environment_load(&said, err));
    uint32_t deadline_ms = (uint32_t)cairn_min_u64(cli->timeout_ms, UINT32_MAX);
    if (deadline_ms) said.choice.options.deadline_ms = deadline_ms;
    struct cairn_store_options options = {
        .url = url, .read_only = !writes, .s3 = &said.choice.options};
    enum cairn_code code = cairn_store_open(&options, ret, err);
    cairn_store_s3_environment_release(&said);
    return code;
}

/* A later release may mean other versions by `latest`, or none, where this one sees some. */
static enum cairn_code check_number(struct cairn_store *store, struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    struct cairn_store_record record;
    struct cairn_error why = {0};
    CAIRN_TRY(cairn_store_worker_new(store, &worker, err));
    enum cairn_code code = cairn_store_record_get(worker, 0, &record, &why);
    bool newer = code == CAIRN_UNSUPPORTED;
    bool away = code == CAIRN_TIMEOUT || code == CAIRN_UNAVAILABLE;
    if (!newer && !away) return CAIRN_OK; /* what is damaged or missing is read around */
    if (err) *err = why;
    if (away) return code; /* what comes next would wait as long again */
    return cairn_within(err, code, "the store was written by a newer release; read it with that");
}

enum cairn_code cairn_cli_store_open(const struct cairn_cli *cli, struct cairn_store **ret,
                                     struct cairn_error *err) {
    struct cairn_store *store = NULL;
    CAIRN_TRY(cairn_cli_store_open_url(cli, cli->store, false, &store, err));
    enum cairn_code code = check_number(store, err);
    if (code)
        cairn_store_free(store);
    else
        *ret = store;
    return code;
}

enum cairn_code cairn_cli_store_check(struct cairn_store_worker *worker, struct cairn_error *err) {
    struct cairn_key key;
    cairn_key_store_json(&key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(worker, &head, err);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_UNAVAILABLE,
                          "the store has no .cairn/store.json: is it mounted, and its path right?");
    return code;
}

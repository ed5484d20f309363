/* SPDX-License-Identifier: Apache-2.0 */
/* Opening what --store names; see store.h. */
#include "cli/store.h"

#include "store/open.h"
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

enum cairn_code cairn_cli_store_open(const struct cairn_cli *cli, struct cairn_store **ret,
                                     struct cairn_error *err) {
    return cairn_cli_store_open_url(cli, cli->store, false, ret, err);
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

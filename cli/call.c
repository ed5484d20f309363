/* SPDX-License-Identifier: Apache-2.0 */
/* Path, connection, answer. */
#include "cli/call.h"

#include "common/text.h"

enum cairn_code cairn_cli_call(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                               struct cairn_cli_call call, json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_cli_connect(cli, &rest, err));
    CAIRN_TRY(cairn_cli_path(ref, call.tail ? call.tail : "", &path, err));
    return cairn_rest_call(rest, call.method ? call.method : "GET", path.data, NULL,
                           call.timeout_ms, ret, err);
}

enum cairn_code cairn_cli_ref_latest(const struct cairn_cli *cli, struct cairn_cli_ref *ret,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], ret, err));
    if (!ret->version[0]) cairn_text_copy(ret->version, sizeof ret->version, "latest");
    return CAIRN_OK;
}

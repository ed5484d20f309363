/* SPDX-License-Identifier: Apache-2.0 */
/* Three calls; see read_lease.h. */
#include "api/read_lease.h"

#include "common/text.h"

#define CALL_MS 5000 /* the caller has work of its own to go on with, and may want to stop */

static enum cairn_code call(const struct cairn_read_lease *lease, struct cairn_rest *rest,
                            const char *method, json_t *take_body, json_t **ret,
                            struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = take_body;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/%s/checkpoints/%s/leases%s%s",
                               lease->name.project, lease->name.run, lease->version.text,
                               lease->id[0] ? "/" : "", lease->id));
    return cairn_rest_call(rest, method, path.data, body, CALL_MS, ret, err);
}

static enum cairn_code take(struct cairn_read_lease *lease, struct cairn_rest *rest,
                            struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_lease_row row = {0};
    json_t *body = CAIRN_PACK(lease_take, .job = lease->job, .ttl_s = lease->ttl_s);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a lease");
    lease->id[0] = '\0';
    CAIRN_TRY(call(lease, rest, "POST", body, &reply, err));
    CAIRN_TRY(cairn_msg_lease_row_read(reply, "", &row, err));
    if (cairn_text_copy(lease->id, sizeof(lease->id), row.lease)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_PROTOCOL, "the server named the lease \"%s\"", row.lease);
}

enum cairn_code cairn_read_lease_keep(struct cairn_read_lease *lease, struct cairn_rest *rest,
                                      struct cairn_error *err) {
    struct cairn_error why = {0};
    if (!lease->id[0]) return take(lease, rest, err);
    json_t *body = CAIRN_PACK(lease_renew, .ttl_s = lease->ttl_s);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a lease");
    enum cairn_code code = call(lease, rest, "PUT", body, NULL, &why);
    if (code == CAIRN_NOT_FOUND) return take(lease, rest, err);
    if (code && err) *err = why;
    return code;
}

enum cairn_code cairn_read_lease_give(struct cairn_read_lease *lease, struct cairn_rest *rest,
                                      struct cairn_error *err) {
    struct cairn_error why = {0};
    if (!lease->id[0]) return CAIRN_OK;
    enum cairn_code code = call(lease, rest, "DELETE", NULL, NULL, &why);
    if (!code || code == CAIRN_NOT_FOUND || code == CAIRN_DELETED) {
        lease->id[0] = '\0';
        return CAIRN_OK;
    }
    if (err) *err = why;
    return code;
}

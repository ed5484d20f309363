/* SPDX-License-Identifier: Apache-2.0 */
/* What several handlers of one save share; see saves.h. */
#include "server/intake/saves.h"

#include <inttypes.h>

enum cairn_code cairn_srv_save_version(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_request *request,
                                       struct cairn_srv_version *ret, struct cairn_error *err) {
    const char *ref = request->params.ref;
    if (!cairn_version_id_valid(cairn_view_of(ref)))
        return cairn_fail(err, CAIRN_INVALID, "writes name the version by its id, not \"%s\"", ref);
    struct cairn_srv_ref wanted = {&request->params.run_name, ref, true};
    return cairn_srv_version_find(tx, &wanted, ret, err);
}

enum cairn_code cairn_srv_save_admit(struct cairn_srv_tx *tx, const struct cairn_grant *grant,
                                     const struct cairn_srv_version *version,
                                     struct cairn_error *err) {
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_admit(tx, grant, &run, err));
    if (grant->attempt != version->attempt)
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "%s was begun by attempt %" PRIu64 ", the grant is of %" PRIu64,
                          version->id.text, version->attempt, grant->attempt);
    return CAIRN_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* POST {C}/verify: is all that belongs to a committed version in the store? A record that is
 * missing is written again from the catalog (Q24), and said. */
#include <inttypes.h>
#include <stdio.h>

#include "api/messages.h"
#include "common/log.h"
#include "server/handlers/request.h"
#include "server/handlers/shards.h"
#include "server/jobs/record.h"
#include "store/audit.h"

#define FINDINGS_MAX 1000 /* of one answer; all are counted */

static void add_finding(void *owner, enum cairn_store_finding finding, const char *key,
                        const char *text) {
    json_t *list = owner;
    if (json_array_size(list) >= FINDINGS_MAX) return;
    (void)!json_array_append_new(list, CAIRN_PACK(finding, .key = key, .detail = text,
                                                  .what = cairn_store_finding_text(finding)));
}

static enum cairn_code write_record_again(struct cairn_srv_request *request,
                                          const struct cairn_srv_version *version,
                                          struct cairn_error *err) {
    struct cairn_version_place place = cairn_srv_version_place(version);
    struct cairn_key key;
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_srv_record_text(version, &text, err));
    cairn_key_committed(&place, &key);
    CAIRN_TRY(cairn_store_put_same(request->store, key.text, cairn_buf_view(&text), err));
    cairn_log(WARN, "record.rewritten", "version=%s step=%" PRIu64 " key=%s", version->id.text,
              version->step, key.text);
    return CAIRN_OK;
}

static enum cairn_code reply_findings(const struct cairn_store_audit *audit, bool repaired,
                                      json_t *take_findings, struct cairn_srv_reply *reply,
                                      struct cairn_error *err) {
    size_t damaged = audit->damaged - repaired;
    CAIRN_AUTO_JSON json_t *findings = take_findings;
    return cairn_srv_reply_json(
        reply, 200,
        CAIRN_PACK(verified, .version = audit->committed->place.id.text,
                   .step = audit->committed->place.step, .ok = damaged == 0, .damaged = damaged,
                   .strays = audit->strays, .listed = audit->listed, .record_rewritten = repaired,
                   .findings = findings),
        err);
}

static enum cairn_code audit(struct cairn_srv_request *request,
                             const struct cairn_srv_version *version, struct cairn_srv_reply *reply,
                             struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *findings = json_array();
    CAIRN_AUTO(committed)
    committed = {.place = cairn_srv_version_place(version), .has_digest = true};
    memcpy(committed.manifest_sha256, version->manifest_sha256, sizeof(committed.manifest_sha256));
    struct cairn_store_audit audit = {
        .committed = &committed, .ask_each = true, .found = add_finding, .owner = findings};
    CAIRN_TRY(cairn_store_audit_look(&audit, request->store, err));
    bool repaired = audit.record_missing;
    if (repaired) CAIRN_TRY(write_record_again(request, version, err));
    return reply_findings(&audit, repaired, CAIRN_TAKE(findings), reply, err);
}

enum cairn_code cairn_srv_on_verify(struct cairn_srv_request *request,
                                    struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_AUTO(srv_version) version = {0};
    CAIRN_TRY(cairn_srv_readable(request, &version, err));
    /* A store that is away must not be taken for one that lost everything. */
    struct cairn_key key;
    cairn_key_store_json(&key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(request->store, &head, err);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "%s has no .cairn/store.json: is it mounted?",
                          cairn_store_url(request->server->store));
    CAIRN_TRY(code);
    return audit(request, &version, reply, err);
}

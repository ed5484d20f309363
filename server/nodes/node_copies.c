/* SPDX-License-Identifier: Apache-2.0 */
/* Copies are few: those of one node, of versions that are not over. */
#include "server/nodes/node_copies.h"

#include "api/wire/messages.h"
#include "server/ledger/node_rows.h"
#include "server/ledger/shards.h"
#include "server/ledger/versions.h"
#include "server/nodes/nodes.h"
#include "server/versions/versions_json.h"

struct giver { /* the node whose copy it is */
    struct cairn_srv *server;
    const struct cairn_run_name *name;
    const char *uploader; /* the process that gave it */
    const char *version;
    bool gone;
};

/* Another process of that node has it in its journal: that one hands it over, or fails it. */
static bool knows(const struct giver *giver, const char *node) {
    struct cairn_srv_version_report ignored;
    return cairn_srv_node_said_of(giver->server, node, giver->version, &ignored) ||
           cairn_srv_node_unsent(giver->server, node, giver->name, 0);
}

static void look_at_giver(void *argument, const struct cairn_srv_node_mark *mark,
                          const char *uploader, uint64_t tick) {
    struct giver *giver = argument;
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_node_uploader said = {0};
    uint64_t silent_ms = cairn_srv_node_silent_ms(giver->server, mark, tick);
    bool other = !cairn_json_parse(cairn_view_of(uploader), (struct cairn_json_limits){0}, &json,
                                   NULL) &&
                 !cairn_msg_node_uploader_read(json, "", &said, NULL) && said.uuid &&
                 strcmp(said.uuid, giver->uploader) != 0;
    giver->gone = silent_ms >= giver->server->settings->partner_finish_ms ||
                  (other && !knows(giver, mark->node));
}

static enum cairn_code add_finish(struct cairn_srv_tx *tx, struct cairn_srv_copies *copies,
                                  const struct cairn_msg_node_copy *said,
                                  struct cairn_error *err) {
    struct giver giver = {.server = copies->server,
                          .name = copies->name,
                          .uploader = said->uploader,
                          .version = said->version};
    enum cairn_code code = cairn_srv_node_look(tx, said->node, look_at_giver, &giver, err);
    if (code && code != CAIRN_NOT_FOUND) return code;
    if (!giver.gone && !code) return CAIRN_OK;
    json_t *item = CAIRN_PACK(node_finish, .version = said->version, .rank = said->rank);
    if (!json_array_append_new(copies->finish, item)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

static enum cairn_code add_state(struct cairn_srv_copies *copies,
                                 const struct cairn_srv_version *version,
                                 struct cairn_error *err) {
    json_t *brief = cairn_srv_version_brief(version);
    if (!brief || json_object_set_new(copies->states, version->id.text, brief))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    return CAIRN_OK;
}

/* One that the server does not know yet was begun by nobody else: it waits for its partner. */
static enum cairn_code answer_one(struct cairn_srv_tx *tx, struct cairn_srv_copies *copies,
                                  const struct cairn_msg_node_copy *said, uint64_t *unsent,
                                  struct cairn_error *err) {
    CAIRN_AUTO(srv_version) version = {0};
    bool sealed = false;
    enum cairn_code code = cairn_srv_version_get(tx, said->version, &version, err);
    if (code && code != CAIRN_NOT_FOUND) return code;
    if (!code && (strcmp(version.name.run, copies->name->run) != 0 ||
                  strcmp(version.name.project, copies->name->project) != 0))
        return CAIRN_OK; /* P16: it is nothing that this right is about */
    if (!code) CAIRN_TRY(add_state(copies, &version, err));
    if (!code && version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    if (!code) CAIRN_TRY(cairn_srv_rank_sealed(tx, said->version, said->rank, &sealed, err));
    *unsent += !sealed;
    return add_finish(tx, copies, said, err);
}

enum cairn_code cairn_srv_copies_answer(struct cairn_srv_tx *tx, struct cairn_srv_copies *copies,
                                        uint64_t *ret_unsent, struct cairn_error *err) {
    size_t count = cairn_min_u64(json_array_size(copies->said), CAIRN_SRV_COPIES_MAX);
    *ret_unsent = 0;
    for (size_t i = 0; i < count; i++) {
        struct cairn_msg_node_copy said = {0};
        CAIRN_TRY(cairn_msg_node_copy_read(json_array_get(copies->said, i), "/attempts/copies",
                                           &said, err));
        CAIRN_TRY(answer_one(tx, copies, &said, ret_unsent, err));
    }
    return CAIRN_OK;
}

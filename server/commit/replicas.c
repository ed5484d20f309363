/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing replicated tensors by checksum; see replicas.h. */
#include "server/commit/replicas.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"

#define REPORTS_MAX 100

struct cairn_srv_replicas {
    json_t *first;    /* name -> [rank, crc32c] */
    json_t *reported; /* name -> true */
    json_t *warnings;
    size_t more;
};

enum cairn_code cairn_srv_replicas_new(struct cairn_srv_replicas **ret, struct cairn_error *err) {
    struct cairn_srv_replicas *replicas = calloc(1, sizeof(*replicas));
    if (!replicas) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for replicas");
    replicas->first = json_object();
    replicas->reported = json_object();
    replicas->warnings = json_array();
    *ret = replicas;
    return CAIRN_OK;
}

void cairn_srv_replicas_free(struct cairn_srv_replicas *replicas) {
    if (!replicas) return;
    json_decref(replicas->first);
    json_decref(replicas->reported);
    json_decref(replicas->warnings);
    free(replicas);
}

static enum cairn_code report(struct cairn_srv_replicas *replicas, const char *name,
                              const json_t *first, uint32_t rank, const char *crc,
                              struct cairn_error *err) {
    if (json_object_get(replicas->reported, name)) return CAIRN_OK;
    if (json_array_size(replicas->warnings) >= REPORTS_MAX) {
        replicas->more++;
        return CAIRN_OK;
    }
    char text[1400];
    snprintf(text, sizeof(text),
             "replicated tensor %s differs: rank %lld has checksum %s, rank %u has %s", name,
             (long long)json_integer_value(json_array_get(first, 0)),
             json_string_value(json_array_get(first, 1)), rank, crc);
    if (json_array_append_new(replicas->warnings, json_string(text)) ||
        json_object_set_new(replicas->reported, name, json_true()))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a warning");
    return CAIRN_OK;
}

enum cairn_code cairn_srv_replicas_add(struct cairn_srv_replicas *replicas, uint32_t rank,
                                       const char *text, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *list = json_loads(text, 0, NULL);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        const char *crc = json_string_value(json_object_get(item, "crc32c"));
        CAIRN_ASSERT(name); /* the seal was read before it became a row */
        CAIRN_ASSERT(crc);
        const json_t *first = json_object_get(replicas->first, name);
        if (first && strcmp(json_string_value(json_array_get(first, 1)), crc)) {
            CAIRN_TRY(report(replicas, name, first, rank, crc, err));
            continue;
        }
        /* Memory of this commit alone: no message, so no row of messages.def. */
        if (!first &&
            json_object_set_new(replicas->first, name, json_pack("[i, s]", (int)rank, crc)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for replicas");
    }
    return CAIRN_OK;
}

char *cairn_srv_replicas_warnings(const struct cairn_srv_replicas *replicas) {
    CAIRN_AUTO_JSON json_t *all = json_copy(replicas->warnings);
    if (replicas->more) {
        char text[64];
        snprintf(text, sizeof(text), "%zu more replicated tensors differ", replicas->more);
        if (json_array_append_new(all, json_string(text))) return NULL;
    }
    return all ? json_dumps(all, JSON_COMPACT) : NULL;
}

void cairn_srv_replicas_log(const struct cairn_srv_replicas *replicas, const char *version_id) {
    size_t count = json_array_size(replicas->warnings) + replicas->more;
    if (!count) return;
    cairn_log(WARN, "commit.replicas_differ", "version=%s tensors=%zu first=\"%s\"", version_id,
              count, json_string_value(json_array_get(replicas->warnings, 0)));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary files of small puts that a death left in a folder store, where no version is swept:
 * below .cairn/, and among the layouts and attempts of runs. One that is there at two looks an hour
 * apart belongs to nobody: a small put takes no hour. Only one clock counts. */
#include "server/sweep/sweep_temporaries.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/text.h"
#include "server/ledger/runs.h"

#define SEEN_MAX 1000

struct temporaries {
    char *keys[SEEN_MAX]; /* owned */
    size_t count;
};
struct cairn_srv_temporaries {
    struct temporaries before, now;
};

static void drop(struct temporaries *seen) {
    for (size_t i = 0; i < seen->count; i++) free(seen->keys[i]);
    seen->count = 0;
}

enum cairn_code cairn_srv_temporaries_new(struct cairn_srv_temporaries **ret,
                                          struct cairn_error *err) {
    *ret = calloc(1, sizeof(**ret));
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for temporary files");
}

void cairn_srv_temporaries_free(struct cairn_srv_temporaries *temporaries) {
    if (!temporaries) return;
    drop(&temporaries->before);
    drop(&temporaries->now);
    free(temporaries);
}

static bool was_there(const struct temporaries *seen, const char *key) {
    for (size_t i = 0; i < seen->count; i++)
        if (!strcmp(seen->keys[i], key)) return true;
    return false;
}

static enum cairn_code take(struct cairn_srv_temporaries *temporaries,
                            struct cairn_store_worker *worker,
                            const struct cairn_store_entry *entry, struct cairn_error *err) {
    if (was_there(&temporaries->before, entry->key)) {
        struct cairn_store_request abort_upload = {
            .op = CAIRN_STORE_UPLOAD_ABORT, .key = entry->key, .upload_id_in = entry->upload_id};
        cairn_log(INFO, "sweep.temporary", "key=%s", entry->key);
        return cairn_store_perform(worker, &abort_upload, err);
    }
    if (temporaries->now.count == SEEN_MAX) return CAIRN_OK; /* the next hour's */
    char *key = strdup(entry->key);
    if (!key) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for temporary files");
    temporaries->now.keys[temporaries->now.count++] = key;
    return CAIRN_OK;
}

static enum cairn_code look_below(struct cairn_srv_temporaries *temporaries,
                                  struct cairn_store_worker *worker, const char *prefix,
                                  struct cairn_error *err) {
    CAIRN_AUTO(store_listing) listing = {0}; /* the first page is enough for one hour */
    struct cairn_store_request list = {
        .op = CAIRN_STORE_UPLOADS, .key = prefix, .listing = &listing};
    CAIRN_TRY(cairn_store_perform(worker, &list, err));
    for (size_t i = 0; i < listing.count; i++) {
        if (!cairn_text_starts(listing.entries[i].key, prefix))
            return cairn_fail(err, CAIRN_STORE, "%s was listed, which is not below %s",
                              listing.entries[i].key, prefix);
        CAIRN_TRY(take(temporaries, worker, &listing.entries[i], err));
    }
    return CAIRN_OK;
}

static enum cairn_code find_names(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    return cairn_srv_runs_all(tx, argument, err);
}

static enum cairn_code look(struct cairn_srv_temporaries *temporaries,
                            struct cairn_store_worker *worker,
                            const struct cairn_srv_run_names *names, struct cairn_error *err) {
    static const char *const folders[] = {"attempts", "layouts"};
    CAIRN_TRY(look_below(temporaries, worker, ".cairn/", err));
    for (size_t i = 0; i < names->count; i++) {
        for (size_t j = 0; j < CAIRN_COUNT(folders); j++) {
            char prefix[2 * CAIRN_NAME_BYTES_MAX + 16];
            snprintf(prefix, sizeof(prefix), "%s/%s/%s/", names->names[i].project,
                     names->names[i].run, folders[j]);
            CAIRN_TRY(look_below(temporaries, worker, prefix, err));
        }
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_temporaries_sweep(struct cairn_srv_temporaries *temporaries,
                                            struct cairn_srv *server,
                                            struct cairn_store_worker *worker,
                                            struct cairn_error *err) {
    CAIRN_AUTO(srv_run_names) names = {0};
    if (!cairn_store_profile(server->store)->leaves_temporaries) return CAIRN_OK;
    enum cairn_code code = cairn_srv_catalog_read(server->catalog, find_names, &names, err);
    if (!code) code = look(temporaries, worker, &names, err);
    drop(&temporaries->before);
    temporaries->before = temporaries->now;
    temporaries->now = (struct temporaries){0};
    return code;
}

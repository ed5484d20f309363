/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a committed version with store credentials alone. */
#include "cli/history.h"
#include "cli/source.h"
#include "common/text.h"

/* What belongs to a committed version and is not there is damage, never "no such checkpoint". */
static enum cairn_code load(struct cairn_store_worker *worker, const char *key, size_t limit,
                            struct cairn_buf *ret, struct cairn_error *err) {
    enum cairn_code code = cairn_cli_document_load(worker, key, limit, ret, err);
    return code == CAIRN_NOT_FOUND ? cairn_fail(err, CAIRN_CORRUPT, "%s is missing", key) : code;
}

static enum cairn_code load_version(struct cairn_cli_source *source,
                                    struct cairn_store_worker *worker,
                                    const struct cairn_record *record, struct cairn_error *err) {
    struct cairn_key key;
    CAIRN_AUTO(buf) manifest = {0};
    source->place =
        (struct cairn_version_place){.name = source->name, .step = record->step, .id = record->id};
    cairn_key_manifest(&source->place, &key);
    CAIRN_TRY(load(worker, key.text, CAIRN_MANIFEST_BYTES_MAX, &manifest, err));
    CAIRN_TRY(
        cairn_cli_source_check(source, cairn_buf_view(&manifest), record->manifest_sha256, err));
    const struct cairn_version_origin *origin = &source->manifest.origin;
    if (strcmp(source->manifest.id.text, record->id.text) || origin->attempt != record->attempt ||
        origin->n != record->n)
        return cairn_fail(err, CAIRN_CORRUPT, "the manifest is of %s, attempt %llu, not of %s",
                          source->manifest.id.text, (unsigned long long)origin->attempt,
                          record->id.text);
    cairn_key_checksums(&source->place, &key);
    return load(worker, key.text, CAIRN_GIB, &source->checksums, err);
}

enum cairn_code cairn_cli_source_find(struct cairn_cli_source *source,
                                      const struct cairn_cli_ref *ref, struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    struct cairn_record record;
    CAIRN_TRY(cairn_store_worker_new(source->store, &worker, err));
    CAIRN_TRY(cairn_cli_history_find(worker, ref, &record, err));
    return load_version(source, worker, &record, err);
}

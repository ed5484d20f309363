/* SPDX-License-Identifier: Apache-2.0 */
/* Two sets: the names, and all folders that they stand in. */
#include "api/shard_names.h"

bool cairn_shard_name_folder(struct cairn_view name, struct cairn_view *folder) {
    const char *text = name.data;
    size_t from = folder->size ? folder->size + 1 : 0;
    const char *slash = from < name.size ? memchr(text + from, '/', name.size - from) : NULL;
    if (!slash) return false;
    *folder = (struct cairn_view){text, (size_t)(slash - text)};
    return true;
}

void cairn_shard_names_release(struct cairn_shard_names *set) {
    cairn_names_release(&set->names);
    cairn_names_release(&set->folders);
}

static enum cairn_code refuse(struct cairn_view folder, struct cairn_view name,
                              struct cairn_error *err) {
    bool same = folder.size == name.size; /* a name that is a folder of one that was taken */
    return cairn_fail(err, CAIRN_INVALID,
                      same ? "shard \"%.*s\" cannot stand beside shards of the folder \"%.*s\""
                           : "shard \"%.*s\" cannot be the folder of shard \"%.*s\"",
                      (int)folder.size, (const char *)folder.data, (int)name.size,
                      (const char *)name.data);
}

enum cairn_code cairn_shard_names_add(struct cairn_shard_names *set, struct cairn_view name,
                                      struct cairn_error *err) {
    uint32_t number = 0;
    set->names.copy = set->folders.copy = true;
    if (cairn_names_has(&set->folders, name)) return refuse(name, name, err);
    struct cairn_view folder = {name.data, 0};
    while (cairn_shard_name_folder(name, &folder))
        if (cairn_names_has(&set->names, folder)) return refuse(folder, name, err);
    CAIRN_TRY(cairn_names_add(&set->names, name, &number, err));
    folder = (struct cairn_view){name.data, 0};
    while (cairn_shard_name_folder(name, &folder))
        CAIRN_TRY(cairn_names_add(&set->folders, folder, &number, err));
    return CAIRN_OK;
}

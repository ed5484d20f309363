/* SPDX-License-Identifier: Apache-2.0 */
/* Folders, keys and starts of two servers; see leases.h. */
#include "tests/server/servers.h"

bool servers_first(struct cairn_world *one, const char *const *extra, const char *const *env) {
    const char *before = getenv("CAIRN_TEST_CATALOG");
    if (!before) setenv("CAIRN_TEST_CATALOG", "postgresql", 1);
    bool good = world_start(one, extra, env);
    if (!before) unsetenv("CAIRN_TEST_CATALOG");
    if (!good) fprintf(stderr, "%s\n", one->err.message);
    return good;
}

/* Another data_dir for the same catalog and store. */
bool servers_place(const struct cairn_world *one, struct cairn_world *two) {
    snprintf(two->folder, sizeof(two->folder), "%.200s/two", one->folder);
    snprintf(two->store_path, sizeof(two->store_path), "%s", one->store_path);
    snprintf(two->data_path, sizeof(two->data_path), "%.200s/two/data", one->folder);
    snprintf(two->catalog, sizeof(two->catalog), "%s", one->catalog);
    return !cairn_dir_make(two->folder, 0700, &two->err) &&
           !cairn_dir_make(two->data_path, 0700, &two->err);
}

bool servers_copy_key(const struct cairn_world *one, struct cairn_world *two) {
    CAIRN_AUTO(buf) key = {.limit = 256};
    const char *from = TEXT("%s/grant.key", one->data_path);
    const char *to = TEXT("%s/grant.key", two->data_path);
    return !cairn_file_load(from, &key, &two->err) &&
           !cairn_file_replace(to, cairn_buf_view(&key), 0600, &two->err);
}

bool servers_second_by(const struct cairn_world *one, struct cairn_world *two,
                       const char *const *extra, const char *added_to_url) {
    bool good = servers_place(one, two) && servers_copy_key(one, two);
    size_t size = strlen(two->catalog);
    if (good && added_to_url)
        snprintf(two->catalog + size, sizeof(two->catalog) - size, "%s", added_to_url);
    good = good && world_restart(two, extra, NULL);
    if (!good) fprintf(stderr, "%s\n", two->err.message);
    return good;
}

bool servers_second(const struct cairn_world *one, struct cairn_world *two,
                    const char *const *extra) {
    return servers_second_by(one, two, extra, NULL);
}

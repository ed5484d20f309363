/* SPDX-License-Identifier: Apache-2.0 */
/* "cairn_tree" of a manifest's meta; see tree_meta.h. */
#include "cli/tree_meta.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/documents/keys.h"
#include "api/wire/messages.h"
#include "common/text.h"

#define MODE_MAX 0777
#define TARGET_BYTES_MAX 1024
#define VALUES_MAX 10000000 /* of files, links and folders as many as a tree may have */

void cairn_cli_tree_meta_release(struct cairn_cli_tree_meta *meta) {
    json_decref(meta->modes);
    json_decref(meta->links);
    json_decref(meta->folders);
    *meta = (struct cairn_cli_tree_meta){0};
}

static bool name_good(const char *name) {
    return name && cairn_shard_name_check(cairn_view_of(name), NULL) == CAIRN_OK;
}

bool cairn_cli_link_stays(const char *name, const char *target) {
    size_t depth = 0;
    if (!*target || *target == '/' || strlen(target) > TARGET_BYTES_MAX) return false;
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) depth++;
    bool down = false;
    while (*target) {
        size_t size = strcspn(target, "/");
        bool up = size == 2 && !strncmp(target, "..", 2);
        if (up && (down || !depth--)) return false;
        if (!up && size && !(size == 1 && *target == '.')) down = true;
        target += size;
        target += strspn(target, "/");
    }
    return true;
}

/* ---- reading ---- */

static bool mode_of(const char *text, unsigned *ret) {
    char *end = NULL;
    bool octal = text && *text >= '0' && *text <= '7';
    unsigned long value = octal ? strtoul(text, &end, 8) : MODE_MAX + 1;
    *ret = (unsigned)value;
    return end && !*end && value <= MODE_MAX;
}

static bool read_modes(const json_t *json, struct cairn_cli_tree_meta *ret) {
    const char *text = NULL;
    json_t *names = NULL, *name = NULL;
    size_t index = 0;
    json_object_foreach((json_t *)(uintptr_t)json, text, names) {
        unsigned mode = 0;
        if (!mode_of(text, &mode) || !json_is_array(names)) return false;
        json_array_foreach(names, index, name) {
            if (!name_good(json_string_value(name)) ||
                json_object_set_new(ret->modes, json_string_value(name),
                                    json_integer((json_int_t)mode)))
                return false;
        }
    }
    return true;
}

static bool read_links(const json_t *json, struct cairn_cli_tree_meta *ret) {
    const char *name = NULL;
    json_t *target = NULL;
    json_object_foreach((json_t *)(uintptr_t)json, name, target) {
        const char *text = json_string_value(target);
        if (!name_good(name) || !text || !cairn_cli_link_stays(name, text) ||
            json_object_set(ret->links, name, target))
            return false;
    }
    return true;
}

static bool read_folders(const json_t *json, struct cairn_cli_tree_meta *ret) {
    json_t *name = NULL;
    size_t index = 0;
    json_array_foreach((json_t *)(uintptr_t)json, index, name) {
        if (!name_good(json_string_value(name)) || json_array_append(ret->folders, name))
            return false;
    }
    return true;
}

static bool read_tree(const json_t *tree, struct cairn_cli_tree_meta *ret) {
    ret->modes = json_object();
    ret->links = json_object();
    ret->folders = json_array();
    ret->there = true;
    return ret->modes && ret->links && ret->folders &&
           mode_of(json_string_value(json_object_get(tree, "file_mode")), &ret->file_mode) &&
           mode_of(json_string_value(json_object_get(tree, "folder_mode")), &ret->folder_mode) &&
           read_modes(json_object_get(tree, "modes"), ret) &&
           read_links(json_object_get(tree, "links"), ret) &&
           read_folders(json_object_get(tree, "folders"), ret);
}

enum cairn_code cairn_cli_tree_meta_read(struct cairn_view meta_json,
                                         struct cairn_cli_tree_meta *ret,
                                         struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *meta = NULL;
    *ret = (struct cairn_cli_tree_meta){.file_mode = 0666, .folder_mode = 0777};
    struct cairn_json_limits limits = {CAIRN_CLI_TREE_BYTES_MAX, VALUES_MAX};
    CAIRN_TRY(cairn_json_parse(meta_json, limits, &meta, err));
    const json_t *tree = json_object_get(meta, CAIRN_META_TREE);
    if (!tree || read_tree(tree, ret)) return CAIRN_OK;
    fputs("note: the modes and links of this tree are not understood and left out\n", stderr);
    cairn_cli_tree_meta_release(ret);
    *ret = (struct cairn_cli_tree_meta){.file_mode = 0666, .folder_mode = 0777};
    return CAIRN_OK;
}

bool cairn_cli_tree_meta_is_apart(const char *meta_json) {
    CAIRN_AUTO_JSON json_t *meta = NULL;
    struct cairn_json_limits limits = {CAIRN_MIB, 1000000};
    if (cairn_json_parse(cairn_view_of(meta_json), limits, &meta, NULL)) return false;
    const char *shard =
        json_string_value(json_object_get(json_object_get(meta, CAIRN_META_TREE), "shard"));
    return shard && !strcmp(shard, CAIRN_TREE_SHARD);
}

unsigned cairn_cli_tree_meta_mode(const struct cairn_cli_tree_meta *meta, const char *name,
                                  bool folder) {
    const json_t *mode = meta->there ? json_object_get(meta->modes, name) : NULL;
    if (mode) return (unsigned)json_integer_value(mode);
    return folder ? meta->folder_mode : meta->file_mode;
}

/* ---- writing ---- */

static json_t *modes_json(const struct cairn_cli_tree_meta *meta) {
    char text[16];
    json_t *modes = json_object(), *mode = NULL;
    const char *name = NULL;
    json_object_foreach(meta->modes, name, mode) {
        snprintf(text, sizeof text, "%o", (unsigned)json_integer_value(mode));
        json_t *names = json_object_get(modes, text);
        if (!names && !json_object_set_new(modes, text, json_array()))
            names = json_object_get(modes, text);
        if (json_array_append_new(names, json_string(name))) {
            json_decref(modes);
            return NULL;
        }
    }
    return modes;
}

enum cairn_code cairn_cli_tree_meta_write(const struct cairn_cli_tree_meta *meta,
                                          struct cairn_buf *ret, struct cairn_error *err) {
    char file[16], folder[16];
    snprintf(file, sizeof file, "%o", meta->file_mode);
    snprintf(folder, sizeof folder, "%o", meta->folder_mode);
    CAIRN_AUTO_JSON json_t *json =
        json_pack("{s:{s:s, s:s, s:o, s:O, s:O}}", CAIRN_META_TREE, "file_mode", file,
                  "folder_mode", folder, "modes", modes_json(meta), "links", meta->links, "folders",
                  meta->folders);
    if (!json) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for modes and links");
    ret->limit = CAIRN_CLI_TREE_BYTES_MAX;
    return cairn_json_dump(json, ret, err);
}

enum cairn_code cairn_cli_tree_meta_name_shard(struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json =
        json_pack("{s:{s:s}}", CAIRN_META_TREE, "shard", CAIRN_TREE_SHARD);
    if (!json) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for modes and links");
    return cairn_json_dump(json, ret, err);
}

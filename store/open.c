/* SPDX-License-Identifier: Apache-2.0 */
/* Opens stores by URL; see open.h. */
#include "store/open.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/text.h"
#include "store/dir/dir.h"

static enum cairn_code folder_of_url(const char *url, struct cairn_buf *ret,
                                     struct cairn_error *err) {
    const char *path = url + strlen("file://");
    if (path[0] != '/')
        return cairn_fail(err, CAIRN_INVALID,
                          "store \"%s\": a file URL has three slashes: file:///path", url);
    return cairn_percent_decode(cairn_view_of(path), ret, err);
}

/* A path such as "./store", relative to the working directory. */
static enum cairn_code folder_of_path(const char *url, struct cairn_buf *ret,
                                      struct cairn_error *err) {
    if (url[0] == '/') return cairn_buf_append_text(ret, url, err);
    CAIRN_AUTO_HEAP char *here = getcwd(NULL, 0);
    if (!here) return cairn_fail_errno(err, "the folder this was started in");
    return cairn_buf_printf(ret, err, "%s/%s", here, url);
}

typedef enum cairn_code store_open_function(const struct cairn_store_options *options,
                                            struct cairn_store **ret, struct cairn_error *err);
static _Atomic(store_open_function *) openers[CAIRN_STORE_SCHEME_COUNT];

static const struct scheme {
    const char *beginning, *shown;
    enum cairn_code (*folder)(const char *url, struct cairn_buf *ret, struct cairn_error *err);
} schemes[] = {
#define SCHEME(name, beginning, folder, shown) {beginning, shown, folder},
#include "store/schemes.def"
#undef SCHEME
};

void cairn_store_register(enum cairn_store_scheme scheme,
                          enum cairn_code (*open)(const struct cairn_store_options *options,
                                                  struct cairn_store **ret,
                                                  struct cairn_error *err)) {
    CAIRN_ASSERT(scheme < CAIRN_STORE_SCHEME_COUNT && !schemes[scheme].folder);
    atomic_store(&openers[scheme], open);
}

static enum cairn_code scheme_of(const char *url, enum cairn_store_scheme *ret,
                                 struct cairn_error *err) {
    char shown[160] = "";
    if (!url || !*url) return cairn_fail(err, CAIRN_INVALID, "the store's URL is empty");
    for (size_t i = 0; i < CAIRN_COUNT(schemes); i++) {
        bool plain = !*schemes[i].beginning && !strstr(url, "://");
        *ret = (enum cairn_store_scheme)i;
        if (plain || (*schemes[i].beginning && cairn_text_starts(url, schemes[i].beginning)))
            return CAIRN_OK;
        size_t used = strlen(shown);
        snprintf(shown + used, sizeof shown - used, "%s%s", used ? ", " : "", schemes[i].shown);
    }
    return cairn_fail(err, CAIRN_INVALID, "store \"%s\": expected one of %s", url, shown);
}

enum cairn_code cairn_store_folder_of(const char *url, struct cairn_buf *ret,
                                      struct cairn_error *err) {
    enum cairn_store_scheme scheme;
    CAIRN_TRY(scheme_of(url, &scheme, err));
    if (!schemes[scheme].folder)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "store \"%s\" is no folder", url);
    return schemes[scheme].folder(url, ret, err);
}

enum cairn_code cairn_store_open(const struct cairn_store_options *options,
                                 struct cairn_store **ret, struct cairn_error *err) {
    enum cairn_store_scheme scheme;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(scheme_of(options->url, &scheme, err));
    store_open_function *open = atomic_load(&openers[scheme]);
    if (!schemes[scheme].folder && !open)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "store \"%s\": this program has no %s in it",
                          options->url, schemes[scheme].shown);
    if (open) return open(options, ret, err);
    CAIRN_TRY(schemes[scheme].folder(options->url, &path, err));
    return cairn_store_dir_open(options, path.data, ret, err);
}

/* ---- further stores by name ---- */

static enum cairn_code add_store(struct cairn_stores *stores, struct cairn_view name,
                                 const char *url, size_t url_size, struct cairn_error *err) {
    if (stores->count == CAIRN_STORES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "stores: at most %d, with main", CAIRN_STORES_MAX);
    char *own = stores->items[stores->count].name;
    memcpy(own, name.data, name.size);
    for (size_t i = 0; i < stores->count; i++)
        if (!strcmp(stores->items[i].name, own))
            return cairn_fail(err, CAIRN_INVALID, "stores: %s is named twice", own);
    if (url && !(stores->items[stores->count].url = strndup(url, url_size)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the setting stores");
    stores->count++;
    return CAIRN_OK;
}

static bool has_main(const struct cairn_stores *stores) {
    for (size_t i = 0; i < stores->count; i++)
        if (!stores->items[i].url) return true;
    return false;
}

enum cairn_code cairn_stores_parse(const char *text, struct cairn_stores *ret,
                                   struct cairn_error *err) {
    for (const char *at = text; *at;) {
        size_t size = strcspn(at, ",");
        const char *sign = memchr(at, '=', size);
        struct cairn_view name = {at, sign ? (size_t)(sign - at) : size};
        bool main =
            name.size == strlen(CAIRN_STORE_MAIN) && !memcmp(at, CAIRN_STORE_MAIN, name.size);
        bool without_url = sign && sign + 1 == at + size;
        if (cairn_store_name_check(name, NULL) || main == (sign != NULL) || without_url)
            return cairn_fail(
                err, CAIRN_INVALID,
                "stores: \"%.*s\": want NAME=URL, a name of small letters, digits and "
                "-, or main alone",
                (int)size, at);
        if (main) ret->main = ret->count;
        CAIRN_TRY(sign ? add_store(ret, name, sign + 1, size - name.size - 1, err)
                       : add_store(ret, name, NULL, 0, err));
        at += size + (at[size] == ',');
    }
    if (has_main(ret)) return CAIRN_OK;
    CAIRN_TRY(add_store(ret, CAIRN_VIEW(CAIRN_STORE_MAIN), NULL, 0, err));
    memmove(&ret->items[1], &ret->items[0], (ret->count - 1) * sizeof(ret->items[0]));
    memset(&ret->items[0], 0, sizeof(ret->items[0]));
    memcpy(ret->items[0].name, CAIRN_STORE_MAIN, sizeof(CAIRN_STORE_MAIN));
    ret->main = 0;
    return CAIRN_OK;
}

void cairn_stores_release(struct cairn_stores *stores) {
    for (size_t i = 0; i < stores->count; i++) free(stores->items[i].url);
    *stores = (struct cairn_stores){0};
}

/* ---- .cairn/store.json ---- */

enum cairn_code cairn_store_record_get(struct cairn_store_worker *worker, uint64_t deadline_ms,
                                       struct cairn_store_record *ret, struct cairn_error *err) {
    struct cairn_key key;
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MIB};
    cairn_key_store_json(&key);
    enum cairn_code code = cairn_store_get_small_by(worker, key.text, deadline_ms, &text, err);
    if (code == CAIRN_TOO_LARGE) return cairn_within(err, CAIRN_CORRUPT, "store.json");
    CAIRN_TRY(code);
    return cairn_store_record_decode(cairn_buf_view(&text), ret, err);
}

enum cairn_code cairn_store_record_put(struct cairn_store_worker *worker,
                                       const struct cairn_store_record *record, bool create,
                                       struct cairn_error *err) {
    struct cairn_key key;
    CAIRN_AUTO(buf) text = {0};
    cairn_key_store_json(&key);
    CAIRN_TRY(cairn_store_record_encode(record, &text, err));
    return create ? cairn_store_put_small(worker, key.text, cairn_buf_view(&text), true, err)
                  : cairn_store_put_to_free(worker, key.text, cairn_buf_view(&text), true, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What a URL names, and who opens it; see open.h. */
#include "store/open.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/text.h"
#include "store/dir/dir.h"

static enum cairn_code folder_of_url(const char *url, struct cairn_buf *ret,
                                     struct cairn_error *err) {
    const char *path = url + strlen("file://");
    if (path[0] != '/') {
        return cairn_fail(err, CAIRN_INVALID,
                          "store \"%s\": a file URL has three slashes: file:///path", url);
    }
    return cairn_percent_decode(cairn_view_of(path), ret, err);
}

/* "./store" as people type it: from the folder they stand in. */
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

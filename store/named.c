/* SPDX-License-Identifier: Apache-2.0 */
/* One item after the other; see named.h. */
#include "store/named.h"

#include <stdlib.h>
#include <string.h>

static enum cairn_code add(struct cairn_stores *stores, struct cairn_view name, const char *url,
                           size_t url_size, struct cairn_error *err) {
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

static enum cairn_code parse_one(struct cairn_stores *stores, const char *item, size_t size,
                                 struct cairn_error *err) {
    const char *sign = memchr(item, '=', size);
    struct cairn_view name = {item, sign ? (size_t)(sign - item) : size};
    bool main = name.size == strlen(CAIRN_STORE_MAIN) &&
                !memcmp(item, CAIRN_STORE_MAIN, name.size);
    bool without_url = sign && sign + 1 == item + size;
    if (cairn_store_name_check(name, NULL) || main == (sign != NULL) || without_url)
        return cairn_fail(err, CAIRN_INVALID,
                          "stores: \"%.*s\": want NAME=URL, a name of small letters, digits and "
                          "-, or main alone",
                          (int)size, item);
    if (main) stores->main = stores->count;
    return sign ? add(stores, name, sign + 1, size - name.size - 1, err)
                : add(stores, name, NULL, 0, err);
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
        CAIRN_TRY(parse_one(ret, at, size, err));
        at += size + (at[size] == ',');
    }
    if (has_main(ret)) return CAIRN_OK;
    CAIRN_TRY(add(ret, CAIRN_VIEW(CAIRN_STORE_MAIN), NULL, 0, err));
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

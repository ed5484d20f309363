/* SPDX-License-Identifier: Apache-2.0 */
/* bucket_source: ranged reads; a stack of idle connections, each with its last read-ahead. */
#include "cli/bucket/bucket.h"

#include <stdlib.h>

#include "common/lock.h"
#include "common/text.h"
#include "store/s3/config.h"

#define BUCKET "s3://"
#define SHORT_BYTES ((size_t)32 * 1024)
#define AHEAD_BYTES ((size_t)64 * 1024)
#define REQUEST_BYTES_MAX (8 * CAIRN_MIB) /* bounds what one --timeout covers */
#define OBJECTS_MAX 1048576

/* Context of an input. */
struct object {
    struct object *next;
    struct cairn_cli_bucket_source *source;
    char *key, *url;
    uint64_t size_bytes;
    char etag[128];
};
struct slot {
    struct slot *next;
    struct cairn_store_worker *worker;
    const struct object *object; /* source of the read-ahead; NULL: none */
    uint64_t offset;
    size_t size;
    char ahead[AHEAD_BYTES];
};
struct cairn_cli_bucket_source {
    struct cairn_store *store;         /* of the URL's parent folder */
    struct cairn_store_worker *worker; /* the owner's */
    char *url;                         /* without options and trailing slashes */
    char *base;                        /* last component, the prefix of its keys; "": a bucket */
    bool folder;                       /* the URL ended in a slash: a prefix, no object */
    struct object *objects;            /* owned */
    struct cairn_lock lock;
    struct {
        struct slot *idle;
    } locked;
};

bool cli_is_bucket(const char *place) {
    return cairn_text_starts(place, BUCKET);
}

/* ---- reading ---- */

static void free_slot(struct slot *slot) {
    if (!slot) return;
    if (slot->worker) cairn_store_worker_free(slot->worker);
    free(slot);
}

static bool holds(const struct slot *slot, const struct object *object, uint64_t offset,
                  size_t size) {
    return slot->object == object && offset >= slot->offset &&
           offset - slot->offset + size <= slot->size;
}

/* Takes the idle slot holding these bytes, else the last used one, else a new one. */
static enum cairn_code take_slot(const struct object *object, uint64_t offset, size_t size,
                                 struct slot **ret, struct cairn_error *err) {
    struct cairn_cli_bucket_source *source = object->source;
    {
        CAIRN_HOLD(&source->lock);
        struct slot **at = &source->locked.idle;
        while (*at && !holds(*at, object, offset, size)) at = &(*at)->next;
        if (!*at) at = &source->locked.idle;
        if ((*ret = *at)) {
            *at = (*ret)->next;
            return CAIRN_OK;
        }
    }
    struct slot *slot = calloc(1, sizeof *slot);
    if (!slot) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a connection");
    enum cairn_code code = cairn_store_worker_new(source->store, &slot->worker, err);
    if (code == CAIRN_OK)
        *ret = slot;
    else
        free_slot(slot);
    return code;
}

static void give_slot(struct cairn_cli_bucket_source *source, struct slot *slot) {
    CAIRN_HOLD(&source->lock);
    slot->next = source->locked.idle;
    source->locked.idle = slot;
}

static enum cairn_code get(const struct slot *slot, const struct object *object, uint64_t offset,
                           void *into, size_t size, struct cairn_error *err) {
    struct cairn_store_request request = {
        .op = CAIRN_STORE_GET, .key = object->key, .offset = offset, .length = size, .into = into};
    memcpy(request.etag, object->etag, sizeof request.etag);
    enum cairn_code code = cairn_store_perform(slot->worker, &request, err);
    if (code == CAIRN_OK && request.object_bytes == object->size_bytes) return CAIRN_OK;
    if (code == CAIRN_OK || code == CAIRN_PRECONDITION || code == CAIRN_RANGE)
        return cairn_fail(err, CAIRN_SOURCE_CHANGED, "%s: it was replaced while it was read",
                          object->url);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_SOURCE_CHANGED, "%s: it was deleted while it was read",
                          object->url);
    return cairn_within(err, code, "%s", object->url);
}

static enum cairn_code get_short(struct slot *slot, const struct object *object, uint64_t offset,
                                 void *into, size_t size, struct cairn_error *err) {
    if (!holds(slot, object, offset, size)) {
        size_t some = (size_t)cairn_min_u64(AHEAD_BYTES, object->size_bytes - offset);
        slot->object = NULL;
        CAIRN_TRY(get(slot, object, offset, slot->ahead, some, err));
        slot->object = object;
        slot->offset = offset;
        slot->size = some;
    }
    memcpy(into, slot->ahead + (offset - slot->offset), size);
    return CAIRN_OK;
}

static enum cairn_code read_object(void *context, uint64_t offset, void *into, size_t size,
                                   struct cairn_error *err) {
    const struct object *object = context;
    struct slot *slot = NULL;
    enum cairn_code code = take_slot(object, offset, size, &slot, err);
    if (code != CAIRN_OK) return code;
    if (size < SHORT_BYTES) {
        code = get_short(slot, object, offset, into, size, err);
    } else {
        for (size_t at = 0; code == CAIRN_OK && at < size; at += REQUEST_BYTES_MAX)
            code = get(slot, object, offset + at, (char *)into + at,
                       (size_t)cairn_min_u64(REQUEST_BYTES_MAX, size - at), err);
    }
    give_slot(object->source, slot);
    return code;
}

/* ---- opening a URL and its objects ---- */

/* Splits the URL into its parent, as a store URL with the options, and its last component. */
static enum cairn_code split(struct cairn_cli_bucket_source *source, const char *options,
                             struct cairn_buf *ret_parent, struct cairn_error *err) {
    char *path = source->url + strlen(BUCKET);
    size_t size = strlen(source->url);
    while (size > strlen(BUCKET) && source->url[size - 1] == '/') {
        source->url[--size] = '\0';
        source->folder = true;
    }
    if (!*path || *path == '/')
        return cairn_fail(err, CAIRN_INVALID, "it names no bucket: write s3://bucket/path");
    char *slash = strrchr(path, '/');
    source->base = strdup(slash ? slash + 1 : "");
    if (!source->base) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
    CAIRN_TRY(cairn_buf_append(ret_parent, source->url,
                               slash ? (size_t)(slash - source->url) : size, err));
    return cairn_buf_append_text(ret_parent, options, err);
}

enum cairn_code cli_bucket_source_open(const struct cli *cli, const char *url,
                                       struct cairn_cli_bucket_source **ret,
                                       struct cairn_error *err) {
    CAIRN_AUTO(buf) parent = {0};
    struct cairn_cli_bucket_source *made = calloc(1, sizeof *made);
    if (!made) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a bucket");
    cairn_lock_init(&made->lock, CAIRN_LOCK_client_session);
    CAIRN_AUTO_PTR(cli_bucket_source) source = made;
    size_t size = cairn_s3_url_place_size(url);
    if (!(source->url = strndup(url, size)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
    CAIRN_TRY(split(source, url + size, &parent, err));
    CAIRN_TRY(cli_store_open_url(cli, parent.data, false, &source->store, err));
    CAIRN_TRY(cairn_store_worker_new(source->store, &source->worker, err));
    *ret = CAIRN_TAKE(source);
    return CAIRN_OK;
}

void cairn_cli_bucket_source_free(struct cairn_cli_bucket_source *source) {
    if (!source) return;
    while (source->locked.idle) {
        struct slot *slot = source->locked.idle;
        source->locked.idle = slot->next;
        free_slot(slot);
    }
    while (source->objects) {
        struct object *object = source->objects;
        source->objects = object->next;
        free(object->key);
        free(object->url);
        free(object);
    }
    if (source->worker) cairn_store_worker_free(source->worker);
    if (source->store) cairn_store_free(source->store);
    cairn_lock_release(&source->lock);
    free(source->url);
    free(source->base);
    free(source);
}

const char *cli_bucket_source_base(const struct cairn_cli_bucket_source *source) {
    return source->base;
}

static enum cairn_code look(struct cairn_cli_bucket_source *source, const char *name,
                            struct object *object, struct cairn_error *err) {
    CAIRN_AUTO(buf) key = {.limit = 1024}, url = {0};
    CAIRN_TRY(cairn_buf_printf(&key, err, "%s%s%s", source->base, *source->base && *name ? "/" : "",
                               name));
    if (!key.size || (!*name && source->folder))
        return cairn_fail(err, CAIRN_NOT_FOUND, "no object is named");
    CAIRN_TRY(cairn_buf_printf(&url, err, "%s%s%s", source->url, *name ? "/" : "", name));
    object->key = strdup(key.data);
    object->url = strdup(url.data);
    if (!object->key || !object->url)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = object->key};
    enum cairn_code code = cairn_store_perform(source->worker, &head, err);
    if (code == CAIRN_NOT_FOUND) return cairn_fail(err, code, "%s: no such object", object->url);
    if (code) return cairn_within(err, code, "%s", object->url);
    object->size_bytes = head.object_bytes;
    memcpy(object->etag, head.etag, sizeof object->etag);
    return CAIRN_OK;
}

enum cairn_code cli_bucket_source_object(struct cairn_cli_bucket_source *source, const char *name,
                                         struct cli_object *ret, struct cairn_error *err) {
    struct object *object = calloc(1, sizeof *object);
    if (!object) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an object");
    object->source = source;
    object->next = source->objects;
    source->objects = object;
    CAIRN_TRY(look(source, name, object, err));
    ret->input = (struct cairn_input){
        .size_bytes = object->size_bytes, .context = object, .read = read_object};
    memcpy(ret->etag, object->etag, sizeof ret->etag);
    return CAIRN_OK;
}

static enum cairn_code hand_out(const struct cairn_store_listing *page, size_t skip, size_t *count,
                                enum cairn_code (*each)(void *owner, const char *name,
                                                        struct cairn_error *err),
                                void *owner, struct cairn_error *err) {
    for (size_t i = 0; i < page->count; i++) {
        const char *name = page->entries[i].key + skip;
        size_t size = strlen(name);
        if (!size || name[size - 1] == '/') continue; /* a console's folder marker */
        if (++*count > OBJECTS_MAX)
            return cairn_fail(err, CAIRN_TOO_LARGE, "more than %d objects lie below it",
                              OBJECTS_MAX);
        CAIRN_TRY(each(owner, name, err));
    }
    return CAIRN_OK;
}

enum cairn_code cli_bucket_source_list(struct cairn_cli_bucket_source *source, const char *folder,
                                       enum cairn_code (*each)(void *owner, const char *name,
                                                               struct cairn_error *err),
                                       void *owner, struct cairn_error *err) {
    CAIRN_AUTO(buf) prefix = {.limit = 1024};
    CAIRN_AUTO(store_pages) pages = {.list = {.op = CAIRN_STORE_LIST}};
    size_t count = 0;
    CAIRN_TRY(
        cairn_buf_printf(&prefix, err, "%s%s%s", source->base, *source->base ? "/" : "", folder));
    pages.list.key = prefix.size ? prefix.data : "";
    while (!pages.ended) {
        enum cairn_code code = cairn_store_pages_next(&pages, source->worker, err);
        if (!code) code = hand_out(&pages.listing, prefix.size, &count, each, owner, err);
        if (code) return cairn_within(err, code, "%s", source->url);
    }
    return CAIRN_OK;
}

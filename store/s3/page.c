/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of a listing: what a page is asked for by, and that pages come to an end.
 *
 * A store that brings the same pages again would keep its caller deleting for ever. Each request
 * stands alone, so what must be remembered travels in the page's name, before the store's own
 * token: the fingerprint of one earlier page, which a page of a loop equals sooner or later (Brent:
 * after 1, 2, 4, 8 ... pages the remembered one is replaced by the newest). Order is not asked for,
 * because not all makes of store sort by bytes.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "common/text.h"
#include "store/s3/inside.h"

#define EMPTY_PAGES_MAX 1000 /* one after another, which S3 allows */
#define NAME "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIx64 " %s"

struct page {
    uint64_t pages, until; /* seen since one was remembered, and when it is replaced */
    uint64_t empty;        /* of the last ones */
    uint64_t remembered;   /* fingerprint; 0: of none */
    const char *token;     /* the store's own */
};

static bool take_number(const char **at, int base, uint64_t *ret) {
    char *end = NULL;
    *ret = strtoull(*at, &end, base);
    if (end == *at || *end != ' ') return false;
    *at = end + 1;
    return true;
}

/* A name that was not made here is a token as it stands. */
static struct page page_of(const char *name) {
    struct page page = {.until = 1, .token = name};
    if (!name) return page;
    const char *at = name;
    struct page read = {0};
    if (!take_number(&at, 10, &read.pages) || !take_number(&at, 10, &read.until) ||
        !take_number(&at, 10, &read.empty) || !take_number(&at, 16, &read.remembered))
        return page;
    read.token = at;
    return read;
}

const char *cairn_s3_page_token(const char *name) {
    return page_of(name).token;
}

/* FNV-1a over keys and ids with their ends. */
static uint64_t fingerprint(const struct cairn_store_listing *listing, size_t first) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = first; i < listing->count; i++) {
        const char *texts[] = {listing->entries[i].key, listing->entries[i].upload_id,
                               listing->entries[i].version_id};
        for (size_t t = 0; t < CAIRN_COUNT(texts); t++)
            for (const char *at = texts[t] ? texts[t] : "";; at++) {
                hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
                if (!*at) break;
            }
    }
    return hash ? hash : 1;
}

static enum cairn_code fail_endless(const struct cairn_store_request *request,
                                    struct cairn_error *err) {
    return cairn_fail(err, CAIRN_STORE,
                      "the store is broken: the listing of %s below \"%.200s\" does not go on, "
                      "its pages come again",
                      request->op == CAIRN_STORE_UPLOADS ? "uploads" : "objects", request->key);
}

enum cairn_code cairn_s3_page_take(struct cairn_store_request *request, size_t first,
                                   struct cairn_error *err) {
    struct cairn_store_listing *listing = request->listing;
    struct page page = page_of(request->page);
    char *next = listing->next_page;
    if (!next) return CAIRN_OK;
    bool empty = listing->count == first;
    uint64_t print = empty ? 0 : fingerprint(listing, first);
    page.empty = empty ? page.empty + 1 : 0;
    if (page.token && !strcmp(next, page.token)) return fail_endless(request, err);
    if ((print && print == page.remembered) || page.empty > EMPTY_PAGES_MAX)
        return fail_endless(request, err);
    page.pages++;
    if (!page.remembered || page.pages >= page.until) {
        page.remembered = print ? print : page.remembered;
        page.until = page.until * 2;
        page.pages = 0;
    }
    CAIRN_AUTO(buf) name = {0};
    CAIRN_TRY(cairn_buf_printf(&name, err, NAME, page.pages, page.until, page.empty,
                               page.remembered, next));
    char *copy = strdup(name.data);
    if (!copy) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a listing");
    free(next);
    listing->next_page = copy;
    return CAIRN_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Bucket, prefix, then one option after the other; see url.h. */
#include "store/s3/url.h"

#include <ctype.h>
#include <stdio.h>

#include "common/text.h"

static const struct option {
    const char *name;
    size_t offset, size; /* of its field */
} options[] = {
#define OPTION(name, bytes, what) {#name, offsetof(struct cairn_s3_url, name), (bytes) + 1},
#include "store/s3/url.def"
#undef OPTION
};

size_t cairn_s3_url_place_size(const char *text) {
    return strcspn(text, "?");
}

/* ---- errors ---- */

static enum cairn_code refuse(struct cairn_error *err, const char *text, const char *why) {
    char place[CAIRN_S3_URL_BYTES_MAX + 16];
    size_t size = cairn_min_u64(cairn_s3_url_place_size(text), CAIRN_S3_URL_BYTES_MAX);
    const char *at = memchr(text, '@', size);
    if (at)
        snprintf(place, sizeof place, "s3://...%.*s", (int)(size - (size_t)(at - text)), at);
    else
        snprintf(place, sizeof place, "%.*s", (int)size, text);
    return cairn_fail(err, CAIRN_INVALID, "store \"%s\": %s", cairn_short(place).text, why);
}

/* A name may be told; anything else in its place may be a secret. */
static bool is_name(struct cairn_view name) {
    const char *bytes = name.data;
    for (size_t i = 0; i < name.size; i++)
        if (!islower((unsigned char)bytes[i]) && bytes[i] != '_' && bytes[i] != '-') return false;
    return name.size && name.size <= 32;
}

static enum cairn_code refuse_option(struct cairn_error *err, const char *text,
                                     struct cairn_view name, const char *why) {
    char known[160] = "", said[360];
    for (size_t i = 0, used = 0; i < CAIRN_COUNT(options); i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 options[i].name);
    bool told = is_name(name);
    snprintf(said, sizeof said, "%.*s %s; known are %s; keys are in no URL, profile names them",
             told ? (int)name.size : 9, told ? (const char *)name.data : "an option", why, known);
    return refuse(err, text, said);
}

/* ---- its parts ---- */

static enum cairn_code take_place(const char *text, struct cairn_s3_url *ret,
                                  struct cairn_error *err) {
    const char *bucket = text + strlen("s3://"), *end = text + cairn_s3_url_place_size(text);
    size_t size = strcspn(bucket, "/?");
    if (cairn_text_starts(bucket, "arn:"))
        return refuse(err, text,
                      "an access point is named by its alias (-s3alias), not by its ARN");
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)bucket[i]) && !strchr(".-_", bucket[i]))
            return refuse(err, text, "no bucket has such a name");
    if (size < 3 || size > 63) return refuse(err, text, "a bucket's name has 3 to 63 bytes");
    snprintf(ret->bucket, sizeof ret->bucket, "%.*s", (int)size, bucket);
    const char *prefix = bucket + size + (bucket[size] == '/');
    size_t prefix_size = (size_t)(end - prefix);
    while (prefix_size && prefix[prefix_size - 1] == '/') prefix_size--;
    if (prefix_size > 256) return refuse(err, text, "the prefix is longer than 256 bytes");
    for (size_t i = 0; i < prefix_size; i++)
        if ((unsigned char)prefix[i] < ' ' || strchr("#\\", prefix[i]))
            return refuse(err, text, "bad byte in the prefix");
    if (prefix_size) snprintf(ret->prefix, sizeof ret->prefix, "%.*s/", (int)prefix_size, prefix);
    return CAIRN_OK;
}

static const struct option *find(struct cairn_view name) {
    for (size_t i = 0; i < CAIRN_COUNT(options); i++)
        if (strlen(options[i].name) == name.size && !memcmp(options[i].name, name.data, name.size))
            return &options[i];
    return NULL;
}

static enum cairn_code take_option(const char *text, struct cairn_view said,
                                   struct cairn_s3_url *ret, struct cairn_error *err) {
    const char *at = said.data, *sign = memchr(at, '=', said.size);
    struct cairn_view name = {at, sign ? (size_t)(sign - at) : said.size};
    const struct option *option = sign ? find(name) : NULL;
    CAIRN_AUTO(buf) value = {.limit = CAIRN_S3_URL_BYTES_MAX};
    if (!sign) return refuse_option(err, text, (struct cairn_view){0}, "has no \"=\"");
    if (!option) return refuse_option(err, text, name, "is not known");
    char *field = (char *)ret + option->offset;
    struct cairn_view escaped = {sign + 1, said.size - name.size - 1};
    if (*field) return refuse_option(err, text, name, "is given twice");
    if (!escaped.size) return refuse_option(err, text, name, "has no value");
    if (cairn_percent_decode(escaped, &value, NULL) != CAIRN_OK)
        return refuse_option(err, text, name, "has a % that begins no escape");
    for (size_t i = 0; i < value.size; i++)
        if ((unsigned char)value.data[i] < ' ' || value.data[i] == 127)
            return refuse_option(err, text, name, "has a byte that it cannot hold");
    if (!cairn_text_copy(field, option->size, value.data))
        return refuse_option(err, text, name, "is too long");
    return CAIRN_OK;
}

enum cairn_code cairn_s3_url_parse(const char *text, struct cairn_s3_url *ret,
                                   struct cairn_error *err) {
    struct cairn_s3_url url = {0};
    if (!cairn_text_starts(text, "s3://"))
        return cairn_fail(err, CAIRN_INVALID, "the store's URL is not s3://bucket/prefix");
    if (strlen(text) > CAIRN_S3_URL_BYTES_MAX)
        return refuse(err, text, "the URL is longer than 1,000 bytes");
    CAIRN_TRY(take_place(text, &url, err));
    const char *at = text + cairn_s3_url_place_size(text);
    url.query = *at ? at + 1 : at;
    while (*at) {
        size_t size = strcspn(++at, "&");
        CAIRN_TRY(take_option(text, (struct cairn_view){at, size}, &url, err));
        at += size;
    }
    *ret = url;
    return CAIRN_OK;
}

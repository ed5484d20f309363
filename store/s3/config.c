/* SPDX-License-Identifier: Apache-2.0 */
/* URL over options over environment over profile over defaults; or URL over its profile. */
#include "store/s3/config.h"

#include <ctype.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "common/net.h"
#include "common/text.h"
#include "store/keys/profile.h"

static const char *first_of(const char *a, const char *b, const char *c) {
    if (a && *a) return a;
    if (b && *b) return b;
    return c && *c ? c : NULL;
}

static enum cairn_code own_text(struct cairn_s3_config *config, const char *text, const char **ret,
                                struct cairn_error *err) {
    *ret = NULL;
    if (!text || !*text) return CAIRN_OK;
    CAIRN_ASSERT(config->owned_count < CAIRN_COUNT(config->owned));
    char *copy = strdup(text);
    if (!copy) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the store's settings");
    config->owned[config->owned_count++] = copy;
    *ret = copy;
    return CAIRN_OK;
}

/* These become header values. */
static enum cairn_code own_header(struct cairn_s3_config *config, const char *name,
                                  const char *text, const char **ret, struct cairn_error *err) {
    for (const char *at = text ? text : ""; *at; at++)
        if ((unsigned char)*at < ' ' || (unsigned char)*at > '~')
            return cairn_fail(err, CAIRN_INVALID, "%s holds a byte that no header takes", name);
    return own_text(config, text, ret, err);
}

static enum cairn_code own_interfaces(struct cairn_s3_config *config, struct cairn_error *err) {
    size_t count = config->options.interface_count;
    const char *const *from = config->options.interfaces;
    config->options.interfaces = NULL;
    config->options.interface_count = 0;
    if (!count) return CAIRN_OK;
    config->interfaces = calloc(count, sizeof config->interfaces[0]);
    if (!config->interfaces) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for interfaces");
    for (size_t i = 0; i < count; i++) {
        if (!if_nametoindex(from[i]))
            return cairn_fail(err, CAIRN_INVALID,
                              "interfaces: no network interface is called \"%s\"", from[i]);
        config->interfaces[i] = strdup(from[i]);
        if (!config->interfaces[i])
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for interfaces");
        config->options.interface_count++;
    }
    config->options.interfaces = (const char *const *)config->interfaces;
    return CAIRN_OK;
}

enum cairn_code cairn_s3_encryption_check(const char *sse, const char *key,
                                          struct cairn_error *err) {
    static const char *const known[] = {"", "AES256", "aws:kms", "aws:kms:dsse"};
    const char *wanted = sse ? sse : "";
    size_t at = 0;
    while (at < CAIRN_COUNT(known) && strcmp(known[at], wanted) != 0) at++;
    if (at == CAIRN_COUNT(known))
        return cairn_fail(err, CAIRN_INVALID, "sse is none of AES256, aws:kms and aws:kms:dsse");
    if (key && *key && at < 2)
        return cairn_fail(err, CAIRN_INVALID,
                          "sse_kms_key_id is given, but sse is %s; only aws:kms and aws:kms:dsse "
                          "use a key",
                          at ? "AES256" : "not");
    return CAIRN_OK;
}

enum cairn_code cairn_s3_sharing_check(const char *acl, const char *request_payer,
                                       struct cairn_error *err) {
    static const char *const acls[] = {"", "private", "bucket-owner-read",
                                       "bucket-owner-full-control"};
    const char *wanted = acl ? acl : "";
    size_t at = 0;
    while (at < CAIRN_COUNT(acls) && strcmp(acls[at], wanted) != 0) at++;
    if (at == CAIRN_COUNT(acls))
        return cairn_fail(err, CAIRN_INVALID,
                          "acl is none of bucket-owner-full-control, bucket-owner-read and "
                          "private; others would show checkpoints to strangers");
    if (request_payer && *request_payer && strcmp(request_payer, "requester") != 0)
        return cairn_fail(err, CAIRN_INVALID, "request_payer is requester, or it is not given");
    return CAIRN_OK;
}

static enum cairn_code copy_options(struct cairn_s3_config *config, const struct cairn_s3_url *url,
                                    const struct cairn_store_s3_options *from,
                                    struct cairn_error *err) {
    struct cairn_store_s3_options *to = &config->options;
    *to = *from;
    CAIRN_TRY(own_interfaces(config, err));
    CAIRN_TRY(own_text(config, from->congestion, &to->congestion, err));
    /* The URL's object options replace the settings, for its store only. */
    const char *class = first_of(url->storage_class, from->storage_class, NULL);
    const char *sse = first_of(url->sse, from->sse, NULL), *key = from->sse_kms_key_id;
    if (*url->sse || *url->sse_kms_key_id) key = url->sse_kms_key_id;
    if (class && !strcmp(class, "none")) class = NULL;
    if (*url->sse && !strcmp(sse, "none")) sse = NULL;
    CAIRN_TRY(cairn_s3_encryption_check(sse, key, err));
    CAIRN_TRY(own_header(config, "sse", sse, &to->sse, err));
    CAIRN_TRY(own_header(config, "sse_kms_key_id", key, &to->sse_kms_key_id, err));
    CAIRN_TRY(own_header(config, "storage_class", class, &to->storage_class, err));
    CAIRN_TRY(own_header(config, "object_tags", from->object_tags, &to->object_tags, err));
    CAIRN_TRY(own_header(config, "bucket_owner", from->bucket_owner, &to->bucket_owner, err));
    CAIRN_TRY(cairn_s3_sharing_check(from->acl, from->request_payer, err));
    CAIRN_TRY(own_header(config, "acl", from->acl, &to->acl, err));
    CAIRN_TRY(own_header(config, "request_payer", from->request_payer, &to->request_payer, err));
    if (!to->connections_max) to->connections_max = 64;
    if (!to->requests_max) to->requests_max = 64;
    if (!to->deadline_ms) to->deadline_ms = 300000;
    return CAIRN_OK;
}

void cairn_s3_config_release(struct cairn_s3_config *config) {
    for (size_t i = 0; i < config->owned_count; i++) free(config->owned[i]);
    for (size_t i = 0; i < config->options.interface_count; i++) free(config->interfaces[i]);
    free(config->interfaces);
    *config = (struct cairn_s3_config){0};
}

static bool is_this_machine(const char *host, size_t size) {
    static const char *const names[] = {"localhost", "[::1]"};
    for (size_t i = 0; i < CAIRN_COUNT(names); i++)
        if (size == strlen(names[i]) && !strncmp(host, names[i], size)) return true;
    if (size > 10 && !strncmp(host + size - 10, ".localhost", 10)) return true;
    return !strncmp(host, "127.", 4) && strspn(host, "0123456789.") == size;
}

static enum cairn_code check_host(const struct cairn_s3_config *config, const char *endpoint,
                                  const char *host, size_t size, struct cairn_error *err) {
    size_t name_size = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/");
    if (name_size > size) name_size = size;
    if (!name_size || size > 255 || memchr(host, '@', size) || strpbrk(endpoint, "?#\\ \t\r\n%"))
        return cairn_fail(err, CAIRN_INVALID,
                          "the endpoint must be http(s)://host[:port], without user or query");
    if (cairn_net_is_metadata_host((struct cairn_view){host, name_size}))
        return cairn_fail(err, CAIRN_INVALID,
                          "the endpoint is an address of a metadata service, not of a store");
    if (!strcmp(config->scheme, "http") && !config->options.allow_plain_http &&
        !is_this_machine(host, name_size))
        return cairn_fail(err, CAIRN_INVALID,
                          "the endpoint is plain http to another machine; use https, or allow it "
                          "where the network is trusted");
    return CAIRN_OK;
}

static enum cairn_code take_endpoint(struct cairn_s3_config *config, const char *endpoint,
                                     struct cairn_error *err) {
    config->is_aws = !endpoint;
    if (!endpoint) {
        snprintf(config->scheme, sizeof config->scheme, "https");
        return CAIRN_OK;
    }
    struct cairn_url url;
    if (!cairn_url_split_http(endpoint, &url))
        return cairn_fail(err, CAIRN_INVALID,
                          "the endpoint must be http(s)://host[:port], without user or query");
    snprintf(config->scheme, sizeof config->scheme, "%.*s", (int)url.scheme.size,
             (const char *)url.scheme.data);
    CAIRN_TRY(check_host(config, endpoint, url.host.data, url.host.size, err));
    /* As in libcurl's Host header: without the scheme's default port. */
    struct cairn_view host = cairn_url_host(&url);
    snprintf(config->host, sizeof config->host, "%.*s", (int)host.size, (const char *)host.data);
    for (char *at = config->host; *at; at++) *at = (char)tolower((unsigned char)*at);
    size_t path_size = strlen(url.path);
    while (path_size && url.path[path_size - 1] == '/') path_size--;
    if (path_size >= sizeof config->base_path)
        return cairn_fail(err, CAIRN_INVALID, "the endpoint's path is too long");
    snprintf(config->base_path, sizeof config->base_path, "%.*s", (int)path_size, url.path);
    return CAIRN_OK;
}

/* Values by URL, options, environment; with a profile there by URL alone (config.h#3). "": none. */
struct said {
    const char *profile, *endpoint, *region, *ca_bundle, *checksum, *ignored;
};

static void collect_said(const struct cairn_s3_url *url,
                         const struct cairn_store_s3_options *options, struct said *ret) {
    *ret = (struct said){url->profile, url->endpoint, url->region, url->ca_bundle, NULL, NULL};
    if (*url->profile) return;
    ret->profile = options->profile;
    ret->endpoint = first_of(url->endpoint, options->endpoint, NULL);
    ret->region = first_of(url->region, options->region,
                           first_of(cairn_credentials_variable("AWS_REGION"),
                                    cairn_credentials_variable("AWS_DEFAULT_REGION"), NULL));
    ret->ca_bundle =
        first_of(url->ca_bundle, options->ca_bundle, cairn_credentials_variable("AWS_CA_BUNDLE"));
    ret->checksum = cairn_credentials_variable("AWS_REQUEST_CHECKSUM_CALCULATION");
    ret->ignored = cairn_credentials_variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
}

/* In the order of AWS's SDKs. *ret NULL: AWS itself. */
static enum cairn_code find_endpoint(const struct cairn_profile *profile, const struct said *said,
                                     bool alone, const char **ret, struct cairn_error *err) {
    const char *ignored = first_of(
        said->ignored, cairn_profile_get(profile, "ignore_configured_endpoint_urls"), NULL);
    *ret = first_of(said->endpoint, NULL, NULL);
    if (*ret || (ignored && !strcasecmp(ignored, "true"))) return CAIRN_OK;
    if (!alone)
        *ret = first_of(cairn_credentials_variable("AWS_ENDPOINT_URL_S3"),
                        cairn_credentials_variable("AWS_ENDPOINT_URL"), NULL);
    if (*ret) return CAIRN_OK;
    const char *services = cairn_profile_get(profile, "services");
    if (services && !profile->services_found)
        return cairn_fail(err, CAIRN_INVALID,
                          "profile \"%s\" names services section \"%s\", which is not in %s",
                          profile->name, services, profile->config_path);
    *ret = first_of(cairn_profile_get(profile, "services.s3.endpoint_url"),
                    cairn_profile_get(profile, "endpoint_url"), NULL);
    return CAIRN_OK;
}

/* STS endpoint for profile_alone: never a variable's. */
static enum cairn_code take_sts(struct cairn_s3_config *config, const struct cairn_profile *profile,
                                struct cairn_error *err) {
    const char *ignored = cairn_profile_get(profile, "ignore_configured_endpoint_urls");
    if (!config->profile_alone || (ignored && !strcasecmp(ignored, "true"))) return CAIRN_OK;
    const char *endpoint = first_of(cairn_profile_get(profile, "services.sts.endpoint_url"),
                                    cairn_profile_get(profile, "endpoint_url"), NULL);
    return own_text(config, endpoint, &config->sts_endpoint, err);
}

static bool is_switched_on(const struct cairn_profile *profile, bool alone, const char *name,
                           const char *setting) {
    const char *said = alone ? NULL : cairn_credentials_variable(name);
    if (!said) said = cairn_profile_get(profile, setting);
    return said && !strcasecmp(said, "true");
}

/* Refuses kinds of bucket that Cairn does not support, by their names. */
static enum cairn_code check_bucket(const char *bucket, struct cairn_error *err) {
    static const struct {
        const char *ends, *what;
    } kinds[] = {
        {"--x-s3", "a directory bucket (S3 Express), which wants a session and keeps no versions"},
        {"--op-s3", "an access point of S3 on Outposts, which is signed otherwise"},
        {"--table-s3", "a table bucket, which takes tables only"},
        {"--ol-s3", "an Object Lambda access point, which answers with other bytes"},
        {".mrap", "a multi-region access point, which is signed otherwise"}};
    for (size_t i = 0; i < CAIRN_COUNT(kinds); i++)
        if (cairn_text_ends(bucket, kinds[i].ends))
            return cairn_fail(err, CAIRN_UNSUPPORTED,
                              "%s is %s; use a general purpose bucket, or an access point by its "
                              "alias (-s3alias)",
                              bucket, kinds[i].what);
    return CAIRN_OK;
}

/* AWS's switch "when_required" sends a checksum only where S3 demands one, for stores that accept
 * none. An explicit method of Cairn's setting is sent all the same. The switch for replies is moot:
 * replies are always compared with our own checksums. */
static enum cairn_code take_checksum(struct cairn_s3_config *config, const char *wanted,
                                     struct cairn_error *err) {
    if (!wanted || !strcasecmp(wanted, "when_supported")) return CAIRN_OK;
    if (strcasecmp(wanted, "when_required") != 0)
        return cairn_fail(err, CAIRN_INVALID,
                          "AWS_REQUEST_CHECKSUM_CALCULATION (request_checksum_calculation of the "
                          "profile) is \"%.40s\"; it is when_supported or when_required",
                          wanted);
    config->checksum_if_required = config->options.checksum == CAIRN_S3_CHECKSUM_AUTO;
    if (config->checksum_if_required) config->options.checksum = CAIRN_S3_CHECKSUM_NONE;
    return CAIRN_OK;
}

/* Fills in what only the profile gives. */
static enum cairn_code take_profile(struct cairn_s3_config *config, const struct said *said,
                                    const struct cairn_profile *profile, struct cairn_error *err) {
    const char *endpoint = NULL;
    CAIRN_TRY(find_endpoint(profile, said, config->profile_alone, &endpoint, err));
    CAIRN_TRY(take_endpoint(config, endpoint, err));
    CAIRN_TRY(take_sts(config, profile, err));
    const char *region = first_of(said->region, cairn_profile_get(profile, "region"), NULL);
    const char *wanted = region ? region : "us-east-1";
    for (const char *at = wanted; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '-' && *at != '_')
            return cairn_fail(err, CAIRN_INVALID, "no region has such a name");
    if (!cairn_text_copy(config->region, sizeof config->region, wanted))
        return cairn_fail(err, CAIRN_INVALID, "the region's name is too long");
    /* A switch that demands FIPS cryptography must not be ignored silently. */
    bool alone = config->profile_alone;
    config->switches.fips =
        is_switched_on(profile, alone, "AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint");
    config->switches.dual_stack =
        is_switched_on(profile, alone, "AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint") ||
        is_switched_on(profile, alone, "AWS_USE_DUALSTACK_ENDPOINT", "s3.use_dualstack_endpoint");
    if (config->switches.fips && !config->is_aws && !strstr(config->host, "fips"))
        return cairn_fail(err, CAIRN_INVALID,
                          "AWS_USE_FIPS_ENDPOINT (use_fips_endpoint) is true, and the endpoint %s "
                          "is another one: leave one of the two out",
                          config->host);
    if (config->switches.dual_stack && config->is_aws && !cairn_aws_has_dual_stack(config->region))
        return cairn_fail(err, CAIRN_INVALID,
                          "AWS_USE_DUALSTACK_ENDPOINT (use_dualstack_endpoint) is true, and region "
                          "%s has no such endpoints",
                          config->region);
    const char *bundle = first_of(said->ca_bundle, cairn_profile_get(profile, "ca_bundle"), NULL);
    CAIRN_TRY(own_text(config, bundle, &config->options.ca_bundle, err));
    const char *checksum =
        first_of(said->checksum, cairn_profile_get(profile, "request_checksum_calculation"), NULL);
    CAIRN_TRY(take_checksum(config, checksum, err));
    const char *addressing = cairn_profile_get(profile, "s3.addressing_style");
    enum cairn_store_s3_style style = config->options.style;
    if (style == CAIRN_S3_STYLE_AUTO && addressing && !strcmp(addressing, "path"))
        style = CAIRN_S3_STYLE_PATH;
    if (style == CAIRN_S3_STYLE_AUTO && addressing && !strcmp(addressing, "virtual"))
        style = CAIRN_S3_STYLE_VIRTUAL;
    /* A dot in the bucket's name would not match the certificate's wildcard. */
    bool path = !config->is_aws || strchr(config->bucket, '.') || strchr(config->bucket, '_');
    config->by_path = style == CAIRN_S3_STYLE_AUTO ? path : style == CAIRN_S3_STYLE_PATH;
    return CAIRN_OK;
}

enum cairn_code cairn_s3_config_init(struct cairn_s3_config *config, const char *url,
                                     const struct cairn_store_s3_options *options,
                                     struct cairn_error *err) {
    static const struct cairn_store_s3_options none;
    const struct cairn_store_s3_options *from = options ? options : &none;
    CAIRN_AUTO(profile) profile = {0};
    struct cairn_s3_url parts;
    struct said said;
    CAIRN_TRY(cairn_s3_url_parse(url, &parts, err));
    memcpy(config->bucket, parts.bucket, sizeof config->bucket);
    memcpy(config->prefix, parts.prefix, sizeof config->prefix);
    CAIRN_TRY(check_bucket(config->bucket, err));
    CAIRN_TRY(own_text(config, parts.query, &config->query, err));
    config->profile_alone = *parts.profile;
    collect_said(&parts, from, &said);
    CAIRN_TRY(copy_options(config, &parts, from, err));
    CAIRN_TRY(own_text(config, said.profile, &config->options.profile, err));
    CAIRN_TRY(cairn_profile_load(said.profile, &profile, err));
    CAIRN_TRY(cairn_profile_require(&profile, err));
    CAIRN_TRY(take_profile(config, &said, &profile, err));
    config->options.endpoint = NULL;
    config->options.region = config->region;
    return CAIRN_OK;
}

void cairn_s3_config_host(const struct cairn_s3_config *config, const char *region,
                          struct cairn_s3_host *ret) {
    const char *bucket = config->by_path ? "" : config->bucket, *dot = *bucket ? "." : "";
    if (config->is_aws)
        snprintf(ret->text, sizeof ret->text,
                 "%.63s%s"
                 "s3%s%s.%.63s.%s",
                 bucket, dot, config->switches.fips ? "-fips" : "",
                 config->switches.dual_stack ? ".dualstack" : "", region, cairn_aws_domain(region));
    else
        snprintf(ret->text, sizeof ret->text, "%.63s%s%s", bucket, dot, config->host);
}

enum cairn_code cairn_s3_config_path(const struct cairn_s3_config *config, const char *key,
                                     struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_printf(ret, err, "%s/", config->base_path));
    if (config->by_path) CAIRN_TRY(cairn_buf_append_text(ret, config->bucket, err));
    if (!key) return CAIRN_OK;
    if (config->by_path) CAIRN_TRY(cairn_buf_append_text(ret, "/", err));
    CAIRN_TRY(cairn_buf_append_text(ret, config->prefix, err));
    return cairn_buf_append_text(ret, key, err);
}

/* ---- the URL: bucket, prefix, options ---- */

static const struct option {
    const char *name;
    size_t offset, size; /* of the field */
} options[] = {
#define OPTION(name, bytes, what) {#name, offsetof(struct cairn_s3_url, name), (bytes) + 1},
#include "store/s3/url.def"
#undef OPTION
};

size_t cairn_s3_url_place_size(const char *text) {
    return strcspn(text, "?");
}

static enum cairn_code refuse_url(struct cairn_error *err, const char *text, const char *why) {
    char place[CAIRN_S3_URL_BYTES_MAX + 16];
    size_t size = cairn_min_u64(cairn_s3_url_place_size(text), CAIRN_S3_URL_BYTES_MAX);
    const char *at = memchr(text, '@', size);
    if (at)
        snprintf(place, sizeof place, "s3://...%.*s", (int)(size - (size_t)(at - text)), at);
    else
        snprintf(place, sizeof place, "%.*s", (int)size, text);
    return cairn_fail(err, CAIRN_INVALID, "store \"%s\": %s", cairn_short(place).text, why);
}

/* Option names may appear in errors; other text here may be a credential and must not. */
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
    return refuse_url(err, text, said);
}

static enum cairn_code take_place(const char *text, struct cairn_s3_url *ret,
                                  struct cairn_error *err) {
    const char *bucket = text + strlen("s3://"), *end = text + cairn_s3_url_place_size(text);
    size_t size = strcspn(bucket, "/?");
    if (cairn_text_starts(bucket, "arn:"))
        return refuse_url(err, text,
                          "an access point is named by its alias (-s3alias), not by its ARN");
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)bucket[i]) && !strchr(".-_", bucket[i]))
            return refuse_url(err, text, "no bucket has such a name");
    if (size < 3 || size > 63) return refuse_url(err, text, "a bucket's name has 3 to 63 bytes");
    snprintf(ret->bucket, sizeof ret->bucket, "%.*s", (int)size, bucket);
    const char *prefix = bucket + size + (bucket[size] == '/');
    size_t prefix_size = (size_t)(end - prefix);
    while (prefix_size && prefix[prefix_size - 1] == '/') prefix_size--;
    if (prefix_size > 256) return refuse_url(err, text, "the prefix is longer than 256 bytes");
    for (size_t i = 0; i < prefix_size; i++)
        if ((unsigned char)prefix[i] < ' ' || strchr("#\\", prefix[i]))
            return refuse_url(err, text, "bad byte in the prefix");
    if (prefix_size) snprintf(ret->prefix, sizeof ret->prefix, "%.*s/", (int)prefix_size, prefix);
    return CAIRN_OK;
}

static const struct option *find_option(struct cairn_view name) {
    for (size_t i = 0; i < CAIRN_COUNT(options); i++)
        if (strlen(options[i].name) == name.size && !memcmp(options[i].name, name.data, name.size))
            return &options[i];
    return NULL;
}

static enum cairn_code take_option(const char *text, struct cairn_view said,
                                   struct cairn_s3_url *ret, struct cairn_error *err) {
    const char *at = said.data, *sign = memchr(at, '=', said.size);
    struct cairn_view name = {at, sign ? (size_t)(sign - at) : said.size};
    const struct option *option = sign ? find_option(name) : NULL;
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
        return refuse_url(err, text, "the URL is longer than 1,000 bytes");
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

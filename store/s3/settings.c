/* SPDX-License-Identifier: Apache-2.0 */
/* The words of store/s3/settings.def and the relations between them. */
#include "store/s3/settings.h"

#include "common/text.h"
#include "store/s3/config.h"

static const struct cairn_config_row rows[] = {
#define CONFIG(type, name, fallback, min, max, why)                                                \
    CAIRN_CONFIG_ROW(cairn_store_s3_settings, type, name, fallback, min, max, why)
#include "store/s3/settings.def"
#undef CONFIG
};

/* Its place in a list of words; the list's size when it is none of them. */
static size_t place_of(const char *word, const char *const *words, size_t count) {
    size_t i = 0;
    while (i < count && strcmp(word, words[i]) != 0) i++;
    return i;
}

static enum cairn_code take_words(const struct cairn_store_s3_settings *settings,
                                  struct cairn_store_s3_options *ret, struct cairn_error *err) {
    static const char *const styles[] = {"auto", "path", "virtual"}; /* in the enums' order */
    static const char *const checksums[] = {"auto", "crc32c", "md5", "none"};
    size_t style = place_of(settings->addressing, styles, CAIRN_COUNT(styles));
    if (style == CAIRN_COUNT(styles))
        return cairn_fail(err, CAIRN_INVALID, "addressing is \"%s\"; it is auto, path or virtual",
                          settings->addressing);
    size_t checksum = place_of(settings->checksum, checksums, CAIRN_COUNT(checksums));
    if (checksum == CAIRN_COUNT(checksums))
        return cairn_fail(err, CAIRN_INVALID, "checksum is \"%s\"; it is auto, crc32c, md5 or none",
                          settings->checksum);
    CAIRN_TRY(cairn_s3_encryption_check(settings->sse, settings->sse_kms_key_id, err));
    CAIRN_TRY(cairn_s3_sharing_check(settings->acl, settings->request_payer, err));
    ret->style = (enum cairn_store_s3_style)style;
    ret->checksum = (enum cairn_store_s3_checksum)checksum;
    return CAIRN_OK;
}

static enum cairn_code take_interfaces(const char *text, struct cairn_store_s3_choice *ret,
                                       struct cairn_error *err) {
    if (!*text) return CAIRN_OK;
    if (!cairn_text_copy(ret->interfaces_text, sizeof ret->interfaces_text, text))
        return cairn_fail(err, CAIRN_INVALID, "interfaces is too long");
    char *at = ret->interfaces_text;
    for (size_t i = 0; at; i++) {
        char *comma = strchr(at, ',');
        if (comma) *comma = '\0';
        if (!*at || strpbrk(at, " \t/!"))
            return cairn_fail(err, CAIRN_INVALID,
                              "interfaces is \"%s\"; names are parted by commas alone", text);
        if (i == CAIRN_S3_INTERFACES_MAX)
            return cairn_fail(err, CAIRN_INVALID, "interfaces: more than %d names",
                              CAIRN_S3_INTERFACES_MAX);
        ret->interfaces[i] = at;
        ret->options.interface_count = i + 1;
        at = comma ? comma + 1 : NULL;
    }
    ret->options.interfaces = ret->interfaces;
    return CAIRN_OK;
}

enum cairn_code cairn_store_s3_choose(const struct cairn_store_s3_settings *settings,
                                      struct cairn_store_s3_choice *ret, struct cairn_error *err) {
    *ret = (struct cairn_store_s3_choice){
        .options = {
            .endpoint = settings->endpoint,
            .region = settings->region,
            .profile = settings->profile,
            .ca_bundle = settings->ca_bundle,
            .sign_payload = settings->sign_payload,
            .allow_plain_http = settings->allow_plain_http,
            .no_hedge = !settings->hedge,
            .verbose_trace = settings->trace_store,
            .sse = settings->sse,
            .sse_kms_key_id = settings->sse_kms_key_id,
            .storage_class = settings->storage_class,
            .object_tags = settings->object_tags,
            .bucket_owner = settings->bucket_owner,
            .acl = settings->acl,
            .request_payer = settings->request_payer,
            .connections_max = (uint32_t)settings->store_connections,
            .requests_max = (uint32_t)settings->store_requests,
            .bandwidth_bytes_per_s = settings->bandwidth_max_bytes,
            .connect_ms = (uint32_t)settings->store_connect_timeout_ms,
            .stall_ms = (uint32_t)settings->store_stall_timeout_ms,
        }};
    CAIRN_TRY(take_words(settings, &ret->options, err));
    return take_interfaces(settings->interfaces, ret, err);
}

enum cairn_code cairn_store_s3_environment_load(struct cairn_store_s3_environment *ret,
                                                struct cairn_error *err) {
    *ret = (struct cairn_store_s3_environment){0};
    enum cairn_code code =
        cairn_config_init(&ret->config, rows, CAIRN_COUNT(rows), &ret->settings, err);
    if (code == CAIRN_OK) code = cairn_config_environment(&ret->config, err);
    if (code == CAIRN_OK) code = cairn_store_s3_choose(&ret->settings, &ret->choice, err);
    if (code != CAIRN_OK) cairn_store_s3_environment_release(ret);
    return code;
}

void cairn_store_s3_environment_release(struct cairn_store_s3_environment *environment) {
    cairn_config_release(&environment->config);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the words of store/s3/settings.def and checks their relations; starts a daemon's store. */
#include "store/s3/start.h"

#include "common/file.h"
#include "common/log.h"
#include "common/text.h"
#include "store/open.h"
#include "store/s3/config.h"

static const struct cairn_config_row rows[] = {
#define CONFIG(type, name, fallback, min, max, why)                                                \
    CAIRN_CONFIG_ROW(cairn_store_s3_settings, type, name, fallback, min, max, why)
#include "store/s3/settings.def"
#undef CONFIG
};

static enum cairn_code take_words(const struct cairn_store_s3_settings *settings,
                                  struct cairn_store_s3_options *ret, struct cairn_error *err) {
    static const char *const styles[] = {"auto", "path", "virtual"}; /* in the enums' order */
    static const char *const checksums[] = {"auto", "crc32c", "md5", "none"};
    size_t style = cairn_s3_place_of(settings->addressing, styles, CAIRN_COUNT(styles));
    if (style == CAIRN_COUNT(styles))
        return cairn_fail(err, CAIRN_INVALID, "addressing is \"%s\"; it is auto, path or virtual",
                          settings->addressing);
    size_t checksum = cairn_s3_place_of(settings->checksum, checksums, CAIRN_COUNT(checksums));
    if (checksum == CAIRN_COUNT(checksums))
        return cairn_fail(err, CAIRN_INVALID, "checksum is \"%s\"; it is auto, crc32c, md5 or none",
                          settings->checksum);
    CAIRN_TRY(cairn_s3_encryption_check(settings->sse, settings->sse_kms_key_id, err));
    CAIRN_TRY(cairn_s3_sharing_check(settings->acl, settings->request_payer, err));
    ret->style = (enum cairn_store_s3_style)style;
    ret->checksum = (enum cairn_store_s3_checksum)checksum;
    return CAIRN_OK;
}

static enum cairn_code choose_options(const struct cairn_store_s3_settings *settings,
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
    const char *text = settings->interfaces;
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

enum cairn_code cairn_store_s3_environment_load(struct cairn_store_s3_environment *ret,
                                                struct cairn_error *err) {
    *ret = (struct cairn_store_s3_environment){0};
    enum cairn_code code =
        cairn_config_init(&ret->config, rows, CAIRN_COUNT(rows), &ret->settings, err);
    if (code == CAIRN_OK) code = cairn_config_environment(&ret->config, err);
    if (code == CAIRN_OK) code = choose_options(&ret->settings, &ret->choice, err);
    if (code != CAIRN_OK) cairn_store_s3_environment_release(ret);
    return code;
}

void cairn_store_s3_environment_release(struct cairn_store_s3_environment *environment) {
    cairn_config_release(&environment->config);
}

static enum cairn_code open_store(const struct cairn_store_start *start, struct cairn_store **ret,
                                  struct cairn_error *err) {
    struct cairn_store_s3_choice choice;
    CAIRN_TRY(choose_options(start->s3, &choice, err));
    choice.options.probe_ms = start->probe_ms;
    struct cairn_store_options options = {.url = start->url, .s3 = &choice.options};
    enum cairn_code code = cairn_file_mode_parse(start->file_mode, &options.file_mode, err);
    if (code) return cairn_within(err, code, "file_mode");
    cairn_store_register(CAIRN_STORE_SCHEME_S3, cairn_store_s3_open);
    return cairn_store_open(&options, ret, err);
}

static enum cairn_code test_opened(const struct cairn_store_start *start, struct cairn_store *store,
                                   struct cairn_error *err) {
    char keys[224], exposed[540], from[160];
    CAIRN_TRY(cairn_store_keys(store, keys, err));
    if (*keys) cairn_log(INFO, "store.keys", "from=\"%s\"", keys);
    if (cairn_store_keys_exposed(store, exposed))
        cairn_log(WARN, "store.keys_exposed", "cause=\"%s\"", exposed);
    if (!start->s3->test_store) return CAIRN_OK;
    CAIRN_TRY(cairn_store_probe(store, start->by, start->may_list, from, err));
    if (*from) cairn_log(INFO, "store.known", "url=%s from=\"%s\"", cairn_store_url(store), from);
    return CAIRN_OK;
}

enum cairn_code cairn_store_start(const struct cairn_store_start *start, struct cairn_store **ret,
                                  struct cairn_error *err) {
    CAIRN_AUTO_PTR(store) store = NULL;
    struct cairn_error why = {0};
    CAIRN_TRY(open_store(start, &store, err));
    enum cairn_code code = test_opened(start, store, &why);
    if (code != CAIRN_OK && start->must_work) return cairn_pass(err, code, &why);
    if (code != CAIRN_OK)
        cairn_log(WARN, "store.untested", "url=%s cause=\"%s\" hint=\"cairn doctor says more\"",
                  cairn_store_url(store), why.message);
#ifdef CAIRN_CRASHPOINTS
    if (cairn_store_test_wrap) CAIRN_TRY(cairn_store_test_wrap(CAIRN_TAKE(store), &store, err));
#endif
    const char *note = cairn_store_profile(store)->note;
    if (*note) cairn_log(WARN, "store.profile", "url=%s note=\"%s\"", cairn_store_url(store), note);
    *ret = CAIRN_TAKE(store);
    return CAIRN_OK;
}

void cairn_store_start_keep(struct cairn_store *store) {
    struct cairn_error why = {0};
    bool written = false;
    if (cairn_store_profile_save(store, &written, &why) != CAIRN_OK)
        cairn_log(WARN, "store.profile_unwritten", "url=%s cause=\"%s\"", cairn_store_url(store),
                  why.message);
    else if (written)
        cairn_log(INFO, "store.profile_written", "url=%s", cairn_store_url(store));
}

void cairn_store_watch_look(struct cairn_store_watch *watch, struct cairn_store *store,
                            bool keeps) {
    struct cairn_store_health health;
    if (watch->logged) return;
    cairn_store_health(store, &health);
    if (!health.degraded) return;
    watch->logged = true;
    cairn_log(WARN, "store.degraded", "url=%s note=\"%s\"", cairn_store_url(store), health.text);
    if (!health.profile_wrong) return;
    cairn_log(WARN, "store.profile_wrong", "url=%s", cairn_store_url(store));
    if (keeps) cairn_store_start_keep(store);
}

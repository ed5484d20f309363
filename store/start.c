/* SPDX-License-Identifier: Apache-2.0 */
/* Open, ask, test, tell; see start.h. */
#include "store/start.h"

#include "common/file.h"
#include "common/log.h"
#include "store/open.h"
#include "store/s3/s3.h"

static enum cairn_code open_store(const struct cairn_store_start *start, struct cairn_store **ret,
                                  struct cairn_error *err) {
    struct cairn_store_s3_choice choice;
    CAIRN_TRY(cairn_store_s3_choose(start->s3, &choice, err));
    choice.options.probe_ms = start->probe_ms;
    struct cairn_store_options options = {.url = start->url, .s3 = &choice.options};
    enum cairn_code code = cairn_file_mode_parse(start->file_mode, &options.file_mode, err);
    if (code) return cairn_within(err, code, "file_mode");
    cairn_store_register(CAIRN_STORE_SCHEME_S3, cairn_store_s3_open);
    return cairn_store_open(&options, ret, err);
}

static enum cairn_code test(const struct cairn_store_start *start, struct cairn_store *store,
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
    enum cairn_code code = test(start, store, &why);
    if (code != CAIRN_OK && start->must_work) {
        if (err) *err = why;
        return code;
    }
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

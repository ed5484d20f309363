/* SPDX-License-Identifier: Apache-2.0 */
/* The file of webhooks; see webhook_file.h. */
#include "server/events/webhook_file.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/keys.h"
#include "common/file.h"
#include "common/text.h"

#define FILE_BYTES_MAX CAIRN_MIB
#define SECRET_BYTES_MIN 16
#define SECRET_PREFIX "whsec_" /* as other servers' secrets are written: base64 follows */

static const char *const event_names[CAIRN_SRV_EVENT_COUNT] = {
#define EVENT(id, name, kept, about, what) [CAIRN_SRV_EVENT_##id] = name,
#include "api/events.def"
#undef EVENT
};

bool cairn_srv_webhook_wants(const struct cairn_srv_webhook *hook, const char *event,
                             const char *project) {
    for (size_t i = 0; i < CAIRN_COUNT(event_names); i++)
        if (hook->events[i] && !strcmp(event_names[i], event))
            return !fnmatch(hook->project, project, 0);
    return false;
}

/* ---- members ---- */

/* "checkpoint.*" is each of its kind. */
static bool choose(struct cairn_srv_webhook *hook, const char *pattern) {
    bool any = false;
    for (size_t i = 0; i < CAIRN_COUNT(event_names); i++) {
        if (fnmatch(pattern, event_names[i], 0) != 0) continue;
        hook->events[i] = any = true;
    }
    return any;
}

static enum cairn_code read_events(struct cairn_srv_webhook *hook, const json_t *events,
                                   const char *pointer, struct cairn_error *err) {
    size_t index = 0;
    json_t *item = NULL;
    if (!json_array_size(events)) return choose(hook, "*") ? CAIRN_OK : CAIRN_INVALID;
    json_array_foreach((json_t *)(uintptr_t)events, index, item) {
        const char *pattern = json_string_value(item);
        if (!pattern || !choose(hook, pattern))
            return cairn_fail(err, CAIRN_INVALID,
                              "%s/events/%zu: \"%.64s\" is no event, nor a pattern of some: "
                              "docs/http.md has them",
                              pointer, index, pattern ? pattern : "(not a text)");
    }
    return CAIRN_OK;
}

/* What follows the third slash may be secret, and so may what stands before an @. */
static enum cairn_code read_url(struct cairn_srv_webhook *hook, const char *pointer,
                                struct cairn_error *err) {
    bool plain = cairn_text_starts(hook->url, "http://");
    if (!plain && !cairn_text_starts(hook->url, "https://"))
        return cairn_fail(err, CAIRN_INVALID, "%s/url: want https://... or http://...", pointer);
    const char *host = strstr(hook->url, "//") + 2;
    size_t size = strcspn(host, "/?#");
    const char *at = memchr(host, '@', size);
    if (at || !size || size > 200)
        return cairn_fail(err, CAIRN_INVALID, "%s/url: want a host, and no user before it",
                          pointer);
    snprintf(hook->host, sizeof(hook->host), "%s://%.*s", plain ? "http" : "https", (int)size,
             host);
    return CAIRN_OK;
}

static enum cairn_code read_secret(struct cairn_srv_webhook *hook, const char *text,
                                   const char *pointer, struct cairn_error *err) {
    CAIRN_AUTO(buf) bytes = {.limit = CAIRN_SRV_WEBHOOK_SECRET_MAX};
    struct cairn_view view = cairn_view_of(text);
    enum cairn_code code = CAIRN_OK;
    if (cairn_text_starts(text, SECRET_PREFIX)) {
        view = cairn_view_of(text + strlen(SECRET_PREFIX));
        code = cairn_base64_decode(view, &bytes, NULL);
        view = cairn_buf_view(&bytes);
    }
    if (code || view.size < SECRET_BYTES_MIN || view.size > sizeof(hook->secret))
        return cairn_fail(err, CAIRN_INVALID,
                          "%s/secret: want %d to %d bytes, or " SECRET_PREFIX
                          " and as many in base64 (openssl rand -base64 32 makes some)",
                          pointer, SECRET_BYTES_MIN, CAIRN_SRV_WEBHOOK_SECRET_MAX);
    memcpy(hook->secret, view.data, view.size);
    hook->secret_size = view.size;
    return CAIRN_OK;
}

static enum cairn_code load_secret(struct cairn_srv_webhook *hook, const char *text,
                                   const char *path, const char *pointer, struct cairn_error *err) {
    CAIRN_AUTO(buf) line = {.limit = 4096};
    if (!text == !path)
        return cairn_fail(err, CAIRN_INVALID, "%s: want secret or secret_file", pointer);
    if (text) return read_secret(hook, text, pointer, err);
    enum cairn_code code = cairn_file_load_secret_line(path, &line, err);
    if (code) return cairn_within(err, CAIRN_INVALID, "%s/secret_file", pointer);
    return read_secret(hook, (const char *)line.data, pointer, err);
}

static enum cairn_code read_hook(struct cairn_srv_webhook *hook, const json_t *item,
                                 const char *pointer, struct cairn_error *err) {
    const char *name = NULL, *url = NULL, *project = "*", *secret = NULL, *path = NULL;
    json_t *events = NULL;
    const struct cairn_json_field fields[] = {
        {"name", CAIRN_JSON_TEXT, true, &name, CAIRN_SRV_WEBHOOK_NAME_MAX},
        {"url", CAIRN_JSON_TEXT, true, &url, sizeof(hook->url) - 1},
        {"events", CAIRN_JSON_ARRAY, false, &events, 0},
        {"project", CAIRN_JSON_TEXT, false, &project, CAIRN_NAME_BYTES_MAX},
        {"secret", CAIRN_JSON_TEXT, false, &secret, 1024},
        {"secret_file", CAIRN_JSON_TEXT, false, &path, 1024},
    };
    CAIRN_TRY(cairn_json_read(item, pointer, fields, CAIRN_COUNT(fields), false, err));
    if (!cairn_name_valid(cairn_view_of(name)))
        return cairn_fail(err, CAIRN_INVALID, "%s/name: want letters, digits, . _ -", pointer);
    snprintf(hook->name, sizeof(hook->name), "%s", name);
    snprintf(hook->url, sizeof(hook->url), "%s", url);
    snprintf(hook->project, sizeof(hook->project), "%s", project);
    CAIRN_TRY(read_url(hook, pointer, err));
    CAIRN_TRY(read_events(hook, events, pointer, err));
    return load_secret(hook, secret, path, pointer, err);
}

/* ---- the file ---- */

static enum cairn_code read_all(struct cairn_srv_webhook_file *file, const json_t *json,
                                struct cairn_error *err) {
    json_t *hooks = NULL;
    const struct cairn_json_field fields[] = {
        {"webhooks", CAIRN_JSON_ARRAY, true, &hooks, 0},
    };
    CAIRN_TRY(cairn_json_read(json, "", fields, CAIRN_COUNT(fields), false, err));
    if (json_array_size(hooks) > CAIRN_SRV_WEBHOOKS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/webhooks: at most %d", CAIRN_SRV_WEBHOOKS_MAX);
    for (size_t i = 0; i < json_array_size(hooks); i++) {
        char pointer[32];
        snprintf(pointer, sizeof(pointer), "/webhooks/%zu", i);
        CAIRN_TRY(read_hook(&file->hooks[i], json_array_get(hooks, i), pointer, err));
        for (size_t j = 0; j < i; j++)
            if (!strcmp(file->hooks[i].name, file->hooks[j].name))
                return cairn_fail(err, CAIRN_INVALID, "%s/name: %s is there twice", pointer,
                                  file->hooks[i].name);
        file->count++;
    }
    return CAIRN_OK;
}

static enum cairn_code load(const char *path, struct cairn_srv_webhook_file *file,
                            struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = FILE_BYTES_MAX};
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_TRY(cairn_file_load_secret(path, &text, err));
    CAIRN_TRY(cairn_json_parse(cairn_buf_view(&text), (struct cairn_json_limits){0}, &json, err));
    return read_all(file, json, err);
}

enum cairn_code cairn_srv_webhook_file_load(const char *path, struct cairn_srv_webhook_file **ret,
                                            struct cairn_error *err) {
    struct cairn_srv_webhook_file *file = calloc(1, sizeof(*file));
    if (!file) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for webhooks");
    enum cairn_code code = path[0] ? load(path, file, err) : CAIRN_OK;
    *ret = file;
    if (!code) return CAIRN_OK;
    free(file);
    *ret = NULL;
    if (code != CAIRN_NO_MEMORY) code = CAIRN_INVALID;
    return cairn_within(err, code, "webhooks-file %s", path);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* /ui/: a page that shows the API. Its files are built in (server/ui/files.def) and contain no
 * data, so they need no token. All but the page itself lie in a folder named by their checksum, so
 * that a browser caches them for good and never mixes releases. */
#include <pthread.h>
#include <string.h>

#include "common/crc.h"
#include "server/http/request.h"

#define FILES_WORD "@FILES@" /* in index.html: name of that folder */
/* Scripts and styles only from this origin; no framing by other sites. */
#define CONTENT_POLICY                                                                             \
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "            \
    "object-src 'none'"

#define UI_FILE(id, name, type)                                                                    \
    __asm__(".section .rodata\n"                                                                   \
            ".global cairn_ui_" #id "_begin, cairn_ui_" #id "_end, cairn_ui_" #id "_packed\n"      \
            ".global cairn_ui_" #id "_packed_end\n"                                                \
            "cairn_ui_" #id "_begin:\n.incbin \"server/ui/" name "\"\n"                            \
            "cairn_ui_" #id "_end:\n"                                                              \
            "cairn_ui_" #id "_packed:\n.incbin \"ui/" name ".gz\"\n" /* in the build folder */     \
            "cairn_ui_" #id "_packed_end:\n.byte 0\n.previous\n");                                 \
    extern const char cairn_ui_##id##_begin[], cairn_ui_##id##_end[], cairn_ui_##id##_packed[],    \
        cairn_ui_##id##_packed_end[];
#include "server/ui/files.def"
#undef UI_FILE

static const struct file {
    const char *name, *type, *begin, *end, *packed, *packed_end;
} files[] = {
#define UI_FILE(id, name, type)                                                                    \
    {name,                                                                                         \
     type,                                                                                         \
     cairn_ui_##id##_begin,                                                                        \
     cairn_ui_##id##_end,                                                                          \
     cairn_ui_##id##_packed,                                                                       \
     cairn_ui_##id##_packed_end},
#include "server/ui/files.def"
#undef UI_FILE
};

static pthread_once_t named_once = PTHREAD_ONCE_INIT;
static char folder[9]; /* the files' checksum, in hex */

static void name_folder(void) {
    uint32_t crc = 0;
    for (size_t i = 0; i < CAIRN_COUNT(files); i++)
        crc = cairn_crc32c(crc, files[i].begin, (size_t)(files[i].end - files[i].begin));
    snprintf(folder, sizeof(folder), "%08x", crc);
}

static bool takes_gzip(const struct srv_request *request) {
    const char *found = strstr(request->accept_encoding, "gzip");
    return found && !cairn_text_starts(found, "gzip;q=0");
}

static enum cairn_code is_there(const struct srv_request *request, struct cairn_error *err) {
    if (request->server->settings->ui) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND, "this server was started without its page (--no-ui)");
}

static void say_safe(struct srv_reply *reply) {
    srv_reply_header(reply, "Content-Security-Policy", "%s", CONTENT_POLICY);
    srv_reply_header(reply, "Referrer-Policy", "no-referrer");
    srv_reply_header(reply, "Cross-Origin-Opener-Policy", "same-origin");
}

SRV_HANDLER(ui) {
    CAIRN_TRY(is_there(request, err));
    size_t length = strlen(request->path);
    if (request->path[length - 1] != '/') { /* the page's links are relative to /ui/ */
        reply->status = 308;
        reply->content_type = files[0].type;
        srv_reply_header(reply, "Location", "ui/");
        return CAIRN_OK;
    }
    (void)pthread_once(&named_once, name_folder);
    char tag[16];
    snprintf(tag, sizeof(tag), "\"%s\"", folder);
    say_safe(reply);
    srv_reply_header(reply, "ETag", "%s", tag);
    srv_reply_header(reply, "Cache-Control", "no-cache");
    if (srv_tag_listed(request->if_none_match, tag, true)) {
        reply->status = 304;
        return CAIRN_OK;
    }
    reply->content_type = files[0].type;
    const char *from = files[0].begin;
    for (const char *word;
         (word = memmem(from, (size_t)(files[0].end - from), FILES_WORD, strlen(FILES_WORD)));
         from = word + strlen(FILES_WORD)) {
        CAIRN_TRY(cairn_buf_append(&reply->body, from, (size_t)(word - from), err));
        CAIRN_TRY(cairn_buf_append(&reply->body, folder, strlen(folder), err));
    }
    return cairn_buf_append(&reply->body, from, (size_t)(files[0].end - from), err);
}

/* Other releases' folders, which an open page may request, get current files, uncached. */
SRV_HANDLER(ui_file) {
    CAIRN_TRY(is_there(request, err));
    (void)pthread_once(&named_once, name_folder);
    const char *name = strchr(request->params.shard, '/');
    const struct file *file = NULL;
    for (size_t i = 1; name && i < CAIRN_COUNT(files); i++)
        if (!strcmp(files[i].name, name + 1)) file = &files[i];
    if (!file)
        return cairn_fail(err, CAIRN_NOT_FOUND, "the page has no file %s", request->params.shard);
    bool own = !strncmp(request->params.shard, folder, strlen(folder)) &&
               name == request->params.shard + strlen(folder);
    bool packed = takes_gzip(request);
    say_safe(reply);
    srv_reply_header(reply, "Cache-Control", "%s",
                     own ? "public, immutable, max-age=31536000" : "no-store");
    srv_reply_header(reply, "Vary", "Accept-Encoding");
    if (packed) srv_reply_header(reply, "Content-Encoding", "gzip");
    reply->content_type = file->type;
    const char *from = packed ? file->packed : file->begin;
    const char *to = packed ? file->packed_end : file->end;
    return cairn_buf_append(&reply->body, from, (size_t)(to - from), err);
}

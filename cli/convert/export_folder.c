/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a folder: each is written under a name that ends in .part; see export_folder.h. */
#include "cli/convert/export_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/shell/output.h"

#define PART "%s.part"

struct folder {
    struct cairn_cli_export_sink sink;
    int fd;
    struct cairn_cli_export_log log;
};

static struct folder *folder_of(struct cairn_cli_export_sink *sink) {
    return (struct folder *)(void *)sink;
}

static bool is_there(const struct folder *folder, const char *name) {
    return faccessat(folder->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static enum cairn_code already(const struct folder *folder, const char *name,
                               struct cairn_error *err) {
    return cairn_cli_export_already(folder->sink.place, name, err);
}

/* ---- opening ---- */

/* Names that are there are those of an earlier export that was ended while it gave them, or in the
 * way; then it had written every file. */
static enum cairn_code check_names(struct folder *folder, struct cairn_error *err) {
    struct cairn_cli_export_plan *plan = folder->sink.plan;
    const char *index = cairn_cli_export_naming(plan->export)->index;
    bool all = true;
    for (size_t i = 0; i < plan->count; i++) {
        struct cairn_cli_export_shard *shard = &plan->shards[i];
        shard->in_place = is_there(folder, shard->name);
        all &= shard->in_place;
        if (shard->in_place && !folder->log.resumed && !plan->export->same)
            return already(folder, shard->name, err);
    }
    bool has_index = is_there(folder, index);
    /* An export that was whole: nothing of it is written, and each byte is compared. */
    folder->sink.compares =
        !folder->log.resumed && all && has_index == cairn_cli_export_has_index(plan);
    for (size_t i = 0; !folder->log.resumed && !folder->sink.compares && i < plan->count; i++)
        if (plan->shards[i].in_place) return already(folder, plan->shards[i].name, err);
    bool in_the_way = has_index && !(all && (folder->log.resumed || folder->sink.compares));
    return in_the_way ? already(folder, index, err) : CAIRN_OK;
}

static enum cairn_code open_in_place(const struct folder *folder,
                                     struct cairn_cli_export_shard *shard,
                                     struct cairn_error *err) {
    uint64_t bytes;
    CAIRN_TRY(cairn_file_open_read(folder->fd, shard->name, &shard->file, err));
    CAIRN_TRY(cairn_file_size(&shard->file, &bytes, err));
    return bytes == shard->bytes ? CAIRN_OK : already(folder, shard->name, err);
}

static enum cairn_code open_shard(const struct folder *folder, struct cairn_cli_export_shard *shard,
                                  struct cairn_error *err) {
    struct cairn_error why = {0};
    char part[96];
    snprintf(part, sizeof part, PART, shard->name);
    if (shard->in_place) return open_in_place(folder, shard, err);
    if (!folder->log.resumed) unlinkat(folder->fd, part, 0); /* of an export without a log */
    enum cairn_code code = cairn_file_open_write(folder->fd, part, &shard->file, &why);
    struct stat status;
    if (code == CAIRN_NOT_FOUND)
        return cairn_file_create(folder->fd, part, shard->bytes, &shard->file, err);
    if (code == CAIRN_OK && (fstat(shard->file.fd, &status) || status.st_nlink != 1))
        code = cairn_fail(&why, CAIRN_CONFLICT,
                          "%s/%s has a second name, whose bytes would be overwritten: remove it",
                          folder->sink.place, part);
    if (code == CAIRN_OK && ftruncate(shard->file.fd, (off_t)shard->bytes) != 0)
        code = cairn_fail_errno(&why, "%s", part);
    if (code != CAIRN_OK && err) *err = why;
    return code;
}

static enum cairn_code open_files(struct folder *folder,
                                  const struct cairn_cli_export_identity *identity,
                                  struct cairn_error *err) {
    struct cairn_cli_export_plan *plan = folder->sink.plan;
    const char *place = folder->sink.place;
    if (mkdir(place, 0777) != 0 && errno != EEXIST) return cairn_fail_errno(err, "%s", place);
    folder->fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd < 0) return cairn_fail_errno(err, "%s", place);
    CAIRN_TRY(cairn_cli_export_log_open(folder->fd, place, identity, plan->window_count,
                                        &folder->log, err));
    folder->sink.resumed = folder->log.resumed;
    folder->sink.kept = true;
    CAIRN_TRY(check_names(folder, err));
    for (size_t i = 0; i < plan->count; i++) CAIRN_TRY(open_shard(folder, &plan->shards[i], err));
    return CAIRN_OK;
}

/* ---- windows ---- */

/* By an earlier export, and it is there still. */
static bool there(struct cairn_cli_export_sink *sink, void *hand,
                  const struct cairn_cli_export_span *span, void *memory) {
    struct folder *folder = folder_of(sink);
    uint64_t number = cairn_cli_export_window_of(span);
    (void)hand;
    return cairn_cli_export_log_noted(&folder->log, number) &&
           cairn_file_read_at(&span->shard->file, memory, span->size, span->begin, NULL) ==
               CAIRN_OK &&
           cairn_cli_export_log_has(&folder->log, number, memory, span->size);
}

static enum cairn_code compare_span(const struct folder *folder,
                                    const struct cairn_cli_export_span *span, const void *memory,
                                    struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *found = malloc(span->size);
    if (!found) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a window");
    CAIRN_TRY(cairn_file_read_at(&span->shard->file, found, span->size, span->begin, err));
    return memcmp(found, memory, span->size) ? already(folder, span->shard->name, err) : CAIRN_OK;
}

static enum cairn_code write_span(struct cairn_cli_export_sink *sink, void *hand,
                                  const struct cairn_cli_export_span *span, const void *memory,
                                  struct cairn_error *err) {
    struct folder *folder = folder_of(sink);
    (void)hand;
    if (span->shard->in_place) return compare_span(folder, span, memory, err);
    CAIRN_TRY(cairn_file_write_at(&span->shard->file, memory, span->size, span->begin, err));
    return cairn_cli_export_log_note(&folder->log, cairn_cli_export_window_of(span), memory,
                                     span->size, err);
}

/* ---- names ---- */

/* By the export that goes on here, or by somebody else. */
static enum cairn_code compare_index(const struct folder *folder, const char *name,
                                     const struct cairn_buf *text, struct cairn_error *err) {
    CAIRN_AUTO(file) file = {0};
    uint64_t size;
    CAIRN_TRY(cairn_file_open_read(folder->fd, name, &file, err)); /* a regular one, no link */
    CAIRN_TRY(cairn_file_size(&file, &size, err));
    if (size != text->size) return already(folder, name, err);
    CAIRN_AUTO_HEAP char *found = malloc(text->size + 1);
    if (!found) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for %s", name);
    CAIRN_TRY(cairn_file_read_at(&file, found, text->size, 0, err));
    return memcmp(found, text->data, text->size) ? already(folder, name, err) : CAIRN_OK;
}

static enum cairn_code write_index(const struct folder *folder, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_GIB};
    const char *name = cairn_cli_export_naming(folder->sink.plan->export)->index;
    struct cairn_file file = {.fd = -1, .direct_fd = -1};
    char part[96];
    snprintf(part, sizeof part, PART, name);
    unlinkat(folder->fd, part, 0); /* of an export that was ended */
    CAIRN_TRY(cairn_cli_export_plan_index(folder->sink.plan, &text, err));
    if (is_there(folder, name)) return compare_index(folder, name, &text, err);
    CAIRN_TRY(cairn_file_create(folder->fd, part, text.size, &file, err));
    enum cairn_code code = cairn_file_write_at(&file, text.data, text.size, 0, err);
    if (code == CAIRN_OK) code = cairn_file_sync(&file, err);
    cairn_file_release(&file);
    if (code == CAIRN_OK) code = cairn_file_publish(folder->fd, part, name, err);
    if (code != CAIRN_OK) unlinkat(folder->fd, part, 0);
    return code;
}

static enum cairn_code publish(struct cairn_cli_export_sink *sink, struct cairn_error *err) {
    struct folder *folder = folder_of(sink);
    struct cairn_cli_export_plan *plan = sink->plan;
    for (size_t i = 0; i < plan->count; i++)
        if (!plan->shards[i].in_place) CAIRN_TRY(cairn_file_sync(&plan->shards[i].file, err));
    for (size_t i = 0; i < plan->count; i++) {
        char part[96];
        snprintf(part, sizeof part, PART, plan->shards[i].name);
        if (plan->shards[i].in_place) {
            (void)unlinkat(folder->fd, part, 0); /* its second name, just after the first */
            continue;
        }
        CAIRN_TRY(cairn_file_publish(folder->fd, part, plan->shards[i].name, err));
        plan->shards[i].published = true;
    }
    return cairn_cli_export_has_index(plan) ? write_index(folder, err) : CAIRN_OK;
}

/* ---- its end ---- */

static void close_folder(struct cairn_cli_export_sink *sink, bool published, bool keep) {
    struct folder *folder = folder_of(sink);
    bool failed = !published && !keep;
    for (size_t i = 0; failed && i < sink->plan->count; i++) {
        struct cairn_cli_export_shard *shard = &sink->plan->shards[i];
        char part[96];
        snprintf(part, sizeof part, PART, shard->name);
        if (shard->file.open && !shard->in_place) unlinkat(folder->fd, part, 0);
        if (shard->published) unlinkat(folder->fd, shard->name, 0);
    }
    /* The lock goes last: an export that begins then finds none of these files, and loses none. */
    cairn_cli_export_log_close(&folder->log, folder->fd, !keep);
    if (folder->fd >= 0) close(folder->fd);
    free(folder);
}

static const struct cairn_cli_export_sink_vtable vtable = {
    .fills = true, .there = there, .write = write_span, .publish = publish, .close = close_folder};

enum cairn_code cairn_cli_export_folder_open(struct cairn_cli_export_plan *plan,
                                             const struct cairn_cli_export_identity *identity,
                                             struct cairn_cli_export_sink **ret,
                                             struct cairn_error *err) {
    struct folder *folder = calloc(1, sizeof *folder);
    if (!folder) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a folder");
    *folder =
        (struct folder){.sink = {.vtable = &vtable, .plan = plan, .place = plan->export->folder},
                        .fd = -1,
                        .log.fd = -1};
    *ret = &folder->sink;
    return open_files(folder, identity, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of the planned files by several threads, then the names. */
#include "cli/export.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/dtype.h"
#include "cli/export_log.h"
#include "cli/export_plan.h"
#include "cli/output.h"
#include "cli/workers.h"
#include "common/pages.h"
#include "common/utf8.h"
#include "formats/convert.h"

#define WINDOW_BYTES CAIRN_CLI_EXPORT_WINDOW_BYTES
#define PART "%s.part"

struct job {
    struct cairn_cli_export *export;
    struct cairn_cli_export_plan plan;
    int folder_fd;
    struct cairn_cli_export_log log;
    struct cairn_cli_meter meter;
    struct cairn_cli_workers workers;
    struct { /* by the lock of the workers */
        size_t shard;
        uint64_t offset; /* the next window */
    } locked;
};

/* ---- the bytes of one window ---- */

/* What of an entry lies in [begin, end) of its file; a border never cuts an element: entries are
 * ordered by width, or begin at multiples of 64. */
static enum cairn_code fill_entry(const struct job *job,
                                  const struct cairn_safetensors_entry *entry, uint64_t begin,
                                  uint64_t end, char *window, char *scratch,
                                  struct cairn_error *err) {
    const struct cairn_assembly *assembly = job->export->assembly;
    uint64_t entry_end = entry->offset_bytes + entry->size_bytes;
    uint64_t from = entry->offset_bytes > begin ? entry->offset_bytes : begin;
    uint64_t to = cairn_min_u64(entry_end, end);
    if (from >= to) return CAIRN_OK;
    uint64_t offset = from - entry->offset_bytes, size = to - from;
    if (cairn_cli_export_is_object(&job->plan, entry)) {
        const struct cairn_assembly_piece *piece =
            &assembly->objects[entry->tag - assembly->tensor_count].piece;
        return cairn_input_read(assembly->inputs[piece->input], piece->offset_bytes + offset,
                                window + (from - begin), (size_t)size, err);
    }
    const struct cairn_assembly_tensor *tensor = &assembly->tensors[entry->tag];
    if (entry->dtype == tensor->dtype)
        return cairn_assembly_read(assembly, tensor, offset, window + (from - begin), size, err);
    uint64_t out = cairn_dtype_bits(entry->dtype) / 8, in = cairn_dtype_bits(tensor->dtype) / 8;
    uint64_t room = WINDOW_BYTES / in;
    for (uint64_t done = 0; done < size / out; done += room) {
        uint64_t some = cairn_min_u64(room, size / out - done);
        CAIRN_TRY(cairn_assembly_read(assembly, tensor, (offset / out + done) * in, scratch,
                                      some * in, err));
        cairn_convert(tensor->dtype, scratch, entry->dtype, window + (from - begin) + done * out,
                      (size_t)some);
    }
    return CAIRN_OK;
}

/* The first entry that reaches beyond this byte. */
static size_t first_entry(const struct cairn_cli_export_shard *shard, uint64_t offset) {
    size_t low = 0, high = shard->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct cairn_safetensors_entry *entry = &shard->entries[middle];
        if (entry->offset_bytes + entry->size_bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The first text that reaches beyond this byte. */
static size_t first_text(const struct cairn_torch_plan *text, uint64_t offset) {
    size_t low = 0, high = text->text_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (text->texts[middle].offset_bytes + text->texts[middle].size <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Headers and what else is no tensor; between its parts lie tensors. */
static void fill_text(const struct cairn_torch_plan *text, uint64_t begin, uint64_t end,
                      char *window) {
    for (size_t i = first_text(text, begin);
         i < text->text_count && text->texts[i].offset_bytes < end; i++) {
        const struct cairn_torch_text *part = &text->texts[i];
        uint64_t from = part->offset_bytes > begin ? part->offset_bytes : begin;
        uint64_t to = cairn_min_u64(part->offset_bytes + part->size, end);
        memcpy(window + (from - begin), text->head.data + part->begin + (from - part->offset_bytes),
               (size_t)(to - from));
    }
}

static enum cairn_code fill(const struct job *job, const struct cairn_cli_export_shard *shard,
                            uint64_t begin, uint64_t end, char *window, char *scratch,
                            struct cairn_error *err) {
    fill_text(&shard->text, begin, end, window);
    for (size_t i = first_entry(shard, begin);
         i < shard->count && shard->entries[i].offset_bytes < end; i++) {
        enum cairn_code code =
            fill_entry(job, &shard->entries[i], begin, end, window, scratch, err);
        if (code != CAIRN_OK)
            return cairn_within(err, code,
                                cairn_cli_export_is_object(&job->plan, &shard->entries[i])
                                    ? "object %s"
                                    : "tensor %s",
                                cairn_short(shard->entries[i].name.data).text);
    }
    return CAIRN_OK;
}

/* ---- workers ---- */

static bool next_window(struct job *job, struct cairn_cli_export_shard **ret, uint64_t *ret_begin) {
    CAIRN_HOLD(&job->workers.lock);
    while (job->workers.locked.code == CAIRN_OK && job->locked.shard < job->plan.count) {
        *ret = &job->plan.shards[job->locked.shard];
        *ret_begin = job->locked.offset;
        job->locked.offset += WINDOW_BYTES;
        if (*ret_begin < (*ret)->bytes) return true;
        job->locked.shard++;
        job->locked.offset = 0;
    }
    return false;
}

static enum cairn_code already(const struct job *job, const char *name, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_CONFLICT,
                      "%s has a file %s already: name another folder, or remove it",
                      job->export->folder, name);
}

/* [begin, begin + size) of a file, unless an earlier export wrote it and it is there still. */
static enum cairn_code make_window(const struct job *job,
                                   const struct cairn_cli_export_shard *shard, uint64_t begin,
                                   size_t size, char *window, char *scratch,
                                   struct cairn_error *err) {
    uint64_t number = shard->first_window + begin / WINDOW_BYTES;
    if (cairn_cli_export_log_noted(&job->log, number) &&
        cairn_file_read_at(&shard->file, window, size, begin, NULL) == CAIRN_OK &&
        cairn_cli_export_log_has(&job->log, number, window, size))
        return CAIRN_OK;
    if (shard->in_place) return already(job, shard->name, err);
    CAIRN_TRY(fill(job, shard, begin, begin + size, window, scratch, err));
    CAIRN_TRY(cairn_file_write_at(&shard->file, window, size, begin, err));
    return cairn_cli_export_log_note(&job->log, number, window, size, err);
}

static void *work(void *argument) {
    struct job *job = argument;
    struct cairn_error err = {0};
    struct cairn_cli_export_shard *shard;
    uint64_t begin;
    char *window = cairn_pages_map(WINDOW_BYTES), *scratch = cairn_pages_map(WINDOW_BYTES);
    enum cairn_code code =
        window && scratch ? CAIRN_OK : cairn_fail(&err, CAIRN_NO_MEMORY, "no memory for a window");
    while (code == CAIRN_OK && next_window(job, &shard, &begin)) {
        uint64_t size = cairn_min_u64(WINDOW_BYTES, shard->bytes - begin);
        code = make_window(job, shard, begin, (size_t)size, window, scratch, &err);
        if (code == CAIRN_OK) cairn_cli_meter_add(&job->meter, size, begin + size == shard->bytes);
    }
    if (code != CAIRN_OK) cairn_cli_workers_failed(&job->workers, code, &err);
    cairn_pages_unmap(window, WINDOW_BYTES);
    cairn_pages_unmap(scratch, WINDOW_BYTES);
    return NULL;
}

static enum cairn_code write_windows(struct job *job, struct cairn_error *err) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < job->plan.count; i++) bytes += job->plan.shards[i].bytes;
    cairn_cli_meter_init(&job->meter, job->export->cli, "export", bytes, job->plan.count);
    enum cairn_code code =
        cairn_cli_workers_run(&job->workers, job->export->cli->workers, work, job, err);
    cairn_cli_meter_end(&job->meter, code == CAIRN_OK);
    return code;
}

/* ---- names ---- */

static bool is_there(const struct job *job, const char *name) {
    return faccessat(job->folder_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Names that are there are those of an earlier export that was ended while it gave them, or in the
 * way; then it had written every file. */
static enum cairn_code check_names(struct job *job, struct cairn_error *err) {
    const char *index = cairn_cli_export_naming(job->export)->index;
    bool all = true;
    for (size_t i = 0; i < job->plan.count; i++) {
        struct cairn_cli_export_shard *shard = &job->plan.shards[i];
        shard->in_place = is_there(job, shard->name);
        all &= shard->in_place;
        if (shard->in_place && !job->log.resumed) return already(job, shard->name, err);
    }
    return is_there(job, index) && !(all && job->log.resumed) ? already(job, index, err) : CAIRN_OK;
}

static enum cairn_code open_in_place(const struct job *job, struct cairn_cli_export_shard *shard,
                                     struct cairn_error *err) {
    uint64_t bytes;
    CAIRN_TRY(cairn_file_open_read(job->folder_fd, shard->name, &shard->file, err));
    CAIRN_TRY(cairn_file_size(&shard->file, &bytes, err));
    return bytes == shard->bytes ? CAIRN_OK : already(job, shard->name, err);
}

static enum cairn_code open_shard(const struct job *job, struct cairn_cli_export_shard *shard,
                                  struct cairn_error *err) {
    struct cairn_error why = {0};
    char part[96];
    snprintf(part, sizeof part, PART, shard->name);
    if (shard->in_place) return open_in_place(job, shard, err);
    if (!job->log.resumed) unlinkat(job->folder_fd, part, 0); /* of an export without a log */
    enum cairn_code code = cairn_file_open_write(job->folder_fd, part, &shard->file, &why);
    if (code == CAIRN_NOT_FOUND)
        return cairn_file_create(job->folder_fd, part, shard->bytes, &shard->file, err);
    if (code == CAIRN_OK && ftruncate(shard->file.fd, (off_t)shard->bytes) != 0)
        code = cairn_fail_errno(&why, "%s", part);
    if (code != CAIRN_OK && err) *err = why;
    return code;
}

static enum cairn_code open_files(struct job *job, struct cairn_error *err) {
    const char *folder = job->export->folder;
    struct cairn_cli_export_identity identity;
    memcpy(identity.source, job->export->source, sizeof identity.source);
    cairn_cli_export_plan_digest(&job->plan, identity.plan);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return cairn_fail_errno(err, "%s", folder);
    job->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (job->folder_fd < 0) return cairn_fail_errno(err, "%s", folder);
    CAIRN_TRY(cairn_cli_export_log_open(job->folder_fd, folder, &identity, job->plan.window_count,
                                        &job->log, err));
    CAIRN_TRY(check_names(job, err));
    if (job->log.resumed) cairn_cli_note("going on where an earlier export into %s ended", folder);
    for (size_t i = 0; i < job->plan.count; i++)
        CAIRN_TRY(open_shard(job, &job->plan.shards[i], err));
    return CAIRN_OK;
}

/* By the export that goes on here, or by somebody else. */
static enum cairn_code compare_index(const struct job *job, const char *name,
                                     const struct cairn_buf *text, struct cairn_error *err) {
    CAIRN_AUTO(buf) path = {0};
    CAIRN_AUTO(buf) there = {.limit = CAIRN_GIB};
    CAIRN_TRY(cairn_buf_printf(&path, err, "%s/%s", job->export->folder, name));
    CAIRN_TRY(cairn_file_load(path.data, &there, err));
    bool same = there.size == text->size && memcmp(there.data, text->data, text->size) == 0;
    return same ? CAIRN_OK : already(job, name, err);
}

static enum cairn_code write_index(const struct job *job, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_GIB};
    const char *name = cairn_cli_export_naming(job->export)->index;
    struct cairn_file file = {.fd = -1, .direct_fd = -1};
    char part[96];
    snprintf(part, sizeof part, PART, name);
    unlinkat(job->folder_fd, part, 0); /* of an export that was ended */
    CAIRN_TRY(cairn_cli_export_plan_index(&job->plan, &text, err));
    if (is_there(job, name)) return compare_index(job, name, &text, err);
    CAIRN_TRY(cairn_file_create(job->folder_fd, part, text.size, &file, err));
    enum cairn_code code = cairn_file_write_at(&file, text.data, text.size, 0, err);
    if (code == CAIRN_OK) code = cairn_file_sync(&file, err);
    cairn_file_release(&file);
    if (code == CAIRN_OK) code = cairn_file_publish(job->folder_fd, part, name, err);
    if (code != CAIRN_OK) unlinkat(job->folder_fd, part, 0);
    return code;
}

static enum cairn_code publish(struct job *job, struct cairn_error *err) {
    for (size_t i = 0; i < job->plan.count; i++)
        if (!job->plan.shards[i].in_place)
            CAIRN_TRY(cairn_file_sync(&job->plan.shards[i].file, err));
    for (size_t i = 0; i < job->plan.count; i++) {
        char part[96];
        snprintf(part, sizeof part, PART, job->plan.shards[i].name);
        if (job->plan.shards[i].in_place) {
            (void)unlinkat(job->folder_fd, part, 0); /* its second name, just after the first */
            continue;
        }
        CAIRN_TRY(cairn_file_publish(job->folder_fd, part, job->plan.shards[i].name, err));
        job->plan.shards[i].published = true;
    }
    return job->plan.count > 1 || cairn_cli_export_naming(job->export)->always
               ? write_index(job, err)
               : CAIRN_OK;
}

/* A server or store that was away may be there soon, and a file that is in the way of an earlier
 * export's may be moved away. */
static bool worth_keeping(const struct job *job, enum cairn_code code) {
    return cairn_code_info(code)->retryable || (code == CAIRN_CONFLICT && job->log.resumed);
}

static void close_all(struct job *job, enum cairn_code code) {
    bool keep = worth_keeping(job, code), failed = code != CAIRN_OK && !keep;
    cairn_cli_export_log_close(&job->log, job->folder_fd, !keep);
    for (size_t i = 0; i < job->plan.count; i++) {
        struct cairn_cli_export_shard *shard = &job->plan.shards[i];
        char part[96];
        snprintf(part, sizeof part, PART, shard->name);
        if (failed && shard->file.open && !shard->in_place) unlinkat(job->folder_fd, part, 0);
        if (failed && shard->published) unlinkat(job->folder_fd, shard->name, 0);
    }
    cairn_cli_export_plan_release(&job->plan);
    if (job->folder_fd >= 0) close(job->folder_fd);
}

enum cairn_code cairn_cli_export_run(struct cairn_cli_export *export, struct cairn_error *err) {
    struct job job = {.export = export, .folder_fd = -1, .log.fd = -1};
    uint64_t needed_bytes = 0;
    enum cairn_code code = cairn_cli_export_plan_make(export, &job.plan, err);
    for (size_t i = 0; i < job.plan.count; i++) needed_bytes += job.plan.shards[i].bytes;
    if (code == CAIRN_OK) code = open_files(&job, err);
    if (code == CAIRN_OK) code = write_windows(&job, err);
    if (code == CAIRN_OK) code = publish(&job, err);
    if (job.log.fd >= 0 && worth_keeping(&job, code))
        cairn_cli_note("what was written is kept in %s: the same command goes on from there",
                       export->folder);
    close_all(&job, code);
    if (code != CAIRN_NO_SPACE) return code;
    return cairn_cli_no_space(export->folder, needed_bytes, "nothing was left there", err);
}

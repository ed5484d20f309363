/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of the planned files by several threads, into a folder or a bucket. */
#include "cli/export.h"

#include <stdlib.h>

#include "api/table/dtype.h"
#include "cli/export_bucket.h"
#include "cli/export_folder.h"
#include "cli/output.h"
#include "cli/workers.h"
#include "common/memory.h"
#include "common/text.h"
#include "formats/convert.h"

#define WINDOW_BYTES CAIRN_CLI_EXPORT_WINDOW_BYTES

struct job {
    struct cairn_cli_export *export;
    struct cairn_cli_export_plan plan;
    struct cairn_cli_export_sink *sink;
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
        char *into = window + (from - begin) + done * out;
        cairn_convert(tensor->dtype, scratch, entry->dtype, into, (size_t)some);
        uint64_t overflowed =
            cairn_convert_overflows(tensor->dtype, scratch, entry->dtype, into, (size_t)some);
        if (overflowed)
            __atomic_fetch_add(&job->export->overflowed[entry->tag], overflowed, __ATOMIC_RELAXED);
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

static bool next_span(struct job *job, struct cairn_cli_export_span *ret) {
    CAIRN_HOLD(&job->workers.lock);
    while (job->workers.locked.code == CAIRN_OK && job->locked.shard < job->plan.count) {
        struct cairn_cli_export_shard *shard = &job->plan.shards[job->locked.shard];
        uint64_t begin = job->locked.offset;
        job->locked.offset += WINDOW_BYTES;
        if (begin < shard->bytes) {
            uint64_t size = cairn_min_u64(WINDOW_BYTES, shard->bytes - begin);
            *ret = (struct cairn_cli_export_span){shard, begin, (size_t)size};
            cairn_cli_workers_take_locked(&job->workers);
            return true;
        }
        job->locked.shard++;
        job->locked.offset = 0;
    }
    return false;
}

/* Of a window that an earlier export wrote: elements that overflowed then are counted now. */
static enum cairn_code count_again(const struct job *job, const struct cairn_cli_export_span *span,
                                   char *window, char *scratch, struct cairn_error *err) {
    const struct cairn_cli_export_shard *shard = span->shard;
    uint64_t end = span->begin + span->size;
    for (size_t i = first_entry(shard, span->begin);
         i < shard->count && shard->entries[i].offset_bytes < end; i++) {
        const struct cairn_safetensors_entry *entry = &shard->entries[i];
        if (cairn_cli_export_is_object(&job->plan, entry) || !entry->size_bytes ||
            entry->dtype == job->export->assembly->tensors[entry->tag].dtype)
            continue;
        uint64_t from = cairn_max_u64(entry->offset_bytes, span->begin);
        uint64_t to = cairn_min_u64(entry->offset_bytes + entry->size_bytes, end);
        if (!job->sink->vtable->fills ||
            cairn_convert_has_infinity(entry->dtype, window + (from - span->begin),
                                       (to - from) / (cairn_dtype_bits(entry->dtype) / 8)))
            CAIRN_TRY(fill_entry(job, entry, span->begin, end, window, scratch, err));
    }
    return CAIRN_OK;
}

/* Its bytes, unless an earlier export wrote them and they are there still. */
static enum cairn_code make_span(struct job *job, void *hand,
                                 const struct cairn_cli_export_span *span, char *window,
                                 char *scratch, struct cairn_error *err) {
    struct cairn_cli_export_sink *sink = job->sink;
    if (sink->resumed && sink->vtable->there(sink, hand, span, window))
        return count_again(job, span, window, scratch, err);
    if (span->shard->in_place && !sink->compares)
        return cairn_cli_export_already(sink->place, span->shard->name, err);
    CAIRN_TRY(fill(job, span->shard, span->begin, span->begin + span->size, window, scratch, err));
    return sink->vtable->write(sink, hand, span, window, err);
}

static void *work(void *argument) {
    struct job *job = argument;
    struct cairn_error err = {0};
    struct cairn_cli_export_span span;
    void *hand = NULL;
    char *window = cairn_pages_map(WINDOW_BYTES), *scratch = cairn_pages_map(WINDOW_BYTES);
    enum cairn_code code =
        window && scratch ? CAIRN_OK : cairn_fail(&err, CAIRN_NO_MEMORY, "no memory for a window");
    if (code == CAIRN_OK && job->sink->vtable->hand)
        code = job->sink->vtable->hand(job->sink, &hand, &err);
    while (code == CAIRN_OK && next_span(job, &span)) {
        code = make_span(job, hand, &span, window, scratch, &err);
        if (code != CAIRN_OK) break;
        cairn_cli_workers_done(&job->workers);
        cairn_cli_meter_add(&job->meter, span.size, span.begin + span.size == span.shard->bytes);
    }
    if (code != CAIRN_OK) cairn_cli_workers_failed(&job->workers, code, &err);
    if (hand) job->sink->vtable->hand_free(hand);
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
    CAIRN_ASSERT(code || job->locked.shard == job->plan.count);
    if (code == CAIRN_OK) code = cairn_assembly_settle(job->export->assembly, err);
    cairn_cli_meter_end(&job->meter, code == CAIRN_OK);
    return code;
}

/* ---- the whole ---- */

static enum cairn_code open_sink(struct job *job, struct cairn_error *err) {
    struct cairn_cli_export_identity identity;
    const char *place = job->export->folder;
    memcpy(identity.source, job->export->source, sizeof identity.source);
    cairn_cli_export_plan_digest(&job->plan, identity.plan);
    if (cairn_cli_export_is_bucket(place))
        CAIRN_TRY(cairn_cli_export_bucket_open(&job->plan, &identity, &job->sink, err));
    else
        CAIRN_TRY(cairn_cli_export_folder_open(&job->plan, &identity, &job->sink, err));
    if (job->sink->resumed) cairn_cli_note("going on where an earlier export into %s ended", place);
    return CAIRN_OK;
}

/* A server or store that was away may be there soon, and a file that is in the way of an earlier
 * export's may be moved away. */
static bool worth_keeping(const struct job *job, enum cairn_code code) {
    return cairn_code_info(code)->retryable || (code == CAIRN_CONFLICT && job->sink->resumed);
}

void cairn_cli_export_release(struct cairn_cli_export *export) {
    cairn_cli_names_release(&export->names);
    free(export->overflowed);
    free(export->kept);
    export->overflowed = NULL;
    export->kept = NULL;
}

enum cairn_code cairn_cli_export_run(struct cairn_cli_export *export, struct cairn_error *err) {
    struct job job = {.export = export};
    uint64_t needed_bytes = 0;
    export->overflowed = calloc(export->assembly->tensor_count + 1, sizeof *export->overflowed);
    export->kept = calloc(export->assembly->tensor_count + 1, sizeof *export->kept);
    if (!export->overflowed || !export->kept)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for tensors");
    enum cairn_code code = cairn_cli_export_plan_make(export, &job.plan, err);
    for (size_t i = 0; i < job.plan.count; i++) needed_bytes += job.plan.shards[i].bytes;
    if (code == CAIRN_OK) code = open_sink(&job, err);
    if (code == CAIRN_OK) code = write_windows(&job, err);
    if (code == CAIRN_OK) code = job.sink->vtable->publish(job.sink, err);
    if (job.sink) {
        bool keep = worth_keeping(&job, code) && !job.sink->compares;
        if (keep && job.sink->kept)
            cairn_cli_note("what was written is kept in %s: the same command goes on from there",
                           export->folder);
        job.sink->vtable->close(job.sink, code == CAIRN_OK, keep);
    }
    cairn_cli_export_plan_release(&job.plan);
    if (code != CAIRN_NO_SPACE || cairn_cli_export_is_bucket(export->folder)) return code;
    return cairn_cli_no_space(export->folder, needed_bytes, "nothing was left there", err);
}

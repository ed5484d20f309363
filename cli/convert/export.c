/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn export: writes a stored version, or a checkpoint of DeepSpeed or torch, as safetensors,
 * torch or DCP files: threads fill windows of planned files in a folder or a bucket.
 *
 * Promise: 1   files get their names when all are complete and on disk, the index last. Existing
 *              files are never replaced: CAIRN_CONFLICT.
 *          2   memory is workers * 2 windows, for any model size.
 *          3   equal tensors give equal bytes, for any number of workers.
 *          4   of tensors that share bytes one is written, as safetensors readers expect; in torch
 *              and DCP the other names refer to it. copy_tied writes bytes for each name. An alias
 *              whose target is not exported is written.
 *          5   DCP: a tensor is an archive, `.metadata` the index for loading; objects are copied.
 *          6   finite elements that became infinite are counted once, also in resumed windows.
 *          7   a killed export of the same source and plan resumes: windows that are logged and
 *              unchanged are not rewritten, and the files equal those of an uninterrupted export.
 *              Another source or plan is CAIRN_CONFLICT with the way out. A failed export leaves
 *              nothing, unless a server or store was away.
 *          8   plans have equal digests if and only if they write the same files.
 *          9   --strip-prefix removes a prefix where present, then the first matching --rename rule
 *              applies: OLD=NEW, or with one * in both, which matches any text. In
 *              optimizer.state.<parameter>.<what> the parameter is renamed. CAIRN_INVALID, naming
 *              them: a prefix or rule without a match, two names that become equal, an empty name.
 * Limits:  CAIRN_MODEL_FILES_MAX files of at least one tensor each, however large it is; one export
 *          into a place at a time; 256 rules of 1,024 bytes.
 */
#include "cli/convert/inside.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "cli/shell/output.h"
#include "common/clock.h"
#include "common/memory.h"
#include "common/text.h"
#include "formats/convert.h"

#define WINDOW_BYTES CLI_EXPORT_WINDOW_BYTES

struct job {
    struct cli_export *export;
    struct cli_export_plan plan;
    struct cli_export_sink *sink;
    struct cli_meter meter;
    struct cli_workers workers;
    struct { /* guarded by the workers' lock */
        size_t shard;
        uint64_t offset; /* next window */
    } locked;
};

/* Fills [begin, end). Windows cut no element: entries are sorted by width or aligned to 64. */
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
    if (cli_export_is_object(&job->plan, entry))
        return cairn_assembly_read_object(assembly,
                                          &assembly->objects[entry->tag - assembly->tensor_count],
                                          offset, window + (from - begin), size, err);
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

/* First entry that ends after offset. */
static size_t first_entry(const struct cli_export_shard *shard, uint64_t offset) {
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

static bool next_span(struct job *job, struct cli_export_span *ret) {
    CAIRN_HOLD(&job->workers.lock);
    while (job->workers.locked.code == CAIRN_OK && job->locked.shard < job->plan.count) {
        struct cli_export_shard *shard = &job->plan.shards[job->locked.shard];
        uint64_t begin = job->locked.offset;
        job->locked.offset += WINDOW_BYTES;
        if (begin < shard->bytes) {
            uint64_t size = cairn_min_u64(WINDOW_BYTES, shard->bytes - begin);
            *ret = (struct cli_export_span){shard, begin, (size_t)size};
            cli_workers_take_locked(&job->workers);
            return true;
        }
        job->locked.shard++;
        job->locked.offset = 0;
    }
    return false;
}

/* Makes the window unless an earlier export wrote it and it is unchanged. */
static enum cairn_code make_span(struct job *job, void *hand, const struct cli_export_span *span,
                                 char *window, char *scratch, struct cairn_error *err) {
    struct cli_export_sink *sink = job->sink;
    if (sink->resumed && sink->vtable->there(sink, hand, span, window)) {
        /* Recounts overflowed elements of a window that an earlier export wrote. */
        const struct cli_export_shard *shard = span->shard;
        uint64_t end = span->begin + span->size;
        for (size_t i = first_entry(shard, span->begin);
             i < shard->count && shard->entries[i].offset_bytes < end; i++) {
            const struct cairn_safetensors_entry *entry = &shard->entries[i];
            if (cli_export_is_object(&job->plan, entry) || !entry->size_bytes ||
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
    if (span->shard->in_place && !sink->compares)
        return cli_export_already(sink->place, span->shard->name, err);
    uint64_t end = span->begin + span->size;
    const struct cairn_torch_plan *text = &span->shard->text;
    for (size_t i = first_text(text, span->begin);
         i < text->text_count && text->texts[i].offset_bytes < end; i++) {
        const struct cairn_torch_text *part = &text->texts[i];
        uint64_t from = part->offset_bytes > span->begin ? part->offset_bytes : span->begin;
        uint64_t to = cairn_min_u64(part->offset_bytes + part->size, end);
        memcpy(window + (from - span->begin),
               text->head.data + part->begin + (from - part->offset_bytes), (size_t)(to - from));
    }
    for (size_t i = first_entry(span->shard, span->begin);
         i < span->shard->count && span->shard->entries[i].offset_bytes < end; i++) {
        enum cairn_code code =
            fill_entry(job, &span->shard->entries[i], span->begin, end, window, scratch, err);
        if (code != CAIRN_OK)
            return cairn_within(err, code,
                                cli_export_is_object(&job->plan, &span->shard->entries[i])
                                    ? "object %s"
                                    : "tensor %s",
                                cairn_short(span->shard->entries[i].name.data).text);
    }
    return sink->vtable->write(sink, hand, span, window, err);
}

static void *work(void *argument) {
    struct job *job = argument;
    struct cairn_error err = {0};
    struct cli_export_span span;
    void *hand = NULL;
    char *window = cairn_pages_map(WINDOW_BYTES), *scratch = cairn_pages_map(WINDOW_BYTES);
    enum cairn_code code =
        window && scratch ? CAIRN_OK : cairn_fail(&err, CAIRN_NO_MEMORY, "no memory for a window");
    if (code == CAIRN_OK && job->sink->vtable->hand)
        code = job->sink->vtable->hand(job->sink, &hand, &err);
    while (code == CAIRN_OK && next_span(job, &span)) {
        code = make_span(job, hand, &span, window, scratch, &err);
        if (code != CAIRN_OK) break;
        cli_workers_done(&job->workers);
        cli_meter_add(&job->meter, span.size, span.begin + span.size == span.shard->bytes);
    }
    if (code != CAIRN_OK) cli_workers_failed(&job->workers, code, &err);
    if (hand) job->sink->vtable->hand_free(hand);
    cairn_pages_unmap(window, WINDOW_BYTES);
    cairn_pages_unmap(scratch, WINDOW_BYTES);
    return NULL;
}

static enum cairn_code write_windows(struct job *job, struct cairn_error *err) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < job->plan.count; i++) bytes += job->plan.shards[i].bytes;
    cli_meter_init(&job->meter, job->export->cli, "export", bytes, job->plan.count);
    enum cairn_code code =
        cli_workers_run(&job->workers, job->export->cli->workers, work, job, err);
    CAIRN_ASSERT(code || job->locked.shard == job->plan.count);
    if (code == CAIRN_OK) code = cairn_assembly_settle(job->export->assembly, err);
    cli_meter_end(&job->meter, code == CAIRN_OK);
    return code;
}

static enum cairn_code open_sink(struct job *job, struct cairn_error *err) {
    struct cli_export_identity identity;
    const char *place = job->export->folder;
    memcpy(identity.source, job->export->source, sizeof identity.source);
    cli_export_plan_digest(&job->plan, identity.plan);
    if (cli_is_bucket(place))
        CAIRN_TRY(cli_export_bucket_open(&job->plan, &identity, &job->sink, err));
    else
        CAIRN_TRY(cli_export_folder_open(&job->plan, &identity, &job->sink, err));
    if (job->sink->resumed) cli_note("going on where an earlier export into %s ended", place);
    return CAIRN_OK;
}

static enum cairn_code export_files(struct cli_export *export, struct cairn_error *err) {
    struct job job = {.export = export};
    uint64_t needed_bytes = 0;
    export->overflowed = calloc(export->assembly->tensor_count + 1, sizeof *export->overflowed);
    export->kept = calloc(export->assembly->tensor_count + 1, sizeof *export->kept);
    if (!export->overflowed || !export->kept)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for tensors");
    enum cairn_code code = cli_export_plan_make(export, &job.plan, err);
    for (size_t i = 0; i < job.plan.count; i++) needed_bytes += job.plan.shards[i].bytes;
    if (code == CAIRN_OK) code = open_sink(&job, err);
    if (code == CAIRN_OK) code = write_windows(&job, err);
    if (code == CAIRN_OK) code = job.sink->vtable->publish(job.sink, err);
    if (job.sink) {
        /* The user may resolve these, and conflicts with a resumed export's files. */
        bool passing =
            cairn_code_info(code)->retryable || (code == CAIRN_CONFLICT && job.sink->resumed);
        bool keep = passing && !job.sink->compares;
        if (keep && job.sink->kept)
            cli_note("what was written is kept in %s: the same command goes on from there",
                     export->folder);
        job.sink->vtable->close(job.sink, code == CAIRN_OK, keep);
    }
    cli_export_plan_release(&job.plan);
    if (code != CAIRN_NO_SPACE || cli_is_bucket(export->folder)) return code;
    return cli_no_space(export->folder, needed_bytes, "nothing was left there", err);
}

static const struct cli_flag export_flags[] = {
    {"to", 0, CLI_TEXT, CLI_AT(to), 0, "FORM",
     "safetensors, the default; torch, files for torch.load(weights_only=True); or dcp, a folder "
     "for "
     "torch.distributed.checkpoint.load."},
    {"dtype", 0, CLI_TEXT, CLI_AT(dtype), 0, "TYPE",
     "What floats become: keep, fp32, bf16 or fp16; default keep."},
    {"max-shard-size", 0, CLI_SIZE, CLI_AT(bytes), 0, "SIZE",
     "Of one file, e.g. 5GB; default one file for all."},
    {"only", 0, CLI_TEXT, CLI_AT(only), 0, "PATTERN",
     "Only tensors whose names are like this, e.g. 'model.layers.*'."},
    {"strip-prefix", 0, CLI_TEXT, CLI_AT(strip_prefix), 0, "TEXT",
     "Take this away where a name begins so, e.g. 'module.'."},
    {"rename", 0, CLI_TEXT, CLI_AT(rename), 0, "RULES",
     "Other names: OLD=NEW,..., each side with one * or both without, e.g. "
     "'transformer.h.*=layers.*'. "
     "The first that is like a name counts."},
    {"optimizer", 0, CLI_SWITCH, CLI_AT(optimizer), 0, NULL,
     "What the optimizer keeps of each parameter, too, where it is in files of its own (DeepSpeed, "
     "ranks of FSDP)."},
    CLI_FLAG_TP_RULE,
    {"exclude-frozen", 0, CLI_SWITCH, CLI_AT(exclude_frozen), 0, NULL,
     "Without the parameters that DeepSpeed did not train, as an adapter's base."},
    {"copy-tied", 0, CLI_SWITCH, CLI_AT(copy_tied), 0, NULL,
     "A tensor that has several names is written under each of them, not once."},
    {"same", 0, CLI_SWITCH, CLI_AT(same), 0, NULL,
     "Where all files are in the folder, compare them: if they are the same, it is done."},
    CLI_FLAG_STRICT,
    {"store", 0, CLI_TEXT, CLI_AT(store), 0, "URL",
     "Read a stored version from the store itself, without a server."},
    {"workers", 'j', CLI_COUNT, CLI_AT(workers), 0, "N",
     "Threads that read, convert and write; default 4."},
};

/* Prepared before the first write. */
static char interrupted[PATH_MAX + 256] = "\ncairn export: interrupted; nothing was written\n";

static enum cairn_code read_dtype(const char *text, unsigned *ret, struct cairn_error *err) {
    static const char *const words[] = {"keep", "fp32", "bf16", "fp16"};
    static const unsigned dtypes[] = {CAIRN_DTYPE_NONE, CAIRN_DTYPE_F32, CAIRN_DTYPE_BF16,
                                      CAIRN_DTYPE_F16};
    size_t i = cli_word_index(words, CAIRN_COUNT(words), text);
    if (i == CAIRN_COUNT(words))
        return cairn_fail(err, CAIRN_INVALID, "--dtype %s: it is keep, fp32, bf16 or fp16",
                          cairn_short(text).text);
    *ret = dtypes[i];
    return CAIRN_OK;
}

static enum cairn_code read_form(const char *text, enum cli_export_form *ret,
                                 struct cairn_error *err) {
    static const char *const words[] = {
#define EXPORT_FORM(id, word, stem, end, index, always) word,
#include "formats/formats.def"
    };
    *ret = (enum cli_export_form)cli_word_index(words, CAIRN_COUNT(words), text);
    if (*ret < CAIRN_COUNT(words)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "--to %s: it is safetensors, torch or dcp",
                      cairn_short(text).text);
}

#define FROZEN "it is frozen, and --exclude-frozen leaves it out"

static struct cli_left_out left_out_of(const struct cli_export *job) {
    return (struct cli_left_out){.assembly = job->assembly,
                                 .keeps_objects = job->form == CLI_EXPORT_DCP,
                                 .keeps_texts = job->form == CLI_EXPORT_SAFETENSORS,
                                 .only = job->only};
}

static const char *why_kept(const struct cairn_assembly_tensor *tensor) {
    if (cairn_convertible(tensor->dtype, CAIRN_DTYPE_F32))
        return "by its name a scale or a map of quantised weights";
    return "no float that is converted";
}

/* One line per type and per tensor with overflowed elements. */
static void note_values(const struct cli_export *job) {
    const struct cairn_assembly *assembly = job->assembly;
    struct {
        size_t count, first;
    } of[256] = {0}; /* by element type, an 8-bit number */
    for (size_t i = 0; i < assembly->tensor_count; i++) {
        unsigned dtype = assembly->tensors[i].dtype;
        if (job->kept[i] && !of[dtype % 256].count++) of[dtype % 256].first = i;
    }
    for (size_t d = 0; d < CAIRN_COUNT(of); d++)
        if (of[d].count)
            cli_note("kept as %s: %s, %s: %s%s", cairn_dtype_text((unsigned)d),
                     cairn_counted(of[d].count, "tensor").text,
                     why_kept(&assembly->tensors[of[d].first]), of[d].count > 1 ? "such as " : "",
                     cli_export_name(job, of[d].first));
    for (size_t i = 0; i < assembly->tensor_count; i++)
        if (job->overflowed[i])
            cli_note("overflowed: %s: %llu of its elements are too large for %s and became "
                     "infinite",
                     cli_export_name(job, i), (unsigned long long)job->overflowed[i],
                     cairn_dtype_text(job->dtype));
}

static enum cairn_code add_values(const struct cli_export *job, json_t *kept, json_t *overflowed,
                                  struct cairn_error *err) {
    bool fits = true;
    for (size_t i = 0; i < job->assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &job->assembly->tensors[i];
        const char *name = cli_export_name(job, i);
        if (job->kept[i])
            fits &= !json_array_append_new(kept, json_pack("{s:s, s:s, s:s}", "name", name, "dtype",
                                                           cairn_dtype_text(tensor->dtype), "why",
                                                           why_kept(tensor)));
        if (job->overflowed[i])
            fits &=
                !json_array_append_new(overflowed, json_pack("{s:s, s:I}", "name", name, "elements",
                                                             (json_int_t)job->overflowed[i]));
    }
    return fits ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
}

static enum cairn_code report_export(const struct cli *cli, const struct cli_weights *weights,
                                     const struct cli_export *job, uint64_t elapsed_ms,
                                     struct cairn_error *err) {
    const struct cairn_assembly *assembly = job->assembly;
    if (cli->output == CLI_TABLE) {
        const struct cli_left_out left_out = left_out_of(job);
        cli_left_out_note(&left_out);
        note_values(job);
        for (size_t i = 0; i < assembly->tensor_count; i++) {
            const struct cairn_assembly_tensor *tensor = &assembly->tensors[i];
            if (job->exclude_frozen && tensor->frozen)
                cli_note("left out: %s: " FROZEN, tensor->name);
            else if (tensor->alias_of != CAIRN_ASSEMBLY_NO_ALIAS && !job->copy_tied &&
                     job->form == CLI_EXPORT_SAFETENSORS)
                cli_note("left out: %s: it is %s under another name", tensor->name,
                         assembly->tensors[tensor->alias_of].name);
        }
        printf("exported %s (%s) into %s: %s of %s, %s, %.1fs\n", cli->arguments[0],
               cairn_format_tag(weights->format), job->folder,
               cairn_counted(job->tensor_count, "tensor").text, cli_size(job->bytes).text,
               cairn_counted(job->file_count, "file").text, (double)elapsed_ms / 1000);
        return cli_flush(err);
    }
    CAIRN_AUTO_JSON json_t *left_out = json_array();
    CAIRN_AUTO_JSON json_t *plain = json_array();
    CAIRN_AUTO_JSON json_t *aliases = json_object();
    CAIRN_AUTO_JSON json_t *kept = json_array();
    CAIRN_AUTO_JSON json_t *overflowed = json_array();
    const struct cli_left_out names = left_out_of(job);
    CAIRN_TRY(cli_left_out_rows(&names, left_out, plain, err));
    for (size_t i = 0; i < assembly->tensor_count; i++)
        if (job->exclude_frozen && assembly->tensors[i].frozen)
            json_array_append_new(left_out, json_pack("{s:s, s:s}", "name",
                                                      assembly->tensors[i].name, "why", FROZEN));
        else if (assembly->tensors[i].alias_of != CAIRN_ASSEMBLY_NO_ALIAS && !job->copy_tied &&
                 !assembly->tensors[i].in_object)
            json_object_set_new(aliases, cli_export_name(job, i),
                                json_string(cli_export_name(job, assembly->tensors[i].alias_of)));
    CAIRN_TRY(add_values(job, kept, overflowed, err));
    CAIRN_AUTO_JSON json_t *answer =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:O, s:O, s:O, s:O, s:O}", "format",
                  cairn_format_tag(weights->format), "folder", job->folder, "files",
                  (json_int_t)job->file_count, "tensors", (json_int_t)job->tensor_count, "bytes",
                  (json_int_t)job->bytes, "filtered", (json_int_t)job->filtered, "aliases", aliases,
                  "left_out", left_out, "plain", plain, "kept", kept, "overflowed", overflowed);
    if (!answer) return cairn_fail(err, CAIRN_INVALID, "the folder's name is not UTF-8");
    return cli_print_reply(cli, answer, err);
}

static bool is_written(const void *job, size_t number) {
    return cli_export_writes(job, number);
}

static enum cairn_code run_export(struct cli *cli, struct cairn_error *err) {
    struct cli_weights weights;
    struct cli_export job = {.cli = cli,
                             .folder = cli->arguments[1],
                             .shard_bytes_max = cli->bytes,
                             .only = cli->only,
                             .exclude_frozen = cli->exclude_frozen,
                             .copy_tied = cli->copy_tied,
                             .same = cli->same};
    uint64_t started_ms = cairn_mono_ms();
    if (cli->to) CAIRN_TRY(read_form(cli->to, &job.form, err));
    if (cli->dtype) CAIRN_TRY(read_dtype(cli->dtype, &job.dtype, err));
    CAIRN_TRY(cli_interrupt_says(interrupted, err));
    CAIRN_TRY(cli_weights_open(cli, cli->arguments[0], cli->optimizer, &weights, err));
    job.assembly = &weights.assembly;
    snprintf(
        interrupted, sizeof interrupted,
        "\ncairn export: interrupted; what was written is kept in %s, and no file has its name "
        "before all are whole. To go on give the same command again\n",
        job.folder);
    enum cairn_code code = cli_weights_digest(&weights, job.source, err);
    if (code == CAIRN_OK && cli->exclude_frozen && !weights.assembly.knows_frozen)
        code = cairn_fail(err, CAIRN_UNSUPPORTED,
                          "--exclude-frozen: %s (%s) does not tell which parameters were trained; "
                          "DeepSpeed's folders of ZeRO stages 1 to 3 do",
                          cli->arguments[0], cairn_format_tag(weights.format));
    if (code == CAIRN_OK) code = cli_weights_add_plain(&weights, job.form == CLI_EXPORT_DCP, err);
    if (code == CAIRN_OK) code = cli_items_take(&weights.assembly, job.form == CLI_EXPORT_DCP, err);
    if (code == CAIRN_OK)
        code = cli_names_make(&weights.assembly, cli->strip_prefix, cli->rename, is_written, &job,
                              &job.names, err);
    if (code == CAIRN_OK) code = export_files(&job, err);
    if (code == CAIRN_OK)
        code = report_export(cli, &weights, &job, cairn_mono_ms() - started_ms, err);
    cli_names_release(&job.names);
    free(job.overflowed);
    free(job.kept);
    job.overflowed = NULL;
    job.kept = NULL;
    cli_weights_release(&weights);
    return code;
}

const struct cli_verb cli_verb_export = {
    CLI_VERB(export),
    .synopsis = "cairn export [flags] CHECKPOINT|project/run@step FOLDER|s3://bucket/prefix",
    .purpose = "Write a stored, DeepSpeed or torch checkpoint as safetensors, torch or DCP files.",
    .examples =
        "  cairn export llm/7b@latest ./model\n"
        "  cairn export checkpoints s3://models/7b --dtype bf16 --max-shard-size 5GB\n"
        "  cairn export llm/7b@1000 ./dcp --to dcp      (for torch.distributed.checkpoint)\n",
    CLI_TAKES(export_flags, 2, 2),
    .surplus = "to",
    .takes_paths = true,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* cairn export: a stored version, or a checkpoint of DeepSpeed or torch, as files of
 * safetensors, torch or DCP, merged as a stream. */
#include <limits.h>
#include <stdio.h>

#include "api/table/dtype.h"
#include "cli/export.h"
#include "cli/interrupt.h"
#include "cli/items.h"
#include "cli/left_out.h"
#include "cli/output.h"
#include "cli/sizes.h"
#include "cli/weights.h"
#include "common/clock.h"
#include "common/text.h"
#include "formats/convert.h"

static const struct cairn_cli_flag flags[] = {
    {"to", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(to), 0, "FORM",
     "safetensors, the default; torch, files for torch.load(weights_only=True); or dcp, a folder "
     "for "
     "torch.distributed.checkpoint.load."},
    {"dtype", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(dtype), 0, "TYPE",
     "What floats become: keep, fp32, bf16 or fp16; default keep."},
    {"max-shard-size", 0, CAIRN_CLI_SIZE, CAIRN_CLI_AT(bytes), 0, "SIZE",
     "Of one file, e.g. 5GB; default one file for all."},
    {"only", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(only), 0, "PATTERN",
     "Only tensors whose names are like this, e.g. 'model.layers.*'."},
    {"strip-prefix", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(strip_prefix), 0, "TEXT",
     "Take this away where a name begins so, e.g. 'module.'."},
    {"rename", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(rename), 0, "RULES",
     "Other names: OLD=NEW,..., each side with one * or both without, e.g. "
     "'transformer.h.*=layers.*'. "
     "The first that is like a name counts."},
    {"optimizer", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(optimizer), 0, NULL,
     "What the optimizer keeps of each parameter, too, where it is in files of its own (DeepSpeed, "
     "ranks of FSDP)."},
    {"tp-rule", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(tp_rules), 0, "RULES",
     "How DeepSpeed's tensor parallel ranks cut parameters: GLOB=RULE,...; RULE is the dimension, "
     "0:ROWS, halves or replicated."},
    {"exclude-frozen", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(exclude_frozen), 0, NULL,
     "Without the parameters that DeepSpeed did not train, as an adapter's base."},
    {"copy-tied", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(copy_tied), 0, NULL,
     "A tensor that has several names is written under each of them, not once."},
    {"same", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(same), 0, NULL,
     "Where all files are in the folder, compare them: if they are the same, it is done."},
    {"strict", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(strict), 0, NULL,
     "Refuse files that hold a value of a class that is not known, instead of leaving it out."},
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "Read a stored version from the store itself, without a server."},
    {"workers", 'j', CAIRN_CLI_COUNT, CAIRN_CLI_AT(workers), 0, "N",
     "Threads that read, convert and write; default 4."},
};

/* Made before anything is written. */
static char interrupted[PATH_MAX + 256] = "\ncairn export: interrupted; nothing was written\n";

static enum cairn_code read_dtype(const char *text, unsigned *ret, struct cairn_error *err) {
    static const struct {
        const char *text;
        unsigned dtype;
    } known[] = {{"keep", CAIRN_DTYPE_NONE},
                 {"fp32", CAIRN_DTYPE_F32},
                 {"bf16", CAIRN_DTYPE_BF16},
                 {"fp16", CAIRN_DTYPE_F16}};
    for (size_t i = 0; i < CAIRN_COUNT(known); i++) {
        if (strcmp(text, known[i].text) != 0) continue;
        *ret = known[i].dtype;
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_INVALID, "--dtype %s: it is keep, fp32, bf16 or fp16",
                      cairn_short(text).text);
}

static enum cairn_code read_form(const char *text, enum cairn_cli_export_form *ret,
                                 struct cairn_error *err) {
    static const char *const known[] = {[CAIRN_CLI_EXPORT_SAFETENSORS] = "safetensors",
                                        [CAIRN_CLI_EXPORT_TORCH] = "torch",
                                        [CAIRN_CLI_EXPORT_DCP] = "dcp"};
    for (size_t i = 0; i < CAIRN_COUNT(known); i++) {
        if (strcmp(text, known[i]) != 0) continue;
        *ret = (enum cairn_cli_export_form)i;
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_INVALID, "--to %s: it is safetensors, torch or dcp",
                      cairn_short(text).text);
}

#define FROZEN "it is frozen, and --exclude-frozen leaves it out"

static struct cairn_cli_left_out left_out_of(const struct cairn_cli_export *job) {
    return (struct cairn_cli_left_out){.assembly = job->assembly,
                                       .keeps_objects = job->form == CAIRN_CLI_EXPORT_DCP,
                                       .keeps_texts = job->form == CAIRN_CLI_EXPORT_SAFETENSORS,
                                       .only = job->only};
}

/* ---- what --dtype did to values ---- */

/* Why a tensor has another type than the one that is wanted. */
static const char *why_kept(const struct cairn_assembly_tensor *tensor) {
    if (cairn_convertible(tensor->dtype, CAIRN_DTYPE_F32))
        return "by its name a scale or a map of quantised weights";
    return "no float that is converted";
}

/* One line for each type, and one for each tensor whose elements overflowed. */
static void note_values(const struct cairn_cli_export *job) {
    const struct cairn_assembly *assembly = job->assembly;
    struct {
        size_t count, first;
    } of[256] = {0}; /* by element type, whose numbers are bytes */
    for (size_t i = 0; i < assembly->tensor_count; i++) {
        unsigned dtype = assembly->tensors[i].dtype;
        if (job->kept[i] && !of[dtype % 256].count++) of[dtype % 256].first = i;
    }
    for (size_t d = 0; d < CAIRN_COUNT(of); d++)
        if (of[d].count)
            cairn_cli_note("kept as %s: %s, %s: %s%s", cairn_dtype_text((unsigned)d),
                           cairn_cli_counted(of[d].count, "tensor", "tensors").text,
                           why_kept(&assembly->tensors[of[d].first]),
                           of[d].count > 1 ? "such as " : "",
                           cairn_cli_export_name(job, of[d].first));
    for (size_t i = 0; i < assembly->tensor_count; i++)
        if (job->overflowed[i])
            cairn_cli_note("overflowed: %s: %llu of its elements are too large for %s and became "
                           "infinite",
                           cairn_cli_export_name(job, i), (unsigned long long)job->overflowed[i],
                           cairn_dtype_text(job->dtype));
}

static enum cairn_code add_values(const struct cairn_cli_export *job, json_t *kept,
                                  json_t *overflowed, struct cairn_error *err) {
    bool fits = true;
    for (size_t i = 0; i < job->assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &job->assembly->tensors[i];
        const char *name = cairn_cli_export_name(job, i);
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

/* ---- the answer ---- */

static void report_left_out(const struct cairn_cli_export *job) {
    const struct cairn_assembly *assembly = job->assembly;
    const struct cairn_cli_left_out left_out = left_out_of(job);
    cairn_cli_left_out_note(&left_out);
    note_values(job);
    for (size_t i = 0; i < assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &assembly->tensors[i];
        if (job->exclude_frozen && tensor->frozen)
            cairn_cli_note("left out: %s: " FROZEN, tensor->name);
        else if (tensor->alias_of != CAIRN_ASSEMBLY_NO_ALIAS && !job->copy_tied &&
                 job->form == CAIRN_CLI_EXPORT_SAFETENSORS)
            cairn_cli_note("left out: %s: it is %s under another name", tensor->name,
                           assembly->tensors[tensor->alias_of].name);
    }
}

static enum cairn_code report(const struct cairn_cli *cli, const struct cairn_cli_weights *weights,
                              const struct cairn_cli_export *job, uint64_t elapsed_ms,
                              struct cairn_error *err) {
    const struct cairn_assembly *assembly = job->assembly;
    if (cli->output == CAIRN_CLI_TABLE) {
        char size[24];
        cairn_cli_size(job->bytes, size);
        report_left_out(job);
        printf("exported %s (%s) into %s: %s of %s, %s, %.1fs\n", cli->arguments[0],
               weights->format, job->folder,
               cairn_cli_counted(job->tensor_count, "tensor", "tensors").text, size,
               cairn_cli_counted(job->file_count, "file", "files").text, (double)elapsed_ms / 1000);
        return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
    }
    CAIRN_AUTO_JSON json_t *left_out = json_array();
    CAIRN_AUTO_JSON json_t *plain = json_array();
    CAIRN_AUTO_JSON json_t *aliases = json_object();
    CAIRN_AUTO_JSON json_t *kept = json_array();
    CAIRN_AUTO_JSON json_t *overflowed = json_array();
    const struct cairn_cli_left_out names = left_out_of(job);
    CAIRN_TRY(cairn_cli_left_out_rows(&names, left_out, plain, err));
    for (size_t i = 0; i < assembly->tensor_count; i++)
        if (job->exclude_frozen && assembly->tensors[i].frozen)
            json_array_append_new(left_out, json_pack("{s:s, s:s}", "name",
                                                      assembly->tensors[i].name, "why", FROZEN));
        else if (assembly->tensors[i].alias_of != CAIRN_ASSEMBLY_NO_ALIAS && !job->copy_tied)
            json_object_set_new(
                aliases, cairn_cli_export_name(job, i),
                json_string(cairn_cli_export_name(job, assembly->tensors[i].alias_of)));
    CAIRN_TRY(add_values(job, kept, overflowed, err));
    CAIRN_AUTO_JSON json_t *answer =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:O, s:O, s:O, s:O, s:O}", "format",
                  weights->format, "folder", job->folder, "files", (json_int_t)job->file_count,
                  "tensors", (json_int_t)job->tensor_count, "bytes", (json_int_t)job->bytes,
                  "filtered", (json_int_t)job->filtered, "aliases", aliases, "left_out", left_out,
                  "plain", plain, "kept", kept, "overflowed", overflowed);
    if (!answer) return cairn_fail(err, CAIRN_INVALID, "the folder's name is not UTF-8");
    return cairn_cli_print_json(answer, cli->output == CAIRN_CLI_JSON, err);
}

static bool writes(const void *job, size_t number) {
    return cairn_cli_export_writes(job, number);
}

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_weights weights;
    struct cairn_cli_export job = {.cli = cli,
                                   .folder = cli->arguments[1],
                                   .shard_bytes_max = cli->bytes,
                                   .only = cli->only,
                                   .exclude_frozen = cli->exclude_frozen,
                                   .copy_tied = cli->copy_tied,
                                   .same = cli->same};
    uint64_t started_ms = cairn_mono_ms();
    if (cli->to) CAIRN_TRY(read_form(cli->to, &job.form, err));
    if (cli->dtype) CAIRN_TRY(read_dtype(cli->dtype, &job.dtype, err));
    CAIRN_TRY(cairn_cli_interrupt_says(interrupted, err));
    CAIRN_TRY(cairn_cli_weights_open(cli, cli->arguments[0], cli->optimizer, &weights, err));
    job.assembly = &weights.assembly;
    snprintf(
        interrupted, sizeof interrupted,
        "\ncairn export: interrupted; what was written is kept in %s, and no file has its name "
        "before all are whole. To go on give the same command again\n",
        job.folder);
    enum cairn_code code = cairn_cli_weights_digest(&weights, job.source, err);
    if (code == CAIRN_OK && cli->exclude_frozen && !weights.assembly.knows_frozen)
        code = cairn_fail(err, CAIRN_UNSUPPORTED,
                          "--exclude-frozen: %s (%s) does not tell which parameters were trained; "
                          "DeepSpeed's folders of ZeRO stages 1 to 3 do",
                          cli->arguments[0], weights.format);
    if (code == CAIRN_OK)
        code = cairn_cli_weights_add_plain(&weights, job.form == CAIRN_CLI_EXPORT_DCP, err);
    if (code == CAIRN_OK)
        code = cairn_cli_items_take(&weights.assembly, job.form == CAIRN_CLI_EXPORT_DCP, err);
    if (code == CAIRN_OK)
        code = cairn_cli_names_make(&weights.assembly, cli->strip_prefix, cli->rename, writes, &job,
                                    &job.names, err);
    if (code == CAIRN_OK) code = cairn_cli_export_run(&job, err);
    if (code == CAIRN_OK) code = report(cli, &weights, &job, cairn_mono_ms() - started_ms, err);
    cairn_cli_export_release(&job);
    cairn_cli_weights_release(&weights);
    return code;
}

const struct cairn_cli_verb cairn_cli_verb_export = {
    .name = "export",
    .synopsis = "cairn export [flags] CHECKPOINT|project/run@step FOLDER|s3://bucket/prefix",
    .purpose = "Write a stored, DeepSpeed or torch checkpoint as safetensors, torch or DCP files.",
    .examples =
        "  cairn export llm/7b@latest ./model\n"
        "  cairn export checkpoints s3://models/7b --dtype bf16 --max-shard-size 5GB\n"
        "  cairn export llm/7b@1000 ./dcp --to dcp      (for torch.distributed.checkpoint)\n",
    .flags = flags,
    .flag_count = CAIRN_COUNT(flags),
    .arguments_min = 2,
    .arguments_max = 2,
    .takes_paths = true,
    .run = run,
};

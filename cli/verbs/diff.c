/* SPDX-License-Identifier: Apache-2.0 */
/* cairn diff: which shards and tensors of two checkpoints differ, by what is known of them; or
 * which elements, and by how much. */
#include <stdio.h>

#include "api/table/dtype.h"
#include "cli/compare.h"
#include "cli/interrupt.h"
#include "cli/manifests.h"
#include "cli/output.h"
#include "cli/weights.h"
#include "common/text.h"

static const struct cairn_cli_flag flags[] = {
    {"tensors", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(tensors), 0, NULL,
     "Read both and compare their tensors element by element."},
    {"only", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(only), 0, "PATTERN",
     "Only tensors whose names are like this, e.g. 'model.layers.*'."},
    {"tp-rule", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(tp_rules), 0, "RULES",
     "How DeepSpeed's tensor parallel ranks cut parameters, on each side that is a folder of it: "
     "GLOB=RULE,...; RULE is the dimension, 0:ROWS, halves or replicated."},
    {"strict", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(strict), 0, NULL,
     "Refuse files that hold a value of a class that is not known, instead of leaving it out."},
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "Read stored versions from the store itself, without a server."},
    {"workers", 'j', CAIRN_CLI_COUNT, CAIRN_CLI_AT(workers), 0, "N",
     "Threads that read and compare; default 4."},
};

static const char *const verdicts[] = {
    [CAIRN_CLI_SAME] = "same",          [CAIRN_CLI_DIFFERS] = "differs",
    [CAIRN_CLI_OTHER_SHAPE] = "shape",  [CAIRN_CLI_OTHER_TYPE] = "dtype",
    [CAIRN_CLI_ONLY_A] = "only in A", [CAIRN_CLI_ONLY_B] = "only in B",
};

static void describe(const struct cairn_assembly_tensor *tensor, char *ret, size_t capacity) {
    size_t used = (size_t)snprintf(ret, capacity, "%s", cairn_dtype_text(tensor->dtype));
    for (unsigned d = 0; d < tensor->dimension_count && used < capacity; d++)
        used += (size_t)snprintf(ret + used, capacity - used, "%s%llu", d ? "x" : " ",
                                 (unsigned long long)tensor->shape[d]);
}

static void print_pair(const struct cairn_cli_pair *pair) {
    char name[CAIRN_TENSOR_NAME_BYTES_MAX + 1], a[192] = "", b[192] = "";
    snprintf(name, sizeof name, "%s", (pair->a ? pair->a : pair->b)->name);
    cairn_cli_clean(name);
    if (pair->a) describe(pair->a, a, sizeof a);
    if (pair->b) describe(pair->b, b, sizeof b);
    if (pair->verdict != CAIRN_CLI_DIFFERS) {
        printf("%s: %s: %s%s%s\n", name, verdicts[pair->verdict], a, *a && *b ? " and " : "", b);
        return;
    }
    printf("%s: %llu of %llu elements differ", name, (unsigned long long)pair->differing,
           (unsigned long long)pair->elements);
    if (pair->measured) printf(", at most by %s", cairn_real(pair->largest).text);
    printf(strcmp(a, b) ? " (%s and %s)\n" : " (%s)\n", a, b);
}

static json_t *json_of(const struct cairn_cli_pair *pair) {
    const struct cairn_assembly_tensor *sides[2] = {pair->a, pair->b};
    json_t *row = json_pack("{s:s, s:s}", "name", (pair->a ? pair->a : pair->b)->name, "verdict",
                            verdicts[pair->verdict]);
    for (int s = 0; s < 2; s++) {
        json_t *side = NULL;
        if (sides[s]) {
            json_t *shape = json_array();
            for (unsigned d = 0; d < sides[s]->dimension_count; d++)
                json_array_append_new(shape, json_integer((json_int_t)sides[s]->shape[d]));
            side = json_pack("{s:s, s:o}", "dtype", cairn_dtype_text(sides[s]->dtype), "shape",
                             shape);
        }
        json_object_set_new(row, s ? "b" : "a", side ? side : json_null());
    }
    bool differs = pair->verdict == CAIRN_CLI_DIFFERS;
    json_object_set_new(row, "elements", json_integer((json_int_t)pair->elements));
    json_object_set_new(row, "differing", json_integer((json_int_t)pair->differing));
    json_object_set_new(row, "largest",
                        differs && pair->measured ? json_real(pair->largest) : json_null());
    return row;
}

static enum cairn_code report(const struct cairn_cli *cli, const struct cairn_cli_compare *job,
                              struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *rows = json_array();
    size_t same = 0;
    for (size_t i = 0; i < job->count; i++) {
        if (job->pairs[i].verdict == CAIRN_CLI_SAME)
            same++;
        else if (cli->output == CAIRN_CLI_TABLE)
            print_pair(&job->pairs[i]);
        else
            json_array_append_new(rows, json_of(&job->pairs[i]));
    }
    if (cli->output == CAIRN_CLI_TABLE) {
        printf("%s the same, %zu not\n", cairn_cli_counted(same, "tensor is", "tensors are").text,
               job->count - same);
        return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
    }
    CAIRN_AUTO_JSON json_t *answer =
        json_pack("{s:s, s:s, s:b, s:I, s:O}", "a", cli->arguments[0], "b", cli->arguments[1],
                  "equal", same == job->count, "same", (json_int_t)same, "differ", rows);
    if (!answer) return cairn_fail(err, CAIRN_INVALID, "a path is not UTF-8");
    return cairn_cli_print_json(answer, cli->output == CAIRN_CLI_JSON, err);
}

/* With rules one side at least must be what they are about; the other may be what came of it. */
static enum cairn_code check_rules(const struct cairn_cli *cli, const struct cairn_cli_weights *a,
                                   const struct cairn_cli_weights *b, struct cairn_error *err) {
    if (!cli->tp_rules || cairn_cli_weights_takes_rules(a) || cairn_cli_weights_takes_rules(b))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "--tp-rule is for DeepSpeed's files, and these are %s and %s", a->format,
                      b->format);
}

static enum cairn_code compare_values(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_weights a, b;
    cli->tp_rules_of_any = true;
    CAIRN_TRY(cairn_cli_interrupt_says("\ncairn diff: interrupted\n", err));
    CAIRN_TRY(cairn_cli_weights_open(cli, cli->arguments[0], true, &a, err));
    enum cairn_code code = cairn_cli_weights_open(cli, cli->arguments[1], true, &b, err);
    if (code == CAIRN_OK) {
        struct cairn_cli_compare job = {
            .cli = cli, .a = &a.assembly, .b = &b.assembly, .only = cli->only};
        code = check_rules(cli, &a, &b, err);
        if (code == CAIRN_OK) code = cairn_cli_compare_run(&job, err);
        if (code == CAIRN_OK) code = report(cli, &job, err);
        cairn_cli_compare_release(&job);
        cairn_cli_weights_release(&b);
    }
    cairn_cli_weights_release(&a);
    return code;
}

/* What is known of two stored checkpoints needs no byte of them; files are read. */
static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref sides[2];
    bool stored = cairn_cli_weights_is_stored(cli, cli->arguments[0], &sides[0]) &&
                  cairn_cli_weights_is_stored(cli, cli->arguments[1], &sides[1]);
    bool values = cli->tensors || cli->only || cli->tp_rules || cli->workers;
    if (values || !stored) return compare_values(cli, err);
    return cairn_cli_manifests_diff(cli, sides, err);
}

const struct cairn_cli_verb cairn_cli_verb_diff = {
    .name = "diff",
    .synopsis = "cairn diff [flags] A B",
    .purpose = "Which shards and tensors of two checkpoints differ, and by how much.",
    .examples = "  cairn diff llm/7b@1000 llm/7b@1200     (shapes, checksums; reads no bytes)\n"
                "  cairn diff --tensors llm/7b@1000 llm/7b@1200\n"
                "  cairn diff --tensors model.pt model.safetensors --only 'encoder.*'\n",
    .flags = flags,
    .flag_count = CAIRN_COUNT(flags),
    .arguments_min = 2,
    .arguments_max = 2,
    .takes_paths = true,
    .run = run,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* cairn put: a directory becomes a checkpoint, every file as it is. */
#include "cli/tree/save_tree.h"
#include "cli/tree/tensors.h"

static const struct cairn_cli_flag put_flags[] = {
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "Where no uploader listens: bring one that sends to this store (default $CAIRN_STORE)."},
    {"format", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(format), 0, "TAG",
     "Format tag that readers can insist on."},
    {"labels", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(labels), 0, "JSON", "Labels, an object of texts."},
    {"new-version", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(force), 0, NULL,
     "If the step is there already, keep both versions instead of refusing."},
    {"latest", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(latest), 0, NULL,
     "It is latest from then on, also where its step is lower than that of latest."},
    {"follow", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(follow), 0, NULL,
     "Keep what links out of the tree point to; otherwise they are refused."},
    {"files-only", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(files_only), 0, NULL,
     "Leave out modes, links and empty folders."},
    {"exclude", 0, CAIRN_CLI_TEXTS, CAIRN_CLI_AT(exclude), 0, "PATTERN",
     "Leave out what matches, as a line of .gitignore does; again for others. A file .cairnignore "
     "at the root of PATH has such lines, too."},
    {"detach", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(detach), 0, NULL,
     "Return when the node's uploader has the files open; it goes on. See cairn wait."},
};

static enum cairn_code describe_put(void *owner, struct cairn_save *save,
                                    const struct cairn_cli_tree *tree,
                                    struct cairn_cli_described *ret, struct cairn_error *err) {
    (void)owner;
    return cairn_cli_describe_tensors(save, tree, ret, err);
}

static enum cairn_code run_put(struct cairn_cli *cli, struct cairn_error *err) {
    const char *path = cli->arguments[0], *ref = cli->arguments[1];
    const struct cairn_cli_save_tree job = {.cli = cli,
                                            .verb = "put",
                                            .path = path,
                                            .folder_fd = -1,
                                            .ref = ref,
                                            .format = cli->format,
                                            .describe = describe_put};
    CAIRN_TRY(cairn_cli_save_tree_check("put", path, ref, err));
    CAIRN_TRY(cairn_cli_save_tree_start(cli, "put", err));
    return cairn_cli_save_tree_run(&job, err);
}

const struct cairn_cli_verb cairn_cli_verb_put = {
    .name = "put",
    .synopsis = "cairn put [flags] PATH project/run@step",
    .purpose = "Keep a directory or a file as a checkpoint.",
    .examples =
        "  cairn put ./model llm/7b@1000\n"
        "  cairn put ./model llm/7b@1000 --format hf-safetensors --labels '{\"team\":\"nlp\"}'\n"
        "  cairn put ./model llm/7b@1000 --store /mnt/ckpt      (brings its own uploader)\n",
    .flags = put_flags,
    .flag_count = CAIRN_COUNT(put_flags),
    .arguments_min = 2,
    .arguments_max = 2,
    .takes_paths = true,
    .run = run_put,
};

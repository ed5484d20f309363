/* SPDX-License-Identifier: Apache-2.0 */
/* save_tree: saves a directory through the node's uploader, or one of its own. */
#include "cli/tree/tree.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cairn/find.h>

#include "api/wire/messages.h"
#include "cli/shell/daemons.h"
#include "cli/shell/output.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/text.h"

#define WAIT_STEP_MS 200
#define POLL_MS 50
#define BUSY_MS 25000 /* an uploader reports a rank's end within 15 s */
#define BUSY_EVERY_MS 500
#define METER_FILES 64       /* files handed over between two progress checks */
#define GIVE_UP_MS 15000     /* to abort an interrupted save before the command exits */
#define WAIT_STAGED_MS 30000 /* libcairn's default */
#define COMMIT_NOTE_MS 5000
#define COMMIT_NOTE_AGAIN_MS 30000
#define RETENTION_MS 500 /* the server applies a policy right after the commit was told */
#define WAIT_DEFAULT_MS (24 * 3600 * 1000ULL)

/* A signal aborts the save, so that the command can be repeated at once. Before the save begins,
 * the signal thread ends the process, because the main thread may block for long. */
static struct {
    const char *verb;
    _Atomic int signal;
    _Atomic bool begun;
    struct cli_own_uploader own;
    uint64_t deadline; /* of the whole command: --timeout covers all steps */
} saving;

static uint64_t left_ms(void) {
    return cairn_deadline_left_ms(&cairn_clock_real, saving.deadline);
}

static bool second_signal_waits(void) {
    sigset_t waiting;
    return !sigpending(&waiting) &&
           (sigismember(&waiting, SIGINT) || sigismember(&waiting, SIGTERM));
}

static void take_signal(void *owner, int signal) {
    (void)owner;
    saving.signal = signal;
    for (int i = 0; saving.begun && i < GIVE_UP_MS / POLL_MS && !second_signal_waits(); i++)
        (void)poll(NULL, 0, POLL_MS);
    fprintf(stderr, "\ncairn %s: interrupted; %s\n", saving.verb,
            saving.begun ? "whether the save is given up cairn show tells" : "nothing was begun");
    cli_own_uploader_stop(&saving.own);
    cli_interrupt_exit(signal);
}
static struct cli_interrupt interrupt = {.take = take_signal};

static enum cairn_code add_files(struct cairn_save *save, const struct cli_tree *tree,
                                 struct cli_meter *meter, struct cairn_error *err) {
    for (size_t i = 0; i < tree->count && !saving.signal; i++) {
        struct cairn_save_status status;
        if (i % METER_FILES == 0) {
            cairn_save_status(save, &status);
            cli_meter_set(meter, status.sent_bytes, NULL);
        }
        CAIRN_AUTO_FD fd = -1;
        CAIRN_TRY(cli_tree_file(tree, i, &fd, err));
        CAIRN_TRY(cairn_save_file(save, tree->files[i].name, fd, tree->files[i].bytes, err));
    }
    return CAIRN_OK;
}

/* The save is durable and its commit takes long. */
static void say_waits(uint64_t *next_ms, const struct cairn_error *why) {
    uint64_t now_ms = cairn_mono_ms();
    if (!*next_ms) *next_ms = now_ms + COMMIT_NOTE_MS;
    if (now_ms < *next_ms) return;
    cli_note("note: %s; going on", why->message);
    *next_ms = now_ms + COMMIT_NOTE_AGAIN_MS;
}

static enum cairn_code wait_committed(struct cairn_session *session, struct cairn_save *save,
                                      struct cli_meter *meter, struct cairn_error *err) {
    struct cairn_error own = {0};
    uint64_t note_ms = 0;
    if (!err) err = &own;
    for (;;) {
        uint32_t step_ms = (uint32_t)cairn_min_u64(cairn_max_u64(left_ms(), 1), WAIT_STEP_MS);
        enum cairn_code code = cairn_save_wait(save, CAIRN_COMMITTED, step_ms, err);
        struct cairn_save_status status;
        cairn_save_status(save, &status);
        cli_meter_set(meter, status.sent_bytes,
                      status.reached >= CAIRN_DURABLE ? "committing" : NULL);
        if (code != CAIRN_TIMEOUT || saving.signal || !left_ms()) return code;
        /* Notes each new reason of a delay. */
        struct cairn_error why = {0};
        if (cairn_session_problem(session, &why) == CAIRN_UNAVAILABLE)
            cli_note("note: %s; going on", why.message);
        if (status.reached >= CAIRN_DURABLE) say_waits(&note_ms, err);
    }
}

/* The tree description for meta and, if it is long, for its own shard. */
struct description {
    struct cairn_buf meta, shard;
};

static enum cairn_code describe_tree(const struct cli_tree *tree, struct description *ret,
                                     struct cairn_error *err) {
    CAIRN_TRY(cli_tree_meta_write(&tree->meta, &ret->meta, err));
    if (ret->meta.size <= CLI_TREE_IN_META_BYTES) return CAIRN_OK;
    ret->shard = ret->meta;
    ret->meta = (struct cairn_buf){0};
    CAIRN_AUTO_JSON json_t *json =
        json_pack("{s:{s:s}}", CAIRN_META_TREE, "shard", CAIRN_TREE_SHARD);
    if (!json) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for modes and links");
    return cairn_json_dump(json, &ret->meta, err);
}

static enum cairn_code add_description(struct cairn_save *save,
                                       const struct description *description,
                                       struct cairn_error *err) {
    const struct cairn_buf *bytes = &description->shard;
    if (!bytes->size || saving.signal) return CAIRN_OK;
    CAIRN_AUTO_FD fd = memfd_create("cairn-tree", MFD_CLOEXEC);
    if (fd < 0) return cairn_fail_errno(err, "memory for modes and links");
    const struct cairn_file file = {.fd = fd, .direct_fd = -1};
    CAIRN_TRY(cairn_file_write_at(&file, bytes->data, bytes->size, 0, err));
    return cairn_save_file(save, CAIRN_TREE_SHARD, fd, bytes->size, err);
}

static enum cairn_code give_up(const struct cli_save_tree *job, struct cairn_save *save,
                               struct cairn_error *err) {
    struct cairn_error why = {0};
    char reason[64];
    snprintf(reason, sizeof reason, "cairn %s was interrupted", job->verb);
    enum cairn_code code = cairn_save_fail(save, reason, &why);
    if (code == CAIRN_ALREADY_COMMITTED)
        return cairn_fail(err, CAIRN_INTERRUPTED, "interrupted; %s is committed all the same",
                          job->ref);
    if (code != CAIRN_OK) return cairn_fail(err, CAIRN_INTERRUPTED, "interrupted; %s", why.message);
    return cairn_fail(err, CAIRN_INTERRUPTED,
                      "interrupted; the save of %s was given up, and the same command begins it "
                      "anew (--detach lets it go on)",
                      job->ref);
}

/* Checked before an attempt is opened, which would end a running job's attempt. */
static enum cairn_code check_count(const struct cli_tree *tree, size_t count_max, const char *path,
                                   struct cairn_error *err) {
    if (tree->count <= count_max) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TOO_LARGE,
                      "%s holds %zu files, and a checkpoint has at most %zu: put its folders as "
                      "checkpoints of their own, or one archive of it (tar -cf); nothing was begun",
                      path, tree->count, count_max);
}

static enum cairn_code save_files(const struct cli_save_tree *job, struct cairn_session *session,
                                  const struct cli_tree *tree,
                                  const struct description *description, uint64_t step,
                                  struct cairn_save_status *ret_status,
                                  struct cli_described *ret_described, struct cairn_error *err) {
    struct cairn_save_options options = {
        .size = sizeof options,
        .on_exists = job->cli->force ? CAIRN_EXISTS_NEW_VERSION : CAIRN_EXISTS_ERROR,
        .format = job->format,
        .labels_json = job->cli->labels,
        .meta_json = description->meta.size ? description->meta.data : NULL};
    struct cairn_save *save = NULL;
    struct cli_meter meter;
    char title[320];
    snprintf(title, sizeof title, "%s %s", job->verb, job->ref);
    CAIRN_TRY(cairn_save_begin(session, step, &options, &save, err));
    cli_meter_init(&meter, job->cli, title, tree->total_bytes, 0);
    enum cairn_code code = add_files(save, tree, &meter, err);
    if (code == CAIRN_OK) code = add_description(save, description, err);
    if (code == CAIRN_OK) code = job->describe(job->owner, save, tree, ret_described, err);
    if (code == CAIRN_OK && !saving.signal) code = cairn_save_stage(save, err);
    /* An uploader has it: libcairn keeps no save with files back for the next uploader. */
    bool staged = code == CAIRN_OK && !saving.signal;
    if (staged && !job->cli->detach) code = wait_committed(session, save, &meter, err);
    if (saving.signal && !(staged && (job->cli->detach || code == CAIRN_OK)))
        code = give_up(job, save, err);
    else if (!staged)
        (void)cairn_save_fail(save, err ? err->message : "it failed", NULL);
    cairn_save_status(save, ret_status);
    cli_meter_end(&meter, code == CAIRN_OK);
    cairn_save_free(save);
    return code;
}

/* Times are not mentioned: they are never kept, and every file has them (docs/command.md). */
static void tell_unkept(const struct cli_tree *tree) {
    const struct cli_unkept *unkept = &tree->unkept;
    char text[400] = "";
    if (unkept->attributes)
        cli_add(text, sizeof text, ", ", "extended attributes (%zu)", unkept->attributes);
    if (unkept->access_lists) cli_add(text, sizeof text, ", ", "ACLs (%zu)", unkept->access_lists);
    if (unkept->owners)
        cli_add(text, sizeof text, ", ", "other owners than you (%zu)", unkept->owners);
    if (unkept->bits)
        cli_add(text, sizeof text, ", ", "setuid, setgid, sticky (%zu)", unkept->bits);
    if (unkept->links)
        cli_add(text, sizeof text, ", ", "hard links (%zu; each name is a file of its own)",
                unkept->links);
    if (text[0]) cli_note("note: not kept, with how many files and folders have it: %s", text);
    if (tree->excluded)
        cli_note("note: excluded: %zu %s", tree->excluded,
                 tree->excluded == 1 ? "file or folder" : "files and folders");
}

struct latest {
    bool known, is_it;
    bool trashed; /* a retention policy removed the saved version at once */
    uint64_t step;
};

static bool is_in_trash(struct cairn_session *session, const char *version) {
    struct cairn_find_options options = {.size = sizeof options, .ref = version};
    struct cairn_version_info *found = NULL;
    size_t count = 0;
    if (cairn_find(session, &options, &found, &count, NULL)) return false;
    bool trashed = count && !strcmp(found->state, "trashed");
    cairn_find_free(found);
    return trashed;
}

/* Whether the saved version is latest. Older uploaders cannot tell. */
static struct latest look_at_latest(const struct cli_save_tree *job, struct cairn_session *session,
                                    const struct cairn_save_status *status) {
    struct cairn_find_options options = {.size = sizeof options, .ref = "latest"};
    struct cairn_version_info *found = NULL;
    struct latest latest = {0};
    size_t count = 0;
    if (job->cli->detach || cairn_find(session, &options, &found, &count, NULL)) return latest;
    if (count)
        latest = (struct latest){
            .known = true, .is_it = !strcmp(found->version, status->version), .step = found->step};
    cairn_find_free(found);
    /* No policy removes the newest version. */
    uint64_t until_ms = cairn_mono_ms() + cairn_min_u64(left_ms(), RETENTION_MS);
    while (latest.known && !latest.is_it && !saving.signal) {
        latest.trashed = is_in_trash(session, status->version);
        if (latest.trashed || cairn_mono_ms() >= until_ms) break;
        (void)poll(NULL, 0, POLL_MS);
    }
    return latest;
}

/* What was to be kept is not kept, so the command fails, behind its result. */
static enum cairn_code fail_trashed(const struct cli_save_tree *job, const char *version,
                                    const struct latest *latest, struct cairn_error *err) {
    const int run = (int)strcspn(job->ref, "@");
    return cairn_fail(err, CAIRN_CONFLICT,
                      "a retention policy put %s into the trash at once, since step %" PRIu64
                      " is newer (cairn policy get %.*s); cairn undelete %.*s@%s, then cairn pin "
                      "of it, keeps it, and put --latest",
                      job->ref, latest->step, run, job->ref, run, job->ref, version);
}

static enum cairn_code report(const struct cli_save_tree *job, const struct cli_tree *tree,
                              const struct cairn_save_status *status,
                              const struct cli_described *described, const struct latest *latest,
                              struct cairn_error *err) {
    const struct cli *cli = job->cli;
    if (latest->known && !latest->is_it && !latest->trashed)
        fprintf(stderr, "note: step %llu stays latest; with --latest an older step becomes it\n",
                (unsigned long long)latest->step);
    if (cli->output == CLI_NAME) {
        puts(status->version);
    } else if (cli->output == CLI_TABLE && cli->detach) {
        printf(
            "handed over %s as %s: until it is committed the files must stay as they are and the "
            "uploader must run (restarted, it has them no more); cairn wait %s\n",
            job->ref, status->version, job->ref);
    } else if (cli->output == CLI_TABLE) {
        printf("committed %s as %s: %s, %s, ", job->ref, status->version,
               cairn_counted(tree->count, "file").text, cli_size(tree->total_bytes).text);
        if (described->tensors && described->files < tree->count)
            printf("%s; %s of opaque content\n", cairn_counted(described->tensors, "tensor").text,
                   cairn_counted(tree->count - described->files, "file").text);
        else if (described->tensors)
            puts(cairn_counted(described->tensors, "tensor").text);
        else
            puts("opaque content (no safetensors file, so no tensor is known by name)");
    } else {
        CAIRN_AUTO_JSON json_t *answer =
            json_pack("{s:s, s:I, s:o, s:o, s:I, s:I, s:I, s:O}", "version", status->version,
                      "step", (json_int_t)status->step, "latest",
                      latest->known ? json_boolean(latest->is_it) : json_null(), "trashed",
                      latest->known ? json_boolean(latest->trashed) : json_null(), "files",
                      (json_int_t)tree->count, "bytes", (json_int_t)tree->total_bytes, "tensors",
                      (json_int_t)described->tensors, "left_out", described->left_out);
        return cli_print_json(answer, true, err);
    }
    return CAIRN_OK;
}

/* The server counts a killed put as the run's writer until its uploader reports the end, so
 * CAIRN_RUN_BUSY is retried for 25 s. */
static enum cairn_code open_when_free(struct cairn_open_options *options,
                                      struct cairn_session **ret, struct cairn_error *err) {
    uint64_t free_by_ms = cairn_min_u64(left_ms(), BUSY_MS);
    uint64_t deadline = cairn_deadline_in(&cairn_clock_real, free_by_ms);
    bool limited = options->timeout_ms != 0;
    struct cairn_error busy = {0};
    for (bool noted = false;; noted = true) {
        struct cairn_resume resume;
        uint64_t most_ms = cairn_max_u64(left_ms(), 1);
        if (limited) {
            options->timeout_ms = (uint32_t)cairn_min_u64(most_ms, UINT32_MAX);
            options->wait_staged_ms = (uint32_t)cairn_min_u64(most_ms, WAIT_STAGED_MS);
        }
        enum cairn_code code = cairn_open(options, ret, &resume, err);
        if (code == CAIRN_RUN_BUSY) busy = *err;
        if (code == CAIRN_TIMEOUT && busy.code) /* report the cause instead of the timeout */
            return cairn_pass(err, CAIRN_RUN_BUSY, &busy);
        if (code != CAIRN_RUN_BUSY || saving.signal ||
            !cairn_deadline_left_ms(&cairn_clock_real, deadline))
            return code;
        if (!noted)
            fprintf(stderr, "note: %s; trying again for %llu s\n", err->message,
                    (unsigned long long)(free_by_ms + 999) / 1000);
        (void)poll(NULL, 0, (int)cairn_min_u64(cairn_max_u64(left_ms(), 1), BUSY_EVERY_MS));
    }
}

/* Uses the node's uploader; if none listens, starts one for this command. */
static enum cairn_code open_session(const struct cli *cli, const char *run,
                                    struct cairn_session **ret, struct cairn_error *err) {
    const char *store = cli->store ? cli->store : getenv("CAIRN_STORE");
    struct cairn_open_options options = {
        .size = sizeof(struct cairn_open_options),
        .run = run,
        .resume = cli->latest ? "ahead" : "keep",
        .socket = cli_uploader_socket(cli),
        .timeout_ms = cli->timeout_ms ? 1 : 0}; /* each try sets the time left */
    enum cairn_code code = open_when_free(&options, ret, err);
    if (code != CAIRN_UPLOADER_GONE) return code;
    if (cli->detach)
        return cairn_fail(err, CAIRN_UPLOADER_GONE,
                          "no uploader listens on %s, and --detach needs one that stays",
                          cli_uploader_socket(cli));
    if (!store || !*store)
        return cairn_fail(err, CAIRN_UPLOADER_GONE,
                          "no uploader listens on %s; start one, or give --store so that this "
                          "command brings its own",
                          cli_uploader_socket(cli));
    CAIRN_TRY(cli_own_uploader_start(cli, store, &saving.own, err));
    options.socket = saving.own.socket;
    return open_when_free(&options, ret, err);
}

static enum cairn_code read_ref(const char *text, uint64_t *ret_step,
                                char ret_name[2 * CAIRN_NAME_BYTES_MAX + 2],
                                struct cairn_error *err) {
    struct cli_ref ref;
    CAIRN_TRY(cli_ref_parse(text, &ref, err));
    if (cairn_parse_u64(cairn_view_of(ref.version), ret_step, NULL) != CAIRN_OK)
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%s\" names no step to save as: %s/%s@1000, for instance", text,
                          ref.name.project, ref.name.run);
    snprintf(ret_name, 2 * CAIRN_NAME_BYTES_MAX + 2, "%s/%s", ref.name.project, ref.name.run);
    return CAIRN_OK;
}

enum cairn_code cli_save_tree_check(const char *verb, const char *path, const char *ref,
                                    struct cairn_error *err) {
    struct cli_ref parsed;
    char name[2 * CAIRN_NAME_BYTES_MAX + 2];
    uint64_t step;
    if (cli_ref_parse(path, &parsed, NULL) == CAIRN_OK && parsed.version[0] && access(path, F_OK) &&
        !access(ref, F_OK))
        return cairn_fail(err, CAIRN_INVALID, "the path stands first: cairn %s %s %s", verb, ref,
                          path);
    return read_ref(ref, &step, name, err);
}

enum cairn_code cli_save_tree_start(const struct cli *cli, const char *verb,
                                    struct cairn_error *err) {
    saving.verb = verb;
    saving.deadline =
        cairn_deadline_in(&cairn_clock_real, cli->timeout_ms ? cli->timeout_ms : WAIT_DEFAULT_MS);
    return cli_interrupt_start(&interrupt, err);
}

/* The checkpoint is saved although printing failed; the message says so, lest it be saved twice. */
static enum cairn_code fail_to_tell(const struct cli_save_tree *job, const char *version,
                                    const struct cairn_error *why, struct cairn_error *err) {
    return cairn_fail(err, why->code, "%s is %s as %s, and this cannot be told: %.120s", job->ref,
                      job->cli->detach ? "handed over" : "committed", version, why->message);
}

enum cairn_code cli_save_tree_run(const struct cli_save_tree *job, struct cairn_error *err) {
    struct cli_tree tree;
    struct cairn_session *session = NULL;
    struct cairn_save_status status = {0};
    uint64_t step = 0;
    CAIRN_AUTO_JSON json_t *left_out = json_array();
    struct cli_described described = {.left_out = left_out};
    char name[2 * CAIRN_NAME_BYTES_MAX + 2];
    enum cli_links links = job->cli->no_links ? CLI_LINKS_NONE
                           : job->cli->follow ? CLI_LINKS_FOLLOWED
                                              : CLI_LINKS_KEPT;
    CAIRN_TRY(read_ref(job->ref, &step, name, err));
    CAIRN_TRY(cli_tree_open(job->path, job->folder_fd, links, &job->cli->exclude, &tree, err));
    struct description description = {0};
    enum cairn_code code = check_count(&tree, CAIRN_SHARDS_MAX, job->path, err);
    if (code == CAIRN_OK && !job->cli->files_only) code = describe_tree(&tree, &description, err);
    if (code == CAIRN_OK && description.shard.size)
        code = check_count(&tree, CAIRN_SHARDS_MAX - 1, job->path, err);
    if (code == CAIRN_OK) code = open_session(job->cli, name, &session, err);
    saving.begun = code == CAIRN_OK;
    while (saving.signal && !saving.begun) (void)poll(NULL, 0, POLL_MS); /* until it exits */
    if (code == CAIRN_OK)
        code = save_files(job, session, &tree, &description, step, &status, &described, err);
    cairn_buf_release(&description.meta);
    cairn_buf_release(&description.shard);
    struct latest latest = {0};
    if (code == CAIRN_OK) latest = look_at_latest(job, session, &status);
    (void)cairn_close(session, NULL);
    cli_own_uploader_stop(&saving.own);
    if (code == CAIRN_INTERRUPTED) {
        fprintf(stderr, "\ncairn %s: %s\n", job->verb, err->message);
        cli_interrupt_exit(saving.signal);
    }
    if (code == CAIRN_STEP_EXISTS)
        code = cairn_within(err, code, "not saved (--new-version would keep both)");
    if (code == CAIRN_OK) tell_unkept(&tree);
    if (code == CAIRN_OK) {
        struct cairn_error why = {0};
        code = report(job, &tree, &status, &described, &latest, &why);
        if (code == CAIRN_OK && fflush(stdout)) code = cairn_fail_errno(&why, "standard output");
        if (code)
            code = fail_to_tell(job, status.version, &why, err);
        else if (latest.trashed)
            code = fail_trashed(job, status.version, &latest, err);
    }
    cli_tree_release(&tree);
    return code;
}

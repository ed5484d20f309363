/* SPDX-License-Identifier: Apache-2.0 */
/* Checks option structs; reads job string, incarnation and origin from the environment. */
#include "client/session/options.h"

#include <cairn/cairn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "common/text.h"
#include "common/trace.h"

/* An option struct has a few hundred bytes; a larger size is garbage. */
#define OPTIONS_BYTES_MAX (4 * CAIRN_KIB)

enum cairn_code cairn_client_options(const void *given, void *ret, size_t ret_bytes,
                                     const char *what, struct cairn_error *err) {
    size_t size = ret_bytes;
    memset(ret, 0, ret_bytes);
    memcpy(ret, &size, sizeof size);
    if (!given) return CAIRN_OK;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > OPTIONS_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s: its size, %zu, is not that of a struct; set .size to its sizeof",
                          what, size);
    for (size_t i = ret_bytes; i < size; i++)
        if (((const uint8_t *)given)[i])
            return cairn_fail(err, CAIRN_UNSUPPORTED,
                              "%s: it sets an option that this libcairn does not have; it is older "
                              "than the header that the program was compiled with",
                              what);
    memcpy(ret, given, cairn_min_u64(size, ret_bytes));
    memcpy(ret, &ret_bytes, sizeof ret_bytes);
    return CAIRN_OK;
}

/* ---- the job string, in order of preference ---- */

static const char *from_environment(const char *name) {
    return getenv(name);
}

static const char *variable(const struct cairn_client_job_sources *sources, const char *name) {
    const char *value = (sources->variable ? sources->variable : from_environment)(name);
    return value && value[0] ? value : NULL;
}

static enum cairn_code check_job(const char *where, const char *job,
                                 char ret_job[CAIRN_CLIENT_JOB_BYTES], struct cairn_error *err) {
    size_t size = strlen(job);
    if (size == 0 || size >= CAIRN_CLIENT_JOB_BYTES)
        return cairn_fail(err, CAIRN_INVALID, "job from %s has %zu bytes, allowed are 1 to %d",
                          where, size, CAIRN_CLIENT_JOB_BYTES - 1);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)job[i] < 0x20 || job[i] == 0x7f)
            return cairn_fail(err, CAIRN_INVALID, "job from %s holds a control byte", where);
    if (!cairn_utf8_valid(cairn_view_of(job)))
        return cairn_fail(err, CAIRN_INVALID, "job from %s is not UTF-8", where);
    memcpy(ret_job, job, size + 1);
    return CAIRN_OK;
}

static enum cairn_code take_counted(const char *where, const char *id, const char *restarts,
                                    char ret_job[CAIRN_CLIENT_JOB_BYTES], struct cairn_error *err) {
    char job[2 * CAIRN_CLIENT_JOB_BYTES];
    int size = snprintf(job, sizeof job, "%s:%s:%s", where, id, restarts ? restarts : "0");
    if (size < 0 || (size_t)size >= sizeof job)
        return cairn_fail(err, CAIRN_INVALID, "job from %s is too long", where);
    return check_job(where, job, ret_job, err);
}

static const struct {
    const char *name, *id, *restarts;
    bool names_job; /* without an explicit job string, its id is used */
} launchers[] = {{"torchelastic", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", true},
                 {"pmix", "PMIX_NAMESPACE", NULL, false},
                 {"slurm", "SLURM_JOB_ID", "SLURM_RESTART_COUNT", true}};

enum cairn_code cairn_client_job(const struct cairn_client_job_sources *sources,
                                 char ret_job[CAIRN_CLIENT_JOB_BYTES], struct cairn_error *err) {
    if (sources->job) return check_job("the options", sources->job, ret_job, err);
    const char *id = variable(sources, "CAIRN_JOB");
    if (id) return check_job("CAIRN_JOB", id, ret_job, err);
    for (size_t i = 0; i < CAIRN_COUNT(launchers); i++) {
        id = launchers[i].names_job ? variable(sources, launchers[i].id) : NULL;
        if (id && (i || strcmp(id, "none") != 0)) /* torchelastic's placeholder: options.h#5 */
            return take_counted(launchers[i].name, id, variable(sources, launchers[i].restarts),
                                ret_job, err);
    }
    if (sources->world_size > 1)
        return cairn_fail(err, CAIRN_INVALID,
                          "no job string for %s: set `job` or CAIRN_JOB to one that is the "
                          "same on all ranks and new at each start (or start by torchrun with a "
                          "--rdzv-id, or by Slurm)",
                          cairn_counted(sources->world_size, "rank").text);
    char uuid[CAIRN_UUID_TEXT_BYTES], job[CAIRN_CLIENT_JOB_BYTES];
    cairn_uuid_random(uuid);
    snprintf(job, sizeof job, "single:%s", uuid);
    return check_job("a random number", job, ret_job, err);
}

enum cairn_code cairn_client_incarnation(const struct cairn_client_job_sources *sources,
                                         char ret[CAIRN_CLIENT_INCARNATION_BYTES],
                                         struct cairn_error *err) {
    ret[0] = '\0';
    const char *given = variable(sources, "CAIRN_INCARNATION");
    if (given) {
        char text[CAIRN_CLIENT_JOB_BYTES];
        CAIRN_TRY(check_job("CAIRN_INCARNATION", given, text, err));
        if (cairn_text_copy(ret, CAIRN_CLIENT_INCARNATION_BYTES, text)) return CAIRN_OK;
        return cairn_fail(err, CAIRN_INVALID,
                          "CAIRN_INCARNATION has %zu bytes, allowed are 1 to %d", strlen(text),
                          CAIRN_CLIENT_INCARNATION_BYTES - 1);
    }
    for (size_t i = 0; i < CAIRN_COUNT(launchers); i++) {
        char text[CAIRN_CLIENT_JOB_BYTES];
        struct cairn_error ignored = {0};
        const char *id = variable(sources, launchers[i].id);
        if (!id || strcmp(id, "none") == 0) continue; /* options.h#5 */
        const char *restarts =
            launchers[i].restarts ? variable(sources, launchers[i].restarts) : NULL;
        if (take_counted(launchers[i].name, id, restarts, text, &ignored) != CAIRN_OK ||
            strlen(text) >= CAIRN_CLIENT_INCARNATION_BYTES)
            return CAIRN_OK; /* a truncated text could repeat at the next start */
        memcpy(ret, text, strlen(text) + 1);
        return CAIRN_OK;
    }
    return CAIRN_OK;
}

/* ---- where the session runs: environment, host name, the git checkout around the folder ---- */

#define TEXT_BYTES 201
#define PATH_BYTES 4096
#define PARENTS_MAX 32
#define PACKED_BYTES_MAX (4 << 20) /* some 50,000 branches and tags */

/* Job id and restart count as schedulers set them. */
static const struct {
    const char *name, *variable;
} jobs[] = {
    {"slurm_job_id", "SLURM_JOB_ID"},
    {"slurm_restart_count", "SLURM_RESTART_COUNT"},
    {"torchelastic_run_id", "TORCHELASTIC_RUN_ID"},
    {"torchelastic_restart_count", "TORCHELASTIC_RESTART_COUNT"},
    {"pbs_job_id", "PBS_JOBID"},
    {"lsf_job_id", "LSB_JOBID"},
    {"kubernetes_pod", "POD_NAME"},
    {"kubernetes_namespace", "POD_NAMESPACE"},
};

/* Versions from the environment of container images; no library is loaded for this. */
static const struct {
    const char *name, *variable;
} libraries[] = {
    {"torch", "PYTORCH_VERSION"},
    {"nvidia_torch", "NVIDIA_PYTORCH_VERSION"},
    {"cuda", "CUDA_VERSION"},
    {"nccl", "NCCL_VERSION"},
};

static void put_text(json_t *object, const char *name, const char *value) {
    char text[TEXT_BYTES];
    if (!value || !*value || !cairn_text_copy(text, sizeof text, value)) return;
    if (!cairn_utf8_valid(cairn_view_of(text))) return;
    (void)json_object_set_new(object, name, json_string(text));
}

/* ---- git ---- */

static bool load_line(const char *folder, const char *name, char *ret, size_t capacity) {
    char path[2 * PATH_BYTES];
    CAIRN_AUTO(buf) text = {.limit = PATH_BYTES};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (cairn_file_load(path, &text, NULL) != CAIRN_OK || !text.size) return false;
    size_t size = 0;
    while (size < text.size && ((const char *)text.data)[size] != '\n') size++;
    if (size >= capacity) return false;
    memcpy(ret, text.data, size);
    ret[size] = '\0';
    return true;
}

static bool is_commit(const char *text) {
    size_t size = strspn(text, "0123456789abcdef");
    return !text[size] && (size == 40 || size == 64);
}

/* Looks in packed-refs, written by `git gc`: lines of "<commit> <ref>". */
static bool find_packed(const char *repository, const char *ref, char *ret, size_t capacity) {
    char path[2 * PATH_BYTES + 16];
    CAIRN_AUTO(buf) text = {.limit = PACKED_BYTES_MAX};
    snprintf(path, sizeof path, "%s/packed-refs", repository);
    if (cairn_file_load(path, &text, NULL) != CAIRN_OK || !text.size) return false;
    size_t size = strlen(ref);
    for (const char *line = text.data; *line; line += strcspn(line, "\n") + 1) {
        size_t digits = strspn(line, "0123456789abcdef");
        const char *name = line + digits + 1;
        if (line[digits] == ' ' && !strncmp(name, ref, size) && name[size] == '\n')
            return snprintf(ret, capacity, "%.*s", (int)digits, line) < (int)capacity;
        if (!strchr(line, '\n')) break;
    }
    return false;
}

static bool find_ref(const char *repository, const char *ref, char *ret, size_t capacity) {
    return load_line(repository, ref, ret, capacity) || find_packed(repository, ref, ret, capacity);
}

/* The repository's folder: .git, or the target of a .git file. */
static bool find_repository(char ret[PATH_BYTES]) {
    char folder[PATH_BYTES - 16], line[PATH_BYTES];
    if (!getcwd(folder, sizeof folder)) return false;
    for (int i = 0; i < PARENTS_MAX; i++) {
        snprintf(ret, PATH_BYTES, "%s/.git", folder);
        if (load_line(ret, "HEAD", line, sizeof line)) return true;
        if (load_line(folder, ".git", line, sizeof line) && cairn_text_starts(line, "gitdir: /"))
            return cairn_text_copy(ret, PATH_BYTES, line + strlen("gitdir: "));
        char *slash = strrchr(folder, '/');
        if (!slash || slash == folder) return false;
        *slash = '\0';
    }
    return false;
}

static void put_commit(json_t *object) {
    char repository[PATH_BYTES], common[PATH_BYTES], head[300], commit[300];
    if (!find_repository(repository) || !load_line(repository, "HEAD", head, sizeof head)) return;
    if (is_commit(head)) {
        put_text(object, "git_commit", head);
        return;
    }
    if (!cairn_text_starts(head, "ref: refs/heads/") || strstr(head, "..")) return;
    const char *ref = head + strlen("ref: ");
    put_text(object, "git_branch", ref + strlen("refs/heads/"));
    bool found = find_ref(repository, ref, commit, sizeof commit);
    /* A worktree's branches are in the main repository's folder. */
    if (!found && load_line(repository, "commondir", common, sizeof common)) {
        char path[2 * PATH_BYTES + 2];
        snprintf(path, sizeof path, "%s%s%s", common[0] == '/' ? "" : repository,
                 common[0] == '/' ? "" : "/", common);
        found = find_ref(path, ref, commit, sizeof commit);
    }
    if (found && is_commit(commit)) put_text(object, "git_commit", commit);
}

/* Containers often set neither variable. Reads /etc/passwd itself, because getpwuid may query a
 * network directory and would block the trainer. */
static void put_user(json_t *object) {
    const char *user = getenv("USER");
    if (!user || !*user) user = getenv("LOGNAME");
    if (user && *user) {
        put_text(object, "user", user);
        return;
    }
    FILE *file = fopen("/etc/passwd", "re");
    char name[1024]; /* only "name:password:number:" is needed */
    while (file && fgets(name, sizeof name, file)) {
        char *password = strchr(name, ':'), *number = password ? strchr(password + 1, ':') : NULL;
        if (!number || number[1] < '0' || number[1] > '9') continue;
        if (strtoul(number + 1, NULL, 10) != geteuid()) continue;
        *password = '\0';
        put_text(object, "user", name);
        break;
    }
    if (file) fclose(file);
}

/* /proc/self/exe resolves all links to a file such as python3.11. */
static void put_python(json_t *versions) {
    static const char python[] = "python";
    char path[PATH_BYTES];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    path[size > 0 ? size : 0] = '\0';
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!cairn_text_starts(name, python)) return;
    const char *version = name + sizeof python - 1;
    if (strchr(version, '.') && !version[strspn(version, "0123456789.")])
        put_text(versions, "python", version);
}

json_t *cairn_client_origin(void) {
    char host[TEXT_BYTES] = "";
    CAIRN_AUTO_JSON json_t *origin = json_object(), *job = json_object();
    CAIRN_AUTO_JSON json_t *versions = json_object();
    if (!origin || !job || !versions) return NULL;
    if (gethostname(host, sizeof host - 1)) host[0] = '\0';
    put_text(origin, "host", host);
    put_user(origin);
    put_commit(origin);
    for (size_t i = 0; i < CAIRN_COUNT(jobs); i++)
        put_text(job, jobs[i].name, getenv(jobs[i].variable));
    if (json_object_size(job)) (void)json_object_set(origin, "job", job);
    put_text(versions, "cairn", CAIRN_VERSION);
    put_python(versions);
    for (size_t i = 0; i < CAIRN_COUNT(libraries); i++)
        put_text(versions, libraries[i].name, getenv(libraries[i].variable));
    (void)json_object_set(origin, "versions", versions);
    return CAIRN_TAKE(origin);
}

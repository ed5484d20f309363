/* SPDX-License-Identifier: Apache-2.0 */
/* Environment, host name, and the files of a git checkout around the working directory. */
#include "client/session/origin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "common/text.h"

#include <cairn/cairn.h>

#define TEXT_BYTES 201
#define PATH_BYTES 4096
#define PARENTS_MAX 32
#define PACKED_BYTES_MAX (4 << 20) /* some 50,000 branches and tags */

/* What schedulers call the job, and its restart. */
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

/* What images of these libraries say of themselves; none of them is loaded for it. */
static const struct {
    const char *name, *variable;
} libraries[] = {
    {"torch", "PYTORCH_VERSION"},
    {"nvidia_torch", "NVIDIA_PYTORCH_VERSION"},
    {"cuda", "CUDA_VERSION"},
    {"nccl", "NCCL_VERSION"},
};

static void put(json_t *object, const char *name, const char *value) {
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

/* Branches that `git gc` has put together: a line each, "<commit> <ref>". */
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

/* The folder of the repository: .git, or where a file of that name points to. */
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
        put(object, "git_commit", head);
        return;
    }
    if (!cairn_text_starts(head, "ref: refs/heads/") || strstr(head, "..")) return;
    const char *ref = head + strlen("ref: ");
    put(object, "git_branch", ref + strlen("refs/heads/"));
    bool found = find_ref(repository, ref, commit, sizeof commit);
    /* A worktree's branches are in the folder of the repository it belongs to. */
    if (!found && load_line(repository, "commondir", common, sizeof common)) {
        char path[2 * PATH_BYTES + 2];
        snprintf(path, sizeof path, "%s%s%s", common[0] == '/' ? "" : repository,
                 common[0] == '/' ? "" : "/", common);
        found = find_ref(path, ref, commit, sizeof commit);
    }
    if (found && is_commit(commit)) put(object, "git_commit", commit);
}

/* Containers have neither variable. The file itself is read, since getpwuid may ask a directory in
 * the network, and a trainer must not wait for one. */
static void put_user(json_t *object) {
    const char *user = getenv("USER");
    if (!user || !*user) user = getenv("LOGNAME");
    if (user && *user) {
        put(object, "user", user);
        return;
    }
    FILE *file = fopen("/etc/passwd", "re");
    char name[1024]; /* name:password:number: and what is not needed */
    while (file && fgets(name, sizeof name, file)) {
        char *password = strchr(name, ':'), *number = password ? strchr(password + 1, ':') : NULL;
        if (!number || number[1] < '0' || number[1] > '9') continue;
        if (strtoul(number + 1, NULL, 10) != geteuid()) continue;
        *password = '\0';
        put(object, "user", name);
        break;
    }
    if (file) fclose(file);
}

/* The interpreter's file is called python3.11, behind all its links. */
static void put_python(json_t *versions) {
    static const char python[] = "python";
    char path[PATH_BYTES];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    path[size > 0 ? size : 0] = '\0';
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!cairn_text_starts(name, python)) return;
    const char *version = name + sizeof python - 1;
    if (strchr(version, '.') && !version[strspn(version, "0123456789.")])
        put(versions, "python", version);
}

json_t *cairn_client_origin(void) {
    char host[TEXT_BYTES] = "";
    CAIRN_AUTO_JSON json_t *origin = json_object(), *job = json_object();
    CAIRN_AUTO_JSON json_t *versions = json_object();
    if (!origin || !job || !versions) return NULL;
    if (gethostname(host, sizeof host - 1)) host[0] = '\0';
    put(origin, "host", host);
    put_user(origin);
    put_commit(origin);
    for (size_t i = 0; i < CAIRN_COUNT(jobs); i++) put(job, jobs[i].name, getenv(jobs[i].variable));
    if (json_object_size(job)) (void)json_object_set(origin, "job", job);
    put(versions, "cairn", CAIRN_VERSION);
    put_python(versions);
    for (size_t i = 0; i < CAIRN_COUNT(libraries); i++)
        put(versions, libraries[i].name, getenv(libraries[i].variable));
    (void)json_object_set(origin, "versions", versions);
    return CAIRN_TAKE(origin);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of this build as children of the test; see daemon.h. */
#include "tests/support/daemon.h"

#include <dirent.h>
#include <spawn.h>
#include <sys/resource.h>

#include "tests/harness.h"

#define DAEMONS_MAX 64
#define END_MS 3000
#define ARGUMENTS_MAX 32

extern char **environ;

/* What still runs when the test program ends is killed at exit. */
static pid_t running[DAEMONS_MAX];
static unsigned started_count;

static void remember(pid_t pid) {
    for (size_t i = 0; i < DAEMONS_MAX; i++) {
        if (running[i]) continue;
        running[i] = pid;
        return;
    }
}

static void forget(pid_t pid) {
    for (size_t i = 0; i < DAEMONS_MAX; i++) {
        if (running[i] == pid) running[i] = 0;
    }
}

static void kill_all(void) {
    for (size_t i = 0; i < DAEMONS_MAX; i++) {
        if (running[i] > 0) kill(running[i], SIGKILL);
    }
}

bool cairn_daemon_ended(struct cairn_daemon *daemon, uint32_t wait_ms) {
    uint64_t deadline = cairn_mono_ms() + wait_ms;
    for (;;) {
        if (!daemon->pid) return true;
        int status = 0;
        if (waitpid(daemon->pid, &status, WNOHANG) == daemon->pid) {
            forget(daemon->pid);
            daemon->pid = 0;
            daemon->status = status;
            return true;
        }
        if (cairn_mono_ms() >= deadline) return false;
        cairn_test_pause_ms(5); /* step of a poll */
    }
}

int cairn_daemon_stop(struct cairn_daemon *daemon, int signal_number, uint32_t wait_ms) {
    if (daemon->pid) kill(daemon->pid, signal_number);
    if (!cairn_daemon_ended(daemon, wait_ms)) {
        kill(daemon->pid, SIGKILL);
        (void)cairn_daemon_ended(daemon, HANG_MS);
    }
    return daemon->status;
}

/* A process that a crash point has stopped goes on first. */
void cairn_daemon_end(struct cairn_daemon *daemon) {
    if (daemon->pid) {
        kill(daemon->pid, SIGTERM);
        (void)cairn_daemon_stop(daemon, SIGCONT, END_MS);
    }
    int status = daemon->status;
    EXPECT(!WIFSIGNALED(status) || WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM);
}

void cairn_daemon_release(struct cairn_daemon *daemon) {
    if (daemon->pid) (void)cairn_daemon_stop(daemon, SIGKILL, HANG_MS);
}

static size_t load_text(const char *path, char *to, size_t capacity, bool tail) {
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (tail && !fseek(file, 0, SEEK_END)) {
        long size = ftell(file), from = size - (long)capacity + 1;
        (void)fseek(file, from > 0 ? from : 0, SEEK_SET);
    }
    size_t got = fread(to, 1, capacity - 1, file);
    to[got] = 0;
    fclose(file);
    return got;
}

uint64_t cairn_daemon_cpu_ms(const struct cairn_daemon *daemon) {
    char path[64], text[1024];
    unsigned long long user = 0, system = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)daemon->pid);
    if (!load_text(path, text, sizeof(text), false)) return 0;
    const char *at = strrchr(text, ')');
    if (!at ||
        sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
        return 0;
    return (user + system) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
}

/* The lowest limit below which so many numbers are free. */
static rlim_t files_limit(pid_t pid, int spare) {
    bool used[4096] = {false};
    const char *path = TEXT("/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        unsigned long number = strtoul(entry->d_name, NULL, 10);
        if (entry->d_name[0] != '.' && number < CAIRN_COUNT(used)) used[number] = true;
    }
    if (folder) closedir(folder);
    rlim_t limit = 0;
    for (int free_below = 0; limit < CAIRN_COUNT(used); limit++) {
        if (used[limit]) continue;
        if (free_below++ == spare) break;
    }
    return limit;
}

bool cairn_daemon_spare_files(const struct cairn_daemon *daemon, int spare) {
    struct rlimit limit = {0};
    if (prlimit(daemon->pid, RLIMIT_NOFILE, NULL, &limit)) return false;
    limit.rlim_cur = spare < 0 ? limit.rlim_max : files_limit(daemon->pid, spare);
    return !prlimit(daemon->pid, RLIMIT_NOFILE, &limit, NULL);
}

unsigned cairn_daemon_logged_times(const struct cairn_daemon *daemon, const char *text) {
    size_t capacity = 4 * CAIRN_MIB;
    CAIRN_AUTO_HEAP char *log = malloc(capacity);
    unsigned times = 0;
    if (!log || !load_text(daemon->log, log, capacity, true)) return 0;
    for (const char *at = log; (at = strstr(at, text)); at += strlen(text)) times++;
    return times;
}

bool cairn_daemon_logged(const struct cairn_daemon *daemon, const char *text) {
    return cairn_daemon_logged_times(daemon, text) > 0;
}

/* The environment of this process with the extra lines in front (the first of two names counts). */
static char **environment_with(const char *const *extra) {
    size_t own = 0, more = 0;
    while (environ[own]) own++;
    while (extra && extra[more]) more++;
    char **all = calloc(own + more + 1, sizeof(*all));
    if (!all) return NULL;
    for (size_t i = 0; i < more; i++) memcpy(&all[i], &extra[i], sizeof(*all));
    for (size_t i = 0; i < own; i++) all[more + i] = environ[i];
    return all;
}

static enum cairn_code program_path(const char *program, char *ret, size_t capacity,
                                    struct cairn_error *err) {
    const char *folder = getenv("CAIRN_BIN_DIR");
    char self[400] = "";
    if (!folder) {
        ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
        if (size <= 0) return cairn_fail_errno(err, "/proc/self/exe");
        self[size] = 0;
        *strrchr(self, '/') = 0;
        folder = self;
    }
    if (snprintf(ret, capacity, "%s/%s", folder, program) >= (int)capacity)
        return cairn_fail(err, CAIRN_TOO_LARGE, "the path of %s is too long", program);
    return CAIRN_OK;
}

static enum cairn_code spawn(const struct cairn_daemon_options *options, const char *port_file,
                             struct cairn_daemon *daemon, struct cairn_error *err) {
    char path[600];
    CAIRN_TRY(program_path(options->program, path, sizeof(path), err));
    char *argv[ARGUMENTS_MAX + 5] = {path};
    size_t count = 1;
    for (; options->args && options->args[count - 1] && count <= ARGUMENTS_MAX; count++)
        memcpy(&argv[count], &options->args[count - 1], sizeof(argv[0]));
    char port_flag[700];
    snprintf(port_flag, sizeof(port_flag), "--port-file=%s", port_file);
    char parent_flag[32];
    snprintf(parent_flag, sizeof(parent_flag), "--parent=%d", (int)getpid());
    if (!options->no_port) {
        argv[count] = port_flag;
        argv[count + 1] = parent_flag; /* also when the test program itself is killed */
    }
    setenv("CAIRN_CORE_DUMPS", "true", 0); /* tests look at their memory and descriptors */
    setenv("CAIRN_STOP_NOTICE", "0ms", 0); /* no load balancer asks these servers */
    CAIRN_AUTO_HEAP char **environment = environment_with(options->env);
    if (!environment) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the environment");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, daemon->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, 2, 1);
    int failed = posix_spawn(&daemon->pid, path, &actions, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    errno = failed;
    if (failed) return cairn_fail_errno(err, "cannot start %s", path);
    remember(daemon->pid);
    return CAIRN_OK;
}

static enum cairn_code wait_for_port(const char *port_file, uint32_t ready_ms,
                                     struct cairn_daemon *daemon, struct cairn_error *err) {
    uint64_t deadline = cairn_mono_ms() + ready_ms;
    for (;;) {
        char text[32];
        if (load_text(port_file, text, sizeof(text), false) && strchr(text, '\n')) {
            daemon->port = (uint16_t)strtoul(text, NULL, 10);
            snprintf(daemon->url, sizeof(daemon->url), "http://127.0.0.1:%u", daemon->port);
            return CAIRN_OK;
        }
        bool ended = cairn_daemon_ended(daemon, 0);
        if (ended || cairn_mono_ms() > deadline) {
            char log[260] = "";
            (void)load_text(daemon->log, log, sizeof(log), true);
            cairn_daemon_release(daemon);
            return cairn_fail(err, CAIRN_UNAVAILABLE, "%s: %s",
                              ended ? "it ended instead of listening" : "no port in time", log);
        }
        cairn_test_pause_ms(5); /* step of a poll */
    }
}

enum cairn_code cairn_daemon_start(const struct cairn_daemon_options *options,
                                   struct cairn_daemon *ret, struct cairn_error *err) {
    if (!started_count++) atexit(kill_all);
    struct cairn_daemon daemon = {0};
    const char *port_file =
        TEXT("%.400s/%s.%u.port", options->folder, options->program, started_count);
    snprintf(daemon.log, sizeof(daemon.log), "%.400s/%s.%u.log", options->folder, options->program,
             started_count);
    CAIRN_TRY(spawn(options, port_file, &daemon, err));
    if (!options->no_port) {
        enum cairn_code code =
            wait_for_port(port_file, options->ready_ms ? options->ready_ms : HANG_MS, &daemon, err);
        if (code) return cairn_within(err, code, "%s", options->program);
    }
    *ret = daemon;
    return CAIRN_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* initdb, postgres, and who they run as; see postgres.h. */
#include "tests/support/postgres.h"

#include <ctype.h>
#include <dirent.h>
#include <grp.h>
#include <libpq-fe.h>
#include <pwd.h>

#include "tests/harness.h"

#define READY_TRIES 3000 /* of 20 ms */
#define GONE_TRIES 1500  /* of 10 ms */
#define EXIT_SKIPPED 77  /* CTest shows it as skipped */

static struct {
    char folder[64], programs[200], missing[300];
    pid_t pid, owner;
    int guard; /* the folder is there for as long as this is open */
    unsigned schemas;
} own;

bool cairn_postgres_wanted(void) {
    const char *engine = getenv("CAIRN_TEST_CATALOG");
    return engine && !strcmp(engine, "postgresql");
}

/* A file in the folder `tests` of this build. */
static void find_beside(const char *name, char *ret, size_t capacity) {
    const char *build = getenv("CAIRN_BIN_DIR");
    char self[400] = "";
    if (!build && readlink("/proc/self/exe", self, sizeof(self) - 1) > 0) *strrchr(self, '/') = 0;
    snprintf(ret, capacity, "%s/tests/%s", build ? build : self, name);
}

/* tests/postgres.sh of this build, with its standard input and output; -1: its own. */
static pid_t run_script(const char *verb, const char *folder, int in, int out) {
    char script[500];
    find_beside("postgres.sh", script, sizeof(script));
    pid_t pid = fork();
    if (pid) return pid;
    if ((in >= 0 && dup2(in, 0) < 0) || (out >= 0 && dup2(out, 1) < 0)) _exit(126);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execl("/bin/sh", "sh", script, verb, folder, "data", NULL);
    _exit(127);
}

static int status_of(pid_t pid) {
    int status = 0;
    bool ended = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status);
    return ended ? WEXITSTATUS(status) : -1;
}

const char *cairn_postgres_missing(void) {
    int ends[2];
    if (own.programs[0]) return NULL;
    if (own.missing[0]) return own.missing;
    if (pipe2(ends, O_CLOEXEC)) return "no pipe";
    pid_t pid = run_script("programs", NULL, -1, ends[1]);
    close(ends[1]);
    char said[200] = "";
    ssize_t size = read(ends[0], said, sizeof(said) - 1);
    close(ends[0]);
    said[size > 0 ? strcspn(said, "\n") : 0] = 0;
    int status = status_of(pid);
    bool found = !status;
    if (status && status != EXIT_SKIPPED) abort(); /* it has said why */
    snprintf(found ? own.programs : own.missing, sizeof(said), "%s", said);
    return found ? NULL : own.missing;
}

/* ---- its life ---- */

/* In the child: PostgreSQL refuses to run as root. */
static void become_nobody(void) {
    const struct passwd *user = geteuid() ? NULL : getpwnam("nobody");
    if (!user) return;
    if (setgroups(0, NULL) || setgid(user->pw_gid) || setuid(user->pw_uid)) _exit(126);
}

static pid_t spawn(const char *const *args) {
    pid_t pid = fork();
    if (pid) return pid;
    become_nobody();
    if (chdir(own.folder) || !freopen("log", "a", stderr) || dup2(2, 1) < 0) _exit(126);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    char program[300], folder[500];
    snprintf(program, sizeof(program), "%s/%s", own.programs, args[0]);
    find_beside("", folder, sizeof(folder));
    /* By its bare name: a space in LD_PRELOAD ends a path. Passed over where nobody may read it. */
    if (setenv("LD_LIBRARY_PATH", folder, 1) || setenv("LD_PRELOAD", "libnosync.so", 1)) _exit(126);
    char *argv[24] = {0};
    for (size_t i = 0; args[i] && i < 23; i++) memcpy(&argv[i], &args[i], sizeof(argv[0]));
    execv(program, argv);
    _exit(127);
}

static bool connects(void) {
    const char *where = TEXT("postgresql://cairn@/postgres?host=%s", own.folder);
    PGconn *conn = PQconnectdb(where);
    bool good = PQstatus(conn) == CONNECTION_OK;
    PQfinish(conn);
    return good;
}

static bool start_server(void) {
    const char *data = TEXT("%s/data", own.folder);
    const char *const args[] = {"postgres",
                                "-D",
                                data,
                                "-k",
                                own.folder,
                                "-c",
                                "listen_addresses=",
                                "-c",
                                "shared_buffers=16MB",
                                "-c",
                                "dynamic_shared_memory_type=mmap",
                                NULL};
    own.pid = spawn(args);
    for (int i = 0; i < READY_TRIES && own.pid > 0; i++) {
        if (connects()) return true;
        if (waitpid(own.pid, NULL, WNOHANG) == own.pid) own.pid = 0;
        cairn_test_pause_ms(20); /* step of a poll */
    }
    fprintf(stderr, "postgres: it does not answer; see %s/log\n", own.folder);
    return false;
}

/* The guard ends the server and removes the folder, as it does when this is never called. */
static void stop(void) {
    if (getpid() != own.owner) return; /* a child that exits */
    close(own.guard);
    for (int i = 0; i < GONE_TRIES && !access(own.folder, F_OK); i++) {
        if (own.pid > 0 && waitpid(own.pid, NULL, WNOHANG) == own.pid) own.pid = 0;
        cairn_test_pause_ms(10); /* step of a poll */
    }
}

static bool start_guard(void) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return false;
    own.guard = ends[1];
    bool good = !status_of(run_script("guard", own.folder, ends[0], -1));
    close(ends[0]);
    return good;
}

/* All that this program was started for is to run over it. */
static _Noreturn void skip_all(const char *missing) {
    printf("skipped: %s\n", missing);
    fflush(NULL);
    _exit(EXIT_SKIPPED);
}

static bool begin(void) {
    if (own.pid > 0) return true;
    const char *missing = cairn_postgres_missing();
    if (missing) fprintf(stderr, "postgres: %s\n", missing);
    if (missing && cairn_postgres_wanted()) skip_all(missing);
    if (missing || own.folder[0]) return false;
    const char *parent = getenv("TMPDIR");
    snprintf(own.folder, sizeof(own.folder), "%s/cairn-postgres-XXXXXX",
             parent && *parent ? parent : "/tmp");
    const struct passwd *user = geteuid() ? NULL : getpwnam("nobody");
    if (!mkdtemp(own.folder)) return false;
    own.owner = getpid();
    if (!start_guard()) return false;
    atexit(stop);
    if (user && chown(own.folder, user->pw_uid, user->pw_gid)) return false;
    bool made = !status_of(run_script("data", own.folder, -1, -1));
    if (!made) fprintf(stderr, "postgres: no data folder\n");
    return made && start_server();
}

const char *cairn_postgres_folder(void) {
    return own.folder;
}

/* Does this process work in the data folder? All of PostgreSQL's do. */
static bool is_inside(const char *pid) {
    char link[300], data[100], cwd[300];
    snprintf(link, sizeof(link), "/proc/%.20s/cwd", pid);
    snprintf(data, sizeof(data), "%s/data", own.folder);
    ssize_t size = readlink(link, cwd, sizeof(cwd) - 1);
    cwd[size > 0 ? size : 0] = 0;
    return !strcmp(cwd, data);
}

/* How many there were. */
static unsigned kill_inside(void) {
    unsigned count = 0;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        if (!isdigit((unsigned char)entry->d_name[0]) || !is_inside(entry->d_name)) continue;
        kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL);
        count++;
    }
    if (processes) closedir(processes);
    return count;
}

bool cairn_postgres_kill(void) {
    if (own.pid <= 0) return false;
    for (int i = 0; i < GONE_TRIES && kill_inside(); i++)
        cairn_test_pause_ms(10); /* step of a poll */
    bool gone = waitpid(own.pid, NULL, 0) == own.pid;
    own.pid = 0;
    return gone;
}

bool cairn_postgres_start_again(void) {
    return own.folder[0] && start_server();
}

/* ---- catalogs ---- */

static PGresult *run(const char *url, const char *sql) {
    PGconn *conn = PQconnectdb(url);
    PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        fprintf(stderr, "postgres: %s: %s", sql, PQerrorMessage(conn));
        PQclear(result);
        result = NULL;
    }
    PQfinish(conn);
    return result;
}

bool cairn_postgres_run(const char *url, const char *sql) {
    PGresult *result = run(url, sql);
    PQclear(result);
    return result != NULL;
}

int64_t cairn_postgres_number(const char *url, const char *sql) {
    PGresult *result = run(url, sql);
    int64_t ret = result && PQntuples(result) ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : -1;
    PQclear(result);
    return ret;
}

bool cairn_postgres_empty(const char *url) {
    const char *name = strrchr(url, 'D') + 1; /* "...search_path%3Dcatalog_7" */
    const char *sql = TEXT("DROP SCHEMA %s CASCADE; CREATE SCHEMA %s", name, name);
    return cairn_postgres_run(url, sql);
}

bool cairn_postgres_catalog(char *ret_url, size_t capacity) {
    if (!begin()) return false;
    unsigned number = ++own.schemas;
    const char *sql = TEXT("CREATE SCHEMA catalog_%u", number);
    snprintf(ret_url, capacity,
             "postgresql://cairn@/postgres?host=%s&options=-csearch_path%%3Dcatalog_%u", own.folder,
             number);
    return cairn_postgres_run(ret_url, sql);
}

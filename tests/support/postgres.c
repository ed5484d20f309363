/* SPDX-License-Identifier: Apache-2.0 */
/* initdb, postgres, and who they run as; see postgres.h. */
#include "tests/support/postgres.h"

#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_TRIES 600 /* of 100 ms */

static struct {
    char folder[64], programs[200];
    pid_t pid, owner;
    unsigned schemas;
} own;

bool cairn_postgres_wanted(void) {
    const char *engine = getenv("CAIRN_TEST_CATALOG");
    return engine && !strcmp(engine, "postgresql");
}

const char *cairn_postgres_missing(void) {
    glob_t found = {0};
    if (own.programs[0]) return NULL;
    if (!glob("/usr/lib/postgresql/*/bin/initdb", 0, NULL, &found) && found.gl_pathc) {
        const char *newest = found.gl_pathv[found.gl_pathc - 1];
        snprintf(own.programs, sizeof(own.programs), "%.*s",
                 (int)(strlen(newest) - strlen("/initdb")), newest);
    }
    globfree(&found);
    return own.programs[0] ? NULL : "Debian's package postgresql is not installed";
}

/* ---- its life ---- */

/* In the child: PostgreSQL refuses to run as root. */
static void become_nobody(void) {
    const struct passwd *user = geteuid() ? NULL : getpwnam("nobody");
    if (!user) return;
    if (setgroups(0, NULL) || setgid(user->pw_gid) || setuid(user->pw_uid)) _exit(126);
}

static pid_t spawn(const char *const *args, const char *log) {
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid) return pid;
    become_nobody();
    prctl(PR_SET_PDEATHSIG, SIGQUIT); /* PostgreSQL: at once, without waiting for anybody */
    if (getppid() != parent) _exit(126);
    if (chdir(own.folder) || !freopen(log, "a", stderr) || dup2(2, 1) < 0) _exit(126);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    char program[300];
    snprintf(program, sizeof(program), "%s/%s", own.programs, args[0]);
    char *argv[24] = {0};
    for (size_t i = 0; args[i] && i < 23; i++) memcpy(&argv[i], &args[i], sizeof(argv[0]));
    execv(program, argv);
    _exit(127);
}

static bool connects(void) {
    char where[200];
    snprintf(where, sizeof(where), "postgresql://cairn@/postgres?host=%s", own.folder);
    PGconn *conn = PQconnectdb(where);
    bool good = PQstatus(conn) == CONNECTION_OK;
    PQfinish(conn);
    return good;
}

static bool start_server(void) {
    char data[100];
    snprintf(data, sizeof(data), "%s/data", own.folder);
    const char *const args[] = {"postgres", "-D", data,       "-k", own.folder,
                                "-c",       "listen_addresses=", "-c", "shared_buffers=16MB", NULL};
    own.pid = spawn(args, "log");
    for (int i = 0; i < READY_TRIES && own.pid > 0; i++) {
        if (connects()) return true;
        if (waitpid(own.pid, NULL, WNOHANG) == own.pid) own.pid = 0;
        usleep(100000);
    }
    fprintf(stderr, "postgres: it does not answer; see %s/log\n", own.folder);
    return false;
}

static int remove_entry(const char *path, const struct stat *status, int kind,
                        struct FTW *position) {
    (void)status, (void)kind, (void)position;
    return remove(path);
}

static void stop(void) {
    if (getpid() != own.owner) return; /* a child that exits */
    if (own.pid > 0) kill(own.pid, SIGQUIT);
    if (own.pid > 0) waitpid(own.pid, NULL, 0);
    if (own.folder[0]) nftw(own.folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static bool begin(void) {
    if (own.pid > 0) return true;
    const char *missing = cairn_postgres_missing();
    if (missing) fprintf(stderr, "postgres: %s\n", missing);
    if (missing || own.folder[0]) return false;
    snprintf(own.folder, sizeof(own.folder), "/tmp/cairn-postgres-XXXXXX");
    const struct passwd *user = geteuid() ? NULL : getpwnam("nobody");
    if (!mkdtemp(own.folder)) return false;
    own.owner = getpid();
    atexit(stop);
    if (user && chown(own.folder, user->pw_uid, user->pw_gid)) return false;
    const char *const args[] = {
        "initdb",      "-D",       "data",      "-U",   "cairn",
        "-A",          "trust",    "-E",        "UTF8", "--locale=C.UTF-8",
        "--no-sync",   "--locale-provider=icu", "--icu-locale=en", NULL};
    int status = 0;
    pid_t pid = spawn(args, "initdb.log");
    bool made = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
                WEXITSTATUS(status) == 0;
    if (!made) fprintf(stderr, "postgres: initdb failed; see %s/initdb.log\n", own.folder);
    return made && start_server();
}

const char *cairn_postgres_folder(void) {
    return own.folder;
}

bool cairn_postgres_kill(void) {
    if (own.pid <= 0 || kill(own.pid, SIGKILL)) return false;
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
    char sql[120];
    snprintf(sql, sizeof(sql), "DROP SCHEMA %s CASCADE; CREATE SCHEMA %s", name, name);
    return cairn_postgres_run(url, sql);
}

bool cairn_postgres_catalog(char *ret_url, size_t capacity) {
    if (!begin()) return false;
    char sql[64];
    unsigned number = ++own.schemas;
    snprintf(sql, sizeof(sql), "CREATE SCHEMA catalog_%u", number);
    snprintf(ret_url, capacity,
             "postgresql://cairn@/postgres?host=%s&options=-csearch_path%%3Dcatalog_%u", own.folder,
             number);
    return cairn_postgres_run(ret_url, sql);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The options are those of gcc's and clang's sanitizers; each reads only its own variable. */
#include "tests/reports.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REPORTS_MAX 1024
#define SHOWN_BYTES 16384
#define OF_KILLED "==Unable to get registers from thread "

static char folder[512];
static bool made_here;
static char *told[REPORTS_MAX];
static unsigned told_count;

static void fail(const char *what) {
    perror(what);
    abort();
}

static void set_options(const char *variable) {
    const char *own = getenv(variable);
    char text[2048];
    /* Quoted: a sanitizer takes a space or a colon for the end of an option. */
    snprintf(text, sizeof text, "%s%slog_path='%s/report':log_exe_name=1", own ? own : "",
             own && *own ? ":" : "", folder);
    if (setenv(variable, text, 1) != 0) fail(variable);
}

void cairn_reports_begin(void) {
    const char *chosen = getenv("CAIRN_TEST_REPORTS"), *parent = getenv("TMPDIR");
    made_here = !chosen || !*chosen;
    if (made_here) {
        snprintf(folder, sizeof folder, "%s/cairn-reports-XXXXXX",
                 parent && *parent ? parent : "/tmp");
        if (!mkdtemp(folder)) fail(folder);
    } else {
        snprintf(folder, sizeof folder, "%s", chosen);
        if (mkdir(folder, 0755) != 0 && errno != EEXIST) fail(folder);
    }
    set_options("ASAN_OPTIONS");
    set_options("UBSAN_OPTIONS");
    set_options("LSAN_OPTIONS");
    set_options("TSAN_OPTIONS");
}

/* Whether each line is of a process that ended while it was looked at for leaks. */
static bool of_killed(const char *text) {
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        if (length > 0 && !memmem(line, length, OF_KILLED, strlen(OF_KILLED))) return false;
        line += length + (line[length] == '\n');
    }
    return *text;
}

/* False if there is nothing to tell. */
static bool show(const char *path) {
    char text[SHOWN_BYTES + 1];
    FILE *file = fopen(path, "re");
    size_t size = file ? fread(text, 1, SHOWN_BYTES, file) : 0;
    if (file) fclose(file);
    text[size] = 0;
    if (of_killed(text)) return false;
    fprintf(stderr, "--- %s\n%s\n", path, text);
    return true;
}

/* Files of before begin belong to an earlier run of the same test; they are told, too: ctest
 * empties the folder before its first test. */
static bool is_new(const char *name) {
    for (unsigned i = 0; i < told_count; i++)
        if (!strcmp(told[i], name)) return false;
    return true;
}

unsigned cairn_reports_check(void) {
    unsigned found = 0;
    DIR *directory = opendir(folder);
    if (!directory) fail(folder);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.' || told_count == REPORTS_MAX || !is_new(entry->d_name))
            continue;
        char path[1024];
        snprintf(path, sizeof path, "%s/%.255s", folder, entry->d_name);
        told[told_count] = strdup(entry->d_name);
        if (!told[told_count]) fail("no memory");
        told_count++;
        found += show(path);
    }
    closedir(directory);
    return found;
}

void cairn_reports_end(void) {
    while (told_count) free(told[--told_count]);
    if (made_here) (void)rmdir(folder);
}

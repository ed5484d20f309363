/* SPDX-License-Identifier: Apache-2.0 */
/* A journal that is in use has its lock taken (journal.h#5). */
#include "uploader/journal/others.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/log.h"

static bool is_journal(const char *name) {
    static const char end[] = ".journal";
    size_t size = strlen(name);
    return size >= sizeof(end) && !strcmp(name + size - (sizeof(end) - 1), end);
}

static bool is_held(const char *path) {
    char lock[1100];
    snprintf(lock, sizeof(lock), "%s.lock", path);
    CAIRN_AUTO_FD fd = open(lock, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
}

void cairn_up_journal_tell_others(const char *folder, const char *own_path, const char *node) {
    DIR *directory = opendir(folder);
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[1000];
        struct stat status;
        int size = snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (size < 0 || (size_t)size >= sizeof(path) || !is_journal(entry->d_name) ||
            !strcmp(path, own_path) || stat(path, &status) != 0 || !status.st_size || is_held(path))
            continue;
        cairn_log(WARN, "journal.other_node",
                  "path=%s node=%s hint=\"it may hold saves that only an uploader of that file's "
                  "node name finishes\"",
                  path, node);
    }
    closedir(directory);
}

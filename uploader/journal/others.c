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

#define END ".journal"

static bool is_journal(const char *name) {
    size_t size = strlen(name);
    return size >= sizeof(END) && !strcmp(name + size - (sizeof(END) - 1), END);
}

static bool is_held(const char *path) {
    char lock[1100];
    snprintf(lock, sizeof(lock), "%s.lock", path);
    CAIRN_AUTO_FD fd = open(lock, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
}

void cairn_up_journal_tell_others(const char *folder, const struct cairn_up_journal_own *own) {
    DIR *directory = opendir(folder);
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[1000];
        struct stat status;
        int size = snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (size < 0 || (size_t)size >= sizeof(path) || !is_journal(entry->d_name) ||
            !strcmp(path, own->path) || stat(path, &status) != 0 || !status.st_size ||
            is_held(path))
            continue;
        int name = (int)(strlen(entry->d_name) - strlen(END));
        cairn_log(WARN, "journal.other_node",
                  "path=%s node=%s host=%s other_node=%.*s hint=\"it may hold saves that only an "
                  "uploader of node %.*s finishes%s\"",
                  path, own->node, own->host, name, entry->d_name, name, entry->d_name,
                  own->named ? ""
                             : "; the setting node is not set, so that this node's name is the "
                               "host name and changes with it: set node to a name that stays");
    }
    closedir(directory);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A lock in the folder for temporary files, and a name for the machine. */
#include "cli/convert/export_claim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/file.h"

#define TRIES_MAX 100 /* each is lost to another export that began and ended meanwhile */

static void name_machine(int folder_fd, char *ret, size_t capacity) {
    CAIRN_AUTO(buf) boot = {.limit = 4096};
    struct stat status;
    if (fstat(folder_fd, &status) ||
        cairn_file_load("/proc/sys/kernel/random/boot_id", &boot, NULL) != CAIRN_OK)
        return;
    snprintf(ret, capacity, "%.*s/%llx/%llx/%u", (int)strcspn(boot.data, "\n "), boot.data,
             (unsigned long long)status.st_dev, (unsigned long long)status.st_ino,
             (unsigned)geteuid());
}

/* CAIRN_NOT_FOUND: the export that held it has ended meanwhile, and removed it. */
static enum cairn_code lock_once(struct cairn_cli_export_claim *claim) {
    CAIRN_AUTO_FD fd =
        openat(claim->folder_fd, claim->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_uid != geteuid())
        return CAIRN_UNSUPPORTED;
    enum cairn_code code = cairn_file_lock_entry(claim->folder_fd, claim->name, fd, NULL);
    if (code != CAIRN_OK) return code;
    claim->fd = fd;
    fd = -1;
    return CAIRN_OK;
}

void cairn_cli_export_claim_init(struct cairn_cli_export_claim *claim) {
    *claim = (struct cairn_cli_export_claim){.folder_fd = -1, .fd = -1};
    cairn_uuid_random(claim->writer);
    atomic_store(&claim->next_ms, cairn_mono_ms() + CAIRN_CLI_CLAIM_BEAT_MS);
}

bool cairn_cli_export_claim_take(struct cairn_cli_export_claim *claim, const char *token) {
    const char *folder = getenv("TMPDIR");
    enum cairn_code code = CAIRN_NOT_FOUND;
    snprintf(claim->name, sizeof claim->name, "cairn-export-%s.lock", token);
    claim->folder_fd =
        open(folder && *folder ? folder : "/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < TRIES_MAX && claim->folder_fd >= 0 && code == CAIRN_NOT_FOUND; i++)
        code = lock_once(claim);
    if (code == CAIRN_OK) name_machine(claim->folder_fd, claim->here, sizeof claim->here);
    return code != CAIRN_CONFLICT;
}

void cairn_cli_export_claim_release(struct cairn_cli_export_claim *claim) {
    if (claim->fd >= 0) {
        (void)unlinkat(claim->folder_fd, claim->name, 0);
        close(claim->fd);
    }
    if (claim->folder_fd >= 0) close(claim->folder_fd);
    claim->folder_fd = claim->fd = -1;
}

bool cairn_cli_export_claim_is_here(const struct cairn_cli_export_claim *claim, const char *where) {
    return claim->here[0] && where && !strcmp(claim->here, where);
}

bool cairn_cli_export_claim_is_due(struct cairn_cli_export_claim *claim) {
    uint64_t now_ms = cairn_mono_ms(), due_ms = atomic_load(&claim->next_ms);
    return now_ms >= due_ms &&
           atomic_compare_exchange_strong(&claim->next_ms, &due_ms,
                                          now_ms + CAIRN_CLI_CLAIM_BEAT_MS);
}

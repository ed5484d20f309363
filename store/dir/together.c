/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many small puts, one sync. A file system makes its journal durable as a whole, so that 512 files
 * of 4 KiB cost one wait for the disk instead of a thousand. Files and folders are closed
 * meanwhile: what could not be written is told by the sync itself (Linux 5.8 and later), to each
 * open file of the file system once, so each worker has one of its own.
 */
#include <fcntl.h>
#include <unistd.h>

#include "common/hooks.h"
#include "store/dir/inside.h"

/* A folder that consecutive jobs share, open. */
struct open_folder {
    char path[CAIRN_KEY_BYTES_MAX + 1];
    int fd;
};

static enum cairn_code enter(const struct cairn_store_dir *dir, const char *path,
                             struct open_folder *folder, struct cairn_error *err) {
    if (folder->fd >= 0 && strcmp(folder->path, path) == 0) return CAIRN_OK;
    if (folder->fd >= 0) close(folder->fd);
    folder->fd = -1;
    CAIRN_TRY(cairn_store_dir_folder(dir, path, &folder->fd, err));
    memcpy(folder->path, path, strlen(path) + 1);
    return CAIRN_OK;
}

/* The final name, which is durable once the folder is. */
static enum cairn_code name_it(struct cairn_store_dir_worker *worker,
                               struct cairn_store_dir_job *job, struct open_folder *folder,
                               struct cairn_error *err) {
    struct cairn_store_dir_place place;
    CAIRN_TRY(cairn_store_dir_place_of(job->request->key, &place, err));
    CAIRN_TRY(enter(cairn_store_dir_of(worker), place.folder, folder, err));
    enum cairn_code code = cairn_file_link(folder->fd, job->temporary, place.name, err);
    /* The root was followed to another folder since it was written, and it lies in the old one. */
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "the store was mounted anew meanwhile");
    if (code == CAIRN_OK) job->temporary[0] = '\0';
    return code;
}

static enum cairn_code sync_all(struct cairn_store_dir_worker *worker, struct cairn_error *err) {
    if (worker->sync_fd < 0) /* the root was followed to another folder since they were written */
        return cairn_fail(err, CAIRN_UNAVAILABLE, "the store was mounted anew meanwhile");
    return cairn_file_sync_all(worker->sync_fd, err);
}

static void remember(struct cairn_store_dir_worker *worker, const struct cairn_store_dir_job *job,
                     struct open_folder *folder) {
    struct cairn_store_dir_place place;
    struct stat st;
    if (cairn_store_dir_place_of(job->request->key, &place, NULL) == CAIRN_OK &&
        enter(cairn_store_dir_of(worker), place.folder, folder, NULL) == CAIRN_OK &&
        fstatat(folder->fd, place.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        cairn_store_dir_remember(worker, &st);
}

/* The temporary file of a job that ends otherwise is removed with it. */
void cairn_store_dir_take_up(struct cairn_store_dir_worker *worker,
                             struct cairn_store_dir_job *job) {
    struct cairn_store_dir_place place;
    TAILQ_REMOVE(&worker->written, job, place);
    worker->small_puts -= job->counted;
    if (!job->temporary[0] || job->folder_fd >= 0) return;
    if (cairn_store_dir_place_of(job->request->key, &place, NULL) ||
        cairn_store_dir_folder(cairn_store_dir_of(worker), place.folder, &job->folder_fd, NULL))
        job->temporary[0] = '\0';
}

/* Names all that is written; a job whose name is refused ends with that, and the others go on. */
static void name_all(struct cairn_store_dir_worker *worker, struct open_folder *folder) {
    for (struct cairn_store_dir_job *job = TAILQ_FIRST(&worker->written), *next; job; job = next) {
        struct cairn_error why = {0};
        next = TAILQ_NEXT(job, place);
        enum cairn_code code = name_it(worker, job, folder, &why);
        if (code == CAIRN_OK) continue;
        cairn_store_dir_take_up(worker, job);
        cairn_store_dir_note(worker, job->request, code, &why);
        cairn_store_dir_finish(job->request, job, code, &why);
    }
}

bool cairn_store_dir_end_together(struct cairn_store_dir_worker *worker) {
    struct open_folder folder = {.fd = -1};
    struct cairn_error why = {0};
    struct cairn_store_dir_job *job;
    if (TAILQ_EMPTY(&worker->written)) return false;
    enum cairn_code code = sync_all(worker, &why);
    cairn_store_dir_folders_synced(worker, code == CAIRN_OK);
    if (code == CAIRN_OK) {
        CAIRN_CRASHPOINT("store.dir.synced");
        name_all(worker, &folder);
        code = sync_all(worker, &why);
        CAIRN_CRASHPOINT("store.dir.published");
    }
    while ((job = TAILQ_FIRST(&worker->written))) {
        if (code == CAIRN_OK) remember(worker, job, &folder);
        cairn_store_dir_take_up(worker, job);
        cairn_store_dir_note(worker, job->request, code, &why);
        cairn_store_dir_finish(job->request, job, code, &why);
    }
    if (folder.fd >= 0) close(folder.fd);
    return true;
}

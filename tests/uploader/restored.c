/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/uploader/restored.h"

static const struct cairn_view none = {NULL, 0};

void cairn_restored_release(struct restored *restored) {
    cairn_manifest_release(&restored->manifest);
}

bool saved(struct cairn_up_world *world, struct cairn_trainer *trainer, struct trainer_save *save) {
    char state[32];
    if (!trainer_open(trainer, &(struct trainer_options){.socket = world->socket_path,
                                                         .job = "job-1",
                                                         .bytes = 6 * CAIRN_MIB}))
        return false;
    if (!trainer_save(trainer, 1, 0, 2, SHARD_BYTES, save)) return false;
    return !strcmp(trainer_verdict(trainer, save->number, HANG_MS, state), "committed");
}

enum cairn_code restore(struct cairn_trainer *trainer, const char *ref, const char *format,
                        struct restored *ret) {
    CAIRN_AUTO(frame) frame = {0};
    enum cairn_code code = trainer_ask(
        trainer, json_pack("{s:s, s:s, s:s?}", "t", "restore", "ref", ref, "format", format), none,
        NULL, 0, &frame);
    if (code != CAIRN_OK) return code;
    ret->number = json_integer_value(json_object_get(frame.message, "restore"));
    ret->layout_bytes =
        (uint64_t)json_integer_value(json_object_get(frame.message, "layout_bytes"));
    size_t bytes = (size_t)json_integer_value(json_object_get(frame.message, "manifest_bytes"));
    if (frame.fd_count != 1 || !(fcntl(frame.fds[0], F_GET_SEALS) & F_SEAL_WRITE))
        return CAIRN_PROTOCOL;
    void *text = mmap(NULL, bytes, PROT_READ, MAP_SHARED, frame.fds[0], 0);
    if (text == MAP_FAILED) return CAIRN_IO;
    code = cairn_manifest_decode((struct cairn_view){text, bytes}, &ret->manifest, &trainer->err);
    munmap(text, bytes);
    return code;
}

bool open_window(struct cairn_trainer *trainer, uint64_t bytes) {
    CAIRN_AUTO(frame) frame = {0};
    if (trainer_ask(trainer, json_pack("{s:s, s:I}", "t", "window", "bytes", (json_int_t)bytes),
                    none, NULL, 0, &frame) != CAIRN_OK)
        return false;
    int fd = frame.fds[0];
    frame.fds[0] = -1;
    uint64_t size = (uint64_t)json_integer_value(json_object_get(frame.message, "bytes"));
    return cairn_slab_attach(fd, size, false, &trainer->window, &trainer->err) == CAIRN_OK;
}

enum cairn_code read_ranges(struct cairn_trainer *trainer, const struct restored *restored,
                            const struct range *ranges, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(
            array, json_pack("{s:I, s:I, s:I, s:I}", "shard", (json_int_t)ranges[i].shard, "offset",
                             (json_int_t)ranges[i].offset, "bytes", (json_int_t)ranges[i].bytes,
                             "at", (json_int_t)ranges[i].at));
    return trainer_ask(trainer,
                       json_pack("{s:s, s:I, s:o}", "t", "read", "restore",
                                 (json_int_t)restored->number, "ranges", array),
                       none, NULL, 0, NULL);
}

bool holds(const struct cairn_trainer *trainer, const struct range *range) {
    for (uint64_t i = 0; i < range->bytes; i++) {
        if (trainer->window.data[range->at + i] != trainer_byte(range->shard, range->offset + i))
            return false;
    }
    return true;
}

void damage(struct cairn_up_world *world, const struct trainer_save *save, const char *name,
            off_t at) {
    const char *path = TEXT("%s/llm/seven/%012d/%s/%s", world->store_path, 1, save->version, name);
    chmod(path, 0600);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char byte = 0;
    EXPECT(fd >= 0);
    EXPECT(pread(fd, &byte, 1, at) == 1);
    byte = (char)(byte ^ 4);
    EXPECT(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

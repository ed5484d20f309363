/* SPDX-License-Identifier: Apache-2.0 */
/* Which entry a byte is of, and the inflater that is nearest before it. */
#include "formats/unpacked.h"

#include <stdlib.h>

#include "common/lock.h"
#include "formats/inflate.h"

#define INFLATERS 4
#define SKIP_BYTES 65536

struct cairn_unpacked {
    struct cairn_input input; /* what others see */
    const struct cairn_input *file;
    const struct cairn_zip *zip;
    uint64_t *begins; /* of each entry, and of what is behind the last */
    struct cairn_lock lock;
    struct inflater {
        struct cairn_inflate *inflate;
        size_t entry;
        uint64_t at, used; /* the next byte of its entry; when it was used last */
    } inflaters[INFLATERS];
    uint64_t uses;
    char skipped[SKIP_BYTES];
};

static enum cairn_code new_inflater(struct cairn_unpacked *unpacked, size_t number,
                                    struct inflater *ret, struct cairn_error *err) {
    const struct cairn_zip_entry *entry = &unpacked->zip->entries[number];
    uint64_t offset = 0;
    cairn_inflate_free(ret->inflate);
    *ret = (struct inflater){.entry = number};
    CAIRN_TRY(cairn_zip_data_at(unpacked->file, entry, &offset, err));
    return cairn_inflate_new(unpacked->file, offset, entry->packed_bytes, &ret->inflate, err);
}

/* One of the entry that stands at this byte or the nearest before it; else the one that was not
 * used for longest begins the entry anew. */
static enum cairn_code choose(struct cairn_unpacked *unpacked, size_t number, uint64_t at,
                              struct inflater **ret, struct cairn_error *err) {
    struct inflater *oldest = &unpacked->inflaters[0], *nearest = NULL;
    for (size_t i = 0; i < INFLATERS; i++) {
        struct inflater *one = &unpacked->inflaters[i];
        if (one->used < oldest->used) oldest = one;
        if (one->inflate && one->entry == number && one->at <= at &&
            (!nearest || one->at > nearest->at))
            nearest = one;
    }
    *ret = nearest ? nearest : oldest;
    return nearest ? CAIRN_OK : new_inflater(unpacked, number, oldest, err);
}

static enum cairn_code inflate_at(struct cairn_unpacked *unpacked, size_t number, uint64_t at,
                                  char *into, size_t size, struct cairn_error *err) {
    CAIRN_HOLD(&unpacked->lock);
    struct inflater *inflater = NULL;
    enum cairn_code code = choose(unpacked, number, at, &inflater, err);
    while (code == CAIRN_OK && inflater->at < at) {
        size_t some = (size_t)cairn_min_u64(SKIP_BYTES, at - inflater->at);
        code = cairn_inflate_read(inflater->inflate, unpacked->skipped, some, err);
        inflater->at += some;
    }
    if (code == CAIRN_OK) code = cairn_inflate_read(inflater->inflate, into, size, err);
    inflater->at += size;
    inflater->used = ++unpacked->uses;
    if (code == CAIRN_OK) return CAIRN_OK;
    cairn_inflate_free(inflater->inflate);
    *inflater = (struct inflater){0};
    return code;
}

/* Bytes of one entry. */
static enum cairn_code read_entry(struct cairn_unpacked *unpacked, size_t number, uint64_t at,
                                  char *into, size_t size, struct cairn_error *err) {
    const struct cairn_zip_entry *entry = &unpacked->zip->entries[number];
    uint64_t offset = 0;
    enum cairn_code code = entry->deflated ? inflate_at(unpacked, number, at, into, size, err)
                                           : cairn_zip_data_at(unpacked->file, entry, &offset, err);
    if (code == CAIRN_OK && !entry->deflated)
        code = cairn_input_read(unpacked->file, offset + at, into, size, err);
    return code ? cairn_within(err, code, "zip entry %.*s",
                               (int)cairn_min_u64(entry->name.size, 200),
                               (const char *)entry->name.data)
                : CAIRN_OK;
}

static size_t entry_at(const struct cairn_unpacked *unpacked, uint64_t offset) {
    size_t low = 0, high = unpacked->zip->count;
    while (low + 1 < high) {
        size_t middle = (low + high) / 2;
        if (unpacked->begins[middle] <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static enum cairn_code read_unpacked(void *context, uint64_t offset, void *into, size_t size,
                                     struct cairn_error *err) {
    struct cairn_unpacked *unpacked = context;
    char *to = into;
    for (size_t number = entry_at(unpacked, offset); size; number++) {
        uint64_t at = offset - unpacked->begins[number];
        size_t some = (size_t)cairn_min_u64(size, unpacked->zip->entries[number].size_bytes - at);
        if (some) CAIRN_TRY(read_entry(unpacked, number, at, to, some, err));
        offset += some;
        to += some;
        size -= some;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_unpacked_new(const struct cairn_input *input, const struct cairn_zip *zip,
                                   struct cairn_unpacked **ret, struct cairn_error *err) {
    struct cairn_unpacked *made = calloc(1, sizeof *made);
    if (made) made->begins = calloc(zip->count + 1, sizeof *made->begins);
    if (!made || !made->begins) {
        free(made);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to unpack a file");
    }
    made->file = input;
    made->zip = zip;
    bool fits = true;
    for (size_t i = 0; i < zip->count; i++)
        fits &=
            !cairn_add_overflows(made->begins[i], zip->entries[i].size_bytes, &made->begins[i + 1]);
    made->input = (struct cairn_input){.size_bytes = made->begins[zip->count],
                                       .name = input->name,
                                       .context = made,
                                       .read = read_unpacked};
    cairn_lock_init(&made->lock, CAIRN_LOCK_file_unpacked);
    *ret = made;
    if (fits) return CAIRN_OK;
    cairn_unpacked_free(made);
    *ret = NULL;
    return cairn_fail(err, CAIRN_INVALID, "entries of more bytes than can be");
}

void cairn_unpacked_free(struct cairn_unpacked *unpacked) {
    if (!unpacked) return;
    for (size_t i = 0; i < INFLATERS; i++) cairn_inflate_free(unpacked->inflaters[i].inflate);
    cairn_lock_release(&unpacked->lock);
    free(unpacked->begins);
    free(unpacked);
}

const struct cairn_input *cairn_unpacked_input(const struct cairn_unpacked *unpacked) {
    return &unpacked->input;
}

uint64_t cairn_unpacked_at(const struct cairn_unpacked *unpacked,
                           const struct cairn_zip_entry *entry) {
    return unpacked->begins[entry - unpacked->zip->entries];
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "api/wire/frame.h"

#include "tests/api/mutate.h"

/* Both ends of a connection and the reader at one of them. */
struct cairn_wire {
    int write_fd, read_fd;
    struct cairn_frame_reader reader;
};

static void cairn_wire_release(struct cairn_wire *wire) {
    if (wire->write_fd >= 0) close(wire->write_fd);
    if (wire->read_fd >= 0) close(wire->read_fd);
    cairn_frame_reader_release(&wire->reader);
}

static bool wire_open(struct cairn_wire *wire) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return false;
    wire->write_fd = fds[0];
    wire->read_fd = fds[1];
    return true;
}

static void encode(struct cairn_buf *ret, const char *name, int id, struct cairn_view blob) {
    struct cairn_error err = {0};
    CAIRN_AUTO_JSON json_t *message = json_pack("{ss si}", "t", name, "id", id);
    EXPECT_CODE(cairn_frame_encode(message, blob, ret, &err), CAIRN_OK);
}

static bool put(const struct cairn_wire *wire, struct cairn_view bytes) {
    return write(wire->write_fd, bytes.data, bytes.size) == (ssize_t)bytes.size;
}

static int frame_id(const struct cairn_frame *frame) {
    return (int)json_integer_value(json_object_get(frame->message, "id"));
}

TEST(a_frame_cut_at_each_byte_arrives_whole) {
    CAIRN_AUTO(buf) bytes = {0};
    encode(&bytes, "seal", 7, CAIRN_VIEW("blob bytes"));
    for (size_t cut = 1; cut < bytes.size; cut++) {
        CAIRN_AUTO(wire) wire = {.write_fd = -1, .read_fd = -1};
        struct cairn_error err = {0};
        bool closed = true, ready = true;
        REQUIRE(wire_open(&wire));
        REQUIRE(put(&wire, (struct cairn_view){bytes.data, cut}));
        REQUIRE_OK(cairn_frame_fill(&wire.reader, wire.read_fd, &closed, &err));
        WITH_OK(frame, frame, cairn_frame_next(&wire.reader, &frame, &ready, &err));
        EXPECT(!closed);
        EXPECT(!ready);
        EXPECT_EQ_U64(err.code, CAIRN_OK); /* "nothing there yet" is no error */
        REQUIRE(put(&wire, (struct cairn_view){bytes.data + cut, bytes.size - cut}));
        REQUIRE_OK(cairn_frame_fill(&wire.reader, wire.read_fd, &closed, &err));
        REQUIRE_OK(cairn_frame_next(&wire.reader, &frame, &ready, &err));
        REQUIRE(ready);
        EXPECT_EQ_TEXT(frame.name, "seal");
        EXPECT_EQ_U64(frame_id(&frame), 7);
        EXPECT(frame.blob.size == 10 && !memcmp(frame.blob.data, "blob bytes", 10));
    }
}

TEST(frames_sent_in_one_write_come_one_by_one_in_order, err) {
    CAIRN_AUTO(wire) wire = {.write_fd = -1, .read_fd = -1};
    CAIRN_AUTO(buf) bytes = {0};
    REQUIRE(wire_open(&wire));
    for (int i = 0; i < 5; i++) encode(&bytes, "staged", i, CAIRN_VIEW("x"));
    REQUIRE(put(&wire, cairn_buf_view(&bytes)));
    for (int i = 0; i < 5; i++) {
        bool closed = true, ready = false;
        REQUIRE_OK(cairn_frame_fill(&wire.reader, wire.read_fd, &closed, &err));
        WITH_OK(frame, frame, cairn_frame_next(&wire.reader, &frame, &ready, &err));
        REQUIRE(ready);
        EXPECT_EQ_U64(frame_id(&frame), i);
    }
}

static ino_t inode_of(int fd) {
    struct stat info = {0};
    return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

/* Five frames written without a pause; the second and the fourth carry descriptors. */
TEST(descriptors_stay_with_their_frame_when_frames_pile_up, err) {
    CAIRN_AUTO(wire) wire = {.write_fd = -1, .read_fd = -1};
    int files[2][2];
    REQUIRE(wire_open(&wire));
    REQUIRE(pipe2(files[0], O_CLOEXEC) == 0 && pipe2(files[1], O_CLOEXEC) == 0);
    for (int i = 0; i < 5; i++) {
        CAIRN_AUTO(buf) bytes = {0};
        encode(&bytes, "slabs", i, CAIRN_VIEW("some blob"));
        size_t count = i == 1 ? 1 : i == 3 ? 2 : 0;
        EXPECT_CODE(cairn_net_send(wire.write_fd, cairn_buf_view(&bytes), files[i / 2], count,
                                   cairn_mono_ms() + HANG_MS, &err),
                    CAIRN_OK);
    }
    for (int i = 0; i < 5; i++) {
        bool closed = true, ready = false;
        REQUIRE_OK(cairn_frame_fill(&wire.reader, wire.read_fd, &closed, &err));
        WITH_OK(frame, frame, cairn_frame_next(&wire.reader, &frame, &ready, &err));
        REQUIRE(ready);
        EXPECT_EQ_U64(frame_id(&frame), i);
        EXPECT_EQ_U64(frame.fd_count, i == 1 ? 1 : i == 3 ? 2 : 0);
        for (size_t k = 0; k < frame.fd_count; k++) {
            EXPECT_EQ_U64(inode_of(frame.fds[k]), inode_of(files[i / 2][k]));
        }
    }
    for (int i = 0; i < 4; i++) close(files[i / 2][i % 2]);
}

static int open_fds(void) {
    int count = 0;
    for (int fd = 0; fd < 256; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

TEST(descriptors_in_the_middle_of_a_frame_are_closed_and_refused, err) {
    CAIRN_AUTO(wire) wire = {.write_fd = -1, .read_fd = -1};
    CAIRN_AUTO(buf) bytes = {0};
    bool closed;
    REQUIRE(wire_open(&wire));
    encode(&bytes, "hello", 1, CAIRN_VIEW(""));
    REQUIRE(put(&wire, (struct cairn_view){bytes.data, 5}));
    REQUIRE_OK(cairn_frame_fill(&wire.reader, wire.read_fd, &closed, &err));
    int before = open_fds();
    REQUIRE_OK(cairn_net_send(wire.write_fd, (struct cairn_view){bytes.data + 5, bytes.size - 5},
                              &wire.write_fd, 1, cairn_mono_ms() + HANG_MS, &err));
    EXPECT_CODE(cairn_frame_fill(&wire.reader, wire.read_fd, &closed, &err), CAIRN_PROTOCOL);
    EXPECT_EQ_U64(open_fds(), before);
}

TEST(descriptors_that_nobody_takes_are_closed) {
    int before = open_fds();
    for (int taken = 0; taken < 2; taken++) {
        CAIRN_AUTO(wire) wire = {.write_fd = -1, .read_fd = -1};
        CAIRN_AUTO(frame) frame = {0};
        CAIRN_AUTO(buf) bytes = {0};
        struct cairn_error err = {0};
        bool closed, ready;
        REQUIRE(wire_open(&wire));
        encode(&bytes, "offer", 1, CAIRN_VIEW(""));
        REQUIRE_OK(cairn_net_send(wire.write_fd, cairn_buf_view(&bytes), &wire.write_fd, 1,
                                  cairn_mono_ms() + HANG_MS, &err));
        REQUIRE_OK(cairn_frame_fill(&wire.reader, wire.read_fd, &closed, &err));
        if (taken) REQUIRE_OK(cairn_frame_next(&wire.reader, &frame, &ready, &err));
    }
    EXPECT_EQ_U64(open_fds(), before);
}

TEST(the_end_of_a_connection_is_told_between_frames_and_refused_inside_one) {
    CAIRN_AUTO(buf) bytes = {0};
    encode(&bytes, "bye", 1, CAIRN_VIEW("abc"));
    for (size_t sent = 0; sent < bytes.size; sent++) {
        CAIRN_AUTO(wire) wire = {.write_fd = -1, .read_fd = -1};
        struct cairn_error err = {0};
        bool closed = false;
        REQUIRE(wire_open(&wire));
        REQUIRE(put(&wire, (struct cairn_view){bytes.data, sent}));
        close(wire.write_fd);
        wire.write_fd = -1;
        EXPECT_CODE(cairn_frame_fill(&wire.reader, wire.read_fd, &closed, &err),
                    sent ? CAIRN_PROTOCOL : CAIRN_OK);
        EXPECT(closed == (sent == 0));
    }
}

/* Give raw bytes to a reader and say how it ends. */
static enum cairn_code read_raw(struct cairn_view bytes, struct cairn_error *err) {
    CAIRN_AUTO(wire) wire = {.write_fd = -1, .read_fd = -1};
    if (!EXPECT(wire_open(&wire)) || !EXPECT(put(&wire, bytes))) return CAIRN_INTERNAL;
    for (;;) {
        CAIRN_AUTO(frame) frame = {0};
        bool closed = false, ready = false;
        enum cairn_code code = cairn_frame_fill(&wire.reader, wire.read_fd, &closed, err);
        if (code == CAIRN_OK) code = cairn_frame_next(&wire.reader, &frame, &ready, err);
        if (code != CAIRN_OK || !ready) return code;
    }
}

TEST(sizes_and_messages_out_of_bounds_break_the_protocol) {
    EACH_OF(struct cairn_view, one, CAIRN_VIEW("\0\0\0\0\0\0\0\0"), /* no JSON */
            CAIRN_VIEW("\xff\xff\xff\xff\0\0\0\0"),                 /* 4 GiB of JSON */
            CAIRN_VIEW("\x01\0\x10\0\0\0\0\0"),                     /* 1 MiB and a byte */
            CAIRN_VIEW("\x02\0\0\0\x01\0\0\x04{}"),       /* a blob of 64 MiB and a byte */
            CAIRN_VIEW("\x02\0\0\0\xff\xff\xff\xff{}"),   /* 4 GiB of blob */
            CAIRN_VIEW("\x02\0\0\0\0\0\0\0{}"),           /* no name */
            CAIRN_VIEW("\x02\0\0\0\0\0\0\0[]"),           /* no object */
            CAIRN_VIEW("\x07\0\0\0\0\0\0\0{\"t\":1}"),    /* a name that is no text */
            CAIRN_VIEW("\x08\0\0\0\0\0\0\0{\"t\":\"a\""), /* cut JSON */
            CAIRN_VIEW("\x11\0\0\0\0\0\0\0{\"t\":\"a\",\"t\":\"b\"}")) {
        struct cairn_error err = {0};
        EXPECT_CODE(read_raw(one, &err), CAIRN_PROTOCOL);
        EXPECT_EQ_U64(err.code, CAIRN_PROTOCOL);
    }
}

TEST(a_blob_that_is_only_claimed_takes_no_memory, err) {
    CAIRN_AUTO(wire) wire = {.write_fd = -1, .read_fd = -1};
    bool closed;
    REQUIRE(wire_open(&wire));
    REQUIRE(put(&wire, CAIRN_VIEW("\x09\0\0\0\0\0\0\x04{\"t\":\"a\"}")));
    REQUIRE_OK(cairn_frame_fill(&wire.reader, wire.read_fd, &closed, &err));
    EXPECT(wire.reader.bytes.capacity < CAIRN_MIB);
}

TEST(messages_that_are_too_large_are_not_encoded, err) {
    CAIRN_AUTO(buf) bytes = {0};
    CAIRN_AUTO(buf) big = {.limit = 128 * CAIRN_MIB};
    CAIRN_AUTO_JSON json_t *message = json_pack("{ss}", "t", "x");
    REQUIRE_OK(cairn_buf_reserve(&big, 65 * CAIRN_MIB, &err));
    memset(big.data, 'a', 2 * CAIRN_MIB);
    struct cairn_view blob = {big.data, 64 * CAIRN_MIB + 1};
    EXPECT_CODE(cairn_frame_encode(message, blob, &bytes, &err), CAIRN_TOO_LARGE);
    json_object_set_new(message, "long", json_stringn(big.data, CAIRN_MIB));
    EXPECT_CODE(cairn_frame_encode(message, CAIRN_VIEW(""), &bytes, &err), CAIRN_TOO_LARGE);
    EXPECT_EQ_U64(bytes.size, 0);
}

static void judge(struct cairn_view input, void *context) {
    struct cairn_error err = {0};
    uint32_t *good = context;
    enum cairn_code code = read_raw(input, &err);
    EXPECT(code == CAIRN_OK || code == CAIRN_PROTOCOL);
    *good += code == CAIRN_OK;
}

TEST(damaged_frames_end_the_session_or_are_harmless) {
    CAIRN_AUTO(buf) bytes = {0};
    uint32_t good = 0;
    encode(&bytes, "begin", 1, CAIRN_VIEW("abc"));
    encode(&bytes, "seal", 2, CAIRN_VIEW(""));
    cairn_mutate_cut(cairn_buf_view(&bytes), judge, &good);
    EXPECT_EQ_U64(good, bytes.size); /* a frame that has not arrived yet is no error */
    good = 0;
    cairn_mutate_many(cairn_buf_view(&bytes), 10000, judge, &good);
    EXPECT(good > 0);
}

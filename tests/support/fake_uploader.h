/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_uploader: the other end of the uploader's socket, scripted.
 *
 * Why:     an answer that never comes, a refusal at each message, a death at each message and a
 *          restart that forgot everything must be produced on request; the real uploader does that
 *          only by accident.
 * Promise: 1   what is not scripted is answered as docs/socket.md says, without journal and store.
 *          2   every message is recorded with its blob, in the order it came.
 * Limits:  one version to restore; 8 connections.
 * Threads: one of its own; the functions may be called from the main thread at any time.
 * Next:    tests/client/test_save.c.
 */
#pragma once

#include "api/wire/frame.h"
#include "common/memory.h"

struct cairn_fake_uploader;
struct cairn_fake_message {
    json_t *message; /* owned by the fake until its end */
    struct cairn_view blob;
};

/* Listens on `path` when this returns. slab_count generations are given to each session. */
enum cairn_code cairn_fake_uploader_new(const char *path, uint32_t slab_count,
                                        struct cairn_fake_uploader **ret, struct cairn_error *err);
void cairn_fake_uploader_free(struct cairn_fake_uploader *fake);
CAIRN_DEFINE_AUTO_PTR(fake_uploader);

/* The next message of that name is met with `what`: "mute", "late" (the usual answer, 400 ms after
 * it was recorded), "deaf" (3 s, in which nothing is read), "drop" (the connection is closed
 * instead of an answer), "ended" (the verdict "aborted", `no-space`, of the save that it names, and
 * behind it the refusal `not-found`), or the slug of a refusal, to which status 507 and a request
 * id belong. */
void cairn_fake_uploader_script(struct cairn_fake_uploader *fake, const char *name,
                                const char *what);
/* What `restore`, `window` and `read` serve, by index of the manifest's shards; borrowed. */
struct cairn_fake_version {
    struct cairn_view manifest, layout;
    const struct cairn_view *shards;
    size_t shard_count;
};
void cairn_fake_uploader_serve(struct cairn_fake_uploader *fake,
                               const struct cairn_fake_version *version);
/* Bytes that `read` put into the window so far. */
uint64_t cairn_fake_uploader_read_bytes(struct cairn_fake_uploader *fake);
uint64_t cairn_fake_uploader_read_blocks(struct cairn_fake_uploader *fake); /* touched, each time */
/* The state that `offered` gives to every save; "+sealed" behind it: the journal has the seal. */
void cairn_fake_uploader_offer_state(struct cairn_fake_uploader *fake, const char *state);
/* The node that the next welcome names; "fake" at first. */
void cairn_fake_uploader_rename(struct cairn_fake_uploader *fake, const char *node);
/* The version of the socket that later welcomes name, as an older release's uploader. */
void cairn_fake_uploader_speaks(struct cairn_fake_uploader *fake, uint32_t version);
/* From now on every `begun` is followed at once by the save's verdict, "aborted". */
void cairn_fake_uploader_verdict_behind_begun(struct cairn_fake_uploader *fake);
/* What attempts are told of weights, borrowed; before any session. */
void cairn_fake_uploader_weigh(struct cairn_fake_uploader *fake, const char *weights);
/* From now on `sealed` names the table of its seal. */
void cairn_fake_uploader_names_tables(struct cairn_fake_uploader *fake);
/* Close all connections and the socket; listen again. Slabs are forgotten, as by a new process. */
void cairn_fake_uploader_down(struct cairn_fake_uploader *fake);
enum cairn_code cairn_fake_uploader_up(struct cairn_fake_uploader *fake, struct cairn_error *err);
/* Both. */
static inline enum cairn_code cairn_fake_uploader_again(struct cairn_fake_uploader *fake,
                                                        struct cairn_error *err) {
    cairn_fake_uploader_down(fake);
    return cairn_fake_uploader_up(fake, err);
}
/* Send an event to the connection that is there. Takes the message. */
void cairn_fake_uploader_event(struct cairn_fake_uploader *fake, json_t *take_message);
/* Wait up to 5 s until `count` messages of that name have come; the last of them. */
bool cairn_fake_uploader_saw(struct cairn_fake_uploader *fake, const char *name, size_t count,
                             struct cairn_fake_message *ret);
/* The message of that name that came as number `index`, from 0. */
bool cairn_fake_uploader_at(struct cairn_fake_uploader *fake, const char *name, size_t index,
                            struct cairn_fake_message *ret);
size_t cairn_fake_uploader_count(struct cairn_fake_uploader *fake, const char *name);
/* How many connections are open, once what was closed has had 1 s to be noticed. */
size_t cairn_fake_uploader_connections(struct cairn_fake_uploader *fake);
/* The slab of the last session that got or offered some. */
const uint8_t *cairn_fake_uploader_slab(struct cairn_fake_uploader *fake, uint32_t index);

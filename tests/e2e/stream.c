/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a job that never waits for a commit: it saves, trains on and saves again, and at the
 * end lives until it is told to go:  stream RUN RANK WORLD FIRST
 * One JSON line for the opening, for each call that ended a save's part in the training loop, and
 * for each failure that a later call told. Every 16 bytes that are saved hold step, rank, a number
 * of the run and a place, so that a look at the store sees whose they are.
 *
 *   STREAM_BYTES     of the tensor's piece; a multiple of 16
 *   STREAM_PAUSE_MS  between two saves
 *   STREAM_KEEP      "1": handles are kept, and each is asked at the end; else freed at once
 *   STREAM_LAST      path of a file that comes to hold the number of the last step
 *   STREAM_END       path; it goes when that is there
 *   CAIRN_TEST_BEHIND  each save is copied beside the training, and its memory is overwritten as
 *                    soon as its fence says so */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cairn/stage.h>

#define SAVES_MAX 256
#define TEXT_BYTES 4096
#define RAW_BYTES 4096
#define UNIT_WORDS 4
#define PLACE_WORDS 1024
#define ROUND_MS 50
#define STAGED_MS 5000 /* longer than an uploader that is there takes for a seal */

struct stream {
    const char *run, *last, *end;
    unsigned rank, ranks, pause_ms;
    uint32_t tag;
    uint64_t first, words;
    int keep;
    struct cairn_session *session;
    struct cairn_save *kept[SAVES_MAX];
    uint64_t kept_steps[SAVES_MAX];
    unsigned kept_count;
};

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* as Python's time.monotonic() */
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t called_ms; /* when the call that is told began */

static void say(const char *what, uint64_t step, enum cairn_code code,
                const struct cairn_error *err) {
    char text[TEXT_BYTES];
    size_t size = 0;
    for (const char *at = code ? err->message : ""; *at && size + 7 < sizeof text; at++) {
        unsigned char byte = (unsigned char)*at;
        if (byte < 0x20 || byte == '"' || byte == '\\')
            size += (size_t)snprintf(text + size, 7, "\\u%04x", byte);
        else
            text[size++] = *at;
    }
    text[size] = 0;
    printf("{\"since\":%llu,\"at\":%llu,\"%s\":\"%s\",\"step\":%lld,\"text\":\"%s\"}\n",
           (unsigned long long)called_ms, (unsigned long long)now_ms(), what,
           cairn_code_info(code)->slug, (long long)step, text);
    fflush(stdout);
}

static uint32_t tag_of(const char *run) {
    uint32_t tag = 2166136261u;
    for (; *run; run++) tag = (tag ^ (unsigned char)*run) * 16777619u;
    return tag;
}

static void fill(const struct stream *stream, uint64_t step, uint32_t *memory) {
    for (uint64_t i = 0; i < stream->words + RAW_BYTES / sizeof *memory; i += UNIT_WORDS) {
        memory[i] = (uint32_t)step;
        memory[i + 1] = stream->rank;
        memory[i + 2] = stream->tag;
        memory[i + 3] = (uint32_t)(i / PLACE_WORDS);
    }
}

/* Failures of earlier saves: a rank asks before each save, and as long as it lives. */
static void ask_problems(struct stream *stream) {
    struct cairn_error err;
    for (;;) {
        enum cairn_code code = cairn_session_problem(stream->session, &err);
        if (code == CAIRN_OK) return;
        say("problem", UINT64_MAX, code, &err);
    }
}

/* Copied: by then it is sealed, or will be with the uploader that comes. */
static enum cairn_code stage(struct cairn_save *save, struct stream *stream, uint32_t *memory,
                             struct cairn_error *err) {
    if (!getenv("CAIRN_TEST_BEHIND")) return cairn_save_stage(save, err);
    enum cairn_code code = cairn_save_stage_begin(save, err);
    if (!code) code = cairn_save_fence(save, 0, err);
    if (code) return code;
    memset(memory, 0xA5, stream->words * sizeof *memory + RAW_BYTES);
    code = cairn_save_wait(save, CAIRN_STAGED, STAGED_MS, err);
    if (code != CAIRN_TIMEOUT && code != CAIRN_UPLOADER_GONE) return code;
    return cairn_save_over(save, &code) ? code : CAIRN_OK;
}

static void save_step(struct stream *stream, uint64_t step, uint32_t *memory) {
    struct cairn_error err;
    struct cairn_save *save = NULL;
    uint64_t shape = stream->words * stream->ranks, start = stream->words * stream->rank;
    struct cairn_tensor_piece piece = {.size = sizeof piece,
                                       .name = "w",
                                       .dtype = "U32",
                                       .dimension_count = 1,
                                       .shape = &shape,
                                       .kind = CAIRN_SHARDED,
                                       .form = CAIRN_FLAT,
                                       .start = &start,
                                       .count = &stream->words,
                                       .source = memory,
                                       .source_bytes = stream->words * sizeof *memory};
    called_ms = now_ms();
    enum cairn_code code = cairn_save_begin(stream->session, step, NULL, &save, &err);
    say("begin", step, code, &err);
    if (code) return;
    code = cairn_save_tensor(save, &piece, &err);
    if (!code) code = cairn_save_raw(save, "state", memory + stream->words, RAW_BYTES, &err);
    if (!code) code = stage(save, stream, memory, &err);
    say("stage", step, code, &err);
    if (stream->keep && stream->kept_count < SAVES_MAX) {
        stream->kept_steps[stream->kept_count] = step;
        stream->kept[stream->kept_count++] = save;
    } else {
        cairn_save_free(save);
    }
}

/* One look at every kept handle; those that ended are told and freed. */
static void ask_kept(struct stream *stream) {
    struct cairn_error err;
    for (unsigned i = 0; i < stream->kept_count; i++) {
        if (!stream->kept[i]) continue;
        enum cairn_code code = cairn_save_wait(stream->kept[i], CAIRN_COMMITTED, 1, &err);
        if (code == CAIRN_TIMEOUT || code == CAIRN_UPLOADER_GONE) continue;
        say("ended", stream->kept_steps[i], code, &err);
        cairn_save_free(stream->kept[i]);
        stream->kept[i] = NULL;
    }
}

/* UINT64_MAX as long as nobody has said it. */
static uint64_t last_step(const struct stream *stream) {
    unsigned long long step = 0;
    FILE *file = fopen(stream->last, "re");
    int found = file ? fscanf(file, "%llu", &step) : 0;
    if (file) fclose(file);
    return found == 1 ? step : UINT64_MAX;
}

static void play(struct stream *stream) {
    uint32_t *memory = malloc(stream->words * sizeof *memory + RAW_BYTES);
    if (!memory) exit(1);
    for (uint64_t step = stream->first; step <= last_step(stream); step++) {
        ask_problems(stream);
        fill(stream, step, memory);
        save_step(stream, step, memory);
        /* The next step's training overwrites what was saved. */
        memset(memory, 0xee, stream->words * sizeof *memory + RAW_BYTES);
        (void)poll(NULL, 0, (int)stream->pause_ms); /* pause of a stand-in: it trains */
    }
    free(memory);
    printf("{\"at\":%llu,\"done\":true}\n", (unsigned long long)now_ms());
    fflush(stdout);
    while (access(stream->end, F_OK)) {
        ask_problems(stream);
        ask_kept(stream);
        (void)poll(NULL, 0, ROUND_MS); /* step of a poll */
    }
    ask_problems(stream);
    for (unsigned i = 0; i < stream->kept_count; i++) cairn_save_free(stream->kept[i]);
}

static uint64_t number_of(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

int main(int argc, char **argv) {
    struct stream stream = {.run = argc > 1 ? argv[1] : "", .end = getenv("STREAM_END")};
    struct cairn_resume resume = {0};
    struct cairn_error err;
    stream.last = getenv("STREAM_LAST");
    if (argc != 5 || !stream.end || !stream.last) return 2;
    stream.rank = (unsigned)strtoul(argv[2], NULL, 10);
    stream.ranks = (unsigned)strtoul(argv[3], NULL, 10);
    stream.first = strtoull(argv[4], NULL, 10);
    stream.words = number_of("STREAM_BYTES", 1 << 20) / sizeof(uint32_t);
    stream.pause_ms = (unsigned)number_of("STREAM_PAUSE_MS", 100);
    stream.keep = number_of("STREAM_KEEP", 0) == 1;
    stream.tag = tag_of(stream.run);
    struct cairn_open_options options = {.size = sizeof options,
                                         .run = stream.run,
                                         .rank = stream.rank,
                                         .world_size = stream.ranks,
                                         .local_world_size =
                                             stream.ranks > 1 ? stream.ranks / 2 : 1,
                                         .bytes = stream.words * sizeof(uint32_t) + RAW_BYTES};
    enum cairn_code code = cairn_open(&options, &stream.session, &resume, &err);
    say("open", resume.found ? resume.step : UINT64_MAX, code, &err);
    if (code) return 1;
    play(&stream);
    code = cairn_close(stream.session, &err);
    if (code) say("problem", UINT64_MAX, code, &err);
    return 0;
}

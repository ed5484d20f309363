/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: the Nth allocation of a process fails, as it does where memory is bounded.
 *
 *   LIBFAIL_AT=N       the Nth call of malloc, calloc or realloc after all libraries have started
 *                      returns NULL, and a line on standard error says so; 0: none
 *   LIBFAIL_COUNT=FILE at the end the number of calls is written there
 *
 * It stands before the sanitizer's own malloc (verify_asan_link_order=0) and hands on to it. Calls
 * of libc itself and of the sanitizer are not counted: pthread_getattr_np, which the sanitizer
 * needs to start a thread, allocates. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EARLY_BYTES 65536

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);
static atomic_ulong calls;
static unsigned long fail_at;
static int armed;
static const void *libc_base, *sanitizer_base;
/* dlsym may allocate before it has found anything. */
static _Alignas(16) char early[EARLY_BYTES];
static size_t early_used;

static int is_early(const void *memory) {
    const char *at = memory;
    return at >= early && at < early + EARLY_BYTES;
}

static void *take_early(size_t size) {
    size_t at = early_used;
    early_used = (early_used + size + 15) & ~(size_t)15;
    return early_used <= EARLY_BYTES ? early + at : NULL;
}

static const void *base_of(const void *address) {
    Dl_info info;
    return dladdr(address, &info) ? info.dli_fbase : NULL;
}

static void find(void) {
    static int finding;
    if (next_free || finding) return;
    finding = 1;
    next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
}

static int fails(const void *caller) {
    if (!armed) return 0;
    const void *base = base_of(caller);
    if (base == libc_base || base == sanitizer_base) return 0;
    unsigned long call = atomic_fetch_add(&calls, 1) + 1;
    if (!fail_at || call != fail_at) return 0;
    static const char said[] = "libfail: an allocation fails\n";
    if (write(STDERR_FILENO, said, sizeof said - 1) < 0) abort();
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) {
    find();
    if (!next_malloc) return take_early(size);
    return fails(__builtin_return_address(0)) ? NULL : next_malloc(size);
}

void *calloc(size_t count, size_t size) {
    find();
    if (!next_calloc) return take_early(count * size); /* zero: nothing of it is used twice */
    return fails(__builtin_return_address(0)) ? NULL : next_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
    find();
    if (is_early(memory)) {
        void *copy = malloc(size);
        if (copy) memcpy(copy, memory, size);
        return copy;
    }
    return fails(__builtin_return_address(0)) ? NULL : next_realloc(memory, size);
}

void free(void *memory) {
    if (!memory || is_early(memory)) return;
    find();
    next_free(memory);
}

__attribute__((constructor)) static void begin(void) {
    const char *at = getenv("LIBFAIL_AT");
    find();
    /* Functions that the sanitizer does not replace lead to libc itself. */
    libc_base = base_of((const void *)(size_t)dlsym(RTLD_NEXT, "getpid"));
    sanitizer_base = base_of((const void *)(size_t)dlsym(RTLD_NEXT, "malloc"));
    fail_at = at ? strtoul(at, NULL, 10) : 0;
    armed = at != NULL;
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("LIBFAIL_COUNT");
    unsigned long count = atomic_load(&calls);
    armed = 0;
    FILE *file = path ? fopen(path, "we") : NULL;
    if (!file) return;
    fprintf(file, "%lu\n", count);
    fclose(file);
}

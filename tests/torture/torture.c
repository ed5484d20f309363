/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/torture/torture.h"

#define ALLOCATIONS_MAX 200000

/* The linker sends each call of NAME in Cairn's objects to __wrap_NAME; __real_NAME is the one of
 * the C library (of the sanitizer, where there is one). */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);

/* Of the thread that runs an operation; 0: none fails. Once one has failed, others pass. */
static _Thread_local uint64_t until_failure;

static bool fails(void) {
    if (!until_failure || --until_failure) return false;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t size) {
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size) {
    return fails() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size) {
    return fails() ? NULL : __real_aligned_alloc(align, size);
}

char *__wrap_strdup(const char *text) {
    return fails() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t size) {
    return fails() ? NULL : __real_strndup(text, size);
}

static void run(const char *name, cairn_torture_operation *operation, void *context, bool strict) {
    struct cairn_error err = {0};
    enum cairn_code code = operation(context, &err);
    cairn_test_check(code == CAIRN_OK, __FILE__, __LINE__, "%s without a failure: %s", name,
                     err.message);
    for (uint64_t nth = 1; code == CAIRN_OK && nth < ALLOCATIONS_MAX; nth++) {
        err = (struct cairn_error){0};
        until_failure = nth;
        enum cairn_code failed = operation(context, &err);
        bool reached = until_failure == 0;
        until_failure = 0;
        if (!reached) {
            cairn_test_check(failed == CAIRN_OK, __FILE__, __LINE__, "%s after all %" PRIu64 ": %s",
                             name, nth - 1, err.message);
            cairn_test_check(nth > 1, __FILE__, __LINE__, "%s allocates nothing", name);
            return;
        }
        bool code_fits = !strict || failed == CAIRN_NO_MEMORY;
        bool told = failed == CAIRN_OK || (err.message[0] && code_fits);
        if (!cairn_test_check(told, __FILE__, __LINE__, "%s, allocation %" PRIu64 ": %s \"%s\"",
                              name, nth, cairn_code_info(failed)->slug, err.message))
            return;
    }
}

void cairn_torture(const char *name, cairn_torture_operation *operation, void *context) {
    run(name, operation, context, true);
}

void cairn_torture_loosely(const char *name, cairn_torture_operation *operation, void *context) {
    run(name, operation, context, false);
}

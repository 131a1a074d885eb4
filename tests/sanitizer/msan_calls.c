/* SPDX-License-Identifier: MIT */
/** @file For MemorySanitizer: calls as what is built here makes them (ld's --wrap). Weak: tests/fault has its own of most.
 *
 *  The allocator gives memory that is not written yet. What other libraries get counts as written (msan_criterion.c):
 *  Criterion, cJSON and Mini-XML are not built with MemorySanitizer, which so does not see what they write. */
#include <malloc.h>
#include <sanitizer/msan_interface.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

void *__real_malloc(size_t size);
void __real_free(void *start);
long __real_syscall(long number, ...);
void *__wrap_malloc(size_t size);
void *__wrap_realloc(void *old, size_t size);
void __wrap_free(void *start);
long __wrap_syscall(long number, ...);
struct mallinfo2 __real_mallinfo2(void);
struct mallinfo2 __wrap_mallinfo2(void);
int __real_statx(int directory, const char *path, int flags, unsigned mask, struct statx *out);
int __wrap_statx(int directory, const char *path, int flags, unsigned mask, struct statx *out);

#define REPLACEABLE __attribute__((weak))

REPLACEABLE void *__wrap_malloc(size_t size) {
    void *start = __real_malloc(size);
    if (start != NULL) {
        __msan_poison(start, size);
    }
    return start;
}

/* Its next owner may be another library. */
REPLACEABLE void __wrap_free(void *start) {
    if (start != NULL) {
        __msan_unpoison(start, malloc_usable_size(start));
    }
    __real_free(start);
}

REPLACEABLE void *__wrap_realloc(void *old, size_t size) {
    void *grown = __wrap_malloc(size);
    if (grown != NULL && old != NULL) {
        const size_t before = malloc_usable_size(old); /* the sanitizer's: what was asked for */
        memcpy(grown, old, before < size ? before : size);
        __wrap_free(old);
    }
    return grown;
}

/* syscall(2) has six arguments at most, and it does no harm to hand on some that nobody has given. */
REPLACEABLE long __wrap_syscall(long number, ...) {
    long arguments[6];
    va_list given;
    va_start(given, number);
    for (int i = 0; i < 6; i++) {
        arguments[i] = va_arg(given, long);
    }
    va_end(given);
    const long result = __real_syscall(number, arguments[0], arguments[1], arguments[2],
                                       arguments[3], arguments[4], arguments[5]);
    if (number == SYS_getdents64 && result > 0) {
        __msan_unpoison((void *)arguments[1], (size_t)result); /* the kernel has written it */
    }
    return result;
}

/* What MemorySanitizer does not know of the C library. */
REPLACEABLE struct mallinfo2 __wrap_mallinfo2(void) {
    struct mallinfo2 now = __real_mallinfo2();
    __msan_unpoison(&now, sizeof(now));
    return now;
}

REPLACEABLE int __wrap_statx(int directory, const char *path, int flags, unsigned mask,
                             struct statx *out) {
    const int result = __real_statx(directory, path, flags, mask, out);
    if (result == 0) {
        __msan_unpoison(out, sizeof(*out));
    }
    return result;
}

/* SPDX-License-Identifier: MIT */
/** @file For MemorySanitizer: what Criterion says to its own processes, by nanomsg, is not looked at. Neither is built with it. Where
 *  a test's functions have had their variables on the stack, Criterion later has its own, and MemorySanitizer does not see
 *  that these are written. The calls here come before nanomsg's, in whose place Criterion finds them. */
#include <dlfcn.h>
#include <sanitizer/msan_interface.h>
#include <stddef.h>
#include <stdlib.h>

#define CRITERIONS __attribute__((visibility("default")))

/* nanomsg(7); a function's address in place of an object's, as dlsym(3) has it. */
#define UNCHECKED(type, name, parameters, arguments)                                               \
    CRITERIONS type name parameters;                                                               \
    CRITERIONS type name parameters {                                                              \
        type(*next) parameters;                                                                    \
        *(void **)&next = dlsym(RTLD_NEXT, #name);                                                 \
        __msan_scoped_disable_interceptor_checks();                                                \
        type result = next arguments;                                                              \
        __msan_scoped_enable_interceptor_checks();                                                 \
        return result;                                                                             \
    }

UNCHECKED(int, nn_socket, (int domain, int protocol), (domain, protocol))
UNCHECKED(int, nn_bind, (int socket, const char *address), (socket, address))
UNCHECKED(int, nn_connect, (int socket, const char *address), (socket, address))
UNCHECKED(int, nn_close, (int socket), (socket))
UNCHECKED(int, nn_recv, (int socket, void *data, size_t size, int flags),
          (socket, data, size, flags))

CRITERIONS int nn_send(int socket, const void *data, size_t size, int flags);
CRITERIONS int nn_send(int socket, const void *data, size_t size, int flags) {
    int (*next)(int, const void *, size_t, int);
    *(void **)&next = dlsym(RTLD_NEXT, "nn_send");
    __msan_unpoison(data, size); /* a thread of nanomsg's passes it on */
    __msan_scoped_disable_interceptor_checks();
    const int result = next(socket, data, size, flags);
    __msan_scoped_enable_interceptor_checks();
    return result;
}

/* What Criterion shares with its processes lies where it draws, at 0x200000000000 + (rand_r() << 24) (BoxFort's arena-posix.c).
 * Most of that is the sanitizer's own memory here; the program's is from 0x510000000000 to 0x600000000000 (compiler-rt's
 * msan.h). Else one program of ten cannot begin. */
CRITERIONS int rand_r(unsigned *seed) {
    int (*next)(unsigned *);
    *(void **)&next = dlsym(RTLD_NEXT, "rand_r");
    return 0x310000 + next(seed) % 0xF0000;
}

/* Where ./run is not before a program. The allocator's memory counts as written, but for what msan_calls.c says. */
const char *__msan_default_options(void);
const char *__msan_default_options(void) {
    return "poison_in_malloc=0:poison_in_free=0";
}

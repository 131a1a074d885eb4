/* SPDX-License-Identifier: MIT */
/** @file The one internal place with an #if on a compiler or an operating system. */
#ifndef GPUIPC_COMPILER_H
#define GPUIPC_COMPILER_H

#if defined(__MINGW32__) && !defined(__clang__)
/* The build sets __USE_MINGW_ANSI_STDIO: C's own formats, not those of an old msvcrt.dll. */
#define GPUIPC_PRINTF(string, first) __attribute__((format(gnu_printf, string, first)))
#elif defined(__GNUC__)
/** Lets the compiler check format strings: format is the position of the string, first that "...". */
#define GPUIPC_PRINTF(string, first) __attribute__((format(printf, string, first)))
#else
#define GPUIPC_PRINTF(string, first)
#endif

#if defined(__GNUC__)
/** Of functions for what goes wrong, or is rare: what leads to them is kept out of the way of the rest, which so lies together.
 *  Inlined, they would cost each caller the registers that they need. */
#define GPUIPC_COLD __attribute__((cold, noinline))
#else
#define GPUIPC_COLD
#endif

#if defined(__GNUC__)
/** Exports a symbol of a library that hides all others (the emulated driver). */
#define GPUIPC_EXPORTED __attribute__((visibility("default")))
#else
#define GPUIPC_EXPORTED
#endif

#if defined(_WIN32)
#undef GPUIPC_EXPORTED
#define GPUIPC_EXPORTED __declspec(dllexport)
#endif

#if defined(_MSC_VER) && !defined(__clang__)
#define GPUIPC_THREAD_LOCAL __declspec(thread)
#else
#define GPUIPC_THREAD_LOCAL _Thread_local
#endif

/** For MemorySanitizer: bytes that go to somebody else are all written, between members as well. */
#define GPUIPC_CHECK_WRITTEN(start, size) ((void)0)
#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
void __msan_check_mem_is_initialized(const volatile void *start, unsigned long size);
#undef GPUIPC_CHECK_WRITTEN
#define GPUIPC_CHECK_WRITTEN(start, size) __msan_check_mem_is_initialized((start), (size))
#endif
#endif

/** What is about to be read, and may be in another processor's cache: it is fetched while others are. GCC leaves a call out that
 *  does nothing else than __builtin_prefetch (seen of 12), and may do so on other processors. */
#if defined(__GNUC__) && defined(__x86_64__)
#define GPUIPC_PREFETCH(address)                                                                   \
    __asm__ volatile("prefetcht0 %0" : : "m"(*(const volatile char *)(address)))
#elif defined(__GNUC__)
#define GPUIPC_PREFETCH(address) __builtin_prefetch((address), 0)
#else
#define GPUIPC_PREFETCH(address) ((void)(address))
#endif

/** Likewise what is about to be written. All processors for which there is a Windows of 64 bits or a Linux that runs CUDA 12 have the
 *  instruction, but GCC does not count on it: Intel's manual, PREFETCHW. */
#if defined(__GNUC__) && defined(__x86_64__)
#define GPUIPC_PREFETCH_WRITE(address)                                                             \
    __asm__ volatile("prefetchw %0" : : "m"(*(const volatile char *)(address)))
#elif defined(__GNUC__)
#define GPUIPC_PREFETCH_WRITE(address) __builtin_prefetch((address), 1)
#else
#define GPUIPC_PREFETCH_WRITE(address) ((void)(address))
#endif

#if defined(__SANITIZE_THREAD__)
/** Between a store and a load of another word that must not come before it. ThreadSanitizer knows no fences. */
#define GPUIPC_FULL_FENCE()                                                                        \
    do {                                                                                           \
        static atomic_uint fence;                                                                  \
        (void)atomic_fetch_add(&fence, 1u);                                                        \
    } while (0)
#else
#define GPUIPC_FULL_FENCE() atomic_thread_fence(memory_order_seq_cst)
#endif

#endif

/* SPDX-License-Identifier: MIT */
/**
 * @file What has to be done by Python, and is found out where there is none: on a thread of another library, without
 * the GIL, after the interpreter has ended. DLPack's consumers call deleters like that.
 */
#pragma once

namespace binding {

/** Lets Python's main thread call this soon, with the GIL. Never, once the interpreter ends: what is to be freed then,
 *  the end of the process frees. Any thread; with or without the GIL; does not block. */
void when_python_runs(void (*call)(void *argument), void *argument);

/** Calls what waits for Python, on a thread that Python does not know: takes the GIL for it, and for nothing else. A main
 *  thread that sleeps calls nothing. Not under a lock that a thread with the GIL takes. */
void run_deferred();

/** To be called once, when the module is loaded. */
void deferred_begin();

} // namespace binding

/* SPDX-License-Identifier: MIT */
#include "deferred.hpp"

#include <nanobind/nanobind.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "without_gil.hpp"

namespace nb = nanobind;

namespace binding {

namespace {

struct task {
    void (*call)(void *argument);
    void *argument;
};

struct deferred {
    std::mutex mutex;
    std::vector<task> tasks;
    std::mutex entering; /* held by a thread that is about to take the GIL */
    std::atomic<bool> ended{false};
};

/* Never destroyed: threads of other libraries outlive this one's static data. A forked child has one of its own: what
 * another thread had locked stays so. */
deferred *&current() {
    static deferred *only = new deferred;
    return only;
}

deferred &all() {
    return *current();
}

bool has_tasks() {
    const std::lock_guard<std::mutex> lock(all().mutex);
    return !all().tasks.empty();
}

/* While Python still runs. Who has begun to take the GIL gets it; nobody else does from then on. */
void end() {
    all().ended = true;
    const without_gil without;
    const std::lock_guard<std::mutex> lock(all().entering);
}

void forget_in_child() {
    current() = new deferred;
}

int run(void *) {
    std::vector<task> tasks;
    {
        const std::lock_guard<std::mutex> lock(all().mutex);
        tasks.swap(all().tasks);
    }
    for (const task &each : tasks) {
        each.call(each.argument);
    }
    return 0;
}

} // namespace

void when_python_runs(void (*call)(void *argument), void *argument) {
    if (all().ended || !Py_IsInitialized()) {
        return;
    }
    {
        const std::lock_guard<std::mutex> lock(all().mutex);
        all().tasks.push_back({call, argument});
    }
    /* Full (32 calls): then what comes next runs this one's task, too. */
    (void)Py_AddPendingCall(run, nullptr);
}

void run_deferred() {
    if (!has_tasks()) {
        return;
    }
    const std::lock_guard<std::mutex> lock(all().entering);
    if (!all().ended && Py_IsInitialized()) {
        const PyGILState_STATE state = PyGILState_Ensure();
        (void)run(nullptr);
        PyGILState_Release(state);
    }
}

void deferred_begin() {
    nb::dict hooks;
    hooks["after_in_child"] = nb::cpp_function(forget_in_child);
    nb::module_::import_("os").attr("register_at_fork")(**hooks);
    /* atexit runs while Python still does. */
    nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
        (void)run(nullptr);
        end();
    }));
}

} // namespace binding

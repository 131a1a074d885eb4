/* SPDX-License-Identifier: MIT */
#include "deferred.hpp"

#include <nanobind/nanobind.h>

#include <atomic>
#include <mutex>
#include <vector>

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
    std::atomic<bool> ended{false};
};

/* Never destroyed: threads of other libraries outlive this one's static data. */
deferred &all() {
    static deferred &only = *new deferred;
    return only;
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

void deferred_begin() {
    /* atexit runs while Python still does. */
    nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
        run(nullptr);
        all().ended = true;
    }));
}

} // namespace binding

/* SPDX-License-Identifier: MIT */
#include "lingering.hpp"

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>

#include "deferred.hpp"
#include "parcel.hpp"

namespace binding {

namespace {

using clock = std::chrono::steady_clock;

/* How long the thread sleeps between two looks: what comes back does so soon, or late. */
constexpr std::chrono::milliseconds least_pause(1);
constexpr std::chrono::milliseconds longest_pause(100);
/* How long it stays when nothing is left: whoever hands over one thing after the other would pay for a thread each time. */
constexpr std::chrono::seconds idle_time(1);

/* So many are kept open, the latest ones: each is a mapping, and memory that its owner may want back. */
constexpr size_t kept_at_most = 64;
constexpr double longest_kept = 3600;

struct kept_open {
    const context *of; /* to be compared with */
    std::shared_ptr<hold> held;
    clock::time_point until;
};

struct all_of_them {
    std::mutex mutex; /* guards the rest */
    std::condition_variable changed;
    std::vector<lingering> items;
    std::vector<lingering> looked_at; /* empty but during a look */
    std::vector<kept_open> kept;
    std::mutex look; /* one looks at a time; before the other */
    std::thread thread;
    bool is_running = false; /* the thread looks at the items again */
    std::chrono::milliseconds pause = least_pause;
    bool has_ended = false;
};

/* Never destroyed: threads of other libraries give up memory until the process ends. A forked child has one of its
 * own, since the thread did not come along, and what it had locked stays so. */
all_of_them *&current() {
    static all_of_them *only = new all_of_them;
    return only;
}

/* ---- one of them ---------------------------------------------------------------------------- */

bool is_lent(const lingering &item) {
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    return gpuipc_buffer_get_info(item.buffer(), &info) == GPUIPC_OK && info.lent_count > 0;
}

/* In a forked child there is nothing to wait for. */
bool is_of_the_parent(const lingering &item) {
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    return gpuipc_buffer_get_info(item.buffer(), &info) == GPUIPC_ERR_FORKED;
}

bool is_over(const lingering &item) {
    if (item.held == nullptr && item.handed.tickets.empty()) {
        return true;
    }
    if (is_of_the_parent(item)) {
        return true;
    }
    return item.handed.is_over(item.buffer()) &&
           (item.held == nullptr || (item.shared_until <= clock::now() && !is_lent(item)));
}

/* What it is given in goes here: the buffer, and whose it is. */
void give_up(lingering item) {
    /* What has expired ends by itself, and says so to who comes late. */
    const bool is_open = clock::now() < item.handed.open_until;
    for (size_t i = 0; is_open && i < item.handed.tickets.size(); i++) {
        const gpuipc_ticket &ticket = item.handed.tickets[i];
        /* What a server answers that has ended, or that knows the ticket no more, is what is wanted. */
        const gpuipc_status status = gpuipc_server_revoke(item.of->server_if_any(), &ticket);
        (void)status;
    }
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* Without the lock: giving one up may end a context, and what is looked at may take time.
 * */
void look(all_of_them &self) {
    hand_overs_look_after();
    const std::lock_guard<std::mutex> one_at_a_time(self.look);
    {
        const std::lock_guard<std::mutex> lock(self.mutex);
        self.looked_at.swap(self.items);
    }
    std::vector<lingering> over;
    std::vector<lingering> stay;
    for (lingering &each : self.looked_at) {
        (is_over(each) ? over : stay).push_back(std::move(each));
    }
    for (lingering &each : over) {
        give_up(std::move(each));
    }
    const std::lock_guard<std::mutex> lock(self.mutex);
    self.looked_at.clear();
    for (lingering &each : stay) {
        self.items.push_back(std::move(each));
    }
}

/* With the lock. They are let go of without it. */
template <typename predicate>
std::vector<kept_open> take_kept(all_of_them &self, predicate is_over) {
    std::vector<kept_open> over;
    const auto stay = std::stable_partition(self.kept.begin(), self.kept.end(),
                                            [&](const kept_open &each) { return !is_over(each); });
    std::move(stay, self.kept.end(), std::back_inserter(over));
    self.kept.erase(stay, self.kept.end());
    return over;
}

void close_what_was_kept(all_of_them &self) {
    std::vector<kept_open> over;
    const clock::time_point now = clock::now();
    const std::lock_guard<std::mutex> lock(self.mutex);
    over = take_kept(self, [&](const kept_open &each) { return each.until <= now; });
}

/* With the lock: how long the thread sleeps. */
clock::duration next_pause(const all_of_them &self) {
    clock::duration pause = self.pause;
    const clock::time_point now = clock::now();
    for (const kept_open &each : self.kept) {
        pause =
            std::min(pause, std::max<clock::duration>(each.until - now, clock::duration::zero()));
    }
    return pause;
}

void run(all_of_them *self) {
    clock::time_point busy_at = clock::now();
    for (;;) {
        look(*self);
        close_what_was_kept(*self);
        run_deferred();
        const clock::time_point now = clock::now();
        std::unique_lock<std::mutex> lock(self->mutex);
        if (!self->items.empty() || !self->kept.empty() || hand_overs_count() > 0) {
            busy_at = now;
        }
        if (self->has_ended || now - busy_at >= idle_time) {
            self->is_running = false;
            return;
        }
        self->changed.wait_for(lock, next_pause(*self));
        self->pause = std::min(2 * self->pause, longest_pause);
    }
}

/* Signals are for the threads that Python knows: they end its waits. (Windows has none.) */
std::thread thread_without_signals(all_of_them &self) {
#ifdef SIG_SETMASK
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread made;
    try {
        made = std::thread(run, &self);
    } catch (const std::system_error &) { /* then the next call that makes memory looks */
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return made;
#else
    try {
        return std::thread(run, &self);
    } catch (const std::system_error &) {
        return {};
    }
#endif
}

/* The lock is held. Where there can be no thread, the next call of somebody's looks. */
void start(all_of_them &self) {
    if (self.is_running || self.has_ended) {
        return;
    }
    if (self.thread.joinable()) {
        self.thread.join(); /* it does not take the lock any more */
    }
    self.thread = thread_without_signals(self);
    self.is_running = self.thread.joinable();
}

/* The lock is held. */
void wake(all_of_them &self) {
    const bool sleeps_long = self.pause > 8 * least_pause;
    self.pause = least_pause;
    start(self);
    if (sleeps_long) {
        self.changed.notify_one();
    }
}

void forget_in_child() {
    current() = new all_of_them;
    hand_overs_forget();
    slots_forget();
}

} // namespace

void linger(lingering what) {
    if (is_over(what)) {
        give_up(std::move(what));
        return;
    }
    all_of_them &self = *current();
    const std::lock_guard<std::mutex> lock(self.mutex);
    self.items.push_back(std::move(what));
    wake(self);
}

/* Where there is no thread, it would stay open for ever. (The thread wakes ten times a second by itself.) */
void keep_open(const std::shared_ptr<context> &of, const std::shared_ptr<hold> &what,
               double seconds) {
    all_of_them &self = *current();
    std::vector<kept_open> over;
    const clock::time_point until =
        clock::now() + std::chrono::duration_cast<clock::duration>(
                           std::chrono::duration<double>(std::min(seconds, longest_kept)));
    const std::lock_guard<std::mutex> lock(self.mutex);
    start(self);
    if (!self.is_running) {
        return;
    }
    const auto known = std::find_if(self.kept.begin(), self.kept.end(),
                                    [&](const kept_open &each) { return each.held == what; });
    if (known != self.kept.end()) {
        self.kept.erase(known); /* it is the latest one again */
    } else if (self.kept.size() == kept_at_most) {
        const hold *first = self.kept.front().held.get();
        over = take_kept(self, [&](const kept_open &each) { return each.held.get() == first; });
    }
    self.kept.push_back({of.get(), what, until});
}

void keep_no_more(const context *of) {
    all_of_them &self = *current();
    std::vector<kept_open> over;
    const std::lock_guard<std::mutex> lock(self.mutex);
    over = take_kept(self, [&](const kept_open &each) { return each.of == of; });
}

void lingering_expect() {
    all_of_them &self = *current();
    const std::lock_guard<std::mutex> lock(self.mutex);
    wake(self);
}

void lingering_look() {
    look(*current());
}

size_t lingering_count() {
    all_of_them &self = *current();
    const std::lock_guard<std::mutex> lock(self.mutex);
    return self.items.size() + self.looked_at.size() + hand_overs_count();
}

void lingering_begin() {
    nb::dict hooks;
    hooks["after_in_child"] = nb::cpp_function(forget_in_child);
    nb::module_::import_("os").attr("register_at_fork")(**hooks);
}

void lingering_end() {
    all_of_them &self = *current();
    std::vector<kept_open> over;
    {
        const std::lock_guard<std::mutex> lock(self.mutex);
        self.has_ended = true;
        self.changed.notify_one();
        over = take_kept(self, [](const kept_open &) { return true; });
    }
    if (self.thread.joinable()) {
        self.thread.join();
    }
}

} // namespace binding

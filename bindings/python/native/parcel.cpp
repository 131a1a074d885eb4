/* SPDX-License-Identifier: MIT */
#include "parcel.hpp"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "buffer.hpp"
#include "gpuipc_torch.h"
#include "lingering.hpp"
#include "look.hpp"
#include "pickled.hpp"
#include "stream.hpp"

namespace binding {

/* ---- homes ---------------------------------------------------------------------------------- */

home::~home() {
    (void)gpuipc_buffer_drop(buffer_);
}

gpuipc_ticket home::ticket() const {
    if (core_ != nullptr) {
        return core_->hand_over_ticket();
    }
    gpuipc_ticket ticket;
    gpuipc_server *const known = of_->server_if_any();
    if (known != nullptr && gpuipc_torch_kept_ticket(info_.address, known, &ticket)) {
        return ticket; /* which waits for nothing */
    }
    check(released([&] {
        gpuipc_server *server = nullptr;
        const gpuipc_status status = of_->server(&server);
        return status == GPUIPC_OK ? gpuipc_torch_ticket(info_.address, server, &ticket) : status;
    }));
    return ticket;
}

void home::note_loan(const gpuipc_mark &loan) const {
    if (core_ != nullptr) {
        core_->note_loan(loan);
    }
}

namespace {

/* By address and length: the same memory has the same ticket for as long as it, or anything of it that is out, is there. */
using cores = std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<memory>>;

/* Never destroyed, as everything that the end of the process ends. With the GIL. */
cores &all_cores() {
    static cores &only = *new cores;
    return only;
}

/* So that it does not grow with what is gone. */
void forget_cores() {
    static size_t looked_at = 16;
    if (all_cores().size() < looked_at) {
        return;
    }
    for (auto each = all_cores().begin(); each != all_cores().end();) {
        each = each->second.expired() ? all_cores().erase(each) : std::next(each);
    }
    looked_at = std::max<size_t>(16, 2 * all_cores().size());
}

/* NULL: there is none. What was closed gives out no tickets, although tensors may keep its memory. */
std::shared_ptr<memory> core_of(uint64_t address, uint64_t bytes) {
    const auto found = all_cores().find({address, bytes});
    std::shared_ptr<memory> core = found != all_cores().end() ? found->second.lock() : nullptr;
    return core != nullptr && !core->is_closed() ? core : nullptr;
}

} // namespace

void home_begin(const std::shared_ptr<memory> &made) {
    forget_cores();
    all_cores()[{made->address(), made->bytes()}] = made;
}

namespace {

/* Takes the reference over. */
std::shared_ptr<home> home_of(const std::shared_ptr<context> &of, gpuipc_buffer *taken,
                              bool has_core, gpuipc_stream stream = nullptr) {
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    const gpuipc_status status = gpuipc_buffer_get_info(taken, &info);
    if (status != GPUIPC_OK) {
        (void)gpuipc_buffer_drop(taken);
    }
    check(status);
    std::shared_ptr<memory> core;
    if (has_core) {
        core = core_of(info.address, info.bytes);
        if (core == nullptr) {
            check(gpuipc_buffer_retain(taken));
            core = std::make_shared<memory>(of, taken, info);
            home_begin(core);
        }
    }
    return std::make_shared<home>(of, taken, info, std::move(core), stream);
}

/* The home of memory that gpuipc has made; NULL: it has not made this. */
std::shared_ptr<home> find_known(const std::shared_ptr<context> &of, uint64_t address) {
    check_no_slot(address);
    gpuipc_torch_segment segment;
    if (gpuipc_torch_find(address, &segment) == GPUIPC_OK) {
        return home_of(of, segment.buffer, false, segment.stream);
    }
    gpuipc_buffer *buffer = nullptr;
    uint64_t offset = 0;
    const gpuipc_status status = gpuipc_buffer_find(of->handle(), address, &buffer, &offset);
    if (status == GPUIPC_ERR_NOT_FOUND) {
        return nullptr;
    }
    check(status);
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    (void)(gpuipc_buffer_get_info(buffer, &info) == GPUIPC_OK);
    if (info.origin == GPUIPC_BUFFER_OPENED) {
        (void)gpuipc_buffer_drop(buffer);
        throw nb::value_error(
            "this tensor came from another process, which would not know of a further receiver: "
            "clone() it, or let its owner hand it over");
    }
    return home_of(of, buffer, true);
}

/* Which transports reach another process without a copy. */
constexpr uint32_t shareable = 1u << GPUIPC_TRANSPORT_VMM | 1u << GPUIPC_TRANSPORT_POOL |
                               1u << GPUIPC_TRANSPORT_LEGACY | 1u << GPUIPC_TRANSPORT_FABRIC;

/* All of the allocations that a range lies in, so that its neighbours have the same ticket. */
std::shared_ptr<home> wrap_around(const std::shared_ptr<context> &of, uint64_t address,
                                  uint64_t bytes) {
    gpuipc_pointer_info info = GPUIPC_POINTER_INFO_INIT;
    check(released([&] { return gpuipc_pointer_classify(of->handle(), address, bytes, &info); }));
    if ((info.transports & shareable) == 0) {
        fail(GPUIPC_ERR_NOT_SHAREABLE, "gpuipc_pointer_classify", info.sentence);
    }
    const std::shared_ptr<memory> core = core_of(info.base, info.allocated_bytes);
    gpuipc_buffer *wrapped = nullptr;
    if (core != nullptr) {
        wrapped = core->handle();
        check(gpuipc_buffer_retain(wrapped));
    } else {
        check(released([&] {
            return gpuipc_buffer_wrap(of->handle(), info.base, info.allocated_bytes, &wrapped);
        }));
    }
    return home_of(of, wrapped, true);
}

/* ---- hand-overs that are not given back ------------------------------------------------------ */

struct hand_over {
    std::vector<gpuipc_mark> loans;
    homes of;
    std::shared_ptr<owner> kept;
    std::chrono::steady_clock::time_point open_until;
    std::shared_ptr<process> to; /* NULL: any */
};

struct outstanding {
    std::mutex mutex;
    std::list<hand_over> items;
};

/* Never destroyed; a forked child has one of its own, in which nothing is out. */
outstanding *&current_outstanding() {
    static outstanding *only = new outstanding;
    return only;
}

bool are_over(gpuipc_buffer *any, const std::vector<gpuipc_mark> &loans) {
    std::vector<gpuipc_loan_state> states(loans.size());
    return gpuipc_buffer_get_loan_states(any, loans.data(), loans.size(), states.data()) ==
               GPUIPC_OK &&
           std::all_of(states.begin(), states.end(),
                       [](gpuipc_loan_state state) { return state == GPUIPC_LOAN_OVER; });
}

void take_back(const hand_over &of) {
    for (size_t i = 0; i < of.loans.size(); i++) { /* those that were taken stay out */
        const gpuipc_status status = gpuipc_buffer_cancel_loan(of.of[i]->buffer(), &of.loans[i]);
        (void)status;
    }
}

bool is_over(const hand_over &item, std::chrono::steady_clock::time_point now) {
    if (now >= item.open_until || (item.to != nullptr && item.to->has_ended())) {
        take_back(item);
    }
    return are_over(item.of.front()->buffer(), item.loans);
}

} // namespace

void hand_overs_look_after() {
    outstanding &all = *current_outstanding();
    std::list<hand_over> over; /* let go of without the lock */
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (auto each = all.items.begin(); each != all.items.end();) {
        const auto next = std::next(each);
        if (is_over(*each, now)) {
            over.splice(over.end(), all.items, each);
        }
        each = next;
    }
}

size_t hand_overs_count() {
    const std::lock_guard<std::mutex> lock(current_outstanding()->mutex);
    return current_outstanding()->items.size();
}

void hand_overs_forget() {
    current_outstanding() = new outstanding;
}

std::shared_ptr<owner> hand_over_end(const gpuipc_mark &loan) {
    outstanding &all = *current_outstanding();
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (hand_over &each : all.items) {
        for (size_t i = 0; i < each.loans.size(); i++) {
            if (memcmp(each.loans[i].bytes, loan.bytes, sizeof(loan.bytes)) == 0) {
                gpuipc_loan_state state = GPUIPC_LOAN_OVER;
                check(gpuipc_buffer_get_loan_states(each.of[i]->buffer(), &loan, 1, &state));
                if (state != GPUIPC_LOAN_LENT) {
                    return nullptr;
                }
                check(gpuipc_buffer_cancel_loan(each.of[i]->buffer(), &loan));
                return each.kept; /* the rest of it is over when all of its loans are */
            }
        }
    }
    return nullptr;
}

bool hand_over_cancel(const std::vector<gpuipc_mark> &loans) {
    outstanding &all = *current_outstanding();
    bool is_taken = false;
    {
        const std::lock_guard<std::mutex> lock(all.mutex);
        for (const hand_over &each : all.items) {
            if (each.loans.size() == loans.size() &&
                memcmp(each.loans.data(), loans.data(), loans.size() * sizeof(gpuipc_mark)) == 0) {
                take_back(each);
                is_taken = !are_over(each.of.front()->buffer(), each.loans);
            }
        }
    }
    hand_overs_look_after();
    return !is_taken;
}

/* ---- a parcel -------------------------------------------------------------------------------- */

namespace {

double room_seconds() {
    return nb::cast<double>(nb::module_::import_("gpuipc.config").attr("room_seconds"));
}

/* Where as many loans are out as there may be, receivers are behind: who hands over waits for them, for a time. */
gpuipc_status await_room(const home &of, gpuipc_stream stream, gpuipc_mark &out_loan) {
    gpuipc_status status = GPUIPC_ERR_LIMIT;
    const patience time(room_seconds());
    for (int left = 1; status == GPUIPC_ERR_LIMIT && left > 0; left = time.left()) {
        run_signal_handlers();
        status = released([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            hand_overs_look_after();
            return gpuipc_buffer_lend(of.buffer(), stream, &out_loan);
        });
    }
    return status;
}

gpuipc_status lend(const home &of, gpuipc_stream stream, gpuipc_mark &out_loan) {
    const gpuipc_status status =
        released([&] { return gpuipc_buffer_lend(of.buffer(), stream, &out_loan); });
    return status == GPUIPC_ERR_LIMIT ? await_room(of, stream, out_loan) : status;
}

nb::object bytes_of(const uint8_t *bytes, size_t size) {
    return nb::bytes(reinterpret_cast<const char *>(bytes), size);
}

} // namespace

parcel::parcel(const nb::list &tensors, nb::object kept, bool wraps, const exchange *by)
    : kept_(owner_of(std::move(kept))) {
    const std::shared_ptr<context> of = context_from(nb::none());
    said_.parts.reserve(nb::len(tensors));
    for (nb::handle each : tensors) {
        add(of, each, wraps, by);
    }
    find_commons();
    written_ = said_.written();
}

parcel::parcel(nb::handle tensor, nb::object kept, const exchange *by)
    : kept_(owner_of(std::move(kept))) {
    add(context_from(nb::none()), tensor, false, by);
    written_ = said_.written();
}

std::vector<uint32_t> parcel::devices() const {
    std::vector<uint32_t> numbers;
    for (const auto &each : of_) {
        numbers.push_back(each->is_on_host() ? GPUIPC_DEVICE_NONE : each->device());
    }
    return numbers;
}

std::vector<uintptr_t> parcel::streams() const {
    std::vector<uintptr_t> handles;
    for (const auto &each : of_) {
        handles.push_back(reinterpret_cast<uintptr_t>(each->stream()));
    }
    return handles;
}

nb::tuple parcel::hand_over(const std::vector<uintptr_t> &streams, double open_seconds,
                            std::shared_ptr<process> to) {
    nb::list list;
    binding::hand_over made;
    made.to = std::move(to);
    made.of = of_;
    made.kept = kept_;
    made.open_until = std::chrono::steady_clock::now() +
                      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                          std::chrono::duration<double>(open_seconds));
    made.loans.reserve(of_.size());
    try {
        for (size_t i = 0; i < of_.size(); i++) {
            const gpuipc_ticket ticket = of_[i]->ticket();
            gpuipc_mark loan;
            check(lend(*of_[i], stream_of_handle(streams.at(i)), loan));
            made.loans.push_back(loan);
            of_[i]->note_loan(loan);
            list.append(packed(bytes_of(ticket.bytes, sizeof(ticket.bytes)),
                               bytes_of(loan.bytes, sizeof(loan.bytes))));
        }
    } catch (...) {
        take_back(made); /* nobody gets them */
        throw;
    }
    note_loans(made.loans);
    if (!made.loans.empty()) {
        {
            const std::lock_guard<std::mutex> lock(current_outstanding()->mutex);
            current_outstanding()->items.push_back(std::move(made));
        }
        lingering_expect();
    }
    return nb::tuple(list);
}

void parcel::note_loans(const std::vector<gpuipc_mark> &made) {
    if (loans_.size() >= look_at_) {
        forget_those_over();
        constexpr size_t least = 16;
        look_at_ = std::max(least, 2 * loans_.size()); /* so that the looks at each stay few */
    }
    loans_.insert(loans_.end(), made.begin(), made.end());
}

size_t parcel::lent() {
    forget_those_over();
    return loans_.size();
}

void parcel::cancel_lent() {
    for (const gpuipc_mark &each : loans_) { /* those that were taken stay out */
        const gpuipc_status status = gpuipc_buffer_cancel_loan(of_.front()->buffer(), &each);
        if (status == GPUIPC_ERR_FORKED) {
            check(status);
        }
    }
    hand_overs_look_after();
}

void parcel::await_returns(std::optional<double> timeout) {
    const patience time(timeout);
    while (lent() > 0) {
        const gpuipc_mark loan = loans_.front();
        wait(time, [&](int left) {
            return gpuipc_buffer_await_loan(of_.front()->buffer(), &loan, left);
        });
    }
    hand_overs_look_after();
}

void parcel::forget_those_over() {
    if (loans_.empty()) {
        return;
    }
    std::vector<gpuipc_loan_state> states(loans_.size());
    check(gpuipc_buffer_get_loan_states(of_.front()->buffer(), loans_.data(), loans_.size(),
                                        states.data()));
    size_t stay = 0;
    for (size_t i = 0; i < loans_.size(); i++) {
        if (states[i] != GPUIPC_LOAN_OVER) {
            loans_[stay++] = loans_[i];
        }
    }
    loans_.resize(stay);
}

uint32_t parcel::home_with(const std::shared_ptr<context> &of, uint64_t address, uint64_t bytes,
                           bool wraps) {
    if (!of_.empty() && last_ < of_.size() && of_[last_]->holds(address, bytes)) {
        return last_;
    }
    for (uint32_t i = 0; i < of_.size(); i++) {
        if (of_[i]->holds(address, bytes)) {
            return last_ = i;
        }
    }
    std::shared_ptr<home> found = find_known(of, address);
    if (found == nullptr && wraps) {
        found = wrap_around(of, address, bytes);
    }
    if (found == nullptr || !found->holds(address, bytes)) {
        throw nb::key_error("this tensor is not in memory of gpuipc");
    }
    of_.push_back(std::move(found));
    return last_ = static_cast<uint32_t>(of_.size() - 1);
}

void parcel::add(const std::shared_ptr<context> &of, nb::handle tensor, bool wraps,
                 const exchange *by) {
    uint64_t address = 0;
    part made = look_at(by, tensor, address);
    made.common = no_common;
    made.at.bytes = extent_of(made);
    made.at.home = home_with(of, address, made.at.bytes, wraps);
    made.is_in_segment = of_[made.at.home]->is_segment();
    made.at.offset = address - of_[made.at.home]->address();
    said_.parts.push_back(std::move(made));
}

/* Tensors that overlap have their storage in common at home, and so they have where they arrive. */
void parcel::find_commons() {
    std::vector<part *> order;
    for (part &each : said_.parts) {
        order.push_back(&each);
    }
    const auto is_before = [](const part *one, const part *other) {
        return std::tie(one->at.home, one->at.offset) < std::tie(other->at.home, other->at.offset);
    };
    if (!std::is_sorted(order.begin(), order.end(), is_before)) {
        std::sort(order.begin(), order.end(), is_before);
    }
    for (size_t first = 0; first < order.size();) {
        place common = order[first]->at;
        /* From where elements of every type have a whole number: storages are aligned so at home, too. */
        common.bytes += common.offset % 16;
        common.offset -= common.offset % 16;
        size_t end = first + 1;
        while (end < order.size() && order[end]->at.home == common.home &&
               order[end]->at.offset < common.offset + common.bytes) {
            const uint64_t reach = order[end]->at.offset + order[end]->at.bytes;
            common.bytes = std::max(common.bytes, reach - common.offset);
            end++;
        }
        for (size_t i = first; end - first > 1 && i < end; i++) {
            order[i]->common = static_cast<uint32_t>(said_.commons.size());
        }
        if (end - first > 1) {
            said_.commons.push_back(common);
        }
        first = end;
    }
}

gpuipc_mark mark_from(const nb::bytes &bytes) {
    gpuipc_mark mark;
    if (bytes.size() != sizeof(mark.bytes)) {
        throw nb::value_error("a loan has 16 bytes");
    }
    memcpy(mark.bytes, bytes.data(), sizeof(mark.bytes));
    return mark;
}

namespace {

/* ---- the allocator --------------------------------------------------------------------------- */

void configure(uint32_t kind, const std::vector<nb::bytes> &openers,
               const std::vector<uint32_t> &access_devices) {
    std::vector<gpuipc_uuid> uuids;
    for (const nb::bytes &each : openers) {
        gpuipc_uuid uuid;
        if (each.size() != sizeof(uuid.bytes)) {
            throw nb::value_error("the UUID of a device has 16 bytes");
        }
        memcpy(uuid.bytes, each.data(), sizeof(uuid.bytes));
        uuids.push_back(uuid);
    }
    const gpuipc_status status = gpuipc_torch_configure(
        kind, context_from(nb::none())->handle(), uuids.data(), static_cast<uint32_t>(uuids.size()),
        access_devices.data(), static_cast<uint32_t>(access_devices.size()));
    if (status != GPUIPC_OK) {
        fail(status, "gpuipc_torch_configure", gpuipc_status_message(status));
    }
}

[[noreturn]] void refuse(const std::string &sentence) {
    fail(GPUIPC_ERR_NOT_SHAREABLE, "gpuipc.torch", sentence.c_str());
}

/* Kind, transports, number of allocations, where they begin, their bytes, what is to be said. */
nb::tuple pointer_info(uint64_t address, uint64_t bytes) {
    const std::shared_ptr<context> of = context_from(nb::none());
    gpuipc_pointer_info info = GPUIPC_POINTER_INFO_INIT;
    check(released([&] { return gpuipc_pointer_classify(of->handle(), address, bytes, &info); }));
    nb::list transports;
    for (int i = 1; i <= GPUIPC_TRANSPORT_COUNT; i++) {
        if ((info.transports & 1u << i) != 0) {
            transports.append(gpuipc_transport_name(static_cast<gpuipc_transport>(i)));
        }
    }
    return nb::make_tuple(gpuipc_memory_kind_name(info.kind), transports, info.allocation_count,
                          info.base, info.allocated_bytes, nb::str(info.sentence));
}

std::string last_failure() {
    char text[512];
    gpuipc_torch_failure(text, sizeof(text));
    return text;
}

} // namespace

bool is_known(uint64_t address) {
    if (gpuipc_torch_is_known(address)) {
        return true;
    }
    const std::shared_ptr<context> of = context_if_any();
    gpuipc_buffer *buffer = nullptr;
    uint64_t offset = 0;
    if (of == nullptr || gpuipc_buffer_find(of->handle(), address, &buffer, &offset) != GPUIPC_OK) {
        return false;
    }
    (void)gpuipc_buffer_drop(buffer);
    return true;
}

void bind_parcel(nb::module_ &m) {
    bound_class<parcel>(m, "Parcel", "Tensors of PyTorch, to be handed over together.")
        .def(
            "__init__",
            [](parcel *self, const nb::list &tensors, nb::object kept, bool wraps,
               nb::handle capsule) {
                new (self) parcel(tensors, std::move(kept), wraps, exchange_from(capsule));
            },
            nb::arg("tensors"), nb::arg("kept").none(), nb::arg("wraps"),
            nb::arg("exchange") = nb::none(),
            nb::sig(
                "def __init__(self, tensors: list[typing.Any], kept: object, wraps: bool, exchange: object | "
                "None = None) -> None"))
        .def_prop_ro("streams", &parcel::streams)
        .def_prop_ro("contents", &parcel::contents)
        .def_prop_ro("segments", &parcel::segments)
        .def_prop_ro("devices", &parcel::devices)
        .def_prop_ro("lent", &parcel::lent)
        .def(
            "hand_over",
            [](parcel &self, const std::vector<uintptr_t> &streams, double open_seconds,
               nb::handle to) { return self.hand_over(streams, open_seconds, process_from(to)); },
            nb::arg("streams"), nb::arg("open_seconds"), nb::arg("to") = nb::none(),
            nb::sig(
                "def hand_over(self, streams: collections.abc.Sequence[int], open_seconds: float, to: int | None = "
                "None) -> tuple[tuple[bytes, bytes], ...]"))
        .def("cancel_lent", &parcel::cancel_lent)
        .def("await_returns", &parcel::await_returns, nb::arg("timeout").none());
    define(
        m, "cancel_hand_over",
        [](const std::vector<nb::bytes> &loans) {
            std::vector<gpuipc_mark> marks;
            for (const nb::bytes &each : loans) {
                marks.push_back(mark_from(each));
            }
            return hand_over_cancel(marks);
        },
        nb::arg("loans"),
        nb::sig("def cancel_hand_over(loans: collections.abc.Sequence[bytes]) -> bool"),
        "Takes a hand-over back that no receiver has taken. False: one has.");
    define(m, "torch_configure", configure, nb::arg("kind"), nb::arg("openers"),
           nb::arg("access_devices"));
    define(m, "torch_refuse", refuse, nb::arg("sentence"),
           nb::sig("def torch_refuse(sentence: str) -> typing.NoReturn"));
    define(
        m, "pointer_info", pointer_info, nb::arg("address"), nb::arg("bytes"),
        nb::sig(
            "def pointer_info(address: int, bytes: int) -> tuple[str, list[str], int, int, int, str]"));
    define(m, "torch_failure", last_failure);
    define(m, "torch_is_known", is_known, nb::arg("address"));
    m.attr("torch_kinds") = GPUIPC_TORCH_KINDS;
}

} // namespace binding

/* SPDX-License-Identifier: MIT */
#include "parcel.hpp"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "buffer.hpp"
#include "gpuipc_torch.h"
#include "lingering.hpp"
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
    if (now >= item.open_until) {
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

/* ---- what a parcel says ---------------------------------------------------------------------- */

namespace {

constexpr uint32_t contents_version = 1;

/* With the number of dimensions: what of a tensor is written besides. Strides are where it is not compact. */
constexpr uint32_t with_strides = 1u << 31;
constexpr uint32_t with_common = 1u << 30;

template <typename number_type> void append(std::string &bytes, number_type number) {
    bytes.append(reinterpret_cast<const char *>(&number), sizeof(number));
}

template <typename number_type> number_type next(const std::string &bytes, size_t &at) {
    number_type number;
    if (bytes.size() - at < sizeof(number)) {
        throw nb::value_error("what is said of the tensors ends too early");
    }
    memcpy(&number, bytes.data() + at, sizeof(number));
    at += sizeof(number);
    return number;
}

void append_place(std::string &bytes, const place &at) {
    append(bytes, at.home);
    append(bytes, at.offset);
    append(bytes, at.bytes);
}

place next_place(const std::string &bytes, size_t &at) {
    place read;
    read.home = next<uint32_t>(bytes, at);
    read.offset = next<uint64_t>(bytes, at);
    read.bytes = next<uint64_t>(bytes, at);
    return read;
}

/* How many bytes there are from the first element to the last. Throws ValueError for numbers that nobody would write. */
uint64_t extent_of(const part &of) {
    const auto bytes = static_cast<int64_t>(element_from_packed(of.type).bytes());
    int64_t last = 0;
    for (size_t i = 0; i < of.shape.size(); i++) {
        int64_t reach;
        if (of.shape[i] <= 0 || of.strides[i] < 0 ||
            __builtin_mul_overflow(of.shape[i] - 1, of.strides[i], &reach) ||
            __builtin_add_overflow(last, reach, &last)) {
            throw nb::value_error("a tensor has numbers of elements and strides that cannot be");
        }
    }
    int64_t all;
    if (__builtin_add_overflow(last, int64_t{1}, &last) ||
        __builtin_mul_overflow(last, bytes, &all)) {
        throw nb::value_error("a tensor has more bytes than there can be");
    }
    return static_cast<uint64_t>(all);
}

std::vector<int64_t> compact_strides(const std::vector<int64_t> &shape) {
    std::vector<int64_t> strides(shape.size());
    int64_t step = 1;
    for (size_t i = shape.size(); i > 0; i--) {
        strides[i - 1] = step;
        if (__builtin_mul_overflow(step, shape[i - 1], &step)) {
            throw nb::value_error("a tensor has more bytes than there can be");
        }
    }
    return strides;
}

std::vector<int64_t> next_numbers(const std::string &bytes, size_t &at, uint32_t count) {
    if (count > (bytes.size() - at) / sizeof(int64_t)) {
        throw nb::value_error("what is said of the tensors ends too early");
    }
    std::vector<int64_t> numbers(count);
    if (count > 0) {
        memcpy(numbers.data(), bytes.data() + at, count * sizeof(int64_t));
    }
    at += count * sizeof(int64_t);
    return numbers;
}

void append_part(std::string &bytes, const part &said) {
    const bool is_compact = said.strides == compact_strides(said.shape);
    append(bytes, static_cast<uint32_t>(said.shape.size()) | (is_compact ? 0 : with_strides) |
                      (said.common == no_common ? 0 : with_common));
    append(bytes, said.type);
    append(bytes, said.at.home);
    append(bytes, said.at.offset);
    if (said.common != no_common) {
        append(bytes, said.common);
    }
    bytes.append(reinterpret_cast<const char *>(said.shape.data()),
                 said.shape.size() * sizeof(int64_t));
    if (!is_compact) {
        bytes.append(reinterpret_cast<const char *>(said.strides.data()),
                     said.strides.size() * sizeof(int64_t));
    }
}

part next_part(const std::string &bytes, size_t &at) {
    part read;
    const uint32_t head = next<uint32_t>(bytes, at);
    const uint32_t dimensions = head & ~(with_strides | with_common);
    read.type = next<uint32_t>(bytes, at);
    read.at.home = next<uint32_t>(bytes, at);
    read.at.offset = next<uint64_t>(bytes, at);
    read.common = (head & with_common) != 0 ? next<uint32_t>(bytes, at) : no_common;
    read.shape = next_numbers(bytes, at, dimensions);
    read.strides = (head & with_strides) != 0 ? next_numbers(bytes, at, dimensions)
                                              : compact_strides(read.shape);
    read.at.bytes = extent_of(read);
    return read;
}

void check_common(const contents &of, const part &with) {
    if (with.common == no_common) {
        return;
    }
    if (with.common >= of.commons.size()) {
        throw nb::value_error("a tensor shares memory that there is not");
    }
    const place &common = of.commons[with.common];
    if (with.at.home != common.home || with.at.offset < common.offset ||
        with.at.offset - common.offset > common.bytes ||
        with.at.bytes > common.bytes - (with.at.offset - common.offset)) {
        throw nb::value_error("a tensor does not lie in the memory that it shares");
    }
}

} // namespace

std::string contents::written() const {
    std::string bytes;
    bytes.reserve(64 + parts.size() * 48);
    append(bytes, contents_version);
    append(bytes, static_cast<uint32_t>(commons.size()));
    append(bytes, static_cast<uint32_t>(parts.size()));
    for (const place &each : commons) {
        append_place(bytes, each);
    }
    for (const part &each : parts) {
        append_part(bytes, each);
    }
    return bytes;
}

contents contents_read(const std::string &bytes) {
    size_t at = 0;
    contents read;
    if (next<uint32_t>(bytes, at) != contents_version) {
        throw nb::value_error("another version of gpuipc has written what is said of the tensors");
    }
    const uint32_t commons = next<uint32_t>(bytes, at);
    const uint32_t parts = next<uint32_t>(bytes, at);
    for (uint32_t i = 0; i < commons; i++) {
        read.commons.push_back(next_place(bytes, at));
    }
    for (uint32_t i = 0; i < parts; i++) {
        read.parts.push_back(next_part(bytes, at));
        check_common(read, read.parts.back());
    }
    return read;
}

const exchange *exchange_from(nb::handle capsule) {
    constexpr char name[] = "dlpack_exchange_api";
    if (PyCapsule_IsValid(capsule.ptr(), name) == 0) {
        return nullptr;
    }
    auto *table = static_cast<const exchange *>(PyCapsule_GetPointer(capsule.ptr(), name));
    while (table != nullptr && table->major > 1) {
        table = table->previous;
    }
    return table != nullptr && table->major == 1 && table->look != nullptr ? table : nullptr;
}

/* ---- a parcel -------------------------------------------------------------------------------- */

namespace {

/* The types of PyTorch, each the one object of its name. */
uint32_t type_of(nb::handle dtype) {
    static std::unordered_map<PyObject *, uint32_t> &known =
        *new std::unordered_map<PyObject *, uint32_t>;
    const auto found = known.find(dtype.ptr());
    if (found != known.end()) {
        return found->second;
    }
    const uint32_t type = element_from(dtype).packed();
    dtype.inc_ref(); /* so that no other object gets its address */
    known[dtype.ptr()] = type;
    return type;
}

/* The names that each tensor is asked for, made once. */
struct names {
    nb::object dtype{nb::str("dtype")};
    nb::object shape{nb::str("shape")};
    nb::object stride{nb::str("stride")};
    nb::object data_ptr{nb::str("data_ptr")};
};

const names &names_of_all() {
    static const names &only = *new names;
    return only;
}

nb::object answer_of(nb::handle tensor, const nb::object &method) {
    nb::object answer = nb::steal(PyObject_CallMethodObjArgs(tensor.ptr(), method.ptr(), nullptr));
    if (!answer.is_valid()) {
        throw nb::python_error();
    }
    return answer;
}

bool is_of_gpuipc(int32_t device_type) {
    return device_type == GPUIPC_DLPACK_CUDA || device_type == GPUIPC_DLPACK_CPU;
}

void numbers_of(nb::handle tuple, std::vector<int64_t> &out_numbers) {
    const Py_ssize_t count = PyTuple_Size(tuple.ptr());
    if (count < 0) {
        throw nb::python_error();
    }
    out_numbers.resize(static_cast<size_t>(count));
    for (Py_ssize_t i = 0; i < count; i++) {
        out_numbers[static_cast<size_t>(i)] =
            PyLong_AsLongLong(PyTuple_GetItem(tuple.ptr(), i)); /* torch's own numbers */
    }
}

double room_seconds() {
    return nb::cast<double>(nb::module_::import_("gpuipc.config").attr("room_seconds"));
}

class parcel {
  public:
    parcel(const nb::list &tensors, nb::object kept, bool wraps, nb::handle capsule)
        : kept_(owner_of(std::move(kept))) {
        const std::shared_ptr<context> of = context_from(nb::none());
        const exchange *asks = exchange_from(capsule);
        said_.parts.reserve(nb::len(tensors));
        for (nb::handle each : tensors) {
            uint64_t address = 0;
            part found = asks != nullptr ? looked_at(*asks, each, address) : asked(each, address);
            add(of, std::move(found), address, wraps);
        }
        find_commons();
        written_ = said_.written();
    }
    parcel(const parcel &) = delete;
    parcel &operator=(const parcel &) = delete;

    nb::bytes contents() const {
        return nb::bytes(written_.data(), written_.size());
    }
    size_t segments() const {
        return of_.size();
    }
    std::vector<uint32_t> devices() const {
        std::vector<uint32_t> numbers;
        for (const auto &each : of_) {
            numbers.push_back(each->is_on_host() ? GPUIPC_DEVICE_NONE : each->device());
        }
        return numbers;
    }

    std::vector<uintptr_t> streams() const {
        std::vector<uintptr_t> handles;
        for (const auto &each : of_) {
            handles.push_back(reinterpret_cast<uintptr_t>(each->stream()));
        }
        return handles;
    }

    /* Everything in it to one receiver: a ticket and a loan for each home, made on these streams. */
    nb::tuple hand_over(const std::vector<uintptr_t> &streams, double open_seconds) {
        nb::list list;
        binding::hand_over made;
        made.of = of_;
        made.kept = kept_;
        made.open_until = std::chrono::steady_clock::now() +
                          std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                              std::chrono::duration<double>(open_seconds));
        made.loans.reserve(of_.size());
        for (size_t i = 0; i < of_.size(); i++) {
            const gpuipc_ticket ticket = of_[i]->ticket();
            gpuipc_mark loan;
            const gpuipc_status status = lend(*of_[i], stream_of_handle(streams.at(i)), loan);
            if (status != GPUIPC_OK) {
                take_back(made);
            }
            check(status);
            made.loans.push_back(loan);
            of_[i]->note_loan(loan);
            list.append(nb::make_tuple(nb::bytes(ticket.bytes, sizeof(ticket.bytes)),
                                       nb::bytes(loan.bytes, sizeof(loan.bytes))));
        }
        if (loans_.size() >= look_at_) {
            forget_those_over();
            constexpr size_t least = 16;
            look_at_ = std::max(least, 2 * loans_.size()); /* so that the looks at each stay few */
        }
        loans_.insert(loans_.end(), made.loans.begin(), made.loans.end());
        if (!made.loans.empty()) {
            {
                const std::lock_guard<std::mutex> lock(current_outstanding()->mutex);
                current_outstanding()->items.push_back(std::move(made));
            }
            lingering_expect();
        }
        return nb::tuple(list);
    }

    /* How many loans of it are out. */
    size_t lent() {
        forget_those_over();
        return loans_.size();
    }

    void await_returns(std::optional<double> timeout) {
        const patience time(timeout);
        while (lent() > 0) {
            const gpuipc_mark loan = loans_.front();
            wait(time, [&](int left) {
                return gpuipc_buffer_await_loan(of_.front()->buffer(), &loan, left);
            });
        }
        hand_overs_look_after();
    }

  private:
    /* Where as many loans are out as there may be, receivers are behind: who hands over waits for them, for a time. */
    static gpuipc_status lend(const home &of, gpuipc_stream stream, gpuipc_mark &out_loan) {
        const auto call = [&] { return gpuipc_buffer_lend(of.buffer(), stream, &out_loan); };
        gpuipc_status status = released(call);
        const patience time(status == GPUIPC_ERR_LIMIT ? room_seconds() : 0);
        for (int left = 1; status == GPUIPC_ERR_LIMIT && left > 0; left = time.left()) {
            run_signal_handlers();
            status = released([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
                hand_overs_look_after();
                return call();
            });
        }
        return status;
    }

    void forget_those_over() {
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

    uint32_t home_with(const std::shared_ptr<context> &of, uint64_t address, uint64_t bytes,
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

    static part looked_at(const exchange &by, nb::handle tensor, uint64_t &out_address) {
        gpuipc_dlpack_tensor seen;
        if (by.look(tensor.ptr(), &seen) != 0) {
            throw nb::python_error();
        }
        if (!is_of_gpuipc(seen.device_type)) {
            throw nb::type_error("this is no memory of CUDA");
        }
        part made;
        made.type = element_from_packed(
                        GPUIPC_ELEMENT_TYPE(seen.type_kind, seen.type_bits, seen.type_lanes))
                        .packed();
        made.shape.assign(seen.shape, seen.shape + seen.dimensions);
        made.strides.assign(seen.strides, seen.strides + seen.dimensions);
        out_address = reinterpret_cast<uintptr_t>(seen.data) + seen.byte_offset;
        return made;
    }

    static part asked(nb::handle tensor, uint64_t &out_address) {
        part made;
        made.type = type_of(nb::object(tensor.attr(names_of_all().dtype)));
        numbers_of(nb::object(tensor.attr(names_of_all().shape)), made.shape);
        numbers_of(answer_of(tensor, names_of_all().stride), made.strides);
        out_address = nb::cast<uint64_t>(answer_of(tensor, names_of_all().data_ptr));
        return made;
    }

    void add(const std::shared_ptr<context> &of, part made, uint64_t address, bool wraps) {
        made.common = no_common;
        made.at.bytes = extent_of(made);
        made.at.home = home_with(of, address, made.at.bytes, wraps);
        made.at.offset = address - of_[made.at.home]->address();
        said_.parts.push_back(std::move(made));
    }

    /* Tensors that overlap have their storage in common at home, and so they have where they arrive. */
    void find_commons() {
        std::vector<part *> order;
        for (part &each : said_.parts) {
            order.push_back(&each);
        }
        const auto is_before = [](const part *one, const part *other) {
            return std::tie(one->at.home, one->at.offset) <
                   std::tie(other->at.home, other->at.offset);
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

    std::shared_ptr<owner> kept_;
    homes of_;
    uint32_t last_ = 0;
    binding::contents said_;
    std::string written_;
    std::vector<gpuipc_mark> loans_;
    size_t look_at_ = 16; /* when there are so many loans, those that are over are forgotten */
};

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

bool is_known(uint64_t address) {
    gpuipc_torch_segment segment;
    if (gpuipc_torch_find(address, &segment) == GPUIPC_OK) {
        (void)gpuipc_buffer_drop(segment.buffer);
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

} // namespace

void bind_parcel(nb::module_ &m) {
    bound_class<parcel>(m, "Parcel", "Tensors of PyTorch, to be handed over together.")
        .def(
            nb::init<const nb::list &, nb::object, bool, nb::handle>(), nb::arg("tensors"),
            nb::arg("kept").none(), nb::arg("wraps"), nb::arg("exchange") = nb::none(),
            nb::sig(
                "def __init__(self, tensors: list[typing.Any], kept: object, wraps: bool, exchange: object | "
                "None = None) -> None"))
        .def_prop_ro("streams", &parcel::streams)
        .def_prop_ro("contents", &parcel::contents)
        .def_prop_ro("segments", &parcel::segments)
        .def_prop_ro("devices", &parcel::devices)
        .def_prop_ro("lent", &parcel::lent)
        .def(
            "hand_over", &parcel::hand_over, nb::arg("streams"), nb::arg("open_seconds"),
            nb::sig(
                "def hand_over(self, streams: collections.abc.Sequence[int], open_seconds: float) -> "
                "tuple[tuple[bytes, bytes], ...]"))
        .def("await_returns", &parcel::await_returns, nb::arg("timeout").none());
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

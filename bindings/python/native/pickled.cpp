/* SPDX-License-Identifier: MIT */
#include "pickled.hpp"

#include <cstring>
#include <unordered_map>

#include "asked.hpp"
#include "buffer.hpp"
#include "open.hpp"
#include "stream.hpp"

namespace binding {

namespace {

/* ---- the bytes ------------------------------------------------------------------------------ */

/* All numbers with the low byte first, as on all machines that there are drivers for. No part needs padding. */
struct pickled_head {
    uint16_t version;
    uint16_t memories;
    uint32_t arrays;
};
struct pickled_memory {
    uint8_t ticket[sizeof(gpuipc_ticket::bytes)];
    uint8_t mark[sizeof(gpuipc_mark::bytes)]; /* all 0: the contents were there */
};
/* Then its shape; and its strides, where it is not compact. */
struct pickled_array {
    uint16_t memory; /* which of them */
    uint8_t dimensions;
    uint8_t has_strides;
    uint32_t type; /* GPUIPC_ELEMENT_TYPE */
    uint64_t offset;
};
static_assert(sizeof(pickled_head) == 8 && sizeof(pickled_memory) == 80 &&
              sizeof(pickled_array) == 16);

constexpr uint16_t version = 1;
constexpr gpuipc_mark no_mark = {};

/* ---- writing -------------------------------------------------------------------------------- */

/* What one Array takes. */
size_t size_of(const layout &form) {
    return sizeof(pickled_array) + sizeof(int64_t) * form.dimensions * (form.is_compact() ? 1 : 2);
}

char *put(char *at, const void *bytes, size_t size) {
    memcpy(at, bytes, size);
    return at + size;
}

char *put_array(char *at, const layout &form, size_t memory) {
    const bool is_compact = form.is_compact();
    const size_t numbers = sizeof(int64_t) * form.dimensions;
    const pickled_array head = {
        static_cast<uint16_t>(memory), static_cast<uint8_t>(form.dimensions),
        is_compact ? uint8_t{0} : uint8_t{1}, form.type.packed(), form.offset};
    at = put(at, &head, sizeof(head));
    at = put(at, form.shape.data(), numbers);
    return is_compact ? at : put(at, form.strides.data(), numbers);
}

/* Waits for what the default stream was given. */
void await_default_stream(const memory &core) {
    uint8_t byte;
    check(released([&] { return gpuipc_buffer_read(core.handle(), 0, &byte, 1); }));
}

gpuipc_mark mark_of(memory &core, gpuipc_stream stream) {
    const std::optional<gpuipc_mark> mark = core.hand_over_mark(stream);
    if (mark) {
        return *mark;
    }
    if (stream == GPUIPC_NO_STREAM) {
        return no_mark;
    }
    if (stream != nullptr && reinterpret_cast<uintptr_t>(stream) != legacy_stream) {
        throw nb::value_error(
            "nobody could wait here for a stream of yours: what was opened is passed on when the default stream "
            "has done its work; let that wait for yours, and name none");
    }
    await_default_stream(core);
    return no_mark;
}

char *put_memory(char *at, memory &core, gpuipc_stream stream) {
    core.check_open();
    core.ready_here(patience(std::nullopt));
    const gpuipc_ticket ticket = core.hand_over_ticket();
    const gpuipc_mark mark = mark_of(core, stream);
    at = put(at, ticket.bytes, sizeof(ticket.bytes));
    return put(at, mark.bytes, sizeof(mark.bytes));
}

nb::object room(size_t size, char *&out_bytes) {
    nb::object bytes = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
    if (!bytes.is_valid()) {
        throw nb::python_error();
    }
    out_bytes = PyBytes_AsString(bytes.ptr());
    return bytes;
}

/* Pickle finds functions of Python only, and those by their names. */
nb::handle rebuild_function() {
    static const nb::handle only =
        nb::object(nb::module_::import_("gpuipc").attr("_rebuild")).release(); /* for ever */
    return only;
}

nb::object reduce(const array_object &self) {
    self.check_for_others();
    constexpr pickled_head head = {version, 1, 1};
    char *at;
    nb::object bytes = room(sizeof(head) + sizeof(pickled_memory) + size_of(self.form), at);
    at = put(at, &head, sizeof(head));
    at = put_memory(at, *self.core, self.stream);
    (void)put_array(at, self.form, 0);
    return packed(rebuild_function(), packed(bytes));
}

/* ---- several in one -------------------------------------------------------------------------- */

struct packing {
    std::vector<const array_object *> arrays;
    std::vector<size_t> places; /* of each one's memory */
    std::vector<memory *> memories;
    size_t bytes = sizeof(pickled_head);

    void add(const array_object &array) {
        array.check_for_others();
        const size_t place = place_of(array.core.get());
        arrays.push_back(&array);
        places.push_back(place);
        bytes += size_of(array.form);
    }

  private:
    std::unordered_map<memory *, size_t> known_;

    size_t place_of(memory *core) {
        const auto [found, is_new] = known_.emplace(core, memories.size());
        if (is_new) {
            memories.push_back(core);
            bytes += sizeof(pickled_memory);
        }
        return found->second;
    }
};

nb::object pack(nb::handle arrays, nb::handle stream) {
    const gpuipc_stream on = stream_or_none_from(stream);
    const nb::list kept = list_of(arrays); /* while the GIL is released */
    packing all;
    for (nb::handle each : kept) {
        all.add(nb::cast<const array_object &>(each));
    }
    if (all.memories.size() > UINT16_MAX) {
        throw nb::value_error("arrays of more than 65,535 allocations are not handed over in one");
    }
    const pickled_head head = {version, static_cast<uint16_t>(all.memories.size()),
                               static_cast<uint32_t>(all.arrays.size())};
    char *at;
    nb::object bytes = room(all.bytes, at);
    at = put(at, &head, sizeof(head));
    for (memory *each : all.memories) {
        at = put_memory(at, *each, on);
    }
    for (size_t i = 0; i < all.arrays.size(); i++) {
        at = put_array(at, all.arrays[i]->form, all.places[i]);
    }
    return bytes;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* A process does not wait for its own marks: its default stream does here, and nobody else is to have the loan. What another
 * process has taken stays out. */
void take(memory &core, const gpuipc_mark &mark) {
    if (memcmp(&mark, &no_mark, sizeof(mark)) == 0) {
        return;
    }
    if (core.is_of_this_process()) {
        await_default_stream(core);
        const gpuipc_status status = gpuipc_buffer_cancel_loan(core.handle(), &mark);
        (void)status;
    } else if (core.take(mark) == GPUIPC_ERR_INVALID_ARGUMENT) {
        core.set_mark(mark); /* it is not counted */
    }                        /* released: the pickle was read before, so its contents were there */
}

class reader {
  public:
    explicit reader(const nb::bytes &bytes) : at_(bytes.c_str()), left_(bytes.size()) {
    }
    template <typename part> part next() {
        part read;
        copy(&read, sizeof(read));
        return read;
    }
    numbers next_numbers(uint32_t count) {
        numbers read;
        read.count = count;
        copy(read.values.data(), count * sizeof(int64_t));
        return read;
    }
    size_t left() const {
        return left_;
    }

  private:
    void copy(void *to, size_t size) {
        if (size > left_) {
            throw nb::value_error("the bytes of an Array end too early");
        }
        memcpy(to, at_, size);
        at_ += size;
        left_ -= size;
    }
    const char *at_;
    size_t left_;
};

pickled_head read_head(reader &from) {
    const pickled_head head = from.next<pickled_head>();
    if (head.version != version) {
        throw nb::value_error("these are no bytes of an Array, or of another version of gpuipc");
    }
    return head;
}

/* Nobody waits here: the first use does, by its stream. */
std::shared_ptr<memory> read_memory(reader &from) {
    const pickled_memory read = from.next<pickled_memory>();
    gpuipc_ticket ticket;
    gpuipc_mark mark;
    memcpy(ticket.bytes, read.ticket, sizeof(ticket.bytes));
    memcpy(mark.bytes, read.mark, sizeof(mark.bytes));
    std::shared_ptr<memory> core = open_handed_over(ticket);
    take(*core, mark);
    return core;
}

layout read_layout(reader &from, const pickled_array &head, const memory &core) {
    if (head.dimensions > GPUIPC_DIMENSIONS_MAX) {
        throw nb::value_error("an array has 8 dimensions at most");
    }
    const element type = element_from_packed(head.type);
    const numbers shape = from.next_numbers(head.dimensions);
    layout form = head.has_strides == 0
                      ? layout_compact(type, shape)
                      : layout_strided(type, shape, from.next_numbers(head.dimensions), 0);
    form.offset = head.offset;
    layout_check(form, core.bytes());
    return form;
}

array_object rebuild(const nb::bytes &bytes) {
    reader from(bytes);
    const pickled_head head = read_head(from);
    if (head.memories != 1 || head.arrays != 1) {
        throw nb::value_error("these are not the bytes of one Array");
    }
    std::shared_ptr<memory> core = read_memory(from);
    const layout form = read_layout(from, from.next<pickled_array>(), *core);
    return {std::move(core), form};
}

nb::list unpack(const nb::bytes &bytes) {
    reader from(bytes);
    const pickled_head head = read_head(from);
    std::vector<std::shared_ptr<memory>> memories;
    nb::list arrays;
    for (uint32_t i = 0; i < head.memories; i++) {
        memories.push_back(read_memory(from));
    }
    for (uint32_t i = 0; i < head.arrays; i++) {
        const pickled_array array = from.next<pickled_array>();
        if (array.memory >= memories.size()) {
            throw nb::value_error("the bytes of an Array name memory that they do not have");
        }
        const std::shared_ptr<memory> &core = memories[array.memory];
        arrays.append(nb::cast(array_object{core, read_layout(from, array, *core)}));
    }
    return arrays;
}

} // namespace

void bind_pickled(nb::module_ &m) {
    define(m, "reduce", reduce, nb::sig("def reduce(array: Array, /) -> tuple[object, ...]"),
           "What copyreg calls for an Array.");
    define(m, "rebuild", rebuild, nb::sig("def rebuild(text: bytes, /) -> Array"),
           "What pickle calls for an Array.");
    define(
        m, "pack", pack, nb::arg("arrays"), nb::arg("stream") = nb::none(),
        nb::sig(
            "def pack(arrays: collections.abc.Iterable[Array], stream: object | None = None) -> bytes"),
        "Hands several Arrays over in one: with one point at which the stream has made the contents for each "
        "memory, however many Arrays are in it. Each time for one who unpacks it.");
    define(
        m, "unpack", unpack, nb::arg("text"), nb::sig("def unpack(text: bytes) -> list[Array]"),
        "The Arrays of pack(), in the process that they were handed to. The contents are waited for at the "
        "first use.");
}

} // namespace binding

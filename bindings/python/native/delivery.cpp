/* SPDX-License-Identifier: MIT */
/** @file What arrives: memory that is opened once for all tensors in it, and the tensors, each made when it is wanted. */
#include <atomic>
#include <cstring>

#include "asked.hpp"
#include "lingering.hpp"
#include "open.hpp"
#include "parcel.hpp"
#include "stream.hpp"
#include "ticket.hpp"

namespace binding {

namespace {

/* ---- a tensor by DLPack ---------------------------------------------------------------------- */

/* What all tensors of a segment stand on. The last of them may be let go of on any thread, with or without the GIL. */
class ground {
  public:
    ground(std::shared_ptr<hold> held, std::shared_ptr<owner> kept)
        : kept_(std::move(kept)), hold_(std::move(held)) {
    }

  private:
    std::shared_ptr<owner> kept_; /* goes when the reference is given up */
    std::shared_ptr<hold> hold_;
};

struct tensor_block {
    gpuipc_dlpack_managed managed; /* for from_dlpack(), in the form that every PyTorch knows */
    gpuipc_dlpack_versioned versioned;
    std::shared_ptr<ground> on;
    std::vector<int64_t> numbers; /* shape and strides */
};

void end_managed(gpuipc_dlpack_managed *tensor) {
    delete static_cast<tensor_block *>(tensor->owner);
}

void end_versioned(gpuipc_dlpack_versioned *tensor) {
    delete static_cast<tensor_block *>(tensor->owner);
}

void end_capsule(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor") != 0) {
        end_managed(
            static_cast<gpuipc_dlpack_managed *>(PyCapsule_GetPointer(capsule, "dltensor")));
    }
}

/* ---- a segment ------------------------------------------------------------------------------- */

struct segment {
    std::shared_ptr<memory> core;
    std::shared_ptr<ground> on;
    bool is_of_pool = false; /* PyTorch puts its next tensor into it, mostly */
};

[[noreturn]] void refuse_second() {
    fail(
        GPUIPC_ERR_TICKET_USED_UP, "gpuipc_buffer_take_loan",
        "these tensors were handed to one receiver, which has read them already, or the sender cancelled "
        "that, or their time (gpuipc.config.orphan_seconds) is over; hand them over once for each receiver");
}

/* Of its own process: the loan is ended, and what it kept is kept by the tensors from now on. */
std::shared_ptr<owner> take_own(const memory &core, const gpuipc_mark &loan) {
    std::shared_ptr<owner> kept = hand_over_end(loan);
    if (kept == nullptr) {
        refuse_second();
    }
    uint8_t byte; /* waits for what the default stream was given */
    check(released([&] { return gpuipc_buffer_read(core.handle(), 0, &byte, 1); }));
    return kept;
}

double keep_seconds() {
    static const nb::handle config =
        nb::object(nb::module_::import_("gpuipc.config")).release(); /* for ever */
    return nb::cast<double>(config.attr("keep_segments_seconds"));
}

segment open_segment(nb::handle ticket, const gpuipc_mark &loan) {
    segment made;
    made.core = open_handed_over(ticket_from(ticket));
    std::shared_ptr<owner> kept;
    if (made.core->is_of_this_process()) {
        kept = take_own(*made.core, loan);
    } else {
        const gpuipc_status status = made.core->take(loan);
        if (status == GPUIPC_ERR_RELEASED) {
            refuse_second();
        }
        check(status);
    }
    made.on = std::make_shared<ground>(made.core->hold_for_tensor(), std::move(kept));
    return made;
}

/* ---- a delivery ------------------------------------------------------------------------------ */

class delivery {
  public:
    delivery(const nb::tuple &segments, const nb::bytes &said, nb::object make)
        : said_(contents_read(std::string(said.c_str(), said.size()))), make_(std::move(make)),
          exchange_(exchange_from(make_)) {
        for (nb::handle each : segments) {
            const nb::tuple pair = nb::cast<nb::tuple>(each);
            of_.push_back(
                open_segment(nb::object(pair[0]), mark_from(nb::cast<nb::bytes>(pair[1]))));
        }
        for (const place &each : said_.commons) {
            check_place(each);
        }
        for (const part &each : said_.parts) {
            check_place(each.at);
            of_[each.at.home].is_of_pool |= each.is_in_segment;
        }
        keep();
    }

    size_t size() const {
        return said_.parts.size();
    }
    std::vector<uint32_t> devices() const {
        std::vector<uint32_t> numbers;
        for (const segment &each : of_) {
            numbers.push_back(each.core->is_on_host() ? GPUIPC_DEVICE_NONE
                                                      : each.core->access_device());
        }
        return numbers;
    }

    /* Lets the current streams wait for all contents that are not there. Another thread may give them back meanwhile. */
    void await() {
        const std::vector<segment> all = of_;
        for (const segment &each : all) {
            if (each.core->is_on_host()) {
                each.core->ready_here(patience(std::nullopt));
            } else {
                each.core->ready_for(current_stream(each.core->access_device()));
            }
        }
    }

    /* The tensor, of its own type or of numbers that are as wide. */
    nb::object tensor(size_t number) const {
        const part &wanted = said_.parts.at(number);
        const element type = element_from_packed(wanted.type);
        const element made = element_is_plain(type) ? type : type.as_integer();
        return make(of_[wanted.at.home], wanted.at.offset, made, wanted.shape, wanted.strides);
    }
    /* The name of the type that tensor() could not give it. */
    std::optional<std::string> view_of(size_t number) const {
        const element type = element_from_packed(said_.parts.at(number).type);
        return element_is_plain(type) ? std::nullopt
                                      : std::optional<std::string>(element_name(type));
    }
    /* All tensors from the first to before the last; None for what tensor() alone does not make. */
    nb::list tensors() const {
        nb::list made;
        for (size_t i = 0; i < said_.parts.size(); i++) {
            const part &each = said_.parts[i];
            made.append(each.common == no_common && element_is_plain(element_from_packed(each.type))
                            ? tensor(i)
                            : nb::none());
        }
        return made;
    }

    /* Which common memory a tensor lies in, how many bytes from its beginning, its shape and strides. */
    nb::object common_of(size_t number) const {
        const part &wanted = said_.parts.at(number);
        if (wanted.common == no_common) {
            return nb::none();
        }
        return nb::make_tuple(wanted.common, wanted.at.offset - said_.commons[wanted.common].offset,
                              numbers(wanted.shape), numbers(wanted.strides),
                              element_name(element_from_packed(wanted.type)));
    }
    nb::object common(uint32_t number) const {
        const place &wanted = said_.commons.at(number);
        return make(of_[wanted.home], wanted.offset, element{1, 8, 1},
                    {static_cast<int64_t>(wanted.bytes)}, {1});
    }

    void give_back(const std::vector<uintptr_t> &streams) {
        for (size_t i = 0; i < of_.size(); i++) {
            of_[i].core->return_loan(stream_of_handle(streams.at(i)));
        }
        of_.clear();
        said_.parts.clear();
    }

  private:
    void keep() const {
        const double seconds = keep_seconds();
        for (const segment &each : of_) {
            if (seconds > 0 && each.is_of_pool && !each.core->is_of_this_process()) {
                keep_open(each.core->of(), each.core->held(), seconds);
            }
        }
    }

    static nb::tuple numbers(const std::vector<int64_t> &of) {
        return tuple_of(of.data(), static_cast<uint32_t>(of.size()));
    }

    void check_place(const place &at) const {
        if (at.home >= of_.size() || at.offset > of_[at.home].core->bytes() ||
            at.bytes > of_[at.home].core->bytes() - at.offset) {
            throw nb::value_error("a tensor does not lie in the memory that came with it");
        }
    }

    static std::unique_ptr<tensor_block> block_of(const segment &in, uint64_t offset,
                                                  const element &type,
                                                  const std::vector<int64_t> &shape,
                                                  const std::vector<int64_t> &strides) {
        if (!in.core->is_on_host()) {
            check_alignment(in.core->address() + offset, type);
        }
        auto block = std::make_unique<tensor_block>();
        block->on = in.on;
        block->numbers.reserve(shape.size() + strides.size());
        block->numbers.assign(shape.begin(), shape.end());
        block->numbers.insert(block->numbers.end(), strides.begin(), strides.end());
        gpuipc_dlpack_tensor &tensor = block->managed.tensor;
        tensor = {};
        tensor.data = reinterpret_cast<void *>(static_cast<uintptr_t>(in.core->address() + offset));
        tensor.device_type = in.core->is_on_host() ? GPUIPC_DLPACK_CPU : GPUIPC_DLPACK_CUDA;
        tensor.device_id =
            in.core->is_on_host() ? 0 : static_cast<int32_t>(in.core->access_device());
        tensor.dimensions = static_cast<int32_t>(shape.size());
        tensor.type_kind = type.code;
        tensor.type_bits = type.bits;
        tensor.type_lanes = type.lanes;
        tensor.shape = block->numbers.data();
        tensor.strides = block->numbers.data() + shape.size();
        block->managed.owner = block.get();
        block->managed.deleter = end_managed;
        block->versioned = {1, 0, block.get(), end_versioned, 0, tensor};
        return block;
    }

    nb::object make(const segment &in, uint64_t offset, const element &type,
                    const std::vector<int64_t> &shape, const std::vector<int64_t> &strides) const {
        std::unique_ptr<tensor_block> block = block_of(in, offset, type, shape, strides);
        if (exchange_ != nullptr) {
            void *made = nullptr;
            if (exchange_->make(&block->versioned, &made) != 0) {
                throw nb::python_error();
            }
            block.release(); /* the tensor's */
            return nb::steal(static_cast<PyObject *>(made));
        }
        PyObject *capsule = PyCapsule_New(&block->managed, "dltensor", end_capsule);
        if (capsule == nullptr) {
            throw nb::python_error();
        }
        block.release(); /* the capsule's, until it is taken */
        const nb::object taken = nb::steal(capsule);
        return asked([&] { return make_(taken); });
    }

    std::vector<segment> of_;
    contents said_;
    nb::object make_;
    const exchange *exchange_; /* in place of calls of make_ */
};

} // namespace

void bind_delivery(nb::module_ &m) {
    bound_class<delivery>(m, "Delivery", "Tensors of PyTorch that another process has handed over.")
        .def(
            nb::init<const nb::tuple &, const nb::bytes &, nb::object>(), nb::arg("segments"),
            nb::arg("contents"), nb::arg("make"),
            nb::sig(
                "def __init__(self, segments: tuple[tuple[bytes, bytes], ...], contents: bytes, make: object) "
                "-> None"))
        .def("__len__", &delivery::size)
        .def_prop_ro("devices", &delivery::devices)
        .def("await_contents", &delivery::await)
        .def("tensor", &delivery::tensor, nb::arg("number"),
             nb::sig("def tensor(self, number: int) -> typing.Any"))
        .def("tensors", &delivery::tensors, nb::sig("def tensors(self) -> list[typing.Any]"))
        .def("view_of", &delivery::view_of, nb::arg("number"))
        .def(
            "common_of", &delivery::common_of, nb::arg("number"),
            nb::sig(
                "def common_of(self, number: int) -> tuple[int, int, tuple[int, ...], tuple[int, ...], str] | "
                "None"))
        .def("common", &delivery::common, nb::arg("number"),
             nb::sig("def common(self, number: int) -> typing.Any"))
        .def("give_back", &delivery::give_back, nb::arg("streams"));
}

} // namespace binding

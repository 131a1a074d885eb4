/* SPDX-License-Identifier: MIT */
/** @file What is done for each tensor that is pickled: what is plain memory of gpuipc is handed over here, and all else is
 *  Python's to do, or to refuse with the reason. */
#include "asked.hpp"
#include "look.hpp"
#include "pickled.hpp"
#include "stream.hpp"

namespace binding {

namespace {

class reducer {
  public:
    /** @p storage gives what keeps a tensor's memory. */
    reducer(nb::object tensor_type, nb::object parameter_type, nb::object strided,
            nb::object capsule, nb::object storage, nb::object rebuild, nb::object otherwise)
        : look_(std::move(tensor_type), std::move(parameter_type), std::move(strided),
                std::move(capsule)),
          storage_(std::move(storage)), rebuild_(std::move(rebuild)),
          otherwise_(std::move(otherwise)), config_(nb::module_::import_("gpuipc.config")) {
    }

    std::optional<uint8_t> flag(nb::handle tensor) const {
        return look_.flag(tensor);
    }
    nb::object flags(const nb::list &tensors) const {
        return look_.flags(tensors);
    }

    nb::object reduce(nb::handle tensor) const {
        looker::glance seen;
        const std::optional<uint8_t> flag = look_.flag(tensor, seen);
        if (!flag || !is_known(seen.address)) {
            return asked([&] { return otherwise_(tensor); });
        }
        nb::object kept = asked([&] { return storage_(tensor); });
        parcel one(tensor, std::move(kept), look_.by());
        const home &at = *one.of().front();
        const gpuipc_stream stream = at.is_on_host() ? nullptr : current_stream(at.device());
        if (!at.is_on_host() && at.stream() != nullptr && at.stream() != stream) {
            return asked([&] {
                return otherwise_(tensor);
            }); /* which waits for the stream that the memory was made for */
        }
        const nb::tuple segments = one.hand_over({reinterpret_cast<uintptr_t>(stream)},
                                                 nb::cast<double>(config_.attr("orphan_seconds")));
        return packed(rebuild_, packed(segments, one.contents(), nb::int_(*flag)));
    }

  private:
    looker look_;
    nb::object storage_;
    nb::object rebuild_;
    nb::object otherwise_;
    nb::object config_;
};

} // namespace

void bind_reduce(nb::module_ &m) {
    bound_class<reducer>(m, "Reducer",
                         "Looks at tensors of PyTorch, and hands them over one by one.")
        .def(
            nb::init<nb::object, nb::object, nb::object, nb::object, nb::object, nb::object,
                     nb::object>(),
            nb::arg("tensor_type"), nb::arg("parameter_type"), nb::arg("strided"),
            nb::arg("exchange").none(), nb::arg("storage"), nb::arg("rebuild"),
            nb::arg("otherwise"),
            nb::sig(
                "def __init__(self, tensor_type: type, parameter_type: type, strided: object, exchange: "
                "object | None, storage: collections.abc.Callable[[typing.Any], object], rebuild: "
                "collections.abc.Callable[..., object], otherwise: "
                "collections.abc.Callable[[typing.Any], object]) -> None"))
        .def("flag", &reducer::flag, nb::arg("tensor"),
             nb::sig("def flag(self, tensor: typing.Any) -> int | None"),
             "What a tensor of plain memory is besides that; None: it is none, or the host's own.")
        .def("flags", &reducer::flags, nb::arg("tensors"),
             nb::sig("def flags(self, tensors: list[typing.Any]) -> bytes | None"),
             "Of each of them; None: of one it is none, or one is there twice.")
        .def("reduce", &reducer::reduce, nb::arg("tensor"),
             nb::sig("def reduce(self, tensor: typing.Any) -> typing.Any"),
             "What copyreg calls for a tensor.");
}

} // namespace binding

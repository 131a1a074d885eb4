/* SPDX-License-Identifier: MIT */
/** @file What tickets become in the process that opens them: a Buffer, an Array, or the arrays of a manifest. */

#include <cstring>

#include "array.hpp"
#include "buffer.hpp"
#include "share.hpp"
#include "stream.hpp"
#include "ticket.hpp"

namespace binding {

namespace {

/* ---- opening -------------------------------------------------------------------------------- */

std::shared_ptr<memory> open_memory(const std::shared_ptr<context> &of, const gpuipc_ticket &ticket,
                                    gpuipc_open_config config, const patience &time) {
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    gpuipc_buffer *opened = nullptr;
    config.info = &info;
    wait_at_once(time, [&](int left) {
        config.timeout_ms = left == 0 ? 1 : left; /* 0 stands for its own five seconds */
        return gpuipc_buffer_open(of->handle(), &ticket, &config, &opened);
    });
    auto made = std::make_shared<memory>(of, opened, info);
    made->set_opened_by(ticket);
    return made;
}

/* Two waits in place of the call's one: for the server, which answers at once or is not there, and for the contents,
 * during which every signal is noticed. */
std::shared_ptr<memory> open_any(nb::handle ticket, nb::handle device, nb::handle access,
                                 std::optional<double> timeout, nb::handle stream, bool waits,
                                 nb::handle context) {
    const patience time(timeout);
    const gpuipc_stream on = stream_from(stream);
    gpuipc_open_config config = GPUIPC_OPEN_CONFIG_INIT;
    config.flags = GPUIPC_RECEIVE_DEFERRED;
    config.device =
        device.is_none() ? GPUIPC_DEVICE_OWNER : device_field(nb::cast<int64_t>(device));
    config.access = access_from(access);
    std::shared_ptr<memory> core =
        open_memory(context_from(context), ticket_from(ticket), config, time);
    if (waits) {
        core->ready_here(time);
    } else if (!stream.is_none()) {
        core->ready_for(on);
    }
    return core;
}

/* ---- what came with it ---------------------------------------------------------------------- */

/* The ranges of a manifest; none where these bytes are the program's own, and no manifest. */
std::vector<gpuipc_range> ranges_of(const memory &core) {
    size_t count = 1;
    std::vector<gpuipc_range> ranges;
    gpuipc_status status = GPUIPC_ERR_TOO_SMALL;
    if (core.attachment_bytes() == 0) {
        return ranges;
    }
    while (status == GPUIPC_ERR_TOO_SMALL) {
        ranges.resize(count);
        status = gpuipc_manifest_read(core.attachment(), core.attachment_bytes(), core.bytes(),
                                      ranges.data(), ranges.size(), &count);
    }
    if (status == GPUIPC_ERR_PROTOCOL) {
        count = 0;
    } else {
        check(status);
    }
    ranges.resize(count);
    return ranges;
}

nb::object arrays_of(const std::shared_ptr<memory> &core) {
    const std::vector<gpuipc_range> ranges = ranges_of(*core);
    if (ranges.empty()) {
        return nb::cast(array_object{core, layout_compact(element_from_packed(GPUIPC_ELEMENT_TYPE(
                                                              GPUIPC_ELEMENT_UINT, 8, 1)),
                                                          {static_cast<int64_t>(core->bytes())})});
    }
    if (ranges.size() == 1 && strcmp(ranges[0].name, ".") == 0) {
        return nb::cast(array_object{core, layout_of_range(ranges[0], core->bytes())});
    }
    nb::dict arrays;
    for (const gpuipc_range &each : ranges) {
        arrays[each.name] = array_object{core, layout_of_range(each, core->bytes())};
    }
    return arrays;
}

/* ---- several arrays of one buffer ----------------------------------------------------------- */

std::string manifest_of_named(const nb::dict &arrays, std::shared_ptr<memory> &out_core) {
    std::vector<gpuipc_range> ranges;
    std::vector<std::string> names;
    names.reserve(arrays.size()); /* the ranges point into it */
    for (auto [name, value] : arrays) {
        const array_object &each = nb::cast<array_object &>(value);
        if (out_core != nullptr && out_core != each.core) {
            throw nb::value_error(
                "the arrays of one ticket lie in one buffer: make that, and place() them in it");
        }
        out_core = each.core;
        names.push_back(nb::cast<std::string>(name));
        if (names.back().find('\0') != std::string::npos) {
            throw nb::value_error("a name holds no zero byte");
        }
        ranges.push_back(each.form.range());
        ranges.back().name = names.back().c_str();
    }
    if (ranges.empty()) {
        throw nb::value_error("there is no array to share");
    }
    return manifest_of(ranges);
}

nb::object share_any(nb::handle shared, nb::kwargs options) {
    if (!nb::isinstance<nb::dict>(shared)) {
        return shared.attr("share")(**options);
    }
    std::shared_ptr<memory> core;
    const std::string manifest = manifest_of_named(nb::borrow<nb::dict>(shared), core);
    options["attachment"] = nb::bytes(manifest.data(), manifest.size());
    return nb::cast(buffer_object{core}).attr("share")(**options);
}

/* ---- unpickling ----------------------------------------------------------------------------- */

void take(memory &core, const nb::bytes &bytes) {
    gpuipc_mark mark;
    if (bytes.size() != sizeof(mark.bytes)) {
        throw nb::value_error("a mark has 16 bytes");
    }
    memcpy(mark.bytes, bytes.data(), sizeof(mark.bytes));
    core.take(mark);
}

/* Memory of this very process has no mark that it could wait for: the host waits for its default stream. (A loan that
 * is read in the process that made it stays out until its ticket has expired.) */
void await_own(const memory &core) {
    uint8_t byte;
    check(released([&] { return gpuipc_buffer_read(core.handle(), 0, &byte, 1); }));
}

bool is_of_this_process(const memory &core) {
    gpuipc_context_info info = GPUIPC_CONTEXT_INFO_INIT;
    check(gpuipc_context_get_info(core.of()->handle(), &info));
    return memcmp(info.instance_id, core.exporter_id(), sizeof(info.instance_id)) == 0;
}

array_object rebuild(nb::bytes ticket, uint64_t offset, nb::handle shape, nb::handle strides,
                     uint32_t type, std::optional<nb::bytes> mark) {
    const nb::object device =
        nb::module_::import_("gpuipc.config").attr("open_device").attr("get")();
    /* Nobody waits here: the first use does, by its stream. */
    std::shared_ptr<memory> core =
        open_any(ticket, device, nb::none(), 5.0, nb::none(), false, nb::none());
    const element elements = element_from_packed(type);
    layout form = strides.is_none() ? layout_compact(elements, numbers_from(shape))
                                    : layout_strided(elements, numbers_from(shape),
                                                     numbers_from(strides), offset);
    form.offset = offset;
    layout_check(form, core->bytes());
    if (mark && is_of_this_process(*core)) {
        await_own(*core);
    } else if (mark) {
        take(*core, *mark);
    }
    return {core, form};
}

} // namespace

/* As all calls that open have them. */
#define OPEN_ARGUMENTS                                                                             \
    nb::arg("ticket"), nb::kw_only(),                                                              \
        nb::arg("device") = nb::none(), nb::arg("access") = nb::none(), nb::arg("timeout") = 5.0,  \
        nb::arg("stream") = nb::none(), nb::arg("wait") = true, nb::arg("context") = nb::none()
#define OPEN_SIGNATURE                                                                                                 \
    "(ticket: Ticket | bytes | str, *, device: int | None = None, access: str | None = None, timeout: float | None = " \
    "5.0, stream: object | None = None, wait: bool = True, context: Context | None = None)"

void bind_open(nb::module_ &m) {
    m.def(
        "open",
        [](nb::handle ticket, nb::handle device, nb::handle access, std::optional<double> timeout,
           nb::handle stream, bool waits, nb::handle context) {
            return arrays_of(open_any(ticket, device, access, timeout, stream, waits, context));
        },
        OPEN_ARGUMENTS, nb::sig("def open" OPEN_SIGNATURE " -> Array | dict[str, Array]"),
        "Opens what a ticket stands for: the Array that it was made of; a dict of Arrays, if it came with a manifest "
        "of several; bytes (uint8), if with neither. device: who will use it; None: the GPU that owns it. "
        "wait=False: the contents are waited for at the first use, or by the stream given.");
    m.def(
        "open_buffer",
        [](nb::handle ticket, nb::handle device, nb::handle access, std::optional<double> timeout,
           nb::handle stream, bool waits, nb::handle context) {
            return buffer_object{open_any(ticket, device, access, timeout, stream, waits, context)};
        },
        OPEN_ARGUMENTS, nb::sig("def open_buffer" OPEN_SIGNATURE " -> Buffer"),
        "The same, as bare memory, whatever came with the ticket.");
    m.def(
        "share", share_any, nb::arg("shared"), nb::arg("options"),
        nb::sig(
            "def share(shared: Buffer | Array | dict[str, Array], **options: typing.Any) -> Ticket"),
        "A new ticket, as Buffer.share(): of a Buffer, of an Array, or of named Arrays that lie in one buffer.");
    m.def("rebuild", rebuild, nb::arg("ticket"), nb::arg("offset"), nb::arg("shape"),
          nb::arg("strides").none(), nb::arg("type"), nb::arg("mark").none(),
          "What pickle calls for an Array.");
}

} // namespace binding

/* SPDX-License-Identifier: MIT */
/** @file What tickets become in the process that opens them: a Buffer, an Array, or the arrays of a manifest. */

#include <cstring>

#include "array.hpp"
#include "asked.hpp"
#include "buffer.hpp"
#include "open.hpp"
#include "policy.hpp"
#include "share.hpp"
#include "stream.hpp"
#include "ticket.hpp"

namespace binding {

namespace {

/* ---- opening -------------------------------------------------------------------------------- */

std::shared_ptr<hold> open_first(const context &of, const gpuipc_ticket &ticket,
                                 gpuipc_open_config config, const patience &time) {
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    gpuipc_buffer *opened = nullptr;
    config.info = &info;
    wait_at_once(time, [&](int left) {
        config.timeout_ms = left == 0 ? 1 : left; /* 0 stands for its own five seconds */
        return gpuipc_buffer_open(of.handle(), &ticket, &config, &opened);
    });
    return std::make_shared<hold>(opened, info);
}

/* A context that is of no use says so itself. */
std::shared_ptr<hold> open_again(context &of, const opening &by) {
    return of.is_closed() || of.is_of_the_parent() ? nullptr : of.opened().find(by);
}

std::shared_ptr<memory> open_memory(const std::shared_ptr<context> &of, const gpuipc_ticket &ticket,
                                    const gpuipc_open_config &config, const patience &time) {
    const opening by = {ticket, config.device, config.access};
    const bool asks = config.policy != nullptr;
    std::shared_ptr<hold> opened = asks ? nullptr : open_again(*of, by);
    if (opened == nullptr) {
        opened = open_first(*of, ticket, config, time);
        if (!asks) {
            of->opened().add(by, opened);
        }
    }
    auto made = std::make_shared<memory>(of, std::move(opened));
    made->set_opened_by(ticket);
    if (made->is_of_this_process()) {
        made->set_owner(owner_by_ticket(ticket));
    }
    return made;
}

/* Two waits in place of the call's one: for the server, which answers at once or is not there, and for the contents,
 * during which every signal is noticed. */
std::shared_ptr<memory> open_any(nb::handle ticket, nb::handle device, nb::handle access,
                                 std::optional<double> timeout, nb::handle stream, bool waits,
                                 nb::handle users, nb::handle context) {
    const patience time(timeout);
    const gpuipc_stream on = stream_from(stream);
    peer_rule rule(users, nb::none());
    gpuipc_open_config config = GPUIPC_OPEN_CONFIG_INIT;
    config.policy = rule.function();
    config.policy_user_data = rule.data();
    config.flags = GPUIPC_RECEIVE_DEFERRED;
    config.device = device_or_owner(device);
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

nb::object bytes_of(const std::shared_ptr<memory> &core) {
    return nb::cast(array_object{
        core, layout_compact(element_from_packed(GPUIPC_ELEMENT_TYPE(GPUIPC_ELEMENT_UINT, 8, 1)),
                             {static_cast<int64_t>(core->bytes())})});
}

/* What the manifest of one Array was read as: that of memory which is opened again and again stays the same. */
struct read_before {
    std::string manifest;
    uint64_t bytes = 0; /* of the memory */
    layout form;

    bool is_of(const memory &core) const {
        return core.bytes() == bytes && core.attachment_bytes() == manifest.size() &&
               memcmp(core.attachment(), manifest.data(), manifest.size()) == 0;
    }
};

/* Never destroyed, as what the end of the process ends. With the GIL. */
read_before &read_last() {
    static read_before &only = *new read_before;
    return only;
}

nb::object array_of(const std::shared_ptr<memory> &core, const gpuipc_range &range) {
    read_before &last = read_last();
    last.bytes = 0; /* in case that what follows throws */
    last.form = layout_of_range(range, core->bytes());
    last.manifest.assign(reinterpret_cast<const char *>(core->attachment()),
                         core->attachment_bytes());
    last.bytes = core->bytes();
    return nb::cast(array_object{core, last.form});
}

nb::object arrays_of(const std::shared_ptr<memory> &core) {
    if (core->is_attachment_withheld()) {
        fail(
            GPUIPC_ERR_OUT_OF_RANGE, "open",
            "the ticket was made by narrow(), and what is attached describes the whole: use open_buffer(), and place() "
            "arrays in it");
    }
    if (core->attachment_bytes() == 0) {
        return bytes_of(core);
    }
    if (read_last().is_of(*core)) {
        return nb::cast(array_object{core, read_last().form});
    }
    const std::vector<gpuipc_range> ranges = ranges_of(*core);
    if (ranges.empty()) {
        return bytes_of(core);
    }
    if (ranges.size() == 1 && strcmp(ranges[0].name, ".") == 0) {
        return array_of(core, ranges[0]);
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
        if (!nb::isinstance<array_object>(value) || !nb::isinstance<nb::str>(name)) {
            throw nb::type_error("a dict that is shared has names, which are str, and Arrays");
        }
        const array_object &each = nb::cast<array_object &>(value);
        each.check_for_others();
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
        const nb::object share = attribute_of(shared, "share");
        if (!share.is_valid()) {
            throw nb::type_error("what is shared is a Buffer, an Array, or a dict of Arrays");
        }
        return asked([&] { return share(**options); });
    }
    std::shared_ptr<memory> core;
    const std::string manifest = manifest_of_named(nb::borrow<nb::dict>(shared), core);
    options["attachment"] = nb::bytes(manifest.data(), manifest.size());
    return nb::cast(buffer_object{core}).attr("share")(**options);
}

/* ---- what was handed over ------------------------------------------------------------------- */

/* gpuipc.config._opening */
PyObject *open_device_getter() {
    static PyObject *const only = nb::object(nb::module_::import_("gpuipc.config").attr("_opening"))
                                      .release()
                                      .ptr(); /* never given up */
    return only;
}

} // namespace

std::shared_ptr<memory> open_handed_over(const gpuipc_ticket &ticket) {
    const nb::object device = nb::handle(open_device_getter())();
    gpuipc_open_config config = GPUIPC_OPEN_CONFIG_INIT;
    config.flags = GPUIPC_RECEIVE_DEFERRED;
    config.device = device_or_owner(device);
    constexpr double seconds = 5; /* for a server that is there, and is slow */
    return open_memory(context_from(nb::none()), ticket, config, patience(seconds));
}

/* As all calls that open have them. */
#define OPEN_ARGUMENTS                                                                             \
    nb::arg("ticket"), nb::kw_only(),                                                              \
        nb::arg("device") = nb::none(), nb::arg("access") = nb::none(), nb::arg("timeout") = 5.0,  \
        nb::arg("stream") = nb::none(), nb::arg("wait") = true, nb::arg("users") = nb::none(),     \
        nb::arg("context") = nb::none()
#define OPEN_SIGNATURE                                                                                                    \
    "(ticket: Ticket | bytes | str, *, device: object | None = None, access: str | None = None, timeout: float | None = " \
    "5.0, stream: object | None = None, wait: bool = True, users: collections.abc.Iterable[int | str] | None = None, "    \
    "context: Context | None = None)"

void bind_open(nb::module_ &m) {
    define(
        m, "open",
        [](nb::handle ticket, nb::handle device, nb::handle access, std::optional<double> timeout,
           nb::handle stream, bool waits, nb::handle users, nb::handle context) {
            return arrays_of(
                open_any(ticket, device, access, timeout, stream, waits, users, context));
        },
        OPEN_ARGUMENTS, nb::sig("def open" OPEN_SIGNATURE " -> Array | dict[str, Array]"),
        "Opens what a ticket stands for: the Array that it was made of; a dict of Arrays, if it came with a manifest "
        "of several; bytes (uint8), if with neither. device: who will use it; None: the GPU that owns it. "
        "wait=False: the contents are waited for at the first use, or by the stream given. users: whose server it "
        "may be, beside this user's. Raises errors.TicketError, or errors.Timeout when its server or the contents "
        "took more than timeout seconds. The memory is kept until the last Array of it is gone, also when its owner "
        "has ended.");
    define(
        m, "open_buffer",
        [](nb::handle ticket, nb::handle device, nb::handle access, std::optional<double> timeout,
           nb::handle stream, bool waits, nb::handle users, nb::handle context) {
            return buffer_object{
                open_any(ticket, device, access, timeout, stream, waits, users, context)};
        },
        OPEN_ARGUMENTS, nb::sig("def open_buffer" OPEN_SIGNATURE " -> Buffer"),
        "As open(), but bare memory, whatever came with the ticket.");
    define(
        m, "share", share_any, nb::arg("shared"), nb::arg("options"),
        nb::sig(
            "def share(shared: Buffer | Array | dict[str, Array], **options: typing.Any) -> Ticket"),
        "A new ticket, as Buffer.share(): of a Buffer, of an Array, or of named Arrays that lie in one buffer.");
}

} // namespace binding

/* SPDX-License-Identifier: MIT */
#include "share.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "stream.hpp"

namespace binding {

gpuipc_access access_from(nb::handle argument) {
    if (argument.is_none()) {
        return GPUIPC_ACCESS_DEFAULT;
    }
    const std::string text = nb::cast<std::string>(argument);
    if (text == "r") {
        return GPUIPC_ACCESS_READ;
    }
    if (text == "rw") {
        return GPUIPC_ACCESS_READ_WRITE;
    }
    throw nb::value_error("access is 'r' or 'rw'");
}

static gpuipc_ticket share(memory &shared, gpuipc_server *server,
                           const gpuipc_share_config &config) {
    gpuipc_ticket ticket;
    check(released([&] {
        const gpuipc_status status = server == nullptr ? shared.of()->server(&server) : GPUIPC_OK;
        return status == GPUIPC_OK ? gpuipc_buffer_share(server, shared.handle(), &config, &ticket)
                                   : status;
    }));
    return ticket;
}

static uint64_t milliseconds(double seconds) {
    if (!(seconds > 0) || seconds > 1e12) {
        throw nb::value_error("expires is a number of seconds above 0, or None: never");
    }
    return static_cast<uint64_t>(std::ceil(seconds * 1000));
}

/* ---- whose memory a ticket is for ----------------------------------------------------------- */

struct owners {
    std::map<std::array<uint8_t, sizeof(gpuipc_ticket::bytes)>, std::weak_ptr<owner>> by_ticket;
    size_t look_at = 16; /* when there are so many, those that are gone are forgotten */
};

/* Never destroyed, as everything that the end of the process ends. With the GIL. */
static owners &all_owners() {
    static owners &only = *new owners;
    return only;
}

static std::array<uint8_t, sizeof(gpuipc_ticket::bytes)> key_of(const gpuipc_ticket &ticket) {
    std::array<uint8_t, sizeof(gpuipc_ticket::bytes)> key;
    memcpy(key.data(), ticket.bytes, key.size());
    return key;
}

static void note_owner(const gpuipc_ticket &ticket, const std::shared_ptr<owner> &of) {
    owners &all = all_owners();
    if (all.by_ticket.size() >= all.look_at) {
        for (auto each = all.by_ticket.begin(); each != all.by_ticket.end();) {
            each = each->second.expired() ? all.by_ticket.erase(each) : std::next(each);
        }
        all.look_at = std::max<size_t>(16, 2 * all.by_ticket.size());
    }
    all.by_ticket[key_of(ticket)] = of;
}

std::shared_ptr<owner> owner_by_ticket(const gpuipc_ticket &ticket) {
    const auto found = all_owners().by_ticket.find(key_of(ticket));
    return found != all_owners().by_ticket.end() ? found->second.lock() : nullptr;
}

gpuipc_ticket share(memory &shared, const share_options &options) {
    shared.check_open();
    gpuipc_share_config config = GPUIPC_SHARE_CONFIG_INIT;
    if (options.bytes && *options.bytes == 0) {
        throw nb::value_error("a ticket is for one byte at least");
    }
    if (options.max_processes && *options.max_processes == 0) {
        throw nb::value_error("max_processes is 1 or more; None: as many as there are");
    }
    config.offset = options.offset;
    config.bytes = options.bytes.value_or(0);
    config.access = options.access;
    config.expires_ms = options.expires ? milliseconds(*options.expires) : 0;
    config.max_processes = options.max_processes.value_or(0);
    config.flags |= options.one_shot ? GPUIPC_SHARE_ONE_SHOT : 0;
    config.flags |= options.is_ready ? GPUIPC_SEND_READY : 0;
    config.flags |= options.waits ? 0 : GPUIPC_SEND_ASYNC;
    config.stream = options.stream;
    if (config.stream == nullptr && !options.is_ready && !shared.is_on_host()) {
        config.stream = current_stream(shared.access_device());
    }
    config.attachment = options.attachment.empty() ? nullptr : options.attachment.data();
    config.attachment_bytes = options.attachment.size();
    const gpuipc_ticket ticket = share(shared, options.server, config);
    if (shared.owned_by() != nullptr) {
        note_owner(ticket, shared.owned_by());
    }
    return ticket;
}

} // namespace binding

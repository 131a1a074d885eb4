/* SPDX-License-Identifier: MIT */
#include "gpuipc_torch.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;

/* What PyTorch asks for most is 2 MiB, for its small tensors. To open memory costs a receiver as much for 2 MiB as for 32. So
 * a segment has up to so many of these parts: the more the program has, the more the next one has. */
constexpr uint64_t part_bytes = UINT64_C(2) << 20;
constexpr uint32_t parts_at_most = 16;

struct kind {
    gpuipc_context *context = nullptr;
    std::vector<gpuipc_uuid> openers;
    std::vector<uint32_t> access_devices;
    uint64_t made = 0; /* how often it was said what it is */
};

/* Parts of one segment are for the same. */
struct purpose {
    pid_t process; /* a child has none of its parent's */
    uint32_t kind;
    uint64_t made;
    int device;
    gpuipc_stream stream;

    bool operator<(const purpose &other) const {
        return std::tie(process, kind, made, device, stream) <
               std::tie(other.process, other.kind, other.made, other.device, other.stream);
    }
};

struct segment {
    gpuipc_context *context;
    gpuipc_buffer *buffer;
    uint64_t bytes;
    uint64_t bytes_of_part; /* all of them, where it is one */
    uint32_t
        given; /* so many parts were given out. None is twice: who has freed it may be using it still */
    uint32_t used; /* a bit for each that is not freed */
    purpose made_for;
    gpuipc_server *server; /* NULL: there is no ticket */
    gpuipc_ticket ticket;

    uint32_t count() const {
        return static_cast<uint32_t>(bytes / bytes_of_part);
    }
};

/* Of one purpose. */
struct parts {
    size_t used = 0;
    size_t unused = 0;   /* never given out, or freed */
    uint64_t latest = 0; /* the segment that was made last, if it is still there; else 0 */
};

struct leaving {
    gpuipc_context *context;
    uint64_t address;
    gpuipc_buffer *buffer; /* to be compared with, no more */
    clock_type::time_point gone_at = clock_type::time_point::max();
};

/* What the driver may take to have memory back when the library has begun to give it up. */
constexpr std::chrono::milliseconds longest_return(500);

/* Never destroyed: PyTorch frees when the process ends, after destructors have run. */
struct state {
    std::mutex lock;
    kind kinds[GPUIPC_TORCH_KINDS];
    std::map<uint64_t, segment> segments; /* each has a part that is used */
    std::map<purpose, parts> small;       /* of those with one that is used */
    std::vector<leaving> freed;           /* whose memory the driver may not have back yet */
    char failure[512] = "";
};

state &all() {
    static state &only = *new state;
    return only;
}

void note_failure() {
    const std::lock_guard<std::mutex> hold(all().lock);
    snprintf(all().failure, sizeof(all().failure), "%s", gpuipc_error_text());
}

bool is_found(const leaving &each) {
    gpuipc_buffer *found = nullptr;
    uint64_t offset = 0;
    if (gpuipc_buffer_find(each.context, each.address, &found, &offset) != GPUIPC_OK) {
        return false;
    }
    (void)gpuipc_buffer_drop(found);
    return found == each.buffer;
}

bool is_back(leaving &each) {
    const clock_type::time_point now = clock_type::now();
    if (each.gone_at > now && !is_found(each)) {
        each.gone_at = std::min(each.gone_at, now);
    }
    return each.gone_at <= now && now - each.gone_at > longest_return;
}

/* Memory that was freed has not come back yet. */
bool is_more_coming() {
    std::vector<leaving> freed;
    {
        const std::lock_guard<std::mutex> hold(all().lock);
        freed.swap(all().freed);
    }
    freed.erase(std::remove_if(freed.begin(), freed.end(), is_back), freed.end());
    const std::lock_guard<std::mutex> hold(all().lock);
    all().freed.insert(all().freed.end(), freed.begin(), freed.end());
    return !freed.empty();
}

/* What was freed comes back when the device has passed it. PyTorch frees and asks again at once, and takes the answer for
 * final: so it is waited for, as cudaFree() would have done. */
gpuipc_status create(gpuipc_context *context, const gpuipc_buffer_config &config,
                     gpuipc_buffer **out_buffer) {
    const clock_type::time_point end = clock_type::now() + std::chrono::seconds(2);
    bool goes_on = true;
    gpuipc_status status = gpuipc_buffer_create(context, &config, out_buffer);
    while (status == GPUIPC_ERR_OUT_OF_DEVICE_MEMORY && goes_on) {
        goes_on = is_more_coming() && clock_type::now() < end;
        if (goes_on) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        status = gpuipc_buffer_create(context, &config, out_buffer);
    }
    return status;
}

/* Those that cannot reach the memory are not refused it: PyTorch asks before it copies directly. */
void let_others_in(gpuipc_buffer *buffer, const kind &made_as, uint32_t device) {
    for (uint32_t each : made_as.access_devices) {
        if (each != device) {
            const gpuipc_status status =
                gpuipc_buffer_set_access(buffer, each, GPUIPC_ACCESS_READ_WRITE);
            (void)status;
        }
    }
}

/* With the lock. The address of a part that nobody had; 0: there is none. */
uint64_t take_part(const purpose &wanted) {
    const auto found = all().small.find(wanted);
    if (found == all().small.end() || found->second.latest == 0) {
        return 0;
    }
    segment &of = all().segments.at(found->second.latest);
    if (of.given == of.count()) {
        return 0;
    }
    const uint32_t part = of.given++;
    of.used |= 1u << part;
    found->second.used++;
    found->second.unused--;
    return found->second.latest + part * of.bytes_of_part;
}

/* With the lock. So that no more is unused than is used. */
uint32_t parts_of_next(const purpose &wanted) {
    const auto found = all().small.find(wanted);
    uint32_t count = 1;
    while (found != all().small.end() && count < parts_at_most &&
           2 * count + found->second.unused <= found->second.used) {
        count *= 2;
    }
    return count;
}

/* With the lock. Takes the buffer over, with its first part in use. Throws std::bad_alloc, and has not entered it then. */
void enter(uint64_t address, const segment &made) {
    if (made.bytes_of_part > part_bytes) {
        all().segments.emplace(address, made);
        return;
    }
    parts &of = all().small[made.made_for];
    all().segments.emplace(address, made);
    of.used++;
    of.unused += made.count() - 1;
    of.latest = address;
}

gpuipc_status make_segment(const kind &made_as, int device, uint64_t bytes, uint32_t count,
                           gpuipc_buffer **out_buffer, uint64_t *out_bytes) {
    gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
    config.device = GPUIPC_DEVICE(device);
    config.openers = made_as.openers.data();
    config.opener_count = static_cast<uint32_t>(made_as.openers.size());
    gpuipc_status status = GPUIPC_ERR_OUT_OF_DEVICE_MEMORY;
    if (count > 1) {
        config.bytes = count * part_bytes;
        status = gpuipc_buffer_create(made_as.context, &config, out_buffer);
    }
    if (status == GPUIPC_ERR_OUT_OF_DEVICE_MEMORY) { /* then no more than is asked for */
        config.bytes = bytes;
        status = create(made_as.context, config, out_buffer);
    }
    *out_bytes = config.bytes;
    return status;
}

/* Throws std::bad_alloc. */
void *allocate(uint32_t number, ssize_t size, int device, gpuipc_stream stream) {
    const uint64_t bytes = static_cast<uint64_t>(size);
    kind made_as;
    purpose wanted;
    uint32_t count = 1;
    uint64_t address = 0;
    {
        const std::lock_guard<std::mutex> hold(all().lock);
        made_as = all().kinds[number];
        wanted = {getpid(), number, made_as.made, device, stream};
        if (bytes <= part_bytes && (address = take_part(wanted)) == 0) {
            count = parts_of_next(wanted);
        }
    }
    if (address != 0) {
        return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
    }
    segment made = {made_as.context, nullptr, 0, 0, 1, 1u, wanted, nullptr, {}};
    const gpuipc_status status =
        make_segment(made_as, device, bytes, count, &made.buffer, &made.bytes);
    if (status != GPUIPC_OK) {
        if (status != GPUIPC_ERR_OUT_OF_DEVICE_MEMORY) {
            note_failure();
        }
        return nullptr;
    }
    made.bytes_of_part = bytes <= part_bytes && made.bytes > part_bytes ? part_bytes : made.bytes;
    let_others_in(made.buffer, made_as, static_cast<uint32_t>(device));
    address = gpuipc_buffer_address(made.buffer);
    try {
        const std::lock_guard<std::mutex> hold(all().lock);
        enter(address, made);
    } catch (...) {
        (void)gpuipc_buffer_release(made.buffer);
        throw;
    }
    return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}

void *allocate_or_null(uint32_t number, ssize_t bytes, int device, gpuipc_stream stream) noexcept {
    try {
        return bytes > 0 && device >= 0 ? allocate(number, bytes, device, stream) : nullptr;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

/* With the lock. */
std::map<uint64_t, segment>::iterator find_segment(uint64_t address) {
    auto next = all().segments.upper_bound(address);
    if (next == all().segments.begin()) {
        return all().segments.end();
    }
    --next;
    return address - next->first < next->second.bytes ? next : all().segments.end();
}

/* With the lock. The segment of a part that is used. */
std::map<uint64_t, segment>::iterator find(uint64_t address) {
    const auto found = find_segment(address);
    if (found == all().segments.end()) {
        return found;
    }
    const uint64_t part = (address - found->first) / found->second.bytes_of_part;
    return (found->second.used >> part & 1u) != 0 ? found : all().segments.end();
}

/* With the lock. */
gpuipc_status retain(const std::map<uint64_t, segment>::iterator &found,
                     gpuipc_torch_segment *out_segment) {
    if (found == all().segments.end()) {
        return GPUIPC_ERR_NOT_FOUND;
    }
    const segment &of = found->second;
    const gpuipc_status status = gpuipc_buffer_retain(of.buffer);
    if (status == GPUIPC_OK) {
        *out_segment = {found->first, of.bytes, of.buffer, of.made_for.stream};
    }
    return status;
}

/* With the lock. */
void leave(const std::map<uint64_t, segment>::iterator &found, uint32_t part) {
    segment &of = found->second;
    of.used &= ~(1u << part);
    const auto small = all().small.find(of.made_for);
    if (of.bytes_of_part > part_bytes || small == all().small.end()) {
        return;
    }
    small->second.used--;
    small->second.unused++;
    if (of.used == 0) {
        small->second.unused -= of.count();
        small->second.latest = small->second.latest == found->first ? 0 : small->second.latest;
    }
    if (small->second.used == 0) {
        all().small.erase(small);
    }
}

/* With the lock. Beyond so many, which only a program that frees nothing but these gets, the first are not waited for. */
void note_freed(const std::pair<const uint64_t, segment> &of) {
    constexpr size_t most = 4096;
    if (all().freed.size() == most) {
        all().freed.erase(all().freed.begin());
    }
    try {
        all().freed.push_back(
            {of.second.context, of.first, of.second.buffer, clock_type::time_point::max()});
    } catch (const std::bad_alloc &) { /* then it is not waited for */
    }
}

/* False: this one is not needed, because another thread was quicker, or the segment is gone. */
bool keep_ticket(const gpuipc_torch_segment &of, gpuipc_server *server, const gpuipc_ticket &made,
                 gpuipc_ticket *out_ticket, gpuipc_status *out_status) {
    const std::lock_guard<std::mutex> hold(all().lock);
    const auto found = find_segment(of.address);
    if (found == all().segments.end() || found->second.buffer != of.buffer) {
        *out_status = GPUIPC_ERR_NOT_FOUND;
        return false;
    }
    const bool is_first = found->second.server != server;
    if (is_first) {
        found->second.server = server;
        found->second.ticket = made;
    }
    *out_ticket = found->second.ticket;
    return is_first;
}

} // namespace

gpuipc_status gpuipc_torch_configure(uint32_t number, gpuipc_context *context,
                                     const gpuipc_uuid *openers, uint32_t opener_count,
                                     const uint32_t *access_devices, uint32_t access_device_count) {
    if (number >= GPUIPC_TORCH_KINDS) {
        return GPUIPC_ERR_INVALID_ARGUMENT;
    }
    try {
        kind made;
        made.context = context;
        made.openers.assign(openers, openers + opener_count);
        made.access_devices.assign(access_devices, access_devices + access_device_count);
        const std::lock_guard<std::mutex> hold(all().lock);
        made.made = all().kinds[number].made + 1;
        all().kinds[number] = std::move(made);
    } catch (const std::bad_alloc &) {
        return GPUIPC_ERR_OUT_OF_MEMORY;
    }
    return GPUIPC_OK;
}

void *gpuipc_torch_alloc(ssize_t bytes, int device, gpuipc_stream stream) {
    return allocate_or_null(0, bytes, device, stream);
}

#define ALLOCATION_OF_KIND(number)                                                                 \
    extern "C" GPUIPC_API void *gpuipc_torch_alloc_##number(ssize_t bytes, int device,             \
                                                            gpuipc_stream stream);                 \
    void *gpuipc_torch_alloc_##number(ssize_t bytes, int device, gpuipc_stream stream) {           \
        return allocate_or_null(number, bytes, device, stream);                                    \
    }
ALLOCATION_OF_KIND(0)
ALLOCATION_OF_KIND(1)
ALLOCATION_OF_KIND(2)
ALLOCATION_OF_KIND(3)
ALLOCATION_OF_KIND(4)
ALLOCATION_OF_KIND(5)
ALLOCATION_OF_KIND(6)
ALLOCATION_OF_KIND(7)
ALLOCATION_OF_KIND(8)
ALLOCATION_OF_KIND(9)
ALLOCATION_OF_KIND(10)
ALLOCATION_OF_KIND(11)
ALLOCATION_OF_KIND(12)
ALLOCATION_OF_KIND(13)
ALLOCATION_OF_KIND(14)
ALLOCATION_OF_KIND(15)

void gpuipc_torch_free(void *pointer, ssize_t, int, gpuipc_stream) {
    const uint64_t address = reinterpret_cast<uintptr_t>(pointer);
    segment freed;
    {
        const std::lock_guard<std::mutex> hold(all().lock);
        const auto found = find(address);
        if (found == all().segments.end() ||
            (address - found->first) % found->second.bytes_of_part != 0) {
            return;
        }
        leave(found, static_cast<uint32_t>((address - found->first) / found->second.bytes_of_part));
        if (found->second.used != 0) {
            return;
        }
        freed = found->second;
        note_freed(*found);
        all().segments.erase(found);
    }
    if (freed.server != nullptr) { /* a server that has ended has revoked it already */
        const gpuipc_status status = gpuipc_server_revoke(freed.server, &freed.ticket);
        (void)status;
    }
    (void)gpuipc_buffer_drop(freed.buffer);
}

gpuipc_status gpuipc_torch_find(uint64_t address, gpuipc_torch_segment *out_segment) {
    const std::lock_guard<std::mutex> hold(all().lock);
    return retain(find(address), out_segment);
}

bool gpuipc_torch_is_known(uint64_t address) {
    const std::lock_guard<std::mutex> hold(all().lock);
    return find(address) != all().segments.end();
}

bool gpuipc_torch_kept_ticket(uint64_t address, gpuipc_server *server, gpuipc_ticket *out_ticket) {
    const std::lock_guard<std::mutex> hold(all().lock);
    const auto found = find_segment(address);
    const bool is_kept = found != all().segments.end() && found->second.server == server;
    if (is_kept) {
        *out_ticket = found->second.ticket;
    }
    return is_kept;
}

gpuipc_status gpuipc_torch_ticket(uint64_t address, gpuipc_server *server,
                                  gpuipc_ticket *out_ticket) {
    gpuipc_torch_segment of;
    if (gpuipc_torch_kept_ticket(address, server, out_ticket)) {
        return GPUIPC_OK;
    }
    gpuipc_status status;
    {
        const std::lock_guard<std::mutex> hold(all().lock);
        status = retain(find_segment(address), &of);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    gpuipc_ticket made = {};
    /* Without the lock, which who allocates may be waiting for, with PyTorch's. */
    gpuipc_share_config config = GPUIPC_SHARE_CONFIG_INIT;
    config.flags = GPUIPC_SEND_READY; /* each hand-over says by itself when its contents are */
    status = gpuipc_buffer_share(server, of.buffer, &config, &made);
    if (status == GPUIPC_OK && !keep_ticket(of, server, made, out_ticket, &status)) {
        const gpuipc_status ignored = gpuipc_server_revoke(server, &made);
        (void)ignored;
    }
    (void)gpuipc_buffer_drop(of.buffer);
    return status;
}

void gpuipc_torch_failure(char *out_text, size_t size) {
    const std::lock_guard<std::mutex> hold(all().lock);
    snprintf(out_text, size, "%s", all().failure);
    all().failure[0] = '\0';
}

/* SPDX-License-Identifier: MIT */
/**
 * @file gpuipc for C++11 and later: objects that end themselves and are moved, never copied. Header-only, over gpuipc.h;
 * whatever has no method here is called with get().
 *
 * A failure is thrown as gpuipc::error. With GPUIPC_NO_EXCEPTIONS defined, or where the compiler has them turned off,
 * the same methods return a gpuipc::result, which has the status and, on success, the value.
 */
#ifndef GPUIPC_HPP
#define GPUIPC_HPP

#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "gpuipc.h"

#if !defined(GPUIPC_NO_EXCEPTIONS) && !defined(__cpp_exceptions) && !defined(_CPPUNWIND) &&         \
    !defined(__EXCEPTIONS)
#define GPUIPC_NO_EXCEPTIONS
#endif
#ifndef GPUIPC_NO_EXCEPTIONS
#include <stdexcept>
#endif

namespace gpuipc {

/* ---- failures ----------------------------------------------------------------------------- */

#ifndef GPUIPC_NO_EXCEPTIONS
/** A call that failed; what() is gpuipc_error_text(). */
class error : public std::runtime_error {
public:
    explicit error(gpuipc_status status)
        : std::runtime_error(gpuipc_error_text()), record_(*gpuipc_error_get()) {
        record_.status = status;
    }
    gpuipc_status status() const noexcept { return record_.status; }
    /** The particulars, as they were when it was thrown. */
    const gpuipc_error &record() const noexcept { return record_; }

private:
    gpuipc_error record_;
};

template <typename type> struct returned {
    typedef type as;
};

namespace detail {
inline void give(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        throw error(status);
    }
}
template <typename type> type give(gpuipc_status status, type &&value) {
    give(status);
    return std::move(value);
}
} // namespace detail
#else
/** What a method returns where nothing is thrown: look at it before taking the value. */
template <typename type> class result {
public:
    result(gpuipc_status status, type &&value) : status_(status), value_(std::move(value)) {}
    gpuipc_status status() const noexcept { return status_; }
    explicit operator bool() const noexcept { return status_ == GPUIPC_OK; }
    /** Of a failure there is none: the program ends. */
    type &value() {
        if (status_ != GPUIPC_OK) {
            std::abort();
        }
        return value_;
    }

private:
    gpuipc_status status_;
    type value_;
};

template <> class result<void> {
public:
    explicit result(gpuipc_status status) : status_(status) {}
    gpuipc_status status() const noexcept { return status_; }
    explicit operator bool() const noexcept { return status_ == GPUIPC_OK; }

private:
    gpuipc_status status_;
};

template <typename type> struct returned {
    typedef result<type> as;
};

namespace detail {
inline result<void> give(gpuipc_status status) {
    return result<void>(status);
}
template <typename type> result<type> give(gpuipc_status status, type &&value) {
    return result<type>(status, std::move(value));
}
} // namespace detail
#endif

/* ---- ownership ---------------------------------------------------------------------------- */

namespace detail {
/** Owns one object of the C library. */
template <typename type, gpuipc_status (*end)(type *)> class handle {
public:
    handle() noexcept : object_(nullptr) {}
    explicit handle(type *taken) noexcept : object_(taken) {}
    handle(handle &&other) noexcept : object_(other.detach()) {}
    handle &operator=(handle &&other) noexcept {
        reset(other.detach());
        return *this;
    }
    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;
    ~handle() { reset(); }

    type *get() const noexcept { return object_; }
    explicit operator bool() const noexcept { return object_ != nullptr; }
    /** Gives the object out: the caller ends it. */
    type *detach() noexcept {
        type *given = object_;
        object_ = nullptr;
        return given;
    }
    /** Ends what it has, and takes another. */
    void reset(type *taken = nullptr) noexcept {
        type *ended = object_;
        object_ = taken;
        (void)end(ended);
    }
    /** Where a call of C puts its result; what it had is ended. */
    type **out() noexcept {
        reset();
        return &object_;
    }

private:
    type *object_;
};
} // namespace detail

/* ---- buffer ------------------------------------------------------------------------------- */

/** A range of GPU memory. Its end is gpuipc_buffer_drop(): right while work that uses it still runs. */
class buffer : public detail::handle<gpuipc_buffer, gpuipc_buffer_drop> {
public:
    using handle::handle;
    buffer() noexcept = default;

    /** Device address of the first byte; 0: it has no buffer. */
    std::uint64_t address() const { return gpuipc_buffer_address(get()); }
    returned<gpuipc_buffer_info>::as info() const {
        gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
        const gpuipc_status status = gpuipc_buffer_get_info(get(), &info);
        return detail::give(status, std::move(info));
    }
    /** Another owner of the same buffer. */
    returned<buffer>::as share_ownership() const {
        const gpuipc_status status = gpuipc_buffer_retain(get());
        return detail::give(status, buffer(status == GPUIPC_OK ? get() : nullptr));
    }
    /** Waits until it is there. */
    returned<void>::as write(std::uint64_t offset, const void *host, std::uint64_t bytes) {
        return detail::give(gpuipc_buffer_write(get(), offset, host, bytes));
    }
    /** Waits until it is there. */
    returned<void>::as read(std::uint64_t offset, void *host, std::uint64_t bytes) const {
        return detail::give(gpuipc_buffer_read(get(), offset, host, bytes));
    }
    /** Lets a stream wait until the contents are ready. */
    returned<void>::as await_ready_async(gpuipc_stream stream) const {
        return detail::give(gpuipc_buffer_await_ready_async(get(), stream));
    }
    /** Waits until the contents are ready. */
    returned<void>::as await_ready(int timeout_ms) const {
        return detail::give(gpuipc_buffer_await_ready(get(), timeout_ms));
    }
    /** Lets a stream make a mark, which goes over any channel. */
    returned<gpuipc_mark>::as mark(gpuipc_stream stream) const {
        gpuipc_mark made = gpuipc_mark();
        const gpuipc_status status = gpuipc_buffer_mark(get(), stream, &made);
        return detail::give(status, std::move(made));
    }
    /** Lets a stream wait for a mark, or a loan, of the context that it came from. */
    returned<void>::as await_mark_async(const gpuipc_mark &mark, gpuipc_stream stream) const {
        return detail::give(gpuipc_buffer_await_mark_async(get(), &mark, stream));
    }
    /** Waits for it. */
    returned<void>::as await_mark(const gpuipc_mark &mark, int timeout_ms) const {
        return detail::give(gpuipc_buffer_await_mark(get(), &mark, timeout_ms));
    }
    /** Lends a part, and lets a stream mark it: to be sent over any channel. */
    returned<gpuipc_mark>::as lend(gpuipc_stream stream) const {
        gpuipc_mark made = gpuipc_mark();
        const gpuipc_status status = gpuipc_buffer_lend(get(), stream, &made);
        return detail::give(status, std::move(made));
    }
    /** Lends a part whose contents are there already. */
    returned<gpuipc_mark>::as lend_ready() const {
        gpuipc_mark made = gpuipc_mark();
        const gpuipc_status status = gpuipc_buffer_lend_ready(get(), &made);
        return detail::give(status, std::move(made));
    }
    /** How loans of its context stand, in their order. */
    returned<std::vector<gpuipc_loan_state>>::as
    loan_states(const std::vector<gpuipc_mark> &loans) const {
        std::vector<gpuipc_loan_state> states(loans.size());
        const gpuipc_status status =
            gpuipc_buffer_get_loan_states(get(), loans.data(), loans.size(), states.data());
        return detail::give(status, std::move(states));
    }
    /** Waits until a loan is over. */
    returned<void>::as await_loan(const gpuipc_mark &loan, int timeout_ms) const {
        return detail::give(gpuipc_buffer_await_loan(get(), &loan, timeout_ms));
    }
    /** Waits until somebody has taken a loan, and lets a stream wait until it is over. */
    returned<void>::as await_loan_async(const gpuipc_mark &loan, gpuipc_stream stream,
                                        int timeout_ms) const {
        return detail::give(gpuipc_buffer_await_loan_async(get(), &loan, stream, timeout_ms));
    }
    /** Takes back what nobody has taken. */
    returned<void>::as cancel_loan(const gpuipc_mark &loan) const {
        return detail::give(gpuipc_buffer_cancel_loan(get(), &loan));
    }
    /** Takes a loan of the context that it came from. */
    returned<void>::as take_loan(const gpuipc_mark &loan) const {
        return detail::give(gpuipc_buffer_take_loan(get(), &loan));
    }
    /** Returns it at once. */
    returned<void>::as return_loan(const gpuipc_mark &loan) const {
        return detail::give(gpuipc_buffer_return_loan(get(), &loan));
    }
    /** Returns it in stream order. */
    returned<void>::as return_loan_async(const gpuipc_mark &loan, gpuipc_stream stream) const {
        return detail::give(gpuipc_buffer_return_loan_async(get(), &loan, stream));
    }
    /** Returns it behind all work that the devices have been given: wherever the program is. */
    returned<void>::as drop_loan(const gpuipc_mark &loan) const {
        return detail::give(gpuipc_buffer_drop_loan(get(), &loan));
    }
    /** Gives it up in stream order. After a failure it is still held. */
    returned<void>::as release(gpuipc_stream stream) {
        const gpuipc_status status = gpuipc_buffer_release_async(get(), stream);
        if (status == GPUIPC_OK) {
            (void)detach();
        }
        return detail::give(status);
    }
};

/* ---- connection --------------------------------------------------------------------------- */

namespace detail {
/** One timeout for several calls. */
class deadline {
public:
    explicit deadline(int timeout_ms)
        : timeout_ms_(timeout_ms), end_(clock::now() + std::chrono::milliseconds(timeout_ms)) {}
    /** What the next call may wait. */
    int left_ms() const {
        if (timeout_ms_ <= 0) { /* once, or for ever */
            return timeout_ms_;
        }
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(end_ - clock::now());
        return left.count() > 0 ? static_cast<int>(left.count()) : 0;
    }

private:
    typedef std::chrono::steady_clock clock;
    int timeout_ms_;
    clock::time_point end_;
};
} // namespace detail

/** A message that came. */
struct message {
    std::vector<unsigned char> bytes;
    std::vector<buffer> buffers;
};

/** A conversation with one process. */
class connection : public detail::handle<gpuipc_connection, gpuipc_connection_close> {
public:
    using handle::handle;
    connection() noexcept = default;

    returned<void>::as send(const gpuipc_outgoing &message, int timeout_ms) {
        return detail::give(gpuipc_connection_send(get(), &message, timeout_ms));
    }
    /** A buffer and nothing else. */
    returned<void>::as send(const buffer &one, int timeout_ms) {
        gpuipc_buffer *const buffers[] = {one.get()};
        gpuipc_outgoing message = GPUIPC_OUTGOING_INIT;
        message.buffers = buffers;
        message.buffer_count = 1;
        return send(message, timeout_ms);
    }
    /** Receives one message, whatever its size.
     *  @param timeout_ms of all of it: for the message, and for its contents
     *  @param how device, access, flags and stream; what it has as room for bytes, buffers and infos is left alone */
    returned<message>::as receive(int timeout_ms,
                                  gpuipc_incoming how = GPUIPC_INCOMING_INIT) {
        message came;
        std::vector<gpuipc_buffer *> opened;
        how.bytes_capacity = 0;
        how.buffer_capacity = 0;
        how.infos = nullptr; /* whose room is for as many buffers as the caller said */
        const detail::deadline until(timeout_ms);
        gpuipc_status status;
        do { /* the first time only to learn how large it is */
            came.bytes.resize(how.bytes_capacity);
            opened.resize(how.buffer_capacity);
            came.buffers.reserve(how.buffer_capacity);
            how.bytes = came.bytes.data();
            how.buffers = opened.data();
            status = gpuipc_connection_receive(get(), &how, until.left_ms());
            if (status == GPUIPC_ERR_TOO_SMALL) {
                how.bytes_capacity = how.bytes_size;
                how.buffer_capacity = how.buffer_count;
            }
        } while (status == GPUIPC_ERR_TOO_SMALL);
        for (gpuipc_buffer *one : opened) {
            came.buffers.emplace_back(status == GPUIPC_OK ? one : nullptr);
        }
        return detail::give(status, std::move(came));
    }
};

/** A named local endpoint. */
class listener : public detail::handle<gpuipc_listener, gpuipc_listener_close> {
public:
    using handle::handle;
    listener() noexcept = default;

    returned<connection>::as accept(int timeout_ms) {
        connection made;
        const gpuipc_status status = gpuipc_listener_accept(get(), timeout_ms, made.out());
        return detail::give(status, std::move(made));
    }
};

/* ---- channel ------------------------------------------------------------------------------ */

/** A slot of a channel on loan. Its end, where it was not published, is gpuipc_channel_discard(). Ends before its channel. */
class loaned_frame {
public:
    loaned_frame() noexcept : of_(nullptr), stream_(GPUIPC_NO_STREAM), frame_() {}
    loaned_frame(gpuipc_channel *of, gpuipc_stream stream, const gpuipc_frame &frame) noexcept
        : of_(of), stream_(stream), frame_(frame) {}
    loaned_frame(loaned_frame &&other) noexcept
        : of_(other.of_), stream_(other.stream_), frame_(other.frame_),
          is_published_(other.is_published_) {
        other.of_ = nullptr;
    }
    loaned_frame &operator=(loaned_frame &&other) noexcept {
        if (this != &other) {
            reset();
            of_ = other.of_;
            stream_ = other.stream_;
            frame_ = other.frame_;
            is_published_ = other.is_published_;
            other.of_ = nullptr;
        }
        return *this;
    }
    loaned_frame(const loaned_frame &) = delete;
    loaned_frame &operator=(const loaned_frame &) = delete;
    ~loaned_frame() { reset(); }

    explicit operator bool() const noexcept { return of_ != nullptr; }
    std::uint64_t address() const noexcept { return frame_.address; }
    std::uint64_t capacity() const noexcept { return frame_.capacity; }
    /** Publishes it, in the order of the stream that it was loaned on. After a failure it is still on loan.
     *  @param bytes how many of the slot are used
     *  @param header goes with it, copied */
    returned<void>::as publish(std::uint64_t bytes, const void *header = nullptr,
                               std::size_t header_bytes = 0) {
        gpuipc_frame whole = frame_;
        whole.bytes = bytes;
        whole.header = header;
        whole.header_bytes = header_bytes;
        const gpuipc_status status = gpuipc_channel_publish(of_, &whole, stream_);
        if (status == GPUIPC_OK) {
            of_ = nullptr;
        }
        return detail::give(status);
    }
    /** All of the slot, without a header. */
    returned<void>::as publish() { return publish(frame_.capacity); }
    /** Makes it the next frame. A kernel in the stream that it was loaned on stores these words when it is ready. After the
     *  launch kernel_launched() publishes it; else the end of this object does, in the order of the stream.
     *  @param bytes, header, header_bytes as for publish() */
    returned<std::vector<gpuipc_word>>::as publish_by_kernel(std::uint64_t bytes,
                                                             const void *header = nullptr,
                                                             std::size_t header_bytes = 0) {
        std::vector<gpuipc_word> words(GPUIPC_CHANNEL_READERS_MAX);
        std::size_t count = 0;
        gpuipc_frame whole = frame_;
        whole.bytes = bytes;
        whole.header = header;
        whole.header_bytes = header_bytes;
        const gpuipc_status status = gpuipc_channel_publish_by_kernel(
            of_, &whole, stream_, words.data(), words.size(), &count);
        is_published_ = is_published_ || status == GPUIPC_OK;
        words.resize(status == GPUIPC_OK ? count : 0);
        return detail::give(status, std::move(words));
    }
    /** The kernel was launched: readers see the frame. */
    returned<void>::as kernel_launched() {
        const gpuipc_status status = gpuipc_channel_kernel_launched(of_, &frame_, stream_);
        if (status == GPUIPC_OK) {
            of_ = nullptr;
        }
        return detail::give(status);
    }
    /** Gives the loan up. */
    void reset() noexcept {
        if (of_ != nullptr) {
            (void)!(is_published_ ? gpuipc_channel_publish(of_, &frame_, stream_)
                                  : gpuipc_channel_discard(of_, &frame_));
            of_ = nullptr;
        }
    }

private:
    gpuipc_channel *of_;
    gpuipc_stream stream_;
    gpuipc_frame frame_;
    bool is_published_ = false; // kernel_launched() is owed
};

/** The writer's end of a channel. */
class channel : public detail::handle<gpuipc_channel, gpuipc_channel_destroy> {
public:
    using handle::handle;
    channel() noexcept = default;

    /** For readers. */
    const gpuipc_ticket &ticket() const noexcept { return ticket_; }
    /** @param stream fills it; GPUIPC_NO_STREAM: the caller does */
    returned<loaned_frame>::as loan(gpuipc_stream stream, int timeout_ms) {
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        const gpuipc_status status = gpuipc_channel_loan(get(), stream, timeout_ms, &frame);
        return detail::give(status,
                            loaned_frame(status == GPUIPC_OK ? get() : nullptr, stream, frame));
    }
    returned<std::vector<gpuipc_reader_info>>::as readers() const {
        std::vector<gpuipc_reader_info> all(GPUIPC_CHANNEL_READERS_MAX);
        std::size_t count = 0;
        const gpuipc_status status =
            gpuipc_channel_readers(get(), all.data(), all.size(), &count);
        all.resize(status == GPUIPC_OK ? count : 0);
        return detail::give(status, std::move(all));
    }

private:
    friend class server;
    gpuipc_ticket ticket_ = gpuipc_ticket();
};

/** A frame that was taken. It is given back in the order of the stream that it was taken on. Ends before its
 *  subscription. */
class taken_frame {
public:
    taken_frame() noexcept : by_(nullptr), stream_(GPUIPC_NO_STREAM), frame_() {}
    taken_frame(gpuipc_subscription *by, gpuipc_stream stream, const gpuipc_frame &frame) noexcept
        : by_(by), stream_(stream), frame_(frame) {}
    taken_frame(taken_frame &&other) noexcept
        : by_(other.by_), stream_(other.stream_), frame_(other.frame_) {
        other.by_ = nullptr;
    }
    taken_frame &operator=(taken_frame &&other) noexcept {
        if (this != &other) {
            reset();
            by_ = other.by_;
            stream_ = other.stream_;
            frame_ = other.frame_;
            other.by_ = nullptr;
        }
        return *this;
    }
    taken_frame(const taken_frame &) = delete;
    taken_frame &operator=(const taken_frame &) = delete;
    ~taken_frame() { reset(); }

    explicit operator bool() const noexcept { return by_ != nullptr; }
    std::uint64_t address() const noexcept { return frame_.address; }
    std::uint64_t bytes() const noexcept { return frame_.bytes; }
    std::uint64_t sequence() const noexcept { return frame_.sequence; }
    std::uint64_t missed() const noexcept { return frame_.missed; }
    /** Good until it is given back. */
    const void *header() const noexcept { return frame_.header; }
    std::size_t header_bytes() const noexcept { return frame_.header_bytes; }
    /** Says whether its contents were ever there (::GPUIPC_ERR_LOST), which the destructor cannot. */
    returned<void>::as give_back() { return give_back(stream_); }
    returned<void>::as give_back(gpuipc_stream stream) {
        const gpuipc_status status = gpuipc_subscription_give_back(by_, &frame_, stream);
        if (status == GPUIPC_OK || status == GPUIPC_ERR_LOST) {
            by_ = nullptr;
        }
        return detail::give(status);
    }
    /** The kernel was launched that gives it back: of a frame of subscription::take_for_kernel(). */
    returned<void>::as kernel_launched() {
        const gpuipc_status status = gpuipc_subscription_kernel_launched(by_, &frame_, stream_);
        if (status == GPUIPC_OK || status == GPUIPC_ERR_LOST) {
            by_ = nullptr;
        }
        return detail::give(status);
    }
    void reset() noexcept {
        if (by_ != nullptr) {
            (void)!gpuipc_subscription_give_back(by_, &frame_, stream_);
            by_ = nullptr;
        }
    }

private:
    gpuipc_subscription *by_;
    gpuipc_stream stream_;
    gpuipc_frame frame_;
};

/** A reader's end of a channel. */
class subscription : public detail::handle<gpuipc_subscription, gpuipc_subscription_close> {
public:
    using handle::handle;
    subscription() noexcept = default;

    /** @param stream uses it; GPUIPC_NO_STREAM: the caller does */
    returned<taken_frame>::as take(gpuipc_stream stream, int timeout_ms) {
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        const gpuipc_status status = gpuipc_subscription_take(get(), stream, timeout_ms, &frame);
        return detail::give(status,
                            taken_frame(status == GPUIPC_OK ? get() : nullptr, stream, frame));
    }
    /** Whether the writer is there; a reader whose graph runs asks by this. */
    returned<void>::as check() const {
        return detail::give(gpuipc_subscription_check(get()));
    }
    /** For a kernel, which awaits the one word and stores the other; taken_frame::kernel_launched() comes behind it. */
    returned<taken_frame>::as take_for_kernel(gpuipc_stream stream, int timeout_ms,
                                              gpuipc_word &out_ready, gpuipc_word &out_returned) {
        gpuipc_frame frame = GPUIPC_FRAME_INIT;
        const gpuipc_status status = gpuipc_subscription_take_for_kernel(
            get(), stream, timeout_ms, &frame, &out_ready, &out_returned);
        return detail::give(status,
                            taken_frame(status == GPUIPC_OK ? get() : nullptr, stream, frame));
    }
    /** For an event loop. */
    returned<std::intptr_t>::as wait_handle() {
        std::intptr_t native = 0;
        const gpuipc_status status = gpuipc_subscription_get_wait_handle(get(), &native);
        return detail::give(status, std::move(native));
    }
};

/* ---- ticket and server -------------------------------------------------------------------- */

/** A ticket of its text. */
inline returned<gpuipc_ticket>::as ticket_from_text(const std::string &text) {
    gpuipc_ticket made = gpuipc_ticket();
    const gpuipc_status status = gpuipc_ticket_from_text(text.c_str(), &made);
    return detail::give(status, std::move(made));
}

/** The text of a ticket. */
inline returned<std::string>::as ticket_to_text(const gpuipc_ticket &ticket) {
    char text[GPUIPC_TICKET_TEXT_SIZE] = "";
    const gpuipc_status status = gpuipc_ticket_to_text(&ticket, text);
    return detail::give(status, std::string(text));
}

/** Answers tickets. */
class server : public detail::handle<gpuipc_server, gpuipc_server_destroy> {
public:
    using handle::handle;
    server() noexcept = default;

    returned<gpuipc_ticket>::as share(const buffer &shared,
                                      const gpuipc_share_config &config = GPUIPC_SHARE_CONFIG_INIT) {
        gpuipc_ticket made = gpuipc_ticket();
        const gpuipc_status status = gpuipc_buffer_share(get(), shared.get(), &config, &made);
        return detail::give(status, std::move(made));
    }
    returned<void>::as revoke(const gpuipc_ticket &ticket) {
        return detail::give(gpuipc_server_revoke(get(), &ticket));
    }
    returned<channel>::as create_channel(const gpuipc_channel_config &config) {
        channel made;
        const gpuipc_status status =
            gpuipc_channel_create(get(), &config, made.out(), &made.ticket_);
        return detail::give(status, std::move(made));
    }
};

/* ---- context ------------------------------------------------------------------------------ */

/** One process's use of gpuipc. */
class context : public detail::handle<gpuipc_context, gpuipc_context_destroy> {
public:
    using handle::handle;
    context() noexcept = default;

    /** Starts the driver. */
    static returned<context>::as create(
        const gpuipc_context_config &config = GPUIPC_CONTEXT_CONFIG_INIT) {
        context made;
        const gpuipc_status status = gpuipc_context_create(&config, made.out());
        return detail::give(status, std::move(made));
    }
    returned<gpuipc_context_info>::as info() const {
        gpuipc_context_info info = GPUIPC_CONTEXT_INFO_INIT;
        const gpuipc_status status = gpuipc_context_get_info(get(), &info);
        return detail::give(status, std::move(info));
    }
    returned<buffer>::as create_buffer(const gpuipc_buffer_config &config) const {
        buffer made;
        const gpuipc_status status = gpuipc_buffer_create(get(), &config, made.out());
        return detail::give(status, std::move(made));
    }
    /** Memory of @p bytes, as the defaults have it. */
    returned<buffer>::as create_buffer(std::uint64_t bytes) const {
        gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
        config.bytes = bytes;
        return create_buffer(config);
    }
    returned<buffer>::as wrap(std::uint64_t address, std::uint64_t bytes) const {
        buffer made;
        const gpuipc_status status = gpuipc_buffer_wrap(get(), address, bytes, made.out());
        return detail::give(status, std::move(made));
    }
    returned<buffer>::as open(const gpuipc_ticket &ticket,
                              const gpuipc_open_config &config = GPUIPC_OPEN_CONFIG_INIT) const {
        buffer made;
        const gpuipc_status status = gpuipc_buffer_open(get(), &ticket, &config, made.out());
        return detail::give(status, std::move(made));
    }
    /** A server with a thread of its own, as NULL in place of a config is in C. */
    returned<server>::as serve() const {
        server made;
        const gpuipc_status status = gpuipc_server_create(get(), nullptr, made.out());
        return detail::give(status, std::move(made));
    }
    /** Reads the channel that a ticket stands for. */
    returned<subscription>::as
    subscribe(const gpuipc_ticket &ticket,
              const gpuipc_subscription_config &config = GPUIPC_SUBSCRIPTION_CONFIG_INIT) const {
        subscription made;
        const gpuipc_status status =
            gpuipc_subscription_open(get(), &ticket, &config, made.out());
        return detail::give(status, std::move(made));
    }
    /** Reads the channel that has a name. */
    returned<subscription>::as
    subscribe(const std::string &name,
              const gpuipc_subscription_config &config = GPUIPC_SUBSCRIPTION_CONFIG_INIT) const {
        subscription made;
        const gpuipc_status status =
            gpuipc_subscription_open_named(get(), name.c_str(), &config, made.out());
        return detail::give(status, std::move(made));
    }
    returned<listener>::as listen(const std::string &name) const {
        listener made;
        const gpuipc_status status =
            gpuipc_listener_open(get(), name.c_str(), nullptr, made.out());
        return detail::give(status, std::move(made));
    }
    returned<connection>::as connect(const std::string &name, int timeout_ms) const {
        connection made;
        const gpuipc_status status =
            gpuipc_connection_open(get(), name.c_str(), nullptr, timeout_ms, made.out());
        return detail::give(status, std::move(made));
    }
};

} // namespace gpuipc

#endif

// SPDX-License-Identifier: MIT
// gpuipc.hpp at work on the emulated driver: a buffer by ticket and by message, moves, and failures; with exceptions and
// without. Exit code 0: all was as it should be.
#include <gpuipc/gpuipc.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <type_traits>

#include <gpuipc/gpuipc_dlpack.h>

#ifdef GPUIPC_NO_EXCEPTIONS
#define TAKE(call) std::move((call).value())
#define DONE(call) check(static_cast<bool>(call), #call)
#else
#define TAKE(call) (call)
#define DONE(call) (call)
#endif
#define CHECK(condition) check(condition, #condition)

static void check(bool is_so, const char *what) {
    if (!is_so) {
        std::fprintf(stderr, "not so: %s (%s)\n", what, gpuipc_error_text());
        std::exit(1);
    }
}

static_assert(!std::is_copy_constructible<gpuipc::buffer>::value, "owners are not copied");
static_assert(std::is_nothrow_move_constructible<gpuipc::buffer>::value, "owners are moved");
static_assert(std::is_nothrow_move_assignable<gpuipc::context>::value, "owners are moved");

static std::uint32_t word_of(const gpuipc::buffer &of) {
    std::uint32_t word = 0;
    DONE(of.read(0, &word, sizeof word));
    return word;
}

static void by_ticket(const gpuipc::context &mine, const gpuipc::context &theirs) {
    const std::uint32_t written = 4711;
    gpuipc::buffer made = TAKE(mine.create_buffer(4096));
    DONE(made.write(0, &written, sizeof written));
    gpuipc::server server = TAKE(mine.serve());
    const gpuipc_ticket ticket = TAKE(server.share(made));
    const std::string text = TAKE(gpuipc::ticket_to_text(ticket));
    gpuipc::buffer opened = TAKE(theirs.open(TAKE(gpuipc::ticket_from_text(text))));
    CHECK(word_of(opened) == written);
    CHECK(opened.address() == TAKE(opened.info()).address);
    gpuipc::buffer moved = std::move(opened);
    CHECK(!opened && word_of(moved) == written);
    gpuipc::buffer second = TAKE(moved.share_ownership());
    moved.reset();
    CHECK(word_of(second) == written);
    DONE(second.release(nullptr));
    CHECK(!second);
    DONE(server.revoke(ticket));
}

static gpuipc_status take_status(gpuipc::subscription &by) {
#ifdef GPUIPC_NO_EXCEPTIONS
    return by.take(GPUIPC_NO_STREAM, 0).status();
#else
    try {
        (void)by.take(GPUIPC_NO_STREAM, 0);
        return GPUIPC_OK;
    } catch (const gpuipc::error &why) {
        return why.status();
    }
#endif
}

static_assert(!std::is_copy_constructible<gpuipc::taken_frame>::value, "frames are not copied");
static_assert(std::is_nothrow_move_assignable<gpuipc::loaned_frame>::value, "frames are moved");

// On the emulated driver, a device's address is the host's. The last frame's kernels are not launched.
static void store(const gpuipc_word &word) {
    reinterpret_cast<std::atomic<std::uint64_t> *>(static_cast<std::uintptr_t>(word.address))
        ->store(word.value);
}

static void by_kernels(gpuipc::channel &channel, gpuipc::subscription &reader) {
    for (int i = 0; i < 5; i++) {
        gpuipc_word ready, returned;
        {
            gpuipc::loaned_frame made = TAKE(channel.loan(nullptr, 5000));
            const std::vector<gpuipc_word> words = TAKE(made.publish_by_kernel(made.capacity()));
            CHECK(!words.empty() && made);
            if (i < 4) {
                for (const gpuipc_word &word : words) { // also of a reader that is just closing
                    store(word);
                }
                gpuipc::loaned_frame moved = std::move(made);
                DONE(moved.kernel_launched());
                CHECK(!moved && !made);
            }
        }
        gpuipc::taken_frame came = TAKE(reader.take_for_kernel(nullptr, 5000, ready, returned));
        CHECK(came.bytes() == 1024);
        if (i < 4) {
            store(returned);
            DONE(came.kernel_launched());
            CHECK(!came);
        }
    }
}

// A frame that is not published is discarded, one that is not given back is given back at its end.
static void by_channel(const gpuipc::context &mine, const gpuipc::context &theirs) {
    const gpuipc::buffer slots = TAKE(mine.create_buffer(4096));
    gpuipc::server server = TAKE(mine.serve());
    gpuipc_channel_config config = GPUIPC_CHANNEL_CONFIG_INIT;
    config.buffer = slots.get();
    config.slots = 2;
    config.slot_bytes = 1024;
    config.header_bytes = 8;
    config.name = "frames";
    gpuipc::channel channel = TAKE(server.create_channel(config));
    gpuipc::subscription by_ticket = TAKE(theirs.subscribe(channel.ticket()));
    gpuipc::subscription by_name = TAKE(theirs.subscribe("frames"));
    CHECK(TAKE(by_name.wait_handle()) != 0);
    DONE(by_name.check());
    for (std::uint64_t i = 1; i <= 20; i++) {
        const gpuipc_stream stream = i % 2 == 0 ? nullptr : GPUIPC_NO_STREAM;
        gpuipc::loaned_frame unused = TAKE(channel.loan(stream, 5000));
        gpuipc::loaned_frame made = TAKE(channel.loan(stream, 5000));
        CHECK(made.capacity() == 1024);
        DONE(made.publish(i, &i, sizeof i));
        CHECK(!made);
        unused = gpuipc::loaned_frame();
        gpuipc::taken_frame one = TAKE(by_ticket.take(stream, 5000));
        gpuipc::taken_frame other = TAKE(by_name.take(GPUIPC_NO_STREAM, 5000));
        CHECK(one.sequence() == i && one.bytes() == i && one.missed() == 0);
        CHECK(one.header_bytes() == 8 && std::memcmp(one.header(), &i, 8) == 0);
        CHECK(take_status(by_ticket) == GPUIPC_ERR_LIMIT);
        DONE(one.give_back());
        CHECK(!one && other.address() != 0);
    }
    CHECK(TAKE(channel.readers()).size() == 2);
    by_name.reset();
    by_kernels(channel, by_ticket);
    channel.reset();
    CHECK(take_status(by_ticket) == GPUIPC_ERR_PEER_CLOSED);
}

static void lend_and_return(const gpuipc::buffer &lender, const gpuipc::buffer &borrower) {
    DONE(borrower.await_mark(TAKE(lender.mark(nullptr)), 5000));
    const gpuipc_mark unused = TAKE(lender.lend(nullptr));
    DONE(lender.cancel_loan(unused));
    DONE(lender.cancel_loan(TAKE(lender.lend_ready())));
    const gpuipc_mark loan = TAKE(lender.lend(nullptr));
    DONE(borrower.take_loan(loan));
    DONE(borrower.await_mark_async(loan, nullptr));
    CHECK(TAKE(lender.loan_states({unused, loan})) ==
          (std::vector<gpuipc_loan_state>{GPUIPC_LOAN_OVER, GPUIPC_LOAN_TAKEN}));
    DONE(lender.await_loan_async(loan, nullptr, 0));
    DONE(borrower.return_loan(loan));
    DONE(lender.await_loan(loan, 5000));
    const gpuipc_mark second = TAKE(lender.lend(nullptr));
    DONE(borrower.take_loan(second));
    DONE(borrower.return_loan_async(second, nullptr));
    DONE(lender.await_loan(second, 5000));
    const gpuipc_mark third = TAKE(lender.lend_ready());
    DONE(borrower.take_loan(third));
    DONE(borrower.drop_loan(third));
    DONE(lender.await_loan(third, 5000));
}

static gpuipc_status receive_status(gpuipc::connection &to, int timeout_ms) {
#ifdef GPUIPC_NO_EXCEPTIONS
    return to.receive(timeout_ms).status();
#else
    try {
        (void)to.receive(timeout_ms);
        return GPUIPC_OK;
    } catch (const gpuipc::error &why) {
        return why.status();
    }
#endif
}

// The message comes late, and its contents later still: both are waited for within one timeout.
static void one_timeout(const gpuipc::buffer &lender, const gpuipc::buffer &borrower,
                        gpuipc::connection &from, gpuipc::connection &to) {
    const int timeout_ms = 1000;
    const std::chrono::milliseconds most(1500);
    const std::chrono::milliseconds late(700);
    gpuipc_buffer *const buffers[] = {lender.get()};
    gpuipc_outgoing unready = GPUIPC_OUTGOING_INIT;
    unready.buffers = buffers;
    unready.buffer_count = 1;
    unready.flags = GPUIPC_SEND_ASYNC;
    const gpuipc_mark loan = TAKE(lender.lend(nullptr));
    DONE(borrower.take_loan(loan));
    DONE(lender.await_loan_async(loan, nullptr, 0)); // the default stream stands from here on
    const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    std::thread sender([&] {
        std::this_thread::sleep_for(late);
        DONE(from.send(unready, 5000));
    });
    const gpuipc_status status = receive_status(to, timeout_ms);
    const std::chrono::steady_clock::duration waited = std::chrono::steady_clock::now() - begin;
    sender.join();
    CHECK(status == GPUIPC_ERR_TIMEOUT && waited < most);
    CHECK(receive_status(to, 0) == GPUIPC_ERR_TIMEOUT);
    DONE(borrower.return_loan(loan));
    CHECK(TAKE(to.receive(-1)).buffers.size() == 1);
}

// Room that the caller has for one is not filled with what comes of three.
static void room_left_alone(const gpuipc::buffer &sent, gpuipc::connection &from,
                            gpuipc::connection &to) {
    gpuipc_buffer *const buffers[] = {sent.get(), sent.get(), sent.get()};
    gpuipc_buffer_info infos[3] = {GPUIPC_BUFFER_INFO_INIT, GPUIPC_BUFFER_INFO_INIT,
                                   GPUIPC_BUFFER_INFO_INIT};
    gpuipc_outgoing three = GPUIPC_OUTGOING_INIT;
    three.buffers = buffers;
    three.buffer_count = 3;
    DONE(from.send(three, 5000));
    gpuipc_incoming how = GPUIPC_INCOMING_INIT;
    how.buffer_capacity = 1;
    how.infos = infos;
    CHECK(TAKE(to.receive(5000, how)).buffers.size() == 3);
    CHECK(infos[0].address == 0 && infos[1].address == 0 && infos[2].address == 0);
}

static void by_message(const gpuipc::context &mine, const gpuipc::context &theirs,
                       const char *name) {
    const std::uint32_t written = 42;
    gpuipc::listener listener = TAKE(theirs.listen(name));
    gpuipc::connection from = TAKE(mine.connect(name, 5000));
    gpuipc::connection to = TAKE(listener.accept(5000));
    gpuipc::buffer made = TAKE(mine.create_buffer(4096));
    DONE(made.write(0, &written, sizeof written));
    DONE(from.send(made, 5000));
    gpuipc_outgoing words = GPUIPC_OUTGOING_INIT;
    words.bytes = "words";
    words.bytes_size = 6;
    DONE(from.send(words, 5000));
    gpuipc::message came = TAKE(to.receive(5000));
    CHECK(came.bytes.empty() && came.buffers.size() == 1 && word_of(came.buffers[0]) == written);
    lend_and_return(made, came.buffers[0]);
    const gpuipc::buffer borrower = std::move(came.buffers[0]);
    came = TAKE(to.receive(5000));
    CHECK(came.buffers.empty() && came.bytes.size() == 6 &&
          std::memcmp(came.bytes.data(), "words", 6) == 0);
    room_left_alone(made, from, to);
    one_timeout(made, borrower, from, to);
}

static void failures(const gpuipc::context &mine) {
#ifdef GPUIPC_NO_EXCEPTIONS
    gpuipc::result<gpuipc::buffer> none = mine.create_buffer(0);
    CHECK(!none && none.status() == GPUIPC_ERR_INVALID_ARGUMENT);
#else
    bool is_thrown = false;
    try {
        (void)mine.create_buffer(0);
    } catch (const gpuipc::error &why) {
        is_thrown = why.status() == GPUIPC_ERR_INVALID_ARGUMENT &&
                    std::strstr(why.what(), "bytes is 0") != nullptr &&
                    std::strcmp(why.record().operation, "gpuipc_buffer_create") == 0;
    }
    CHECK(is_thrown);
#endif
}

static void as_tensor(const gpuipc::context &mine) {
    gpuipc::buffer made = TAKE(mine.create_buffer(4096));
    gpuipc_range range = gpuipc_range();
    range.bytes = 64;
    range.element_type = GPUIPC_ELEMENT_TYPE(GPUIPC_ELEMENT_FLOAT, 32, 1);
    range.dimensions = 1;
    range.shape[0] = 16;
    gpuipc_dlpack_versioned *tensor = nullptr;
    CHECK(gpuipc_dlpack_make_versioned(made.get(), &range, &tensor) == GPUIPC_OK);
    made.reset();
    tensor->deleter(tensor);
}

int main(int count, char **words) {
    if (count != 4) {
        std::fprintf(stderr, "usage: %s RUNTIME_DIRECTORY NAME DRIVER\n", words[0]);
        return 2;
    }
    CHECK(gpuipc_version() == GPUIPC_VERSION);
    gpuipc_context_config config = GPUIPC_CONTEXT_CONFIG_INIT;
    config.driver = words[3];
    config.runtime_directory = words[1];
    const gpuipc::context mine = TAKE(gpuipc::context::create(config));
    const gpuipc::context theirs = TAKE(gpuipc::context::create(config));
    CHECK(TAKE(mine.info()).is_emulated == 1);
    by_ticket(mine, theirs);
    by_channel(mine, theirs);
    by_message(mine, theirs, words[2]);
    failures(mine);
    as_tensor(mine);
    return 0;
}

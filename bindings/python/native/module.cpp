/* SPDX-License-Identifier: MIT */
/** @file The module gpuipc._native. Loading it touches no driver. */
#include "array.hpp"
#include "buffer.hpp"
#include "connection.hpp"
#include "context.hpp"
#include "deferred.hpp"
#include "frame.hpp"
#include "lingering.hpp"
#include "machine.hpp"
#include "manifest.hpp"
#include "parcel.hpp"
#include "pickled.hpp"
#include "returns.hpp"
#include "server.hpp"
#include "stream.hpp"
#include "ticket.hpp"

/* Threads that look after what was handed over, and the default context, belong to the process and take the main
 * interpreter's GIL: a further interpreter that ends would wait for them without end. */
static void check_interpreter() {
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        throw nb::import_error(
            "gpuipc does not run in a subinterpreter: import it in the main interpreter of the process");
    }
}

static void check_version() {
    const uint32_t runs = gpuipc_version() / 100;
    const uint32_t built = GPUIPC_VERSION / 100;
    if (runs != built) {
        throw nb::import_error(
            "gpuipc._native was made for another version of the gpuipc library than the one that "
            "was loaded; is there a second one in LD_LIBRARY_PATH?");
    }
}

/* What errors.py makes its table of classes of. */
static nb::dict statuses() {
    nb::dict all;
#define STATUS_ENTRY(code, value, sentence) all[#code] = nb::make_tuple(value, sentence);
    GPUIPC_STATUS_LIST(STATUS_ENTRY)
#undef STATUS_ENTRY
    return all;
}

/* Arguments that are looked at by hand: what has not the type that is needed there. */
static void translate(const std::exception_ptr &thrown, void *) {
    try {
        std::rethrow_exception(thrown);
    } catch (const nb::cast_error &) {
        PyErr_SetString(
            PyExc_TypeError,
            "an argument, or a part of one, has not the type or the size that it is to have");
    }
}

NB_MODULE(_native, m) {
    /* At exit variables of modules still have their arrays: the process's end gives those up. */
    nb::set_leak_warnings(false);
    check_interpreter();
    check_version();
    binding::exclusive::begin(m);
    nb::register_exception_translator(translate);
    binding::deferred_begin();
    binding::lingering_begin();
    binding::define(m, "statuses", statuses,
                    nb::sig("def statuses() -> dict[str, tuple[int, str]]"),
                    "All statuses of the library: their numbers and sentences.");
    binding::bind_ticket(m);
    binding::bind_policy(m);
    binding::bind_context(m);
    binding::bind_server(m);
    binding::bind_buffer(m);
    binding::bind_returns(m);
    binding::bind_array(m);
    binding::bind_open(m);
    binding::bind_wrap(m);
    binding::bind_pickled(m);
    binding::bind_manifest(m);
    binding::bind_machine(m);
    binding::bind_connection(m);
    binding::bind_frame(m);
    binding::bind_channel(m);
    binding::bind_subscription(m);
    binding::bind_stream(m);
    binding::bind_parcel(m);
    binding::bind_delivery(m);
    binding::bind_reduce(m);
    binding::define(
        m, "version",
        [] {
            const uint32_t number = gpuipc_version();
            return nb::str("{}.{}.{}").format(number / 10000, number / 100 % 100, number % 100);
        },
        "The version of the library that runs.");
}

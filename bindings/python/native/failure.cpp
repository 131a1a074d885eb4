/* SPDX-License-Identifier: MIT */
#include "failure.hpp"

namespace binding {

static const char *origin_name(gpuipc_native_origin origin) {
    switch (origin) {
    case GPUIPC_NATIVE_OS:
        return "os";
    case GPUIPC_NATIVE_CUDA:
        return "cuda";
    default:
        return "";
    }
}

[[noreturn]] static void raise(const gpuipc_error &record, const char *text) {
    /* Looked up here and not when the module is loaded, so that it can be loaded alone, as for its stubs. */
    nb::object error = nb::module_::import_("gpuipc.errors")
                           .attr("_make")(static_cast<int>(record.status), text, record.operation,
                                          record.native_call, origin_name(record.native_origin),
                                          record.native_code, record.sentence);
    PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

void check(gpuipc_status status) {
    if (status == GPUIPC_OK) {
        return;
    }
    /* Copies: what Python runs while the exception is made may call gpuipc. */
    const nb::str text(gpuipc_error_text());
    gpuipc_error record = *gpuipc_error_get();
    record.status = status;
    raise(record, text.c_str());
}

const char *c_text(const std::string &text) {
    if (text.find('\0') != std::string::npos) {
        throw nb::value_error("the text has a character NUL");
    }
    return text.c_str();
}

void fail(gpuipc_status status, const char *operation, const char *sentence) {
    gpuipc_error record = {};
    record.status = status;
    snprintf(record.operation, sizeof(record.operation), "%s", operation);
    snprintf(record.sentence, sizeof(record.sentence), "%s", sentence);
    const nb::str text =
        nb::str("{}: {} ({})").format(operation, sentence, gpuipc_status_name(status));
    raise(record, text.c_str());
}

} // namespace binding

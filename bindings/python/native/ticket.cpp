/* SPDX-License-Identifier: MIT */
#include "ticket.hpp"

#include <cstring>

namespace binding {

static gpuipc_ticket from_text(const char *text) {
    gpuipc_ticket ticket;
    check(gpuipc_ticket_from_text(text, &ticket));
    return ticket;
}

static gpuipc_ticket from_bytes(const nb::bytes &bytes) {
    gpuipc_ticket ticket;
    check(gpuipc_ticket_from_bytes(bytes.data(), bytes.size(), &ticket));
    return ticket;
}

gpuipc_ticket ticket_from(nb::handle argument) {
    if (nb::isinstance<gpuipc_ticket>(argument)) {
        return *nb::inst_ptr<gpuipc_ticket>(argument);
    }
    if (nb::isinstance<nb::str>(argument)) {
        return from_text(c_text(nb::cast<std::string>(argument)));
    }
    if (nb::isinstance<nb::bytes>(argument)) {
        return from_bytes(nb::cast<nb::bytes>(argument));
    }
    throw nb::type_error("a ticket is a gpuipc.Ticket, its 64 bytes, or its text");
}

static nb::bytes to_bytes(const gpuipc_ticket &ticket) {
    return nb::bytes(ticket.bytes, sizeof(ticket.bytes));
}

static nb::str to_text(const gpuipc_ticket &ticket) {
    char text[GPUIPC_TICKET_TEXT_SIZE];
    check(gpuipc_ticket_to_text(&ticket, text));
    return nb::str(text);
}

static gpuipc_ticket narrow(const gpuipc_ticket &whole, uint64_t offset, uint64_t nbytes) {
    gpuipc_ticket part;
    check(gpuipc_ticket_narrow(&whole, offset, nbytes, &part));
    return part;
}

static bool is_equal(const gpuipc_ticket &one, const gpuipc_ticket &other) {
    return memcmp(one.bytes, other.bytes, sizeof(one.bytes)) == 0;
}

void bind_ticket(nb::module_ &m) {
    bound_class<gpuipc_ticket>(
        m, "Ticket",
        "64 bytes that stand for a buffer or a part of one. A secret: whoever reads it, and may "
        "connect to the server that gave it out, may open the memory.")
        .def(
            "__init__",
            [](gpuipc_ticket *self, nb::handle ticket) {
                new (self) gpuipc_ticket(ticket_from(ticket));
            },
            nb::arg("ticket"), nb::sig("def __init__(self, ticket: Ticket | bytes | str) -> None"),
            "Of 64 bytes, or of the text that str() makes.")
        .def("__bytes__", to_bytes)
        .def("__str__", to_text)
        .def("__repr__", [](const gpuipc_ticket &) { return "<gpuipc.Ticket, a secret>"; })
        .def("__eq__", is_equal, nb::is_operator(),
             nb::sig("def __eq__(self, other: object, /) -> bool"))
        .def("__hash__", [](const gpuipc_ticket &self) { return nb::hash(to_bytes(self)); })
        .def(
            "__reduce__",
            [](nb::handle self) {
                return nb::make_tuple(self.type(),
                                      nb::make_tuple(to_bytes(*nb::inst_ptr<gpuipc_ticket>(self))));
            },
            nb::sig("def __reduce__(self) -> tuple[object, ...]"))
        .def(
            "narrow", narrow, nb::arg("offset"), nb::arg("nbytes"),
            "A ticket for nbytes bytes from offset on, made without asking anybody. open_buffer() opens it. What comes with "
            "the whole, such as which arrays there are, does not come with a part, and open() refuses it then. It guards "
            "against mistakes only: whoever has it can make the other.");
}

} // namespace binding

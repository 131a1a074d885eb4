/* SPDX-License-Identifier: MIT */
#include "element.hpp"

#include <algorithm>

#include "asked.hpp"

namespace binding {

namespace {

/* The codes of dlpack.h; those of floats of 8 and 4 bits are of DLPack 1.1. */
struct known {
    const char *name;
    uint8_t code;
    uint8_t bits;
    char kind; /* NumPy's letter; 0: it has none */
    uint16_t lanes =
        1; /* an element of several numbers has whole bytes, where each of them has not */
};

constexpr known types[] = {
    {"bool", 6, 8, 'b'},
    {"int8", 0, 8, 'i'},
    {"int16", 0, 16, 'i'},
    {"int32", 0, 32, 'i'},
    {"int64", 0, 64, 'i'},
    {"uint8", 1, 8, 'u'},
    {"uint16", 1, 16, 'u'},
    {"uint32", 1, 32, 'u'},
    {"uint64", 1, 64, 'u'},
    {"float16", 2, 16, 'f'},
    {"float32", 2, 32, 'f'},
    {"float64", 2, 64, 'f'},
    {"bfloat16", 4, 16, 0},
    {"complex32", 5, 32, 0},
    {"complex64", 5, 64, 'c'},
    {"complex128", 5, 128, 'c'},
    {"float8_e3m4", 7, 8, 0},
    {"float8_e4m3", 8, 8, 0},
    {"float8_e4m3b11fnuz", 9, 8, 0},
    {"float8_e4m3fn", 10, 8, 0},
    {"float8_e4m3fnuz", 11, 8, 0},
    {"float8_e5m2", 12, 8, 0},
    {"float8_e5m2fnuz", 13, 8, 0},
    {"float8_e8m0fnu", 14, 8, 0},
    {"float4_e2m1fn_x2", 17, 4, 0, 2},
};

const known *find(const element &type) {
    for (const known &each : types) {
        if (each.code == type.code && each.bits == type.bits && each.lanes == type.lanes) {
            return &each;
        }
    }
    return nullptr;
}

element checked(const element &type) {
    if (type.bits == 0 || type.lanes == 0 || uint32_t{type.bits} * type.lanes % 8 != 0) {
        throw nb::value_error(
            "an element of an Array has whole bytes: name several lanes of such numbers, as float4_e2m1fn_x2 does");
    }
    return type;
}

element from_name(const std::string &name) {
    std::vector<std::string> names;
    for (const known &each : types) {
        if (name == each.name) {
            return {each.code, each.bits, each.lanes};
        }
        names.emplace_back(each.name);
    }
    throw nb::value_error(
        ("there is no type of elements called '" + name + "'" +
         nearest(name, names, "; the types are bool, int8, float32, bfloat16 and their kin"))
            .c_str());
}

/* As NumPy takes Python's own types. (bool has the name of its type of elements.) */
const char *name_of_python_type(nb::handle argument) {
    if (argument.is(reinterpret_cast<PyObject *>(&PyFloat_Type))) {
        return "float64";
    }
    if (argument.is(reinterpret_cast<PyObject *>(&PyLong_Type))) {
        return "int64";
    }
    return argument.is(reinterpret_cast<PyObject *>(&PyComplex_Type)) ? "complex128" : nullptr;
}

/* NumPy's dtypes are of the same name whichever end comes first. */
void check_byte_order(nb::handle argument) {
    const nb::object order = attribute_of(argument, "byteorder");
    if (order.is_valid() && nb::isinstance<nb::str>(order) && nb::cast<std::string>(order) == ">") {
        throw nb::value_error("elements with the high byte first have no place on a GPU");
    }
}

} // namespace

element element_from(nb::handle argument) {
    if (nb::isinstance<nb::str>(argument)) {
        return from_name(nb::cast<std::string>(argument));
    }
    if (nb::isinstance<nb::tuple>(argument)) {
        nb::tuple parts = nb::borrow<nb::tuple>(argument);
        if (parts.size() != 3) {
            throw nb::value_error("a type as a tuple is DLPack's (code, bits, lanes)");
        }
        return checked({nb::cast<uint8_t>(parts[0]), nb::cast<uint8_t>(parts[1]),
                        nb::cast<uint16_t>(parts[2])});
    }
    if (const char *name = name_of_python_type(argument)) {
        return from_name(name);
    }
    for (const char *attribute : {"name", "__name__"}) {
        const nb::object name = attribute_of(argument, attribute);
        if (name.is_valid() && nb::isinstance<nb::str>(name)) {
            check_byte_order(argument);
            return from_name(nb::cast<std::string>(name));
        }
    }
    const std::string text = nb::cast<std::string>(text_of(argument));
    if (text.rfind("torch.", 0) == 0) {
        return from_name(text.substr(6));
    }
    throw nb::type_error("a type of elements is a name, or a dtype of NumPy, PyTorch or JAX");
}

element element_from_packed(uint32_t packed) {
    return checked({static_cast<uint8_t>(GPUIPC_ELEMENT_KIND(packed)),
                    static_cast<uint8_t>(GPUIPC_ELEMENT_BITS(packed)),
                    static_cast<uint16_t>(GPUIPC_ELEMENT_LANES(packed))});
}

std::string element_name(const element &type) {
    const known *is = find(type);
    return is != nullptr ? is->name
                         : "(" + std::to_string(type.code) + ", " + std::to_string(type.bits) +
                               ", " + std::to_string(type.lanes) + ")";
}

std::string element_typestr(const element &type) {
    const known *is = find(type);
    if (is == nullptr || is->kind == 0) {
        return "";
    }
    return std::string(type.bits == 8 ? "|" : "<") + is->kind + std::to_string(type.bits / 8);
}

element element_from_typestr(const std::string &typestr) {
    for (const known &each : types) {
        const element type = {each.code, each.bits, each.lanes};
        if (each.kind != 0 && element_typestr(type) == typestr) {
            return type;
        }
    }
    throw nb::value_error(("there is no type of elements for '" + typestr + "'").c_str());
}

/* None needs more than 16 bytes (CUDA C++ Programming Guide, device memory accesses). */
void check_alignment(uint64_t address, const element &type) {
    const uint64_t bytes = type.bytes();
    const uint64_t wanted = std::min<uint64_t>(bytes & (~bytes + 1), 16);
    if (address % wanted != 0) {
        const nb::str sentence =
            nb::str("elements of {} lie at multiples of {}, and this array's do not")
                .format(element_name(type).c_str(), wanted);
        throw nb::value_error(sentence.c_str());
    }
}

bool element_is_plain(const element &type) {
    if (type.lanes != 1) {
        return false;
    }
    switch (type.code) {
    case 0: /* kDLInt */
    case 2: /* kDLFloat */
    case 4: /* kDLBfloat */
        return true;
    case 1: /* kDLUInt: the wider ones came later */
        return type.bits == 8;
    case 5: /* kDLComplex */
        return type.bits >= 64;
    default:
        return false;
    }
}

} // namespace binding

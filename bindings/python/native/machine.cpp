/* SPDX-License-Identifier: MIT */
#include "machine.hpp"

#include "buffer.hpp"
#include "connection.hpp"
#include "context.hpp"

namespace binding {

namespace {

nb::object none_or(bool is_known, uint64_t number) {
    return is_known ? nb::object(nb::int_(number)) : nb::none();
}

nb::object reason_or_none(gpuipc_reason reason) {
    return reason == GPUIPC_REASON_NONE ? nb::none()
                                        : nb::object(nb::str(gpuipc_reason_name(reason)));
}

gpuipc_transport_pair pair_of(uint32_t owner, uint32_t user, nb::handle connection) {
    gpuipc_transport_pair pair = GPUIPC_TRANSPORT_PAIR_INIT;
    pair.owner = owner;
    pair.user = user;
    pair.connection = connection_from(connection);
    return pair;
}

/* ---- ways ----------------------------------------------------------------------------------- */

const char *name_of(gpuipc_figure_source source) {
    switch (source) {
    case GPUIPC_FIGURE_ESTIMATED:
        return "estimated";
    case GPUIPC_FIGURE_MEASURED:
        return "measured";
    default:
        return "";
    }
}

const char *name_of(gpuipc_proof proof) {
    switch (proof) {
    case GPUIPC_PROOF_ATTRIBUTES:
        return "attributes";
    case GPUIPC_PROOF_TRIED:
        return "tried";
    default:
        return "";
    }
}

nb::dict query(const std::string &transport, uint32_t owner, uint32_t user, nb::handle connection,
               nb::handle context_argument) {
    const std::shared_ptr<context> of = context_from(context_argument);
    const gpuipc_transport asked = transport_from(nb::str(transport.c_str()));
    const gpuipc_transport_pair pair = pair_of(owner, user, connection);
    gpuipc_transport_info info = GPUIPC_TRANSPORT_INFO_INIT;
    check(released([&] { return gpuipc_transport_query(of->handle(), asked, &pair, &info); }));
    nb::dict answer;
    answer["name"] = gpuipc_transport_name(info.transport);
    answer["available"] = info.available != 0;
    answer["reason"] = reason_or_none(info.reason);
    answer["sentence"] = nb::str(info.sentence);
    answer["is_zero_copy"] = info.is_zero_copy != 0;
    answer["proof"] = name_of(info.proof);
    answer["bandwidth"] =
        none_or(info.bandwidth_source != GPUIPC_FIGURE_NONE, info.bandwidth_bytes_per_second);
    answer["bandwidth_source"] = name_of(info.bandwidth_source);
    answer["latency_ns"] = none_or(info.latency_source != GPUIPC_FIGURE_NONE, info.latency_ns);
    answer["latency_source"] = name_of(info.latency_source);
    return answer;
}

std::vector<std::string> transport_names() {
    std::vector<std::string> names;
    for (int i = 1; i <= GPUIPC_TRANSPORT_COUNT; i++) {
        names.emplace_back(gpuipc_transport_name(static_cast<gpuipc_transport>(i)));
    }
    return names;
}

nb::dict reasons_of(const gpuipc_reason reasons[GPUIPC_TRANSPORT_ROOM]) {
    nb::dict refused;
    for (int i = 1; i <= GPUIPC_TRANSPORT_COUNT; i++) {
        if (reasons[i] != GPUIPC_REASON_NONE) {
            refused[gpuipc_transport_name(static_cast<gpuipc_transport>(i))] =
                gpuipc_reason_name(reasons[i]);
        }
    }
    return refused;
}

gpuipc_policy policy_from(const std::string &name) {
    if (name == "zero-copy") {
        return GPUIPC_POLICY_ZERO_COPY;
    }
    if (name == "prefer-zero-copy") {
        return GPUIPC_POLICY_PREFER_ZERO_COPY;
    }
    if (name == "any") {
        return GPUIPC_POLICY_ANY;
    }
    throw nb::value_error("a policy is zero-copy, prefer-zero-copy or any");
}

nb::tuple select(uint32_t owner, uint32_t user, nb::handle buffer, const std::string &policy,
                 nb::handle connection, nb::handle context_argument) {
    const std::shared_ptr<context> of = context_from(context_argument);
    const gpuipc_transport_pair pair = pair_of(owner, user, connection);
    const gpuipc_policy by = policy_from(policy);
    gpuipc_buffer *carried =
        buffer.is_none() ? nullptr : nb::cast<buffer_object &>(buffer).core->handle();
    gpuipc_selection selection = GPUIPC_SELECTION_INIT;
    check(released(
        [&] { return gpuipc_transport_select(of->handle(), &pair, carried, by, &selection); }));
    return nb::make_tuple(gpuipc_transport_name(selection.chosen), reasons_of(selection.refused));
}

nb::dict measure(const std::string &transport, uint32_t owner, uint32_t user,
                 nb::handle context_argument) {
    const std::shared_ptr<context> of = context_from(context_argument);
    const gpuipc_transport asked = transport_from(nb::str(transport.c_str()));
    const gpuipc_transport_pair pair = pair_of(owner, user, nb::none());
    gpuipc_measurement measured = GPUIPC_MEASUREMENT_INIT;
    check(
        released([&] { return gpuipc_transport_measure(of->handle(), asked, &pair, &measured); }));
    nb::dict answer;
    answer["nbytes"] = measured.bytes;
    answer["one_way"] = measured.one_way_bytes_per_second;
    answer["both_ways"] =
        none_or(measured.both_ways_bytes_per_second != 0, measured.both_ways_bytes_per_second);
    answer["latency_ns"] = measured.latency_ns;
    return answer;
}

/* ---- what joins two devices ------------------------------------------------------------------ */

const char *name_of(gpuipc_link link) {
    switch (link) {
    case GPUIPC_LINK_SAME:
        return "same";
    case GPUIPC_LINK_NVLINK:
        return "nvlink";
    case GPUIPC_LINK_PCIE:
        return "pcie";
    default:
        return "unknown";
    }
}

nb::dict link(uint32_t owner, uint32_t user, nb::handle context_argument) {
    const std::shared_ptr<context> of = context_from(context_argument);
    gpuipc_topology topology = GPUIPC_TOPOLOGY_INIT;
    check(released([&] { return gpuipc_topology_get(of->handle(), owner, user, &topology); }));
    nb::dict answer;
    answer["owner"] = owner;
    answer["user"] = user;
    answer["kind"] = name_of(topology.link);
    answer["generation"] = none_or(topology.link_generation != 0, topology.link_generation);
    answer["width"] = none_or(topology.link_width != 0, topology.link_width);
    answer["peer_access"] = topology.peer_access != 0;
    answer["performance_rank"] = topology.performance_rank;
    answer["native_atomics"] = topology.native_atomics != 0;
    answer["is_from_nvml"] = topology.is_from_nvml != 0;
    return answer;
}

/* ---- kinds of memory ------------------------------------------------------------------------- */

nb::dict classify(uint64_t address, uint64_t nbytes, nb::handle context_argument) {
    const std::shared_ptr<context> of = context_from(context_argument);
    gpuipc_pointer_info info = GPUIPC_POINTER_INFO_INIT;
    check(released([&] { return gpuipc_pointer_classify(of->handle(), address, nbytes, &info); }));
    nb::list transports;
    for (uint32_t i = 1; i <= GPUIPC_TRANSPORT_COUNT; i++) {
        if ((info.transports & 1u << i) != 0) {
            transports.append(gpuipc_transport_name(static_cast<gpuipc_transport>(i)));
        }
    }
    nb::dict answer;
    answer["kind"] = gpuipc_memory_kind_name(info.kind);
    answer["device"] = none_or(info.device != GPUIPC_DEVICE_NONE, info.device);
    answer["transports"] = nb::tuple(transports);
    answer["refused"] = reasons_of(info.why_not);
    answer["sentence"] = nb::str(info.sentence);
    answer["base"] = info.base;
    answer["allocations"] = info.allocation_count;
    answer["allocated_nbytes"] = info.allocated_bytes;
    return answer;
}

} // namespace

void bind_machine(nb::module_ &m) {
    define(m, "transport_names", transport_names);
    define(
        m, "query", query, nb::arg("transport"), nb::arg("owner"), nb::arg("user"),
        nb::arg("connection").none(), nb::arg("context").none(),
        nb::sig("def query(transport: str, owner: int, user: int, connection: Connection | None, "
                "context: Context | None) -> dict[str, typing.Any]"));
    define(
        m, "select", select, nb::arg("owner"), nb::arg("user"), nb::arg("buffer").none(),
        nb::arg("policy"), nb::arg("connection").none(), nb::arg("context").none(),
        nb::sig("def select(owner: int, user: int, buffer: Buffer | None, policy: str, connection: "
                "Connection | None, context: Context | None) -> tuple[str, dict[str, str]]"));
    define(m, "measure", measure, nb::arg("transport"), nb::arg("owner"), nb::arg("user"),
           nb::arg("context").none(),
           nb::sig("def measure(transport: str, owner: int, user: int, context: Context | None) -> "
                   "dict[str, typing.Any]"));
    define(
        m, "link", link, nb::arg("owner"), nb::arg("user"), nb::arg("context").none(),
        nb::sig(
            "def link(owner: int, user: int, context: Context | None) -> dict[str, typing.Any]"));
    define(m, "classify", classify, nb::arg("address"), nb::arg("nbytes"),
           nb::arg("context").none(),
           nb::sig("def classify(address: int, nbytes: int, context: Context | None) -> dict[str, "
                   "typing.Any]"));
}

} // namespace binding

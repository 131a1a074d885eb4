/* SPDX-License-Identifier: MIT */
/** @file The steps that have a name: of connecting, a hand-over, a ticket, contents, marks and loans, a channel. */
#include <stddef.h>

#include "channel/channel.h"
#include "channel/subscription.h"
#include "contents/contents_ring.h"
#include "conversation.h"
#include "copy/buffer_copy.h"
#include "message/connection.h"
#include "message/handover.h"
#include "message/receipt.h"
#include "os.h"
#include "step.h"
#include "sync/mark.h"
#include "ticket/offer.h"
#include "ticket/server_link.h"
#include "ticket/share.h"
#include "ticket/ticket_request.h"

#define STEP(name, side, function, edge, nth)                                                      \
    { name, side, (void (*)(void))(function), edge, nth }

const step step_table[] = {
    STEP("listening", SIDE_LISTENER, gpuipc_listener_open, STEP_LEAVES, 1),
    STEP("accepting", SIDE_LISTENER, os_listener_accept, STEP_ENTERS, 1),
    STEP("accepted", SIDE_LISTENER, os_listener_accept, STEP_LEAVES, 1),
    STEP("first packet received", SIDE_LISTENER, os_connection_receive, STEP_LEAVES, 1),
    STEP("page of points mapped", SIDE_LISTENER, receipt_take_page, STEP_LEAVES, 1),
    STEP("handle received", SIDE_LISTENER, os_connection_receive, STEP_LEAVES, 2),
    STEP("buffer opened", SIDE_LISTENER, connection_deliver, STEP_LEAVES, 1),
    STEP("returning", SIDE_LISTENER, gpuipc_buffer_release, STEP_ENTERS, 1),
    STEP("returned", SIDE_LISTENER, gpuipc_buffer_release, STEP_LEAVES, 1),
    STEP("listener closed", SIDE_LISTENER, os_listener_destroy, STEP_LEAVES, 1),
    STEP("connecting", SIDE_CONNECTOR, os_connection_open, STEP_ENTERS, 1),
    STEP("connected", SIDE_CONNECTOR, os_connection_open, STEP_LEAVES, 1),
    STEP("lent", SIDE_CONNECTOR, handover_begin, STEP_LEAVES, 1),
    STEP("page of points sent", SIDE_CONNECTOR, os_connection_send, STEP_LEAVES, 1),
    STEP("handle to be sent", SIDE_CONNECTOR, os_connection_send, STEP_ENTERS, 2),
    STEP("handle sent", SIDE_CONNECTOR, os_connection_send, STEP_LEAVES, 2),
    STEP("return awaited", SIDE_CONNECTOR, gpuipc_buffer_await_returns, STEP_ENTERS, 1),
    STEP("return came", SIDE_CONNECTOR, gpuipc_buffer_await_returns, STEP_LEAVES, 1),
    STEP("closing", SIDE_CONNECTOR, os_connection_end, STEP_ENTERS, 1),
    STEP("closed", SIDE_CONNECTOR, os_connection_destroy, STEP_LEAVES, 1),
    STEP("endpoint of the server bound", SIDE_SERVER, os_listener_open, STEP_LEAVES, 1),
    STEP("ticket made", SIDE_SERVER, share_add, STEP_LEAVES, 1),
    STEP("client admitted", SIDE_SERVER, connection_new, STEP_LEAVES, 1),
    STEP("request received", SIDE_SERVER, os_connection_receive, STEP_LEAVES, 2),
    STEP("grant decided", SIDE_SERVER, share_ask, STEP_LEAVES, 1),
    STEP("offer sent", SIDE_SERVER, offer_send, STEP_LEAVES, 1),
    STEP("offer acknowledged", SIDE_SERVER, share_confirm, STEP_LEAVES, 1),
    STEP("revoked", SIDE_SERVER, gpuipc_server_revoke, STEP_LEAVES, 1),
    STEP("server destroyed", SIDE_SERVER, gpuipc_server_destroy, STEP_LEAVES, 1),
    STEP("link to the server made", SIDE_OPENER, server_link_endpoint, STEP_LEAVES, 1),
    STEP("ticket requested", SIDE_OPENER, ticket_request_send, STEP_LEAVES, 1),
    STEP("ticket answered", SIDE_OPENER, ticket_request_receive, STEP_LEAVES, 1),
    STEP("opening acknowledged", SIDE_OPENER, ticket_request_confirm, STEP_LEAVES, 1),
    STEP("ticket opened", SIDE_OPENER, gpuipc_buffer_open, STEP_LEAVES, 1),
    STEP("lease given up", SIDE_OPENER, gpuipc_buffer_release, STEP_LEAVES, 1),
    STEP("contents opened", SIDE_CONTENTS_LISTENER, connection_deliver, STEP_LEAVES, 1),
    STEP("contents received", SIDE_CONTENTS_LISTENER, gpuipc_connection_receive_contents,
         STEP_LEAVES, 1),
    STEP("contents lent", SIDE_CONTENTS_LISTENER, handover_begin, STEP_LEAVES, 1),
    STEP("contents answered", SIDE_CONTENTS_LISTENER, gpuipc_connection_send_contents, STEP_LEAVES,
         1),
    STEP("contents sent", SIDE_CONTENTS_CONNECTOR, gpuipc_connection_send_contents, STEP_LEAVES, 1),
    STEP("contents awaited", SIDE_CONTENTS_CONNECTOR, gpuipc_connection_receive_contents,
         STEP_ENTERS, 1),
    STEP("contents copied out", SIDE_CONTENTS_CONNECTOR, buffer_copy, STEP_LEAVES, 1),
    STEP("contents came back", SIDE_CONTENTS_CONNECTOR, gpuipc_connection_receive_contents,
         STEP_LEAVES, 1),
    STEP("words of the ring sent", SIDE_CONTENTS_CONNECTOR, connection_send_page, STEP_LEAVES, 2),
    STEP("contents put into the ring", SIDE_CONTENTS_CONNECTOR, contents_ring_put, STEP_LEAVES, 1),
    STEP("contents taken from the ring", SIDE_CONTENTS_LISTENER, contents_ring_put, STEP_LEAVES, 1),
    STEP("ring left", SIDE_CONTENTS_LISTENER, contents_ring_destroy, STEP_LEAVES, 1),
    STEP("marked", SIDE_LENDER, mark_write, STEP_LEAVES, 1),
    STEP("lending", SIDE_LENDER, gpuipc_buffer_lend, STEP_ENTERS, 1),
    STEP("lent", SIDE_LENDER, gpuipc_buffer_lend, STEP_LEAVES, 1),
    STEP("loan awaited", SIDE_LENDER, gpuipc_buffer_await_loan, STEP_ENTERS, 1),
    STEP("mark awaited", SIDE_BORROWER, gpuipc_buffer_await_mark, STEP_LEAVES, 1),
    STEP("loan taken", SIDE_BORROWER, gpuipc_buffer_take_loan, STEP_LEAVES, 1),
    STEP("loan returned", SIDE_BORROWER, gpuipc_buffer_return_loan_async, STEP_LEAVES, 1),
    STEP("channel made", SIDE_WRITER, gpuipc_channel_create, STEP_LEAVES, 1),
    STEP("bells made for a reader", SIDE_WRITER, os_bell_make, STEP_LEAVES, 2),
    STEP("page for a reader sent", SIDE_WRITER, os_connection_send, STEP_LEAVES, 1),
    STEP("frame loaned", SIDE_WRITER, gpuipc_channel_loan, STEP_LEAVES, 1),
    STEP("frame offered, reader not woken", SIDE_WRITER, channel_offer, STEP_LEAVES, 1),
    STEP("frame published", SIDE_WRITER, gpuipc_channel_publish, STEP_LEAVES, 1),
    STEP("loan waiting for a reader", SIDE_WRITER, gpuipc_channel_loan, STEP_ENTERS, 4),
    STEP("channel destroyed", SIDE_WRITER, gpuipc_channel_destroy, STEP_LEAVES, 1),
    STEP("channel answered", SIDE_READER, server_link_subscribe, STEP_LEAVES, 1),
    STEP("subscribed", SIDE_READER, gpuipc_subscription_open, STEP_LEAVES, 1),
    STEP("looking for a frame", SIDE_READER, subscription_find, STEP_ENTERS, 1),
    STEP("frame taken", SIDE_READER, gpuipc_subscription_take, STEP_LEAVES, 2),
    STEP("frame given back", SIDE_READER, gpuipc_subscription_give_back, STEP_LEAVES, 1),
    STEP("subscription closed", SIDE_READER, gpuipc_subscription_close, STEP_LEAVES, 1),
    {NULL, 0, NULL, STEP_ENTERS, 0}};

// Between the server's exchanges and the messages of isolates.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "js/messages.h"
#include "js/pipe.h"
#include "net/content_encoder.h"
#include "net/http_server.h"
#include "world/world.h"

namespace celld {

// Bodies up to this size are read whole before the Worker starts; larger ones stream.
inline constexpr uint64_t kWholeBodyBytesMax = 16 << 10;

// Reads the body of a request to its end, then goes on. A body of more than `bytes_max` is answered with
// 413, one that does not end well by the server. Loop thread.
void read_whole(std::shared_ptr<HttpExchange> exchange, uint64_t bytes_max,
                std::move_only_function<void(std::shared_ptr<HttpExchange>, Blob)> then);

// Moves the body of a request into a pipe, at the pace of its reader. Loop thread.
js::PipeReader stream_request_body(World& world, std::shared_ptr<HttpExchange> exchange);

// Moves a pipe into a started response and ends it. `encoder`: what codes the body; null: it goes
// as it is. Loop thread.
void stream_response_body(World& world, std::shared_ptr<HttpExchange> exchange, js::PipeReader body,
                          std::shared_ptr<ContentEncoder> encoder = nullptr);

// "http://host/target" of a request.
std::string request_url(const RequestHead& head);

}  // namespace celld

#pragma once
#include <functional>
#include <memory>
#include "store/file_store.h"
#include "store/object_store.h"
#include "world/http_transport.h"
namespace celld {
using HttpTransportFactory = std::function<std::unique_ptr<HttpTransport>()>;
struct StoreOptions { std::string endpoint, region; Fsync file_fsync = Fsync::kOn; };
Result<std::unique_ptr<ObjectStore>> open_store(World& world, HttpTransportFactory transports, std::string_view spec, StoreOptions options);
}

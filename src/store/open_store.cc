#include "store/open_store.h"
#include "store/probe.h"
namespace celld {
Result<std::unique_ptr<ObjectStore>> open_store(World& world, HttpTransportFactory, std::string_view spec, StoreOptions options) {
  if (!spec.starts_with("file://")) return fail(Error::unsupported("bucket " + std::string(spec)));
  FileStore::Options o; o.fsync = options.file_fsync;
  TRY_ASSIGN(std::unique_ptr<FileStore> s, FileStore::open(world, std::string(spec.substr(7)), o));
  return std::unique_ptr<ObjectStore>(std::move(s));
}
Task<Result<void>> probe_store(World&, ObjectStore&) { co_return Result<void>(); }
}

#include "store/open_store.h"

#include <utility>

#include "store/aws/chain.h"
#include "store/aws/host.h"
#include "store/aws/providers.h"
#include "store/azure/azure_open.h"
#include "store/gcs/gcs_store.h"
#include "store/key.h"
#include "store/prefix_store.h"
#include "store/s3_store.h"

namespace celld {

namespace {

Result<std::unique_ptr<ObjectStore>> open_directory(World& world, std::string_view path,
                                                    const StoreOptions& options) {
  if (!path.starts_with('/')) {
    return fail(Error::invalid("a directory is written file:///absolute/path, with three slashes"));
  }
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  if (path == "/") return fail(Error::invalid("the root directory cannot be a bucket"));
  FileStore::Options file = options.file;
  file.share = true;
  return FileStore::open(world, std::string(path), file);
}

// "prefix/" or "" from what follows the bucket's name.
Result<std::string> parse_prefix(std::string_view text) {
  while (text.ends_with('/')) text.remove_suffix(1);
  if (text.empty()) return std::string();
  if (text.size() > 511) return fail(Error::invalid("the prefix is longer than 511 bytes"));
  if (text.find("//") != std::string_view::npos || text.starts_with('/')) {
    return fail(Error::invalid("the prefix has an empty part ('//')"));
  }
  return std::string(text) + "/";
}

// What every store behind a network gets.
std::unique_ptr<ObjectStore> wrapped(World& world, std::shared_ptr<ObjectStore> store,
                                     std::string prefix, const StoreOptions& options) {
  if (!prefix.empty()) store = std::make_shared<PrefixStore>(std::move(store), std::move(prefix));
  return std::make_unique<RetryStore>(world, std::move(store), options.retry);
}

Result<std::unique_ptr<ObjectStore>> open_s3(World& world, const HttpTransportFactory& transports,
                                             std::string_view rest, StoreOptions options) {
  const size_t slash = rest.find('/');
  S3Options s3;
  s3.bucket = rest.substr(0, slash);
  if (s3.bucket.empty()) return fail(Error::invalid("the bucket's name is missing: s3://BUCKET"));
  std::string_view tail = slash == std::string_view::npos ? "" : rest.substr(slash + 1);
  TRY_ASSIGN(std::string prefix, parse_prefix(tail));

  if (!transports) return fail(Error::unsupported("no HTTP transport to reach it with"));
  std::shared_ptr<AwsHost> host = aws_host(world, options.environment);
  auto first_of = [&](const std::string& option, std::initializer_list<const char*> names,
                      std::string_view setting) {
    if (!option.empty()) return option;
    for (const char* name : names) {
      if (auto value = options.environment(name)) return *value;
    }
    return aws_profile_setting(*host, setting).value_or("");
  };
  s3.endpoint =
      first_of(options.endpoint, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "endpoint_url");
  std::string region = first_of(options.region, {"AWS_REGION", "AWS_DEFAULT_REGION"}, "region");
  s3.region = std::move(region);
  if (auto style = options.environment("CELLD_S3_ADDRESSING")) {
    if (*style != "path" && *style != "virtual") {
      return fail(Error::invalid("CELLD_S3_ADDRESSING is '" + printable_key(*style) +
                                 "', not 'path' or 'virtual'"));
    }
    s3.addressing = *style == "path" ? Addressing::kPath : Addressing::kVirtualHost;
  }
  s3.dialect = options.dialect;
  s3.credentials = options.credentials;
  if (!s3.credentials && options.shared) s3.credentials = options.shared->aws;
  if (!s3.credentials) s3.credentials = aws_credentials(world, transports(), std::move(host));
  if (options.shared) options.shared->aws = s3.credentials;
  TRY_ASSIGN(auto bucket, S3Store::make(world, transports(), std::move(s3)));
  return wrapped(world, std::move(bucket), std::move(prefix), options);
}

// az://container/prefix and gs://bucket/prefix.
Result<std::unique_ptr<ObjectStore>> open_cloud(World& world,
                                                const HttpTransportFactory& transports,
                                                std::string_view scheme, std::string_view rest,
                                                StoreOptions options) {
  const size_t slash = rest.find('/');
  std::string name(rest.substr(0, slash));
  if (name.empty()) {
    return fail(Error::invalid(scheme == "az" ? "the container's name is missing: az://CONTAINER"
                                              : "the bucket's name is missing: gs://BUCKET"));
  }
  TRY_ASSIGN(std::string prefix,
             parse_prefix(slash == std::string_view::npos ? "" : rest.substr(slash + 1)));
  if (!transports) return fail(Error::unsupported("no HTTP transport to reach it with"));
  std::shared_ptr<ObjectStore> store;
  if (scheme == "az") {
    TRY_ASSIGN(store,
               open_azure(world, transports(), std::move(name), options.endpoint,
                          options.environment, options.shared ? &options.shared->azure : nullptr));
  } else {
    TRY_ASSIGN(store,
               open_gcs(world, transports(), std::move(name), options.endpoint, options.environment,
                        options.shared ? &options.shared->google : nullptr));
  }
  return wrapped(world, std::move(store), std::move(prefix), options);
}

Result<std::unique_ptr<ObjectStore>> open_any(World& world, const HttpTransportFactory& transports,
                                              std::string_view spec, StoreOptions options) {
  constexpr std::string_view kForms =
      "expected file:///dir, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix";
  const size_t colon = spec.find("://");
  if (colon == std::string_view::npos) {
    return fail(
        Error::invalid(std::string(kForms) +
                       (spec.starts_with('/') ? "; for a directory, put file:// before it" : "")));
  }
  const std::string_view scheme = spec.substr(0, colon);
  const std::string_view rest = spec.substr(colon + 3);
  if (spec.find('\0') != std::string_view::npos) return fail(Error::invalid("it has a NUL byte"));
  if (scheme == "file") return open_directory(world, rest, options);
  if (scheme == "s3") return open_s3(world, transports, rest, std::move(options));
  if (scheme == "az" || scheme == "gs") {
    return open_cloud(world, transports, scheme, rest, std::move(options));
  }
  return fail(Error::invalid("'" + printable_key(scheme) + "://' is no kind of store; " +
                             std::string(kForms)));
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> open_store(World& world,
                                                const HttpTransportFactory& transports,
                                                std::string_view spec, StoreOptions options) {
  auto store = open_any(world, transports, spec, std::move(options));
  if (!store) return fail(store.error().at("bucket '" + printable_key(spec) + "'"));
  return store;
}

}  // namespace celld

#include "store/metered_store.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace celld {

namespace {

std::string_view area_of(std::string_view key) { return key.substr(0, key.find('/')); }

template <class T>
OpCounts outcome_of(const Result<T>& result) {
  OpCounts out;
  if (!result) {
    (result.error().code == ErrorCode::kNotFound ? out.not_found : out.failed) = 1;
  }
  return out;
}

OpCounts outcome_of_read(const Result<StoredObject>& result) {
  OpCounts out = outcome_of(result);
  if (result) out.bytes_down = result->body.size();
  return out;
}

}  // namespace

std::string_view to_string(StoreOp op) {
  switch (op) {
    case StoreOp::kGet:
      return "get";
    case StoreOp::kGetRange:
      return "get-range";
    case StoreOp::kPutIf:
      return "put-if";
    case StoreOp::kPut:
      return "put";
    case StoreOp::kRemove:
      return "delete";
    case StoreOp::kList:
      return "list";
    case StoreOp::kHead:
      return "head";
    case StoreOp::kRemoveMany:
      return "delete-many";
    case StoreOp::kBeginUpload:
      return "begin-upload";
    case StoreOp::kPutPart:
      return "put-part";
    case StoreOp::kFinishUpload:
      return "finish-upload";
    case StoreOp::kAbortUpload:
      return "abort-upload";
  }
  return "?";
}

CostClass cost_class(StoreOp op) {
  switch (op) {
    case StoreOp::kGet:
    case StoreOp::kGetRange:
    case StoreOp::kHead:
      return CostClass::kRead;
    case StoreOp::kRemove:
    case StoreOp::kRemoveMany:
    case StoreOp::kAbortUpload:
      return CostClass::kFree;
    default:
      return CostClass::kWrite;
  }
}

std::string_view to_string(CostClass cost) {
  return cost == CostClass::kWrite ? "write" : cost == CostClass::kRead ? "read" : "free";
}

void LatencyHistogram::add(Duration took) {
  const auto us = static_cast<uint64_t>(std::max<int64_t>(took / std::chrono::microseconds(1), 1));
  const size_t bucket = static_cast<size_t>(std::bit_width(us - 1));
  ++buckets[std::min(bucket, kBuckets - 1)];
  ++count;
  sum += took;
}

Duration LatencyHistogram::quantile(double q) const {
  const double wanted = q * static_cast<double>(count);
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets[i];
    if (seen > 0 && static_cast<double>(seen) >= wanted) {
      return std::chrono::microseconds(int64_t(1) << i);
    }
  }
  return Duration(0);
}

uint64_t StoreCounts::requests_of(CostClass cost) const {
  uint64_t sum = 0;
  for (size_t i = 0; i < kStoreOps; ++i) {
    if (cost_class(static_cast<StoreOp>(i)) == cost) sum += by_op[i].requests;
  }
  return sum;
}

OpCounts& OpCounts::operator+=(const OpCounts& o) {
  requests += o.requests;
  failed += o.failed;
  not_found += o.not_found;
  rejected += o.rejected;
  bytes_up += o.bytes_up;
  bytes_down += o.bytes_down;
  return *this;
}

OpCounts StoreCounts::total() const {
  OpCounts sum;
  for (const auto& counts : by_op) sum += counts;
  return sum;
}

std::string StoreCounts::summary() const {
  OpCounts sum = total();
  std::string ops;
  for (size_t i = 0; i < kStoreOps; ++i) {
    if (by_op[i].requests == 0) continue;
    if (!ops.empty()) ops += ", ";
    ops += to_string(static_cast<StoreOp>(i));
    ops += ' ' + std::to_string(by_op[i].requests);
  }
  std::string out = std::to_string(sum.requests) + " requests";
  if (!ops.empty()) out += " (" + ops + ")";
  out += ", " + std::to_string(round_trips) + " round trips, " + std::to_string(sum.bytes_up) +
         " bytes up, " + std::to_string(sum.bytes_down) + " bytes down";
  return out;
}

MeteredStore::MeteredStore(std::shared_ptr<ObjectStore> inner) : inner_(std::move(inner)) {}
MeteredStore::MeteredStore(World& world, std::shared_ptr<ObjectStore> inner)
    : world_(&world), inner_(std::move(inner)) {}

void MeteredStore::reset() {
  uint64_t outstanding = counts_.outstanding;
  counts_ = StoreCounts();
  counts_.outstanding = outstanding;
  counts_.outstanding_max = outstanding;
  depth_ended_ = 0;
  ++generation_;
}

MeteredStore::Call MeteredStore::begin(StoreOp op, std::string_view key, uint64_t bytes_up) {
  Call call{op, std::string(area_of(key)), depth_ended_ + 1, generation_,
            world_ != nullptr ? world_->now() : MonoTime()};
  if (counts_.by_area.size() >= kAreasMax && !counts_.by_area.contains(call.area)) {
    call.area = "...";
  }
  OpCounts begun;
  begun.requests = 1;
  begun.bytes_up = bytes_up;
  counts_.by_op[static_cast<size_t>(op)] += begun;
  counts_.by_area[call.area][static_cast<size_t>(op)] += begun;
  ++counts_.outstanding;
  counts_.outstanding_max = std::max(counts_.outstanding_max, counts_.outstanding);
  counts_.round_trips = std::max(counts_.round_trips, call.depth);
  return call;
}

void MeteredStore::end(const Call& call, const OpCounts& outcome) {
  --counts_.outstanding;
  if (call.generation != generation_) return;
  counts_.by_op[static_cast<size_t>(call.op)] += outcome;
  counts_.by_area[call.area][static_cast<size_t>(call.op)] += outcome;
  if (world_ != nullptr) {
    counts_.latency[static_cast<size_t>(call.op)].add(world_->now() - call.begun);
  }
  depth_ended_ = std::max(depth_ended_, call.depth);
}

Task<Result<StoredObject>> MeteredStore::get(std::string key, Deadline deadline) {
  Call call = begin(StoreOp::kGet, key, 0);
  Result<StoredObject> result = co_await inner_->get(std::move(key), deadline);
  end(call, outcome_of_read(result));
  co_return result;
}

Task<Result<StoredObject>> MeteredStore::get_range(std::string key, ByteRange range,
                                                   Deadline deadline) {
  Call call = begin(StoreOp::kGetRange, key, 0);
  Result<StoredObject> result = co_await inner_->get_range(std::move(key), range, deadline);
  end(call, outcome_of_read(result));
  co_return result;
}

Task<Result<ObjectInfo>> MeteredStore::head(std::string key, Deadline deadline) {
  Call call = begin(StoreOp::kHead, key, 0);
  Result<ObjectInfo> result = co_await inner_->head(std::move(key), deadline);
  end(call, outcome_of(result));
  co_return result;
}

Task<SwapResult> MeteredStore::put_if(std::string key, Blob body, Condition condition,
                                      Deadline deadline) {
  Call call = begin(StoreOp::kPutIf, key, body.size());
  SwapResult result =
      co_await inner_->put_if(std::move(key), std::move(body), std::move(condition), deadline);
  OpCounts outcome;
  outcome.rejected = result.outcome == SwapOutcome::kRejected ? 1 : 0;
  outcome.failed = result.outcome == SwapOutcome::kAmbiguous ? 1 : 0;
  end(call, outcome);
  co_return result;
}

Task<Result<Version>> MeteredStore::put(std::string key, Blob body, Deadline deadline) {
  Call call = begin(StoreOp::kPut, key, body.size());
  Result<Version> result = co_await inner_->put(std::move(key), std::move(body), deadline);
  end(call, outcome_of(result));
  co_return result;
}

class MeteredStore::MeteredUpload final : public Upload {
 public:
  MeteredUpload(MeteredStore& store, std::string key, std::unique_ptr<Upload> inner)
      : store_(store), key_(std::move(key)), inner_(std::move(inner)) {}

  Task<Result<void>> put_part(uint32_t number, Blob body, Deadline deadline) override {
    Call call = store_.begin(StoreOp::kPutPart, key_, body.size());
    Result<void> result = co_await inner_->put_part(number, std::move(body), deadline);
    store_.end(call, outcome_of(result));
    co_return result;
  }
  Task<Result<Version>> finish(Deadline deadline) override {
    Call call = store_.begin(StoreOp::kFinishUpload, key_, 0);
    Result<Version> result = co_await inner_->finish(deadline);
    store_.end(call, outcome_of(result));
    co_return result;
  }
  Task<Result<void>> abort(Deadline deadline) override {
    Call call = store_.begin(StoreOp::kAbortUpload, key_, 0);
    Result<void> result = co_await inner_->abort(deadline);
    store_.end(call, outcome_of(result));
    co_return result;
  }

 private:
  MeteredStore& store_;
  const std::string key_;
  const std::unique_ptr<Upload> inner_;
};

Task<Result<std::unique_ptr<Upload>>> MeteredStore::begin_upload(std::string key,
                                                                 uint64_t part_bytes,
                                                                 Deadline deadline) {
  Call call = begin(StoreOp::kBeginUpload, key, 0);
  Result<std::unique_ptr<Upload>> inner = co_await inner_->begin_upload(key, part_bytes, deadline);
  end(call, outcome_of(inner));
  if (!inner) co_return fail(std::move(inner).error());
  co_return std::make_unique<MeteredUpload>(*this, std::move(key), std::move(*inner));
}

Task<Result<void>> MeteredStore::remove(std::string key, Deadline deadline) {
  Call call = begin(StoreOp::kRemove, key, 0);
  Result<void> result = co_await inner_->remove(std::move(key), deadline);
  end(call, outcome_of(result));
  co_return result;
}

Task<std::vector<Result<void>>> MeteredStore::remove_many(std::vector<std::string> keys,
                                                          Deadline deadline) {
  Call call = begin(StoreOp::kRemoveMany, keys.empty() ? std::string_view() : keys.front(), 0);
  std::vector<Result<void>> results = co_await inner_->remove_many(std::move(keys), deadline);
  OpCounts outcome;
  for (const auto& result : results) outcome.failed |= result ? 0 : 1;
  end(call, outcome);
  co_return results;
}

Task<Result<ListPage>> MeteredStore::list(ListRequest request, Deadline deadline) {
  Call call = begin(StoreOp::kList, request.prefix, 0);
  Result<ListPage> result = co_await inner_->list(std::move(request), deadline);
  end(call, outcome_of(result));
  co_return result;
}

}  // namespace celld

// A bucket in virtual time that lies within the limits of docs/protocol.md section 1, for tests.
//
// Version tokens are content hashes, so equal bytes have equal tokens. Requests travel: they
// arrive late, twice, or not at all, also after their sender is dead.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "store/list_map.h"
#include "store/object_store.h"
#include "world/test_world.h"

namespace celld::testing {

struct SimObject {
  Blob body;
  Version version;
  WallMs modified;
};

// What the bucket holds. Every member acts at once.
class SimBucket {
 public:
  explicit SimBucket(TestWorld& world) : world_(world) {}

  Result<StoredObject> get(const std::string& key) const {
    auto it = objects_.find(key);
    if (it == objects_.end()) return fail(Error::not_found(key));
    const SimObject& o = it->second;
    return StoredObject{o.body, o.version, o.body.size()};
  }
  SwapResult put_if(const std::string& key, const Blob& body, const Condition& condition) {
    auto it = objects_.find(key);
    bool holds = condition.version ? it != objects_.end() && it->second.version == *condition.version
                                   : it == objects_.end();
    if (!holds) return SwapResult::rejected();
    return SwapResult::applied(put(key, body));
  }
  Version put(const std::string& key, const Blob& body) {
    size_t hash = std::hash<std::string_view>()(body.view());
    SimObject object{body, Version{"v" + std::to_string(hash)}, world_.wall_now()};
    if (on_write) on_write(key, body);
    Version version = object.version;
    objects_[key] = std::move(object);
    return version;
  }
  void remove(const std::string& key) { objects_.erase(key); }
  ListPage list(const ListRequest& request) const { return list_map(objects_, request); }
  const std::map<std::string, SimObject>& objects() const { return objects_; }
  bool has(const std::string& key) const { return objects_.contains(key); }
  size_t count(std::string_view prefix) const {
    size_t n = 0;
    for (auto& [key, object] : objects_) n += key.starts_with(prefix);
    return n;
  }

  // Sees every write at the moment of its effect.
  std::function<void(const std::string& key, const Blob& body)> on_write;

 private:
  TestWorld& world_;
  std::map<std::string, SimObject> objects_;
};

// What can happen to a request. Probabilities per request.
struct SimFaults {
  Duration latency_min = std::chrono::milliseconds(5);  // one way
  Duration latency_max = std::chrono::milliseconds(15);
  double lost_request = 0;  // never arrives, no reply
  double lost_reply = 0;    // has its effect, no reply
  double refused = 0;       // an error reply, no effect
  double throttled = 0;     // 503 SlowDown, no effect
  uint32_t throttled_pause_ms = 100;  // its Retry-After
  double failed_late = 0;   // an error reply, but the effect was there
  double duplicated = 0;    // arrives a second time, up to `duplicate_delay_max` later
  double slow = 0;          // takes up to `slow_max` longer
  Duration duplicate_delay_max = std::chrono::seconds(20);
  Duration slow_max = std::chrono::seconds(4);
};

// One node's way to the bucket.
class SimStore final : public ObjectStore {
 public:
  SimStore(TestWorld& root, World& node, SimBucket& bucket) : root_(root), node_(node), bucket_(bucket) {}

  SimFaults faults;
  bool cut_off = false;  // nothing gets through: requests vanish
  uint64_t requests = 0;
  // A test's own fault: true makes this request have its effect but no reply (or neither).
  std::function<bool(const std::string& op, const std::string& key)> lose_reply;
  std::function<bool(const std::string& op, const std::string& key)> lose_request;

  Task<Result<StoredObject>> get(std::string key, Deadline deadline) override {
    return call<Result<StoredObject>>(
        "get", key, deadline, [this, key] { return bucket_.get(key); }, kFailed<StoredObject>);
  }
  Task<Result<StoredObject>> get_range(std::string key, ByteRange range, Deadline deadline) override {
    auto act = [this, key, range]() -> Result<StoredObject> {
      Result<StoredObject> whole = bucket_.get(key);
      if (!whole) return whole;
      if (range.offset >= whole->object_bytes) return fail(Error::invalid(key + ": range past the end"));
      whole->body = Blob(std::string(whole->body.view().substr(range.offset, range.length)));
      return whole;
    };
    return call<Result<StoredObject>>("get", key, deadline, act, kFailed<StoredObject>);
  }
  Task<SwapResult> put_if(std::string key, Blob body, Condition condition, Deadline deadline) override {
    auto act = [this, key, body, condition] { return bucket_.put_if(key, body, condition); };
    return call<SwapResult>("put_if", key, deadline, act,
                            [](Error e) { return SwapResult::ambiguous(std::move(e)); });
  }
  Task<Result<Version>> put(std::string key, Blob body, Deadline deadline) override {
    auto act = [this, key, body]() -> Result<Version> { return bucket_.put(key, body); };
    return call<Result<Version>>("put", key, deadline, act, kFailed<Version>);
  }
  Task<Result<void>> remove(std::string key, Deadline deadline) override {
    auto act = [this, key]() -> Result<void> {
      bucket_.remove(key);
      return {};
    };
    return call<Result<void>>("remove", key, deadline, act, kFailed<void>);
  }
  Task<std::vector<Result<void>>> remove_many(std::vector<std::string> keys, Deadline deadline) override {
    using Outcomes = std::vector<Result<void>>;
    const std::string first = keys.front();
    const size_t count = keys.size();
    auto act = [this, keys = std::move(keys)] {
      for (const std::string& key : keys) bucket_.remove(key);
      return Outcomes(keys.size());
    };
    return call<Outcomes>("remove", first, deadline, act, [count](Error e) {
      return Outcomes(count, Result<void>(std::unexpected(std::move(e))));
    });
  }
  Task<Result<ListPage>> list(ListRequest request, Deadline deadline) override {
    auto act = [this, request]() -> Result<ListPage> { return bucket_.list(request); };
    return call<Result<ListPage>>("list", request.prefix, deadline, act, kFailed<ListPage>);
  }
  std::string describe() const override { return "sim://bucket"; }

 private:
  template <class T>
  static Result<T> kFailed(Error e) {
    return fail(std::move(e));
  }

  template <class R>
  Task<R> call(std::string op, std::string key, Deadline deadline, std::function<R()> act,
               std::function<R(Error)> failed) {
    CHECK(deadline.at != MonoTime::max()) << op << " " << key << " has no deadline";
    ++requests;
    auto reply = std::make_shared<OneShot<R>>(node_);
    auto answer = [this, reply](MonoTime at, R value) {
      auto boxed = std::make_shared<R>(std::move(value));
      node_.call_at(at, [reply, boxed] { reply->set(std::move(*boxed)); });
    };
    bool lost_request = cut_off || root_.chance(faults.lost_request) || (lose_request && lose_request(op, key));
    bool lost_reply = root_.chance(faults.lost_reply) || (lose_reply && lose_reply(op, key));
    bool failed_late = root_.chance(faults.failed_late);
    Duration slow = root_.chance(faults.slow) ? root_.between(Duration(0), faults.slow_max) : Duration(0);
    MonoTime arrival = root_.now() + one_way() + slow;
    if (lost_request) {
    } else if (root_.chance(faults.refused)) {
      answer(arrival + one_way(), failed(Error::unavailable(op + " " + key + ": 503 from the store")));
    } else if (root_.chance(faults.throttled)) {
      Error slow_down = Error::make(ErrorCode::kOverloaded, op + " " + key + ": 503 SlowDown");
      slow_down.retry_after_ms = faults.throttled_pause_ms;
      answer(arrival + one_way(), failed(std::move(slow_down)));
    } else {
      Duration back = one_way();
      root_.call_at(arrival, [=] {
        R value = act();
        if (lost_reply) return;
        if (failed_late) value = failed(Error::unavailable(op + " " + key + ": 500 after the fact"));
        answer(arrival + back, std::move(value));
      });
      if (root_.chance(faults.duplicated)) {
        MonoTime again = arrival + root_.between(Duration(0), faults.duplicate_delay_max);
        root_.call_at(again, [act] { (void)act(); });
      }
    }
    TimerId timer = node_.call_at(deadline.at, [reply, failed, op, key] {
      reply->set(failed(Error::unavailable(op + " " + key + ": no reply in time")));
    });
    return wait_for<R>(reply, timer);
  }
  template <class R>
  Task<R> wait_for(std::shared_ptr<OneShot<R>> reply, TimerId timer) {
    R value = co_await reply->take();
    node_.cancel(timer);
    co_return value;
  }
  Duration one_way() { return root_.between(faults.latency_min, faults.latency_max); }

  TestWorld& root_;
  World& node_;
  SimBucket& bucket_;
};

}  // namespace celld::testing

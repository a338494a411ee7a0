#include "sim/bucket.h"

#include <algorithm>

#include "base/check.h"
#include "store/list_map.h"

namespace celld::sim {

uint64_t StoreLink::requests = 0;

const Object* Bucket::find(const std::string& key) const {
  auto it = objects_.find(key);
  return it == objects_.end() ? nullptr : &it->second;
}

Result<StoredObject> Bucket::get(const std::string& key) const {
  const Object* o = find(key);
  if (!o) return fail(Error::not_found(key));
  return StoredObject{o->body, o->version, o->body.size()};
}

SwapResult Bucket::put_if(const std::string& key, const Blob& body, const Condition& condition) {
  const Object* there = find(key);
  bool holds = condition.version ? there && there->version == *condition.version : !there;
  if (!holds) return SwapResult::rejected();
  return SwapResult::applied(put(key, body));
}

Version Bucket::put(const std::string& key, const Blob& body) {
  if (audit_) audit_->writing(key, body);
  TraceHash hash;
  hash.mix(body.view());
  world_.trace().mix(key);
  world_.trace().mix(hash.value());
  verdict_.note("", "", "PUT " + key + " (" + std::to_string(body.size()) + " bytes)");
  Object object{body, Version{"v" + std::to_string(hash.value())}, world_.wall_now()};
  Version version = object.version;
  objects_[key] = std::move(object);
  return version;
}

void Bucket::remove(const std::string& key) {
  if (objects_.erase(key) == 0) return;
  world_.trace().mix(key);
  verdict_.note("", "", "DELETE " + key);
  if (audit_) audit_->removed(key);
}

bool Bucket::lose_record(const NodeId& node) {
  std::string key = lease_key(node);
  if (objects_.erase(key) == 0) return false;
  world_.trace().mix(key);
  verdict_.note(node.value, "", "its record is deleted by hand");
  if (audit_) audit_->lost(node);
  return true;
}

ListPage Bucket::list(const ListRequest& request, size_t page_max) const {
  ListRequest cut = request;
  cut.keys_max = static_cast<uint32_t>(std::min<size_t>(request.keys_max, page_max));
  return list_map(objects_, cut);
}

RequestFaults RequestFaults::of(const Settings& s) {
  auto ms = [](double v) { return Duration(static_cast<int64_t>(v * 1e6)); };
  RequestFaults f;
  f.latency_max = ms(std::max(2.0, s.faults_latency_ms));
  f.lost_request = s.faults_lost_request;
  f.lost_reply = s.faults_lost_reply;
  f.refused = s.faults_refused;
  f.failed_late = s.faults_failed_late;
  f.throttled = s.faults_throttled;
  f.duplicated = s.faults_duplicated;
  f.duplicate_max = ms(s.faults_duplicate_s * 1e3);
  f.slow = s.faults_slow;
  f.slow_max = ms(s.faults_slow_s * 1e3);
  f.late = s.faults_late;
  f.late_max = ms(s.faults_late_s * 1e3);
  f.list_failed = s.faults_list_failed;
  f.truncated = s.faults_truncated;
  f.crash = s.life_crash_at_request;
  f.list_page = std::max<size_t>(1, static_cast<size_t>(s.faults_list_page));
  return f;
}

StoreLink::StoreLink(Scheduler& root, NodeWorld& node, Bucket& bucket, Weather& weather, Verdict& verdict,
                     std::string node_name, uint64_t seed)
    : root_(root),
      node_(node),
      bucket_(bucket),
      weather_(weather),
      verdict_(verdict),
      name_(std::move(node_name)),
      rng_(seed, "link " + name_) {}

Duration StoreLink::one_way() {
  Duration most = weather_.calm ? std::min<Duration>(weather_.faults.latency_max, std::chrono::milliseconds(10))
                                : weather_.faults.latency_max;
  return rng_.between(Duration(1'000'000), most);
}

// Draws in any case, so that what comes later does not depend on the chance.
bool StoreLink::happens(double chance, size_t kind) {
  bool hit = rng_.unit() < chance && !weather_.calm;
  if (hit) ++weather_.injected[kind];
  return hit;
}

template <class R>
Task<R> StoreLink::wait_for(std::shared_ptr<OneShot<R>> reply, TimerId timer) {
  R value = co_await reply->take();
  node_.cancel(timer);
  co_return value;
}

template <class R>
Task<R> StoreLink::call(Op op, std::string key, Deadline deadline, std::function<R()> act,
                        std::function<R(Error)> failed) {
  static constexpr const char* kNames[] = {"get", "get-range", "put-if", "put", "delete", "list"};
  std::string what = kNames[static_cast<int>(op)] + (" " + key);
  CHECK(deadline.at != MonoTime::max()) << what << " has no deadline";
  ++requests;
  verdict_.note("", "", "request of " + name_ + ": " + what);
  const RequestFaults& f = weather_.faults;
  auto reply = std::make_shared<OneShot<R>>(node_);
  // Through the root: a reply arrives whatever the clock of the node says.
  auto answer = [this, reply](MonoTime at, R value) {
    auto boxed = std::make_shared<R>(std::move(value));
    root_.call_at(at, [this, reply, boxed] { node_.post([reply, boxed] { reply->set(std::move(*boxed)); }); });
  };
  bool lost_request = happens(f.lost_request, 0);
  bool lost_reply = happens(f.lost_reply, 1);
  bool refused = happens(f.refused, 2) || (op == Op::kList && happens(f.list_failed, 8));
  bool failed_late = happens(f.failed_late, 3);
  bool throttled = happens(f.throttled, 4);
  bool duplicated = happens(f.duplicated, 5);
  bool slow = happens(f.slow, 6);
  bool late = happens(f.late, 7);
  if (cut_off) ++weather_.injected[10];
  if (weather_.burst) ++weather_.injected[11];
  MonoTime arrival = root_.now() + one_way();
  if (slow) arrival = arrival + rng_.between(Duration(0), f.slow_max);
  if (late) arrival = arrival + rng_.between(f.late_max / 8, f.late_max);
  Duration back = one_way();
  // A crash of the sender: before the request leaves, after its effect, or with the reply at the door.
  unsigned crash_at = crash && !weather_.calm && rng_.chance(f.crash) ? 1 + static_cast<unsigned>(rng_.below(3)) : 0;
  if (crash_at == 1) {
    root_.post([this] { crash(); });
    lost_request = lost_request || rng_.chance(0.5);
  }
  if (lost_request || cut_off) {
    // Nothing comes of it.
  } else if (refused || throttled || weather_.burst) {
    Error error = throttled ? Error::make(ErrorCode::kOverloaded, what + ": 503 slow down")
                            : Error::unavailable(what + ": 500 from the store");
    if (throttled) error.retry_after_ms = 100;
    answer(arrival + back, failed(std::move(error)));
  } else {
    root_.call_at(arrival, [=, this] {
      R value = act();
      if (crash_at == 2) root_.post([this] { crash(); });
      if (lost_reply || cut_off) return;
      if (failed_late) value = failed(Error::unavailable(what + ": 500 after the fact"));
      answer(arrival + back, std::move(value));
      if (crash_at == 3) root_.call_at(arrival + back, [this] { crash(); });
    });
    if (duplicated) {
      root_.call_at(arrival + rng_.between(Duration(0), f.duplicate_max), [act] { (void)act(); });
    }
  }
  TimerId timer = node_.call_at(
      deadline.at, [reply, failed, what] { reply->set(failed(Error::unavailable(what + ": no reply in time"))); });
  return wait_for<R>(reply, timer);
}

namespace {

template <class T>
Result<T> failed_with(Error e) {
  return fail(std::move(e));
}

}  // namespace

Task<Result<StoredObject>> StoreLink::get(std::string key, Deadline deadline) {
  std::function<Result<StoredObject>()> act = [this, key] { return bucket_.get(key); };
  std::function<Result<StoredObject>(Error)> failed = failed_with<StoredObject>;
  return call<Result<StoredObject>>(Op::kGet, std::move(key), deadline, std::move(act), std::move(failed));
}

Task<Result<StoredObject>> StoreLink::get_range(std::string key, ByteRange range, Deadline deadline) {
  bool truncated = happens(weather_.faults.truncated, 9);
  uint64_t keep = rng_.next();
  std::function<Result<StoredObject>()> act = [=, this]() -> Result<StoredObject> {
    Result<StoredObject> whole = bucket_.get(key);
    if (!whole) return whole;
    if (range.offset >= whole->object_bytes) return fail(Error::invalid(key + ": range past the end"));
    std::string part(whole->body.view().substr(range.offset, range.length));
    if (truncated) part.resize(keep % (part.size() + 1));
    whole->body = Blob(std::move(part));
    return whole;
  };
  std::function<Result<StoredObject>(Error)> failed = failed_with<StoredObject>;
  return call<Result<StoredObject>>(Op::kRange, std::move(key), deadline, std::move(act), std::move(failed));
}

Task<SwapResult> StoreLink::put_if(std::string key, Blob body, Condition condition, Deadline deadline) {
  MonoTime sent = node_.now();
  std::function<SwapResult()> act = [=, this] {
    SwapResult result = bucket_.put_if(key, body, condition);
    if (result.outcome == SwapOutcome::kApplied && applied) applied(key, body, sent);
    return result;
  };
  std::function<SwapResult(Error)> failed = [](Error e) { return SwapResult::ambiguous(std::move(e)); };
  return call<SwapResult>(Op::kPutIf, std::move(key), deadline, std::move(act), std::move(failed));
}

Task<Result<Version>> StoreLink::put(std::string key, Blob body, Deadline deadline) {
  std::function<Result<Version>()> act = [=, this]() -> Result<Version> { return bucket_.put(key, body); };
  std::function<Result<Version>(Error)> failed = failed_with<Version>;
  return call<Result<Version>>(Op::kPut, std::move(key), deadline, std::move(act), std::move(failed));
}

Task<Result<void>> StoreLink::remove(std::string key, Deadline deadline) {
  std::function<Result<void>()> act = [this, key]() -> Result<void> {
    bucket_.remove(key);
    return {};
  };
  std::function<Result<void>(Error)> failed = failed_with<void>;
  return call<Result<void>>(Op::kRemove, std::move(key), deadline, std::move(act), std::move(failed));
}

Task<std::vector<Result<void>>> StoreLink::remove_many(std::vector<std::string> keys, Deadline deadline) {
  using Outcomes = std::vector<Result<void>>;
  std::string first = keys.front();
  const size_t count = keys.size();
  std::function<Outcomes()> act = [this, keys = std::move(keys)] {
    Outcomes outcomes(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!weather_.calm && rng_.chance(weather_.faults.refused)) {
        outcomes[i] = fail(Error::unavailable("remove " + keys[i] + ": 500 from the store"));
      } else {
        bucket_.remove(keys[i]);
      }
    }
    return outcomes;
  };
  std::function<Outcomes(Error)> failed = [count](Error e) {
    return Outcomes(count, Result<void>(std::unexpected(std::move(e))));
  };
  return call<Outcomes>(Op::kRemove, std::move(first), deadline, std::move(act), std::move(failed));
}

Task<Result<ListPage>> StoreLink::list(ListRequest request, Deadline deadline) {
  std::string prefix = request.prefix;
  std::function<Result<ListPage>()> act = [this, request]() -> Result<ListPage> {
    return bucket_.list(request, weather_.faults.list_page);
  };
  std::function<Result<ListPage>(Error)> failed = failed_with<ListPage>;
  return call<Result<ListPage>>(Op::kList, std::move(prefix), deadline, std::move(act), std::move(failed));
}

}  // namespace celld::sim

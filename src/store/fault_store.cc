#include "store/fault_store.h"

#include <optional>
#include <type_traits>
#include <utility>

namespace celld {

namespace {

template <class R>
R failure(Error e) {
  if constexpr (std::is_same_v<R, SwapResult>) {
    return SwapResult::ambiguous(std::move(e));
  } else {
    return fail(std::move(e));
  }
}

template <class R>
struct Journey {
  explicit Journey(World& world) : arrived(world) {}
  std::optional<R> reply;
  Signal arrived;
};

// The request on its way, which no deadline of its sender stops. `request` keeps the inner store
// alive.
template <class R>
Task<void> travel(World& world, std::shared_ptr<Journey<R>> journey,
                  std::move_only_function<Task<R>()> request, Fault fault, bool writes,
                  std::string where) {
  if (fault.kind == Fault::Kind::kHang) co_return;
  if (fault.before > Duration(0)) co_await sleep_for(world, fault.before);
  std::optional<R> reply;
  switch (fault.kind) {
    case Fault::Kind::kLoseBefore:
      reply.emplace(failure<R>(Error::unavailable(where + ": connection reset (injected)")));
      break;
    case Fault::Kind::kServerError:
      reply.emplace(failure<R>(Error::unavailable(where + ": 500 InternalError (injected)")));
      break;
    case Fault::Kind::kThrottle: {
      Error slow = Error::unavailable(where + ": 503 SlowDown (injected)");
      slow.retry_after_ms = fault.retry_after_ms;
      reply.emplace(failure<R>(std::move(slow)));
      break;
    }
    case Fault::Kind::kTruncate:
      if (writes) {
        reply.emplace(failure<R>(Error::unavailable(where + ": the body was cut off (injected)")));
        break;
      }
      [[fallthrough]];
    default: {
      Task<R> task = request();
      reply.emplace(co_await std::move(task));
    }
  }
  if (fault.kind == Fault::Kind::kDuplicate) {
    Task<R> again = request();
    R ignored = co_await std::move(again);
    (void)ignored;
  }
  if (fault.after > Duration(0)) co_await sleep_for(world, fault.after);
  if (fault.kind == Fault::Kind::kTruncate && !writes) {
    reply.emplace(failure<R>(Error::unavailable(where + ": the reply was cut off (injected)")));
  }
  if (fault.kind == Fault::Kind::kLoseAfter) {
    reply.emplace(failure<R>(Error::unavailable(where + ": reply lost (injected)")));
  }
  journey->reply = std::move(reply);
  journey->arrived.notify_all();
}

}  // namespace

std::function<Fault(const FaultCall&)> random_faults(World& world, FaultRates rates) {
  return [&world, rates, burst_left = uint32_t(0)](const FaultCall&) mutable {
    auto share = [&](Duration most) {
      return Duration(static_cast<int64_t>(static_cast<double>(most.count()) * world.random_unit()));
    };
    Fault fault;
    fault.before = rates.latency_min + share(rates.latency_max - rates.latency_min);
    fault.after = rates.latency_min + share(rates.latency_max - rates.latency_min);
    if (world.random_unit() < rates.slow_first_byte) fault.after += share(rates.slow_max);
    if (burst_left > 0) {
      --burst_left;
      fault.kind = Fault::Kind::kServerError;
      return fault;
    }
    double draw = world.random_unit();
    auto happens = [&](double rate, Fault::Kind kind) {
      if (fault.kind == Fault::Kind::kNone && draw >= 0 && draw < rate) fault.kind = kind;
      draw -= rate;
    };
    happens(rates.reset_before, Fault::Kind::kLoseBefore);
    happens(rates.reset_after, Fault::Kind::kLoseAfter);
    happens(rates.truncate, Fault::Kind::kTruncate);
    happens(rates.hang, Fault::Kind::kHang);
    happens(rates.throttle, Fault::Kind::kThrottle);
    happens(rates.error, Fault::Kind::kServerError);
    if (fault.kind == Fault::Kind::kThrottle) fault.retry_after_ms = rates.retry_after_ms;
    if (fault.kind == Fault::Kind::kServerError && rates.error_burst > 1) {
      burst_left = rates.error_burst - 1;
    }
    return fault;
  };
}

FaultStore::FaultStore(World& world, std::shared_ptr<ObjectStore> inner, Script script)
    : world_(world), inner_(std::move(inner)), script_(std::move(script)) {}

FaultStore::FaultStore(World& world, std::shared_ptr<ObjectStore> inner, Duration delay)
    : FaultStore(world, std::move(inner), [delay](const FaultCall&) {
        Fault fault;
        fault.before = delay / 2;
        fault.after = delay - delay / 2;
        return fault;
      }) {}

template <class R>
Task<R> FaultStore::perform(StoreOp op, std::string key, std::move_only_function<Task<R>()> request,
                            Deadline deadline) {
  World& world = world_;
  std::string where = describe() + ": " + std::string(to_string(op)) + " '" + key + "'";
  Fault fault = script_(FaultCall{op, key, ++requests_});
  auto journey = std::make_shared<Journey<R>>(world);
  const bool writes = op == StoreOp::kPut || op == StoreOp::kPutIf || op == StoreOp::kPutPart;
  world.spawn(travel<R>(world, journey, std::move(request), fault, writes, where));
  while (!journey->reply) {
    bool arrived = co_await journey->arrived.wait_until(deadline);
    if (!arrived) co_return failure<R>(deadline.error(where + ": no reply in time (injected)"));
  }
  co_return std::move(*journey->reply);
}

// The inner requests get no deadline: what is under way may still have its effect.
Task<Result<StoredObject>> FaultStore::get(std::string key, Deadline deadline) {
  std::move_only_function<Task<Result<StoredObject>>()> request = [inner = inner_, key] {
    return inner->get(key, Deadline::never());
  };
  return perform(StoreOp::kGet, std::move(key), std::move(request), deadline);
}

Task<Result<StoredObject>> FaultStore::get_range(std::string key, ByteRange range,
                                                 Deadline deadline) {
  std::move_only_function<Task<Result<StoredObject>>()> request = [inner = inner_, key, range] {
    return inner->get_range(key, range, Deadline::never());
  };
  return perform(StoreOp::kGetRange, std::move(key), std::move(request), deadline);
}

Task<Result<ObjectInfo>> FaultStore::head(std::string key, Deadline deadline) {
  std::move_only_function<Task<Result<ObjectInfo>>()> request = [inner = inner_, key] {
    return inner->head(key, Deadline::never());
  };
  return perform(StoreOp::kHead, std::move(key), std::move(request), deadline);
}

Task<SwapResult> FaultStore::put_if(std::string key, Blob body, Condition condition,
                                    Deadline deadline) {
  std::move_only_function<Task<SwapResult>()> request =
      [inner = inner_, key, body = std::move(body), condition = std::move(condition)] {
        return inner->put_if(key, body, condition, Deadline::never());
      };
  return perform(StoreOp::kPutIf, std::move(key), std::move(request), deadline);
}

Task<Result<Version>> FaultStore::put(std::string key, Blob body, Deadline deadline) {
  std::move_only_function<Task<Result<Version>>()> request = [inner = inner_, key,
                                                              body = std::move(body)] {
    return inner->put(key, body, Deadline::never());
  };
  return perform(StoreOp::kPut, std::move(key), std::move(request), deadline);
}

// A request that is under way keeps the inner upload alive.
class FaultStore::FaultUpload final : public Upload {
 public:
  FaultUpload(FaultStore& store, std::string key, std::shared_ptr<Upload> inner)
      : store_(store), key_(std::move(key)), inner_(std::move(inner)) {}

  Task<Result<void>> put_part(uint32_t number, Blob body, Deadline deadline) override {
    std::move_only_function<Task<Result<void>>()> request =
        [store = store_.inner_, inner = inner_, number, body = std::move(body)] {
          return inner->put_part(number, body, Deadline::never());
        };
    return store_.perform(StoreOp::kPutPart, key_, std::move(request), deadline);
  }
  Task<Result<Version>> finish(Deadline deadline) override {
    std::move_only_function<Task<Result<Version>>()> request =
        [store = store_.inner_, inner = inner_] { return inner->finish(Deadline::never()); };
    return store_.perform(StoreOp::kFinishUpload, key_, std::move(request), deadline);
  }
  Task<Result<void>> abort(Deadline deadline) override {
    std::move_only_function<Task<Result<void>>()> request =
        [store = store_.inner_, inner = inner_] { return inner->abort(Deadline::never()); };
    return store_.perform(StoreOp::kAbortUpload, key_, std::move(request), deadline);
  }

 private:
  FaultStore& store_;
  const std::string key_;
  const std::shared_ptr<Upload> inner_;
};

Task<Result<std::unique_ptr<Upload>>> FaultStore::begin_upload(std::string key,
                                                               uint64_t part_bytes,
                                                               Deadline deadline) {
  std::move_only_function<Task<Result<std::unique_ptr<Upload>>>()> request =
      [inner = inner_, key, part_bytes] {
        return inner->begin_upload(key, part_bytes, Deadline::never());
      };
  auto begun = co_await perform(StoreOp::kBeginUpload, key, std::move(request), deadline);
  if (!begun) co_return fail(std::move(begun).error());
  std::shared_ptr<Upload> inner = std::move(*begun);
  co_return std::make_unique<FaultUpload>(*this, std::move(key), std::move(inner));
}

Task<Result<void>> FaultStore::remove(std::string key, Deadline deadline) {
  std::move_only_function<Task<Result<void>>()> request = [inner = inner_, key] {
    return inner->remove(key, Deadline::never());
  };
  return perform(StoreOp::kRemove, std::move(key), std::move(request), deadline);
}

Task<std::vector<Result<void>>> FaultStore::remove_many(std::vector<std::string> keys,
                                                        Deadline deadline) {
  using Outcomes = std::vector<Result<void>>;
  const size_t count = keys.size();
  std::string first = keys.empty() ? std::string() : keys.front();
  auto send = [](std::shared_ptr<ObjectStore> inner,
                 std::vector<std::string> all) -> Task<Result<Outcomes>> {
    co_return co_await inner->remove_many(std::move(all), Deadline::never());
  };
  std::move_only_function<Task<Result<Outcomes>>()> request = [inner = inner_, send,
                                                               keys = std::move(keys)] {
    return send(inner, keys);
  };
  auto outcomes =
      co_await perform(StoreOp::kRemoveMany, std::move(first), std::move(request), deadline);
  if (outcomes) co_return std::move(*outcomes);
  co_return Outcomes(count, fail(outcomes.error()));
}

Task<Result<ListPage>> FaultStore::list(ListRequest request, Deadline deadline) {
  std::string prefix = request.prefix;
  std::move_only_function<Task<Result<ListPage>>()> send = [inner = inner_,
                                                            request = std::move(request)] {
    return inner->list(request, Deadline::never());
  };
  return perform(StoreOp::kList, std::move(prefix), std::move(send), deadline);
}

}  // namespace celld

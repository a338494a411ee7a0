// A bucket that keeps the promises of docs/protocol.md, and a way to it that keeps none.
//
// Version tokens are content hashes, so equal bytes have equal tokens. Requests travel: they
// arrive late, twice, or not at all, also after their sender is dead.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "sim/random.h"
#include "sim/scheduler.h"
#include "sim/settings.h"
#include "sim/verdict.h"
#include "store/object_store.h"

namespace celld::sim {

struct Object {
  Blob body;
  Version version;
  WallMs modified;
};

// Sees every effect at its moment.
class BucketAudit {
 public:
  virtual ~BucketAudit() = default;
  // Before the object is there.
  virtual void writing(const std::string& key, const Blob& body) = 0;
  // After it has gone.
  virtual void removed(const std::string& key) = 0;
  // The same, of a node's record and by hand.
  virtual void lost(const NodeId& node) = 0;

  // What nobody needs any more, when nothing is owned and all nodes have shut down.
  struct Leftovers {
    size_t slots = 0;  // journal objects that are no fence
    size_t fences = 0;
    size_t ltx = 0;  // that the manifest of their cell does not name
    size_t node_records = 0;
    size_t index_shards = 0;
    size_t unowned_alarms = 0;  // of cells that have no such alarm any more
    std::string example;
  };
  virtual Leftovers leftovers() const = 0;

  // Whether a fence stands in the journal of the node.
  virtual bool fenced(const NodeId& node) const = 0;
  // Whether the record of the node was ever lost.
  virtual bool was_lost(const NodeId& node) const = 0;
};

class Bucket;
// The one that knows the protocol (audit.h).
std::unique_ptr<BucketAudit> make_audit(Scheduler& world, Verdict& verdict, Bucket& bucket, Duration retention);
// The key of a node's lease.
std::string lease_key(const NodeId& node);

// What the bucket holds. Every member acts at once.
class Bucket {
 public:
  Bucket(Scheduler& world, Verdict& verdict) : world_(world), verdict_(verdict) {}
  void set_audit(BucketAudit* audit) { audit_ = audit; }

  Result<StoredObject> get(const std::string& key) const;
  SwapResult put_if(const std::string& key, const Blob& body, const Condition& condition);
  Version put(const std::string& key, const Blob& body);
  void remove(const std::string& key);
  // Somebody deletes the record of a node. False when there is none.
  bool lose_record(const NodeId& node);
  ListPage list(const ListRequest& request, size_t page_max) const;
  const std::map<std::string, Object>& objects() const { return objects_; }
  const Object* find(const std::string& key) const;

 private:
  Scheduler& world_;
  Verdict& verdict_;
  BucketAudit* audit_ = nullptr;
  std::map<std::string, Object> objects_;
};

// What can happen to a request; chances.
struct RequestFaults {
  Duration latency_max{0};  // one way
  double lost_request = 0, lost_reply = 0, refused = 0, failed_late = 0, throttled = 0;
  double duplicated = 0, slow = 0, late = 0, list_failed = 0, truncated = 0, crash = 0;
  Duration duplicate_max{0}, slow_max{0}, late_max{0};
  size_t list_page = 1000;

  static RequestFaults of(const Settings& settings);
};

// The weather over the bucket, for all nodes.
struct Weather {
  RequestFaults faults;
  bool burst = false;                   // the store fails for all
  bool calm = false;                    // no faults any more
  std::array<uint64_t, 12> injected{};  // by kind, see kFaultNames
};
inline constexpr std::array<const char*, 12> kFaultNames = {"lost-request", "lost-reply", "refused", "failed-late",
                                                            "throttled",    "duplicated", "slow",    "late",
                                                            "list-failed",  "truncated",  "cut",     "burst"};

// The way of one node to the bucket.
class StoreLink final : public ObjectStore {
 public:
  StoreLink(Scheduler& root, NodeWorld& node, Bucket& bucket, Weather& weather, Verdict& verdict,
            std::string node_name, uint64_t seed);

  bool cut_off = false;
  // The node is to crash now.
  std::function<void()> crash;
  // A conditional write of this node had its effect; it was sent at `sent` by the node's clock.
  std::function<void(const std::string& key, const Blob& body, MonoTime sent)> applied;

  Task<Result<StoredObject>> get(std::string key, Deadline deadline) override;
  Task<Result<StoredObject>> get_range(std::string key, ByteRange range, Deadline deadline) override;
  Task<SwapResult> put_if(std::string key, Blob body, Condition condition, Deadline deadline) override;
  Task<Result<Version>> put(std::string key, Blob body, Deadline deadline) override;
  Task<Result<void>> remove(std::string key, Deadline deadline) override;
  // One request; each key may fail for itself.
  Task<std::vector<Result<void>>> remove_many(std::vector<std::string> keys, Deadline deadline) override;
  Task<Result<ListPage>> list(ListRequest request, Deadline deadline) override;
  std::string describe() const override { return "sim://bucket"; }

  static uint64_t requests;  // of the process

 private:
  enum class Op : uint8_t { kGet, kRange, kPutIf, kPut, kRemove, kList };
  template <class R>
  Task<R> call(Op op, std::string key, Deadline deadline, std::function<R()> act, std::function<R(Error)> failed);
  template <class R>
  Task<R> wait_for(std::shared_ptr<OneShot<R>> reply, TimerId timer);
  Duration one_way();
  bool happens(double chance, size_t kind);

  Scheduler& root_;
  NodeWorld& node_;
  Bucket& bucket_;
  Weather& weather_;
  Verdict& verdict_;
  const std::string name_;
  Rng rng_;
};

}  // namespace celld::sim

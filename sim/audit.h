// What must hold of the bucket at every moment, checked at each write and delete as it happens.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/records.h"
#include "ltx/restore_plan.h"
#include "sim/bucket.h"
#include "sim/verdict.h"

namespace celld::sim {

class Audit final : public BucketAudit {
 public:
  Audit(Scheduler& world, Verdict& verdict, Bucket& bucket, Duration retention)
      : world_(world), verdict_(verdict), bucket_(bucket), retention_(retention) {}

  void writing(const std::string& key, const Blob& body) override;
  void removed(const std::string& key) override;
  void lost(const NodeId& node) override;

  Leftovers leftovers() const override;
  bool fenced(const NodeId& node) const override;
  bool was_lost(const NodeId& node) const override { return lost_.contains(node); }

 private:
  struct Part {
    CellId cell;
    Epoch epoch;
    Txid txid;
    bool last = false;
  };
  struct Journal {
    std::map<Slot, std::vector<Part>> slots;  // every data slot that ever was there
    std::set<Slot> fences;
    std::set<Slot> strays;  // fences that came when the node was recovered already
    Slot frontier;  // up to here without a hole
  };
  void writing_owner(const CellId& cell, const std::string& key, const Blob& body);
  void check_size(const CellId& cell, const std::string& who, const OwnerRecord& next);
  void writing_node(const NodeId& node, const std::string& key, const Blob& body);
  void writing_slot(const NodeId& node, Slot slot, const std::string& key, const Blob& body);
  void writing_ltx(const LtxName& name, const std::string& key, const Blob& body);
  void drained(const NodeId& node, Slot from, Slot to);
  bool covered(const Part& part) const;
  std::vector<RestoreObject> objects_of(const CellId& cell) const;
  const OwnerRecord* owner_of(const CellId& cell) const;

  Scheduler& world_;
  Verdict& verdict_;
  Bucket& bucket_;
  const Duration retention_;
  std::map<CellId, OwnerRecord> owners_;
  std::map<NodeId, NodeRecord> nodes_;
  std::set<NodeId> recovered_;  // once; a late create may bring such a record back
  std::set<NodeId> lost_;
  std::map<NodeId, Slot> drained_;  // the highest mark that a record of the node ever had
  std::map<NodeId, Journal> journals_;
  // Where a commit is: the newest slot that its last part was seen in.
  std::map<std::tuple<CellId, Epoch, Txid>, std::pair<NodeId, Slot>> placed_;
  std::map<std::string, MonoTime> useless_since_;  // LTX objects that no durable manifest needs
};

}  // namespace celld::sim

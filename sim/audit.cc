#include "sim/audit.h"

#include <algorithm>

#include "core/alarms.h"
#include "core/slot.h"
#include "ltx/ltx.h"

namespace celld::sim {

namespace {

std::string text(Slot slot) { return std::to_string(slot.value); }
std::string text(Txid txid) { return std::to_string(txid.value); }
std::string text(Epoch epoch) { return std::to_string(epoch.value); }

bool names(const std::vector<RestoreObject>& objects, const LtxName& name) {
  return std::any_of(objects.begin(), objects.end(), [&](const RestoreObject& o) {
    return o.epoch == name.epoch && o.level == name.level && o.min == name.min && o.max == name.max;
  });
}

}  // namespace

std::unique_ptr<BucketAudit> make_audit(Scheduler& world, Verdict& verdict, Bucket& bucket, Duration retention) {
  return std::make_unique<Audit>(world, verdict, bucket, retention);
}

std::string lease_key(const NodeId& node) { return node_key(node); }

const OwnerRecord* Audit::owner_of(const CellId& cell) const {
  auto it = owners_.find(cell);
  return it == owners_.end() ? nullptr : &it->second;
}

std::vector<RestoreObject> Audit::objects_of(const CellId& cell) const {
  std::vector<RestoreObject> out;
  std::string prefix = ltx_prefix(cell);
  for (auto it = bucket_.objects().lower_bound(prefix); it != bucket_.objects().end(); ++it) {
    if (!it->first.starts_with(prefix)) break;
    if (auto name = parse_ltx_key(it->first)) {
      out.push_back({name->epoch, name->level, name->min, name->max, it->second.body.size()});
    }
  }
  return out;
}

void Audit::writing(const std::string& key, const Blob& body) {
  if (auto cell = parse_owner_key(key)) return writing_owner(*cell, key, body);
  if (auto node = parse_node_key(key)) return writing_node(*node, key, body);
  if (auto slot = parse_journal_key(key)) return writing_slot(slot->node, slot->slot, key, body);
  if (auto name = parse_ltx_key(key)) return writing_ltx(*name, key, body);
}

void Audit::writing_owner(const CellId& cell, const std::string& key, const Blob& body) {
  Result<OwnerRecord> next = decode_owner(body.view(), key);
  if (!next) return verdict_.broken("damaged-record", cell, next.error().message);
  const OwnerRecord* old = owner_of(cell);
  std::string who = next->released() ? "release" : "node " + next->node.value;
  verdict_.note(
      "", cell.value,
      "own.json: " + who + ", epoch " + text(next->epoch) + ", manifest to TXID " + text(next->manifest.txid));
  if (!old) {
    if (next->epoch != Epoch(1))
      verdict_.broken("epoch-skipped", cell, key + " begins with epoch " + text(next->epoch));
  } else {
    if (next->epoch < old->epoch) {
      verdict_.broken("epoch-went-back", cell,
                      who + " writes epoch " + text(next->epoch) + " over " + text(old->epoch));
    }
    if (next->epoch == old->epoch) {
      bool checkpoint = !old->released() && next->node == old->node;
      bool release = !old->released() && next->released();
      if (!checkpoint && !release) {
        verdict_.broken("epoch-reused", cell, who + " writes epoch " + text(next->epoch) + " again");
      }
    } else if (!old->released() && old->node != next->node) {
      auto it = nodes_.find(old->node);
      // One that was recovered once stays so, whatever becomes of its record.
      if (it != nodes_.end() && it->second.journal.state < JournalState::kRecovered &&
          !recovered_.contains(old->node)) {
        verdict_.broken("claimed-before-recovery", cell,
                        who + " takes it from node " + old->node.value + ", which is not recovered");
      }
    }
    if (next->manifest.txid < old->manifest.txid) {
      verdict_.broken("manifest-went-back", cell,
                      who + " writes a manifest to TXID " + text(next->manifest.txid) + " over one to " +
                          text(old->manifest.txid));
    }
  }
  for (const RestoreObject& o : next->manifest.objects) {
    std::string object = ltx_key(cell, o.epoch, o.level, o.min, o.max);
    if (!bucket_.find(object)) {
      verdict_.broken("manifest-without-object", cell, who + " names " + object + ", which is not there");
    }
    useless_since_.erase(object);
  }
  Result<RestorePlan> plan = plan_restore(next->manifest.objects);
  if (!plan || plan->max != next->manifest.txid) {
    verdict_.broken("manifest-with-holes", cell, who + ": " + (plan ? "ends elsewhere" : plan.error().message));
  }
  check_size(cell, who, *next);
  for (const RestoreObject& o : objects_of(cell)) {
    LtxName name{cell, o.epoch, o.level, o.min, o.max};
    if (o.max <= next->manifest.txid && !names(next->manifest.objects, name)) {
      useless_since_.try_emplace(ltx_key(name), world_.now());
    }
  }
  owners_[cell] = std::move(*next);
}

// The size that the manifest gives is the one that its newest object leaves.
void Audit::check_size(const CellId& cell, const std::string& who, const OwnerRecord& next) {
  if (next.manifest.objects.empty()) return;
  const OwnerRecord* old = owner_of(cell);
  if (old && old->manifest == next.manifest) return;
  const RestoreObject& o = *std::max_element(next.manifest.objects.begin(), next.manifest.objects.end(),
                                             [](auto& a, auto& b) { return a.max < b.max; });
  const Object* object = bucket_.find(ltx_key(cell, o.epoch, o.level, o.min, o.max));
  if (!object) return;
  Result<LtxFile> file = decode_ltx(object->body.view());
  if (file && file->info.page_count != next.manifest.page_count) {
    verdict_.broken("manifest-of-another-size", cell,
                    who + " names " + std::to_string(next.manifest.page_count) + " pages, the database has " +
                        std::to_string(file->info.page_count));
  }
}

void Audit::writing_node(const NodeId& node, const std::string& key, const Blob& body) {
  Result<NodeRecord> next = decode_node(body.view(), key);
  if (!next) return verdict_.broken("damaged-record", {}, next.error().message);
  auto it = nodes_.find(node);
  verdict_.note(node.value, "",
                "record: seq " + std::to_string(next->seq) + " " + std::string(to_string(next->journal.state)) +
                    ", drained to slot " + text(next->journal.drained));
  Slot before;
  if (it != nodes_.end()) {
    const NodeRecord& old = it->second;
    before = old.journal.drained;
    if (next->seq <= old.seq) verdict_.broken("seq-went-back", {}, key + " seq " + std::to_string(next->seq));
    if (next->journal.state < old.journal.state) {
      verdict_.broken("state-went-back", {},
                      key + " from " + std::string(to_string(old.journal.state)) + " to " +
                          std::string(to_string(next->journal.state)));
    }
    if (next->journal.drained < before)
      verdict_.broken("drained-went-back", {}, key + " to slot " + text(next->journal.drained));
  }
  if (next->journal.state != JournalState::kFencing && next->journal.drained > before) {
    drained(node, before, next->journal.drained);
    if (next->journal.state == JournalState::kOpen) {
      const auto& slots = journals_[node].slots;
      auto last = slots.find(next->journal.drained);
      if (last != slots.end() && !last->second.empty() && !last->second.back().last) {
        verdict_.broken("drained-too-far", last->second.back().cell,
                        key + ": slot " + text(next->journal.drained) + " ends with a part of an open commit");
      }
    }
  }
  if (next->journal.state >= JournalState::kRecovered) recovered_.insert(node);
  Slot& mark = drained_[node];
  mark = std::max(mark, next->journal.drained);
  nodes_[node] = std::move(*next);
}

// What was known of it holds all the same; a record made anew may begin below it.
void Audit::lost(const NodeId& node) {
  lost_.insert(node);
  nodes_.erase(node);
}

bool Audit::covered(const Part& part) const {
  const OwnerRecord* owner = owner_of(part.cell);
  if (owner && owner->manifest.txid >= part.txid) return true;
  for (const RestoreObject& o : objects_of(part.cell)) {
    if (o.epoch == part.epoch && o.min <= part.txid && part.txid <= o.max) return true;
  }
  return false;
}

void Audit::drained(const NodeId& node, Slot from, Slot to) {
  const Journal& journal = journals_[node];
  for (Slot slot = from.next(); slot <= to; slot = slot.next()) {
    auto it = journal.slots.find(slot);
    if (it == journal.slots.end()) {
      return verdict_.broken("drained-too-far", {},
                             "node " + node.value + ": slot " + text(slot) + " is drained but was never there");
    }
    for (const Part& part : it->second) {
      if (part.last && !covered(part)) {
        return verdict_.broken("drained-too-far", part.cell,
                               "node " + node.value + ": slot " + text(slot) + " is drained, but TXID " +
                                   text(part.txid) + " of epoch " + text(part.epoch) + " is in no LTX object");
      }
    }
  }
}

void Audit::writing_slot(const NodeId& node, Slot slot, const std::string& key, const Blob& body) {
  Result<SlotContent> content = decode_slot(body.view());
  if (!content) return verdict_.broken("damaged-record", {}, key + ": " + content.error().message);
  Journal& journal = journals_[node];
  if (content->kind == SlotKind::kFence) {
    verdict_.note(node.value, "", "slot " + text(slot) + ": fence of node " + content->fencer.value);
    (recovered_.contains(node) ? journal.strays : journal.fences).insert(slot);
    return;
  }
  std::vector<Part> parts;
  for (const CommitPart& p : content->parts) {
    parts.push_back({p.cell, p.epoch, p.txid, p.index + 1 == p.count});
    if (verdict_.recording()) {
      verdict_.note(node.value, p.cell.value,
                    "slot " + text(slot) + ": TXID " + text(p.txid) + " of epoch " + text(p.epoch) +
                        (p.count > 1 ? " part " + std::to_string(p.index + 1) + "/" + std::to_string(p.count) : ""));
    }
    if (parts.back().last) placed_[{p.cell, p.epoch, p.txid}] = {node, slot};
  }
  journal.slots[slot] = std::move(parts);
  while (journal.slots.contains(journal.frontier.next()) && !journal.fences.contains(journal.frontier.next())) {
    journal.frontier = journal.frontier.next();
  }
}

void Audit::writing_ltx(const LtxName& name, const std::string& key, const Blob& body) {
  const OwnerRecord* owner = owner_of(name.cell);
  if (owner && name.max <= owner->manifest.txid && !names(owner->manifest.objects, name)) {
    useless_since_.try_emplace(key, world_.now());
  }
  if (name.level == 0) {
    auto it = placed_.find({name.cell, name.epoch, name.max});
    bool durable = it != placed_.end() && it->second.second <= journals_[it->second.first].frontier;
    if (!durable) {
      verdict_.broken("undurable-page-drained", name.cell,
                      key + " is written before TXID " + text(name.max) + " is durable");
    }
  }
  const Object* there = bucket_.find(key);
  if (!there || there->body == body) return;
  Result<LtxFile> a = decode_ltx(there->body.view()), b = decode_ltx(body.view());
  bool equal = a && b && a->info.page_count == b->info.page_count && a->pages.size() == b->pages.size();
  for (size_t i = 0; equal && i < a->pages.size(); ++i) {
    equal = a->pages[i].pgno == b->pages[i].pgno &&
            std::equal(a->pages[i].page.data(), a->pages[i].page.data() + kPageSize, b->pages[i].page.data());
  }
  if (!equal) verdict_.broken("content-of-key-changed", name.cell, key + " is written with other content");
}

void Audit::removed(const std::string& key) {
  if (auto cell = parse_owner_key(key)) return verdict_.broken("owner-record-deleted", *cell, key);
  if (auto node = parse_node_key(key)) {
    auto it = nodes_.find(*node);
    if (it == nodes_.end()) return;
    if (!recovered_.contains(*node)) {
      verdict_.broken("node-record-deleted", {},
                      key + " in state " + std::string(to_string(it->second.journal.state)));
    }
    nodes_.erase(it);
    return;
  }
  if (auto slot = parse_journal_key(key)) {
    auto it = nodes_.find(slot->node);
    // One at or below a mark stands where a drained slot was, and ends nothing: a walk without the record met the
    // hole. A delete of that slot that comes late may take it.
    bool ends = slot->slot > drained_[slot->node];
    if (ends && journals_[slot->node].fences.contains(slot->slot)) return verdict_.broken("fence-deleted", {}, key);
    // Once recovered or left, for ever: a restart that finds the record forgotten recovers it once more,
    // and a late delete of one of its slots may hit the fence of that.
    if (it == nodes_.end() || recovered_.contains(slot->node)) return;
    if (slot->slot > drained_[slot->node]) {
      verdict_.broken("undrained-slot-deleted", {}, key + ", drained to slot " + text(drained_[slot->node]));
    }
    return;
  }
  auto name = parse_ltx_key(key);
  if (!name) return;
  const OwnerRecord* owner = owner_of(name->cell);
  if (!owner) return verdict_.broken("needed-object-deleted", name->cell, key + " without a record of the cell");
  if (names(owner->manifest.objects, *name)) {
    return verdict_.broken("needed-object-deleted", name->cell, key + ", which the manifest names");
  }
  auto since = useless_since_.find(key);
  Duration kept = since == useless_since_.end() ? Duration(0) : world_.now() - since->second;
  if (since == useless_since_.end() || kept < retention_) {
    verdict_.broken(
        "needed-object-deleted", name->cell,
        key + (since == useless_since_.end() ? ", which no durable manifest covers"
                                             : " after " + std::to_string(kept / std::chrono::milliseconds(1)) +
                                                   " ms, inside the retention window"));
  }
}

bool Audit::fenced(const NodeId& node) const {
  auto it = journals_.find(node);
  return it != journals_.end() && (!it->second.fences.empty() || !it->second.strays.empty());
}

BucketAudit::Leftovers Audit::leftovers() const {
  Leftovers out;
  for (const auto& [key, object] : bucket_.objects()) {
    size_t* kind = nullptr;
    if (auto slot = parse_journal_key(key)) {
      const Journal& journal = journals_.at(slot->node);
      bool fence = journal.fences.contains(slot->slot) || journal.strays.contains(slot->slot);
      kind = fence ? &out.fences : &out.slots;
    } else if (auto name = parse_ltx_key(key)) {
      const OwnerRecord* owner = owner_of(name->cell);
      if (!owner || !names(owner->manifest.objects, *name)) kind = &out.ltx;
    } else if (parse_node_key(key)) {
      kind = &out.node_records;
    } else if (parse_alarm_index_key(key)) {
      kind = &out.index_shards;
    } else if (auto entry = parse_unowned_entry_key(key)) {
      const OwnerRecord* owner = owner_of(entry->cell);
      if (!owner || !owner->released() || owner->epoch != entry->epoch || !owner->alarm) kind = &out.unowned_alarms;
    }
    if (!kind) continue;
    if (kind != &out.fences && kind != &out.node_records && out.example.size() < 400) out.example += " " + key;
    ++*kind;
  }
  return out;
}

}  // namespace celld::sim

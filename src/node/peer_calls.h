// Events of cells that other nodes own, on their way there and back.
//
// A route says which node has a cell. It is learnt from the bucket, holds while the authority of that
// node is known to last - every reply says how long - and dies when the node refuses the cell, cannot be
// connected, or has not answered until its authority ended. What did not begin there is delivered anew;
// what may have begun is never sent again: its caller gets a retryable error.
//
// Everything runs on the loop's thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/ids.h"
#include "core/core.h"
#include "js/isolate_host.h"
#include "js/messages.h"
#include "net/fetch_client.h"
#include "peer/signature.h"
#include "world/world.h"

namespace celld {

// This node, as its peers know it.
struct PeerIdentity {
  PeerSecret secret;
  NodeId self;
};

class PeerCalls {
 public:
  // An event is sent to other nodes at most so often.
  static constexpr uint8_t kSentMax = 3;

  struct Services {
    // The event did not begin; its journey says where. Called on the loop's thread.
    std::function<void(js::CellAddress, js::CellEvent)> deliver;
    std::function<void(js::LogLevel, std::string)> log;
    // Posts to the loop's thread, from any.
    std::function<void(Callback)> post;
  };
  // At most so many connections to one node; further calls wait.
  PeerCalls(boost::asio::io_context& io, World& world, PeerIdentity identity, Services services, long connections_max);
  // What is under way fails as lost.
  ~PeerCalls();
  PeerCalls(const PeerCalls&) = delete;
  PeerCalls& operator=(const PeerCalls&) = delete;

  // Where the cell was found in the bucket.
  void learn(const CellId& cell, const OwnedElsewhere& where);
  // Sends the event to where the cell lives, if that is known and the node answers. Otherwise false, and
  // the event is as it was.
  bool forward(js::CellAddress& to, js::CellEvent& event);
  // Every now and then, such as twice a second: asks nodes that let us wait whether they live, and gives
  // up those whose authority has ended.
  void look_after();

 private:
  class Call;
  struct Peer {
    NodeId node;
    std::string addr;
    MonoTime until;     // its authority is known to last
    MonoTime heard_at;  // of the last reply, or when it was learnt
    MonoTime shunned_until;  // it could not be connected
    bool asked = false;      // a ping is under way
    std::unordered_set<std::shared_ptr<Call>> calls;
  };

  FetchRequest signed_request(const Peer& peer, std::string_view method, std::string_view target, std::string block);
  void heard(const NodeId& node, MonoTime sent_at, Duration authority);
  void not_reached(const NodeId& node, const std::string& why);
  bool answers(const Peer& peer) const;
  void ping(Peer& peer);

  boost::asio::io_context& io_;
  World& world_;
  const PeerIdentity identity_;
  const std::shared_ptr<const Services> services_;  // outlives this, with the calls
  const uint64_t session_;
  uint64_t last_number_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::unordered_map<NodeId, Peer> peers_;
  std::unordered_map<CellId, NodeId> routes_;
  std::unique_ptr<FetchClient> client_;
};

}  // namespace celld

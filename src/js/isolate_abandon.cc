// The end of an isolate whose thread was given up: all of the host's part, nothing of V8's.
#include <algorithm>

#include "js/isolate_internal.h"

namespace celld::js {

namespace {

struct Reasons {
  JsError object;     // that the lost turn was in
  JsError worker;     // likewise
  JsError bystander;  // everything else of the isolate
};

Reasons reasons(Tenure::Loss loss) {
  Reasons r;
  r.bystander.flags = kObjectReset | kRetryable;
  r.object.flags = kObjectReset;
  if (loss == Tenure::Loss::kMemory || loss == Tenure::Loss::kFatal) {
    r.object.message = "Durable Object's isolate exceeded its memory limit and was reset.";
    r.worker.message = "Worker exceeded memory limit.";
    r.bystander.message = "The isolate exceeded its memory limit and was reset.";
  } else {
    r.object.message = "Durable Object exceeded its CPU time limit and was reset.";
    r.worker.message = "Worker exceeded CPU time limit.";
    r.bystander.message = "The isolate was reset because code in it exceeded its CPU time limit and did not end.";
  }
  return r;
}

std::string_view name_of(Tenure::Loss loss) {
  switch (loss) {
    case Tenure::Loss::kNone: break;
    case Tenure::Loss::kCpu: return "cpu_limit";
    case Tenure::Loss::kBlocked: return "blocked";
    case Tenure::Loss::kMemory: return "memory_limit";
    case Tenure::Loss::kFatal: return "engine_failure";
  }
  return "unknown";
}

template <class Reply>
void refuse(Reply& any, const JsError& error) {
  std::visit(
      [&](auto& reply) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(reply)>, std::monostate>) {
          if (reply) std::exchange(reply, nullptr)(std::unexpected(error));
        }
      },
      any);
}

}  // namespace

void IsolateHost::abandon(Tenure::Loss loss, const std::function<void(Cell&)>& culprit) {
  const Reasons why = reasons(loss);
  *alive_ = false;
  condemned_ = true;
  seat_.reset();
  // Handles into the heap stay where they are, with the maps that they are in.
  for (auto& [id, timer] : timers_) world_.cancel(timer.armed);
  std::vector<std::move_only_function<void()>> cancels;
  for (auto& [id, call] : calls_) {
    if (call.cancel) cancels.push_back(std::exchange(call.cancel, nullptr));
  }
  for (auto& cancel : cancels) cancel();
  readers_.clear();

  auto guilty = [&](const Cell& cell) {
    return in_turn_ && (turn_frame_.cell == cell.index || std::ranges::find(touched_, &cell) != touched_.end());
  };
  // What the lost turn wanted to tell is not told.
  for (auto& [owner, effect] : std::exchange(effects_, {})) {
    if (owner) {
      owner->gate([effect = std::move(effect), error = why.object](const JsError* failed) mutable {
        effect(failed ? failed : &error);
      });
    } else {
      effect(&why.worker);
    }
  }
  struct Callers {
    std::vector<AnyReply> replies;
    std::deque<CellEvent> waiting;
    std::vector<PipeWriter> streams;
  };
  std::unordered_map<Cell*, Callers> callers;
  std::vector<std::pair<AnyReply, bool>> stateless;  // and whether the lost turn was in it
  for (auto& [io, e] : events_) {
    if (std::exchange(e->answered, true)) continue;
    AnyReply reply = std::exchange(e->reply, AnyReply());
    if (e->cell) {
      callers[e->cell].replies.push_back(std::move(reply));
    } else {
      stateless.emplace_back(std::move(reply), in_turn_ && turn_frame_.io == io);
    }
  }
  for (auto& [id, writer] : std::exchange(writers_, {})) {
    if (Cell* owner = cell(writer.cell)) {
      callers[owner].streams.push_back(std::move(writer.pipe));
    } else {
      writer.pipe->abort(why.bystander);
    }
  }
  for (auto& [index, cell] : std::exchange(cells_, {})) {
    bool is_guilty = guilty(*cell);
    if (cell->state == Cell::State::kReady || cell->state == Cell::State::kStarting) {
      log_reset(*cell, is_guilty ? name_of(loss) : "thread_of_another_object_lost");
    }
    Callers& theirs = callers[cell];
    if (is_guilty || cell->state == Cell::State::kStarting || cell->in_section()) {
      theirs.waiting = cell->take_waiting();
    }
    for (TimerId limit : cell->reset_gate()) world_.cancel(limit);
    cell->active.clear();
    cell->timers = 0;
    cell->alarm_hidden = false;
    cell->isolate = nullptr;
    cell->index = -1;
    if (cell->state == Cell::State::kReady || cell->state == Cell::State::kStarting) {
      cell->state = Cell::State::kCold;
    }
    if (cell->storage && !is_guilty) {
      cell->storage->abandon();
      cell->storage->set_stop_check(nullptr, nullptr);
    }
    // Also this may tell of commits that are not proven.
    cell->gate([theirs = std::move(theirs), error = is_guilty ? why.object : why.bystander](
                   const JsError* failed) mutable {
      const JsError& e = failed ? *failed : error;
      for (AnyReply& reply : theirs.replies) refuse(reply, e);
      for (CellEvent& event : theirs.waiting) fail_event(event, e);
      for (PipeWriter& stream : theirs.streams) stream->abort(e);
    });
    if (is_guilty) culprit(*cell);
  }
  for (auto& [reply, is_guilty] : stateless) refuse(reply, is_guilty ? why.worker : why.bystander);
}

}  // namespace celld::js

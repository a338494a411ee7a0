#include "world/cancel.h"

#include "base/check.h"

namespace celld {

void Cancellation::Listener::attach(Cancellation* to, std::move_only_function<void()> told) {
  CHECK(to_ == nullptr) << "a listener listens to one cancellation";
  if (to == nullptr) return;
  if (to->cancelled_) return told();
  told_ = std::move(told);
  to_ = to;
  next_ = to->first_;
  previous_ = nullptr;
  if (next_ != nullptr) next_->previous_ = this;
  to->first_ = this;
}

void Cancellation::Listener::detach() {
  if (to_ == nullptr) return;
  (previous_ != nullptr ? previous_->next_ : to_->first_) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  to_ = nullptr;
  told_ = nullptr;
}

Cancellation::~Cancellation() {
  CHECK(first_ == nullptr) << "a call outlives the cancellation that it was given";
}

void Cancellation::cancel() {
  cancelled_ = true;
  while (first_ != nullptr) {
    Listener& listener = *first_;
    auto told = std::move(listener.told_);
    listener.detach();
    told();
  }
}

}  // namespace celld

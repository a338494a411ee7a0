#include "js/native.h"

#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "js/isolate_host.h"
#include "js/tenure.h"

namespace celld::js {

namespace {

// One small function for each native, so that all of them are plain addresses.
constexpr size_t kNativesMax = 256;
v8::FunctionCallback natives[kNativesMax];
size_t natives_count = 0;
std::mutex natives_mutex;

template <size_t I>
void call_native(const v8::FunctionCallbackInfo<v8::Value>& info) {
  HostScope host;
  natives[I](info);
}

template <size_t... I>
constexpr std::array<v8::FunctionCallback, sizeof...(I)> native_callers(std::index_sequence<I...>) {
  return {call_native<I>...};
}
constexpr auto kNativeCallers = native_callers(std::make_index_sequence<kNativesMax>());

}  // namespace

v8::FunctionCallback guarded(v8::FunctionCallback native) {
  std::lock_guard lock(natives_mutex);
  size_t i = 0;
  while (i < natives_count && natives[i] != native) ++i;
  if (i == natives_count) {
    CHECK(natives_count < kNativesMax) << "too many natives";
    natives[natives_count++] = native;
  }
  return kNativeCallers[i];
}

void throw_error(v8::Isolate* isolate, std::string_view name, std::string_view message) {
  isolate->ThrowException(native_host(isolate).make_error(name, message));
}

v8::Local<v8::String> to_v8(v8::Isolate* isolate, std::string_view utf8) {
  v8::Local<v8::String> s;
  if (!v8::String::NewFromUtf8(isolate, utf8.data(), v8::NewStringType::kNormal,
                               static_cast<int>(utf8.size()))
           .ToLocal(&s)) {
    return v8::String::Empty(isolate);
  }
  return s;
}

std::string to_utf8(v8::Isolate* isolate, v8::Local<v8::Value> value) {
  if (value.IsEmpty()) return {};
  if (!value->IsString()) {
    v8::TryCatch ignore(isolate);
    JavaScriptScope javascript;  // toString() may be code of the user
    v8::String::Utf8Value text(isolate, value);
    return *text ? std::string(*text, static_cast<size_t>(text.length())) : std::string();
  }
  v8::Local<v8::String> s = value.As<v8::String>();
  std::string out;
  if (s->IsOneByte()) {
    // Mostly ASCII: take the bytes, widen only where needed.
    size_t length = static_cast<size_t>(s->Length());
    out.resize(length);
    s->WriteOneByte(isolate, reinterpret_cast<uint8_t*>(out.data()), 0, static_cast<int>(length),
                    v8::String::NO_NULL_TERMINATION);
    bool ascii = true;
    for (char c : out) {
      if (static_cast<unsigned char>(c) >= 0x80) {
        ascii = false;
        break;
      }
    }
    if (ascii) return out;
  }
  out.resize(static_cast<size_t>(s->Utf8Length(isolate)));
  s->WriteUtf8(isolate, out.data(), static_cast<int>(out.size()), nullptr,
               v8::String::NO_NULL_TERMINATION | v8::String::REPLACE_INVALID_UTF8);
  return out;
}

std::span<uint8_t> bytes_of(v8::Local<v8::Value> value) {
  if (value->IsArrayBufferView()) {
    v8::Local<v8::ArrayBufferView> view = value.As<v8::ArrayBufferView>();
    size_t length = view->ByteLength();
    if (length == 0) return {};
    auto* data = static_cast<uint8_t*>(view->Buffer()->GetBackingStore()->Data());
    return {data + view->ByteOffset(), length};
  }
  if (value->IsArrayBuffer()) {
    v8::Local<v8::ArrayBuffer> buffer = value.As<v8::ArrayBuffer>();
    return {static_cast<uint8_t*>(buffer->GetBackingStore()->Data()), buffer->ByteLength()};
  }
  return {};
}

v8::Local<v8::ArrayBuffer> to_array_buffer(v8::Isolate* isolate, std::string_view bytes) {
  std::unique_ptr<v8::BackingStore> store = native_host(isolate).new_buffer(bytes.size());
  if (!bytes.empty()) std::memcpy(store->Data(), bytes.data(), bytes.size());
  return v8::ArrayBuffer::New(isolate, std::move(store));
}

v8::Local<v8::Uint8Array> to_uint8array(v8::Isolate* isolate, std::string_view bytes) {
  return v8::Uint8Array::New(to_array_buffer(isolate, bytes), 0, bytes.size());
}

}  // namespace celld::js

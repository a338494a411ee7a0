// Natives of values: V8's serialization format, structuredClone.
#include "js/isolate_internal.h"
#include "js/tenure.h"

namespace celld::js {

namespace {

using Args = const v8::FunctionCallbackInfo<v8::Value>&;

// Serializers walk through objects of any size and call getters.
bool write_value(v8::ValueSerializer& serializer, v8::Local<v8::Context> context, v8::Local<v8::Value> value) {
  JavaScriptScope javascript;
  return serializer.WriteValue(context, value).FromMaybe(false);
}

v8::MaybeLocal<v8::Value> read_value(v8::ValueDeserializer& deserializer, v8::Local<v8::Context> context) {
  JavaScriptScope javascript;
  return deserializer.ReadValue(context);
}

class Delegate final : public v8::ValueSerializer::Delegate {
 public:
  explicit Delegate(v8::Isolate* isolate) : isolate_(isolate) {}

  void ThrowDataCloneError(v8::Local<v8::String> message) override {
    HostScope host;
    throw_error(isolate_, "DataCloneError", to_utf8(isolate_, message));
  }
  v8::Maybe<uint32_t> GetSharedArrayBufferId(v8::Isolate* isolate,
                                             v8::Local<v8::SharedArrayBuffer>) override {
    HostScope host;
    throw_error(isolate, "DataCloneError", "a SharedArrayBuffer cannot be cloned");
    return v8::Nothing<uint32_t>();
  }

 private:
  v8::Isolate* isolate_;
};

void serialize(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  std::string bytes;
  if (!serialize_value(isolate, isolate->GetCurrentContext(), args[0], &bytes)) return;
  args.GetReturnValue().Set(to_uint8array(isolate, bytes));
}

void deserialize(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  auto bytes = bytes_of(args[0]);
  v8::Local<v8::Value> value;
  if (deserialize_value(isolate, isolate->GetCurrentContext(),
                        std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()))
          .ToLocal(&value)) {
    args.GetReturnValue().Set(value);
  }
}

// value, transfer: array of ArrayBuffers
void structured_clone(Args args) {
  v8::Isolate* isolate = args.GetIsolate();
  v8::Local<v8::Context> context = isolate->GetCurrentContext();
  Delegate delegate(isolate);
  v8::ValueSerializer serializer(isolate, &delegate);
  std::vector<v8::Local<v8::ArrayBuffer>> moved;
  if (args[1]->IsArray()) {
    v8::Local<v8::Array> list = args[1].As<v8::Array>();
    for (uint32_t i = 0; i < list->Length(); ++i) {
      v8::Local<v8::Value> item;
      if (!list->Get(context, i).ToLocal(&item)) return;
      if (!item->IsArrayBuffer() || !item.As<v8::ArrayBuffer>()->IsDetachable()) {
        return throw_error(isolate, "DataCloneError", "a value in the transfer list cannot be transferred");
      }
      serializer.TransferArrayBuffer(i, item.As<v8::ArrayBuffer>());
      moved.push_back(item.As<v8::ArrayBuffer>());
    }
  }
  serializer.WriteHeader();
  if (!write_value(serializer, context, args[0])) return;
  std::vector<std::shared_ptr<v8::BackingStore>> stores;
  for (auto& buffer : moved) {
    stores.push_back(buffer->GetBackingStore());
    buffer->Detach();
  }
  auto [data, size] = serializer.Release();
  v8::ValueDeserializer deserializer(isolate, data, size);
  for (uint32_t i = 0; i < stores.size(); ++i) {
    deserializer.TransferArrayBuffer(i, v8::ArrayBuffer::New(isolate, stores[i]));
  }
  v8::Local<v8::Value> clone;
  bool ok = deserializer.ReadHeader(context).FromMaybe(false) &&
            read_value(deserializer, context).ToLocal(&clone);
  std::free(data);
  if (ok) args.GetReturnValue().Set(clone);
}

constexpr NativeFunction kTable[] = {
    {"serialize", serialize},
    {"deserialize", deserialize},
    {"structuredClone", structured_clone},
};

}  // namespace

std::span<const NativeFunction> value_natives() { return kTable; }

bool serialize_value(v8::Isolate* isolate, v8::Local<v8::Context> context,
                     v8::Local<v8::Value> value, std::string* out) {
  Delegate delegate(isolate);
  v8::ValueSerializer serializer(isolate, &delegate);
  serializer.WriteHeader();
  if (!write_value(serializer, context, value)) return false;
  auto [data, size] = serializer.Release();
  out->assign(reinterpret_cast<const char*>(data), size);
  std::free(data);
  return true;
}

v8::MaybeLocal<v8::Value> deserialize_value(v8::Isolate* isolate, v8::Local<v8::Context> context,
                                            std::string_view bytes) {
  v8::ValueDeserializer deserializer(isolate, reinterpret_cast<const uint8_t*>(bytes.data()),
                                     bytes.size());
  if (!deserializer.ReadHeader(context).FromMaybe(false)) return {};
  return read_value(deserializer, context);
}

}  // namespace celld::js

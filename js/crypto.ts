// crypto: random numbers and digests. What the host cannot do yet throws by name.

import { DOMException } from "./dom_exception";
import { native } from "./host";
import { WritableStream, join_chunks } from "./streams";
import { utf8_bytes } from "./encoding";
import { define_global, expose, require_event, set_tag, unsupported, view_bytes, wrong_argument } from "./util";

const DIGESTS = new Set(["SHA-1", "SHA-256", "SHA-384", "SHA-512", "MD5"]);
const RANDOM_MAX = 65536;
// A DigestStream keeps what it was given until it is closed.
const DIGEST_STREAM_MAX = 128 * 1024 * 1024;

function digest_name(algorithm: unknown): string {
  const given = typeof algorithm === "object" && algorithm !== null
    ? (algorithm as { name?: unknown }).name : algorithm;
  const name = String(given).toUpperCase();
  if (!DIGESTS.has(name)) {
    throw new DOMException("Unrecognized or unimplemented digest algorithm requested.", "NotSupportedError");
  }
  return name;
}

export class SubtleCrypto {
  async digest(algorithm: unknown, data: unknown): Promise<ArrayBuffer> {
    if (arguments.length < 2) {
      throw wrong_argument("digest", "SubtleCrypto", arguments.length + 1,
        arguments.length === 0 ? "string or HashAlgorithm" : "BufferSource");
    }
    const bytes = view_bytes(data);
    if (bytes === undefined) throw wrong_argument("digest", "SubtleCrypto", 2, "BufferSource");
    return native.digest(digest_name(algorithm), bytes);
  }

  timingSafeEqual(a: unknown, b: unknown): boolean {
    const x = view_bytes(a);
    const y = view_bytes(b);
    if (x === undefined) throw wrong_argument("timingSafeEqual", "SubtleCrypto", 1, "BufferSource");
    if (y === undefined) throw wrong_argument("timingSafeEqual", "SubtleCrypto", 2, "BufferSource");
    if (x.length !== y.length) throw new TypeError("Input buffers must have the same byte length.");
    return native.timingSafeEqual(x, y);
  }
}

for (const name of [
  "encrypt", "decrypt", "sign", "verify", "generateKey", "deriveKey", "deriveBits", "importKey", "exportKey", "wrapKey",
  "unwrapKey",
]) {
  Object.defineProperty(SubtleCrypto.prototype, name, {
    value: { async [name](): Promise<never> {
      throw unsupported(`crypto.subtle.${name}()`);
    } }[name],
    writable: true, configurable: true,
  });
}

export class DigestStream extends WritableStream<any> {
  #digest: Promise<ArrayBuffer>;
  #written = 0;

  constructor(algorithm: unknown) {
    const name = digest_name(algorithm);
    const chunks: Uint8Array[] = [];
    let total = 0;
    let resolve!: (digest: ArrayBuffer) => void;
    let reject!: (reason: unknown) => void;
    const digest = new Promise<ArrayBuffer>((done, failed) => {
      resolve = done;
      reject = failed;
    });
    digest.catch(() => {});
    super({
      write: (chunk) => {
        const bytes = typeof chunk === "string" ? utf8_bytes(chunk) : view_bytes(chunk);
        if (bytes === undefined) {
          const error = new TypeError("DigestStream is a byte stream but received an object of " +
            "non-ArrayBuffer/ArrayBufferView/string type on its writable side.");
          reject(error);
          throw error;
        }
        total += bytes.length;
        if (total > DIGEST_STREAM_MAX) {
          const error = unsupported(`A DigestStream over more than ${DIGEST_STREAM_MAX} bytes`);
          reject(error);
          throw error;
        }
        chunks.push(bytes.slice());
        this.#written = total;
      },
      close: () => resolve(native.digest(name, join_chunks(chunks, total))),
      abort: (reason) => reject(reason),
    });
    this.#digest = digest;
  }

  get digest(): Promise<ArrayBuffer> {
    return this.#digest;
  }
  get bytesWritten(): bigint {
    return BigInt(this.#written);
  }
}

const subtle = new SubtleCrypto();

export class Crypto {
  get subtle(): SubtleCrypto {
    return subtle;
  }

  getRandomValues<T>(buffer: T): T {
    require_event();
    if (!ArrayBuffer.isView(buffer)) throw wrong_argument("getRandomValues", "Crypto", 1, "ArrayBufferView");
    if (buffer instanceof Float32Array || buffer instanceof Float64Array || buffer instanceof DataView) {
      throw new DOMException(
        "ArrayBufferView argument to getRandomValues() must be an integer-typed view.", "TypeMismatchError");
    }
    const bytes = view_bytes(buffer)!;
    if (bytes.length > RANDOM_MAX) {
      throw new DOMException(
        `getRandomValues() only accepts buffers of size <= 64K but provided ${bytes.length} bytes.`, "QuotaExceededError");
    }
    native.randomFill(bytes);
    return buffer;
  }

  randomUUID(): string {
    require_event();
    return native.randomUUID();
  }
}

Object.defineProperty(Crypto.prototype, "DigestStream", { value: DigestStream, writable: true, configurable: true });
expose(SubtleCrypto, "SubtleCrypto");
expose(Crypto, "Crypto");
expose(DigestStream, "DigestStream");
set_tag(DigestStream.prototype, "DigestStream");
define_global("Crypto", Crypto);
define_global("SubtleCrypto", SubtleCrypto);
define_global("crypto", new Crypto());

// Stands in for @exodus/bytes in whatwg-url, which would bring tables of every legacy encoding: a
// URL's query is always encoded as UTF-8 here.

import { utf8_bytes } from "./encoding";

// `set`: the printable ASCII characters to encode; all that is not printable ASCII is encoded too.
export function percentEncodeAfterEncoding(encoding: string, text: string, set: string): string {
  if (encoding.toLowerCase() !== "utf-8") throw new RangeError(`unsupported encoding of a URL: ${encoding}`);
  let out = "";
  for (const byte of utf8_bytes(text)) {
    const char = String.fromCharCode(byte);
    out += byte > 0x1f && byte < 0x7f && !set.includes(char)
      ? char : "%" + (byte < 16 ? "0" : "") + byte.toString(16).toUpperCase();
  }
  return out;
}

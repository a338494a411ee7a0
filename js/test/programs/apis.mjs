// Streams, encodings, crypto, timers, events, blobs, structured clone: values and errors.
import { report, show } from "./show.mjs";
const E = new TextEncoder();
const text = async (stream) => {
  let out = "";
  const decoder = new TextDecoder();
  for await (const chunk of stream) out += typeof chunk === "string" ? chunk : decoder.decode(chunk, { stream: true });
  return out;
};
const run = async (transform, ...chunks) => {
  const writer = transform.writable.getWriter();
  const result = text(transform.readable);
  for (const chunk of chunks) await writer.write(chunk);
  await writer.close();
  return result;
};
export default { async fetch() {
  await show("ident", () => run(new IdentityTransformStream(), E.encode("abc")));
  await show("ident str", async () => {
    const s = new IdentityTransformStream();
    const w = s.writable.getWriter();
    s.readable.getReader().read().catch(() => {
    });
    await w.write("abc");
  });
  await show("ident obj", async () => {
    const s = new IdentityTransformStream();
    const w = s.writable.getWriter();
    s.readable.getReader().read().catch(() => {
    });
    await w.write({});
  });
  await show("fixed ok", () => run(new FixedLengthStream(3), E.encode("abc")));
  await show("fixed neg", () => new FixedLengthStream(-1));
  await show("fixed none", () => new FixedLengthStream());
  await show("fixed x", () => new FixedLengthStream("x"));
  await show("fixed big", () => new FixedLengthStream(5n).constructor.name);
  await show("tes", () => run(new TextEncoderStream(), "a\uD83D", "\uDE00b"));
  await show("tds", () => run(new TextDecoderStream(), E.encode("é").slice(0, 1), E.encode("é").slice(1)));
  await show("ts", () => run(new TransformStream({ transform(c, k) {
    k.enqueue(c.toUpperCase());
  } }), "ab", "c"));
  await show("ts def", () => run(new TransformStream(), "ab"));
  await show("tee", async () => {
    const [a, b] = new Response("abc").body.tee();
    return [await text(a), await text(b)];
  });
  await show("pipeThrough", async () => text(new Response("abc").body.pipeThrough(new TextDecoderStream())));
  await show("byob", async () => {
    const r = new Response("abcdef").body.getReader({ mode: "byob" });
    const x = await r.read(new Uint8Array(4));
    const y = await r.read(new Uint8Array(4));
    const z = await r.read(new Uint8Array(4));
    return [x.value.length, x.done, y.value.length, y.done, z.done, z.value?.length];
  });
  await show("rs from", async () => text(ReadableStream.from(["a", "b"])));
  await show("cancel", async () => {
    let c;
    const s = new ReadableStream({ cancel(r) {
      c = r;
    } });
    await s.cancel("x");
    return c;
  });
  await show("res of ts", async () => {
    const s = new TransformStream();
    const w = s.writable.getWriter();
    w.write(E.encode("zz"));
    w.close();
    return new Response(s.readable).text();
  });
  await show("res clone stream", async () => {
    const r = new Response(new ReadableStream({ start(c2) {
      c2.enqueue(E.encode("q"));
      c2.close();
    } }));
    const c = r.clone();
    return [await r.text(), await c.text()];
  });
  await show("bodyUsed after reader", async () => {
    const r = new Response("x");
    const rd = r.body.getReader();
    const a = r.bodyUsed;
    await rd.read();
    return [a, r.bodyUsed];
  });
  await show("read closed", async () => {
    const rd = new Response("").body.getReader();
    const a = await rd.read();
    return [a.done, a.value];
  });
  await show("text then body", async () => {
    const r = new Response("x");
    await r.text();
    return [r.bodyUsed, r.body.locked];
  });
  await show("body null", () => [new Response().body, new Response(null).body, new Request("http://x").body]);
  await show("td labels", () => ["utf8", "latin1", "utf-16le", "shift_jis", "gbk", "windows-1252", "x-user-defined", "iso-8859-2"].map((l) => {
    try {
      return new TextDecoder(l).encoding;
    } catch (e) {
      return e.name + e.message;
    }
  }));
  await show("td bad", () => new TextDecoder("nope"));
  await show("td fatal", () => new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array([255])));
  await show("td bom", () => [new TextDecoder().decode(new Uint8Array([239, 187, 191, 97])).length, new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array([239, 187, 191, 97])).length]);
  await show("td none", () => new TextDecoder().decode());
  await show("td str", () => new TextDecoder().decode("x"));
  await show("td stream", () => {
    const d = new TextDecoder();
    return d.decode(new Uint8Array([195]), { stream: true }) + d.decode(new Uint8Array([169])) + d.decode(new Uint8Array([195]));
  });
  await show("te", () => [...E.encode("é\uD800")]);
  await show("te into", () => E.encodeInto("é😀x", new Uint8Array(4)));
  await show("te props", () => [E.encoding, new TextDecoder().fatal, new TextDecoder().ignoreBOM]);
  await show("btoa", () => btoa("aÿ"));
  await show("btoa bad", () => btoa("€"));
  await show("atob", () => atob(" YQ = ="));
  await show("atob bad", () => atob("a"));
  await show("atob none", () => atob());
  await show("btoa null", () => btoa(null));
  await show("uuid", () => crypto.randomUUID().length);
  await show("grv", () => crypto.getRandomValues(new Uint8Array(4)).length);
  await show("grv float", () => crypto.getRandomValues(new Float32Array(4)));
  await show("grv big", () => crypto.getRandomValues(new Uint8Array(65537)));
  await show("grv none", () => crypto.getRandomValues());
  await show("grv ab", () => crypto.getRandomValues(new ArrayBuffer(4)));
  const hex = (b) => [...new Uint8Array(b)].map((x) => x.toString(16).padStart(2, "0")).join("");
  for (const a of ["SHA-1", "sha-256", { name: "SHA-384" }, "SHA-512", "MD5"])
    await show("digest " + JSON.stringify(a), async () => hex(await crypto.subtle.digest(a, E.encode("abc"))).slice(0, 16));
  await show("digest bad", () => crypto.subtle.digest("x", E.encode("a")));
  await show("digest none", () => crypto.subtle.digest("SHA-1"));
  await show("digest str", () => crypto.subtle.digest("SHA-1", "abc"));
  await show("digest noname", () => crypto.subtle.digest({}, E.encode("a")));
  await show("tse", () => [crypto.subtle.timingSafeEqual(E.encode("a"), E.encode("a")), crypto.subtle.timingSafeEqual(E.encode("a"), E.encode("b"))]);
  await show("tse len", () => crypto.subtle.timingSafeEqual(E.encode("a"), E.encode("ab")));
  await show("tse bad", () => crypto.subtle.timingSafeEqual("a", "b"));
  await show("ds", async () => {
    const d = new crypto.DigestStream("SHA-256");
    await new Response("abc").body.pipeTo(d);
    return [hex(await d.digest).slice(0, 8), d.bytesWritten];
  });
  await show("ds str", async () => {
    const d = new crypto.DigestStream("SHA-256");
    const w = d.getWriter();
    await w.write("abc");
    await w.close();
    return hex(await d.digest).slice(0, 8);
  });
  await show("ds bad", () => new crypto.DigestStream("x"));
  await show("ds abort", async () => {
    const d = new crypto.DigestStream("MD5");
    await d.abort(new Error("no"));
    return d.digest;
  });
  await show("st", () => new Promise((r) => setTimeout((a, b) => r([a, b]), 1, "x", "y")));
  await show("ct", () => [clearTimeout(), clearTimeout(undefined), clearTimeout(99999), clearTimeout("x"), clearInterval(null)]);
  await show("si", () => new Promise((r) => {
    let n = 0;
    const i = setInterval(() => {
      if (++n == 3) {
        clearInterval(i);
        r(n);
      }
    }, 1);
  }));
  await show("order", async () => {
    const o = [];
    setTimeout(() => o.push("t0"), 0);
    setTimeout(() => o.push("t1"), 1);
    queueMicrotask(() => o.push("m"));
    Promise.resolve().then(() => o.push("p"));
    o.push("s");
    await scheduler.wait(10);
    return o;
  });
  await show("wait abort", () => scheduler.wait(100, { signal: AbortSignal.abort() }));
  await show("wait none", () => scheduler.wait());
  await show("qm bad", () => queueMicrotask(5));
  await show("st this", () => new Promise((r) => setTimeout(function() {
    r(this === globalThis || this === undefined);
  }, 1)));
  await show("ev", () => {
    const l = [];
    const et = new EventTarget();
    et.addEventListener("a", (e2) => l.push(e2.type, e2.target === et, e2.currentTarget === et, e2.eventPhase));
    et.addEventListener("a", { handleEvent(e2) {
      l.push("h");
    } }, { once: true });
    const e = new Event("a", { cancelable: true });
    l.push(et.dispatchEvent(e));
    et.dispatchEvent(new Event("a"));
    return l;
  });
  await show("ev bad", () => new EventTarget().dispatchEvent({}));
  await show("ev none", () => new Event());
  await show("et null", () => new EventTarget().addEventListener("a", null));
  await show("et 5", () => new EventTarget().addEventListener("a", 5));
  await show("ev throw", () => {
    const et = new EventTarget();
    et.addEventListener("a", () => {
      throw new Error("lst");
    });
    return et.dispatchEvent(new Event("a"));
  });
  await show("ce", () => new CustomEvent("a", { detail: 5 }).detail);
  await show("ce none", () => new CustomEvent("a").detail);
  await show("ee", () => {
    const e = new ErrorEvent("error", { message: "m", error: new Error("x") });
    return [e.message, e.error.message, e.lineno];
  });
  await show("me", () => new MessageEvent("message", { data: 5 }).data);
  await show("ac", () => {
    const c = new AbortController();
    const l = [];
    c.signal.onabort = () => l.push("on");
    c.signal.addEventListener("abort", () => l.push("l"));
    c.abort("r");
    c.abort("s");
    return [l, c.signal.aborted, c.signal.reason];
  });
  await show("as new", () => new AbortSignal());
  await show("as any", () => {
    const c = new AbortController();
    const a = AbortSignal.any([c.signal, AbortSignal.timeout(1e4)]);
    c.abort("z");
    return [a.aborted, a.reason];
  });
  await show("as any bad", () => AbortSignal.any([5]));
  await show("as any none", () => AbortSignal.any());
  await show("blob", async () => {
    const b = new Blob(["a", E.encode("b"), new Blob(["c"])], { type: "Text/Plain" });
    return [b.size, b.type, await b.text(), await b.slice(1, 2).text(), (await b.arrayBuffer()).byteLength, await text(b.stream()), await b.slice(-1).text(), b.slice(0, 1, "x/y").type];
  });
  await show("blob bad", () => new Blob("a"));
  await show("blob obj", () => new Blob({}));
  await show("file", () => {
    const f = new File(["a"], "n", { lastModified: 5, type: "a/b" });
    return [f.name, f.lastModified, f.type, f.size];
  });
  await show("file none", () => new File(["a"]));
  await show("blob undefined", () => new Blob(undefined).size);
  await show("blob none", () => new Blob().size);
  await show("blob num", () => new Blob([5, null]).text());
  await show("fd", () => {
    const f = new FormData();
    f.append("a", "1");
    f.append("a", new Blob(["x"]), "fn");
    f.set("b", "2");
    f.set("a", "3");
    return [[...f], f.get("z"), f.getAll("a"), f.has("b")];
  });
  await show("fd file", () => {
    const f = new FormData();
    f.append("a", new Blob(["x"], { type: "q/w" }));
    const v = f.get("a");
    return [v instanceof File, v.name, v.type];
  });
  await show("fd bad", () => new FormData(5));
  await show("fd none", () => new FormData().append("a"));
  await show("fd parse", async () => {
    const f = new FormData();
    f.append("a é", "v\r\nw");
    f.append("f", new File(["x\0y"], 'n"é.txt', { type: "a/b" }));
    const g = await new Response(f).formData();
    const v = g.get("f");
    return [[...g.keys()], g.get("a é"), v.name, v.type, await v.text()];
  });
  await show("sc", () => {
    const m = structuredClone({ d: /* @__PURE__ */ new Date(0), m: /* @__PURE__ */ new Map([[1, { a: 1 }]]), s: /* @__PURE__ */ new Set([1]), e: new RangeError("x"), r: /x/g, b: 5n, u: undefined, u8: new Uint8Array([1, 2]) });
    return [m.d instanceof Date, m.m.get(1).a, m.s.has(1), m.e instanceof RangeError, m.r.flags, m.b, "u" in m, m.u8.length];
  });
  await show("sc fn", () => structuredClone(() => 1));
  await show("sc sym", () => structuredClone(/* @__PURE__ */ Symbol("a")));
  await show("sc cls", () => structuredClone(new class A {
    x = 1;
  }()).x);
  await show("sc transfer", () => {
    const b = new ArrayBuffer(4);
    const c = structuredClone(b, { transfer: [b] });
    return [b.byteLength, c.byteLength];
  });
  await show("sc none", () => structuredClone());
  await show("sc cyc", () => {
    const a = {};
    a.a = a;
    const b = structuredClone(a);
    return b.a === b;
  });
  await show("sc et", () => structuredClone(new EventTarget()));
  await show("dom def", () => [new DOMException().name, new DOMException("x").code]);
  await show("caches", () => typeof caches.default);
  await show("glob ev", () => typeof addEventListener);
  await show("headers entries mod", () => {
    const h = new Headers([["b", "1"], ["a", "2"]]);
    return [[...h.keys()], [...h.values()], h.entries().next()];
  });
  return report();
} };

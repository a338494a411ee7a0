// objects: Caller
import { bytes, object, text_of, worker } from "../lib/harness.mjs";

const echo = async (response) => {
  const { headers, ...rest } = await response.json();
  // What each side says of itself is not compared.
  return { ...rest, headers: headers.filter(([name]) => !["host", "connection", "accept-encoding", "user-agent", "cf-workers-preview-token"].includes(name)).sort() };
};

export class Caller extends object({
  async fetch_from_an_object({ url, tries }) {
    const origin = url.searchParams.get("origin");
    await tries("text", async () => (await fetch(`${origin}/status/200`)).text());
    await tries("post", async () => echo(await fetch(`${origin}/echo`, { method: "POST", body: "from an object" })));
  },
  async put_then_fetch({ url, storage, tries }) {
    const origin = url.searchParams.get("origin");
    storage.put("a", 1);
    await tries("text", async () => (await fetch(`${origin}/status/200`)).text());
  },
  async stream_through_an_object({ url }) {
    return fetch(`${url.searchParams.get("origin")}/slow/3/10`);
  },
  async read_slowly({ url, tries }) {
    await tries("text", async () => (await fetch(`${url.searchParams.get("origin")}/slow/3/20`)).text());
  },
}) {}

export default worker({
  async methods({ url, tries }) {
    const origin = url.searchParams.get("origin");
    for (const method of ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "get", "post", "patch", "PROPFIND"]) {
      await tries(method, async () => { const r = await fetch(`${origin}/echo`, { method }); return method === "HEAD" ? r.status : echo(r); });
    }
    for (const method of ["TRACE", "CONNECT", "TRACK", "bad method", "", "custom"]) await tries(method, async () => (await fetch(`${origin}/echo`, { method })).status);
  },
  async statuses({ url, tries }) {
    const origin = url.searchParams.get("origin");
    for (const code of [200, 201, 204, 206, 304, 400, 401, 404, 418, 429, 500, 503, 599]) {
      await tries(String(code), async () => { const r = await fetch(`${origin}/status/${code}`); return [r.status, r.ok, r.statusText, r.headers.get("x-code"), r.body === null, await r.text()]; });
    }
    await tries("reason", async () => (await fetch(`${origin}/reason`)).statusText);
  },
  async request_headers({ url, tries }) {
    const origin = url.searchParams.get("origin");
    await tries("none", async () => echo(await fetch(`${origin}/echo`)));
    await tries("some", async () => echo(await fetch(`${origin}/echo`, { headers: { "X-Upper": "A", accept: "x/y", "x-empty": "", "x-spaces": "  a  " } })));
    await tries("twice", async () => echo(await fetch(`${origin}/echo`, { headers: [["x-a", "1"], ["x-a", "2"], ["cookie", "a=1"], ["cookie", "b=2"]] })));
    await tries("host", async () => (await (await fetch(`${origin}/echo`, { headers: { host: "other" } })).json()).headers.filter(([n]) => n === "host").length);
    await tries("content-length", async () => echo(await fetch(`${origin}/echo`, { method: "POST", body: "abc", headers: { "content-length": "3" } })));
    await tries("latin1", async () => echo(await fetch(`${origin}/echo`, { headers: { "x-l": "é" } })));
    await tries("authorization", async () => echo(await fetch(`${origin}/echo`, { headers: { authorization: "Basic x" } })));
    await tries("credentials", async () => echo(await fetch(`${origin.replace("//", "//user:pass@")}/echo`)));
    await tries("user agent", async () => (await (await fetch(`${origin}/echo`, { headers: { "user-agent": "mine" } })).json()).headers.find(([n]) => n === "user-agent"));
  },
  async request_bodies({ url, tries }) {
    const origin = url.searchParams.get("origin");
    const form = new FormData();
    form.append("a", "1");
    for (const [label, body] of Object.entries({
      string: "text", empty: "", unicode: "é✓", bytes: new Uint8Array([1, 2, 255]), buffer: new Uint8Array([9]).buffer, params: new URLSearchParams("a=1&b=2"),
      blob: new Blob(["blob"], { type: "x/y" }), null: null, undefined: undefined, number: 5, object: {},
    })) await tries(label, async () => echo(await fetch(`${origin}/echo`, { method: "POST", body })));
    await tries("form", async () => { const r = await echo(await fetch(`${origin}/echo`, { method: "POST", body: form })); return [r.body.includes('name="a"'), r.headers.map(([n, v]) => [n, n === "content-type" ? v.split(";")[0] : n === "content-length" ? "" : v])]; });
    await tries("stream", async () => { const t = new TransformStream(); const w = t.writable.getWriter(); w.write(bytes("one ")).then(() => w.write(bytes("two"))).then(() => w.close()); return echo(await fetch(`${origin}/echo`, { method: "POST", body: t.readable })); });
    await tries("identity", async () => { const t = new IdentityTransformStream(); const w = t.writable.getWriter(); w.write(bytes("one ")).then(() => w.close()); return echo(await fetch(`${origin}/echo`, { method: "POST", body: t.readable })); });
    await tries("fixed", async () => { const t = new FixedLengthStream(5); const w = t.writable.getWriter(); w.write(bytes("fixed")).then(() => w.close()); return echo(await fetch(`${origin}/echo`, { method: "POST", body: t.readable })); });
    await tries("readable", async () => echo(await fetch(`${origin}/echo`, { method: "POST", body: new ReadableStream({ start(c) { c.enqueue(bytes("ready")); c.close(); } }) })));
    await tries("get with body", () => fetch(`${origin}/echo`, { body: "x" }));
    await tries("response body", async () => echo(await fetch(`${origin}/echo`, { method: "POST", body: (await fetch(`${origin}/status/200`)).body })));
  },
  async response_headers({ url, tries }) {
    const origin = url.searchParams.get("origin");
    await tries("headers", async () => { const { headers } = await fetch(`${origin}/headers`); return [headers.get("x-mixed-case"), headers.get("x-twice"), headers.get("set-cookie"), headers.getSetCookie()]; });
    await tries("names", async () => [...(await fetch(`${origin}/headers`)).headers.keys()].filter((n) => !["date", "connection", "keep-alive", "transfer-encoding", "content-length"].includes(n)));
    await tries("immutable", async () => { const r = await fetch(`${origin}/headers`); r.headers.set("a", "b"); });
    await tries("copy", async () => { const r = new Response((await fetch(`${origin}/headers`)).body, await fetch(`${origin}/headers`)); r.headers.set("a", "b"); return r.headers.get("a"); });
    await tries("url", async () => { const r = await fetch(`${origin}/status/200?q#hash`); return [r.url.replace(origin, ""), r.redirected, r.type]; });
    await tries("gzip", async () => { const r = await fetch(`${origin}/gzip`); return [r.headers.get("content-encoding"), (await r.text()).length]; });
  },
  async redirects({ url, tries }) {
    const origin = url.searchParams.get("origin");
    const path = (response) => response.url.replace(origin, "");
    for (const code of [301, 302, 303, 307, 308]) {
      await tries(`${code}`, async () => { const r = await fetch(`${origin}/redirect/${code}/2`); return [r.status, r.redirected, path(r), (await echo(r)).method]; });
      await tries(`${code} post`, async () => { const r = await fetch(`${origin}/redirect/${code}/1`, { method: "POST", body: "data", headers: { "x-kept": "1" } }); return echo(r); });
      await tries(`${code} head`, async () => { const r = await fetch(`${origin}/redirect/${code}/1`, { method: "HEAD" }); return [r.status, path(r)]; });
      await tries(`${code} manual`, async () => { const r = await fetch(`${origin}/redirect/${code}/1`, { redirect: "manual" }); return [r.status, r.headers.get("location"), r.redirected, r.type, await r.text()]; });
      await tries(`${code} error`, async () => (await fetch(`${origin}/redirect/${code}/1`, { redirect: "error" })).status);
    }
    await tries("20", async () => (await fetch(`${origin}/redirect/302/20`)).status);
    await tries("21", async () => (await fetch(`${origin}/redirect/302/21`)).status);
    await tries("no location", async () => { const r = await fetch(`${origin}/nowhere`); return [r.status, await r.text()]; });
    await tries("bad location", async () => (await fetch(`${origin}/moved/302?to=http://`)).status);
    await tries("other scheme", async () => (await fetch(`${origin}/moved/302?to=ftp://x/`)).status);
    await tries("relative", async () => path(await fetch(`${origin}/moved/302?to=../status/200`)));
    await tries("fragment", async () => path(await fetch(`${origin}/moved/302?to=/status/200#there`)));
    await tries("stream body", async () => { const t = new TransformStream(); const w = t.writable.getWriter(); w.write(bytes("x")).then(() => w.close()); return (await fetch(`${origin}/redirect/307/1`, { method: "POST", body: t.readable })).status; });
    await tries("manual of a request", async () => (await fetch(new Request(`${origin}/redirect/302/1`, { redirect: "manual" }))).status);
    await tries("bad mode", async () => new Request(origin, { redirect: "sometimes" }).redirect);
  },
  async errors({ url, tries }) {
    const origin = url.searchParams.get("origin");
    const kind = async (promise) => { try { return await promise; } catch (e) { return [e.name, e.constructor.name, e.message.length > 0, e.retryable]; } };
    await tries("refused", () => kind(fetch("http://127.0.0.1:1/")));
    await tries("no such host", () => kind(fetch("http://no-such-host.invalid/")));
    await tries("hang up", () => kind(fetch(`${origin}/hangup`)));
    await tries("cut", () => kind(fetch(`${origin}/cut`).then((r) => r.text())));
    await tries("cut chunked", () => kind(fetch(`${origin}/cut-chunked`).then((r) => r.text())));
    await tries("bad url", () => fetch("not a url"));
    await tries("relative", () => fetch("/path"));
    await tries("scheme", () => fetch("ftp://x/"));
    await tries("data", () => fetch("data:text/plain,x"));
    await tries("nothing", () => fetch());
    await tries("port 0", () => kind(fetch("http://127.0.0.1:0/")));
  },
  async aborting({ url, tries }) {
    const origin = url.searchParams.get("origin");
    await tries("before", () => fetch(`${origin}/never`, { signal: AbortSignal.abort() }));
    await tries("reason", () => fetch(`${origin}/never`, { signal: AbortSignal.abort("why") }));
    await tries("later", () => { const c = new AbortController(); setTimeout(() => c.abort(), 20); return fetch(`${origin}/never`, { signal: c.signal }); });
    await tries("later with a reason", () => { const c = new AbortController(); setTimeout(() => c.abort(new TypeError("mine")), 20); return fetch(`${origin}/never`, { signal: c.signal }); });
    await tries("timeout", () => fetch(`${origin}/never`, { signal: AbortSignal.timeout(20) }));
    await tries("in the body", async () => { const c = new AbortController(); const r = await fetch(`${origin}/slow/100/20`, { signal: c.signal }); setTimeout(() => c.abort(), 50); return (await r.text()).length; });
    await tries("after", async () => { const c = new AbortController(); const r = await fetch(`${origin}/status/200`, { signal: c.signal }); const t = await r.text(); c.abort(); return t; });
    await tries("of a request", async () => { const c = new AbortController(); const q = new Request(`${origin}/never`, { signal: c.signal }); setTimeout(() => c.abort(), 10); return fetch(q); });
  },
  async streaming({ url, tries }) {
    const origin = url.searchParams.get("origin");
    await tries("chunks", async () => { const reader = (await fetch(`${origin}/slow/3/40`)).body.getReader(); const out = []; for (;;) { const { done, value } = await reader.read(); if (done) return out; out.push(new TextDecoder().decode(value)); } });
    await tries("cancel", async () => { const r = await fetch(`${origin}/slow/1000/5`); const reader = r.body.getReader(); await reader.read(); return reader.cancel("enough"); });
    await tries("big", async () => { let n = 0; for await (const chunk of (await fetch(`${origin}/big/5000000`)).body) n += chunk.length; return n; });
    await tries("big bytes", async () => (await (await fetch(`${origin}/big/3000000`)).arrayBuffer()).byteLength);
    await tries("tee", async () => { const [a, b] = (await fetch(`${origin}/big/300000`)).body.tee(); const [x, y] = await Promise.all([text_of(a), text_of(b)]); return [x.length, y.length]; });
    await tries("clone", async () => { const r = await fetch(`${origin}/slow/2/5`); const c = r.clone(); return [await r.text(), await c.text()]; });
    await tries("pipe", async () => { const r = await fetch(`${origin}/slow/2/5`); const t = new TransformStream({ transform(chunk, c) { c.enqueue(bytes(new TextDecoder().decode(chunk).toUpperCase())); } }); return new Response(r.body.pipeThrough(t)).text(); });
    await tries("upload", async () => { const t = new FixedLengthStream(1_000_000); const w = t.writable.getWriter(); (async () => { for (let i = 0; i < 100; i++) await w.write(new Uint8Array(10_000).fill(i)); await w.close(); })(); return (await fetch(`${origin}/hash`, { method: "POST", body: t.readable })).json(); });
    await tries("upload unknown length", async () => { const t = new TransformStream(); const w = t.writable.getWriter(); (async () => { for (let i = 0; i < 100; i++) await w.write(new Uint8Array(10_000).fill(i)); await w.close(); })(); return (await fetch(`${origin}/hash`, { method: "POST", body: t.readable })).json(); });
    await tries("passed on", async () => (await fetch(`${origin}/hash`, { method: "POST", body: (await fetch(`${origin}/big/2000000`)).body })).json());
    await tries("both ways", async () => {
      const t = new TransformStream(undefined, undefined);
      const w = t.writable.getWriter();
      const first = w.write(bytes("12345"));
      const r = await fetch(`${origin}/duplex`, { method: "POST", body: t.readable });
      await first;
      const reader = r.body.getReader();
      const out = [new TextDecoder().decode((await reader.read()).value)];
      await w.write(bytes("123"));
      out.push(new TextDecoder().decode((await reader.read()).value));
      await w.close();
      for (;;) { const { done, value } = await reader.read(); if (done) return out; out.push(new TextDecoder().decode(value)); }
    });
    await tries("failing upload", async () => { try { const r = await fetch(`${origin}/hash`, { method: "POST", body: new ReadableStream({ pull(c) { c.error(new TypeError("source failed")); } }) }); return r.status; } catch (e) { return [e.name, e.message]; } });
    await tries("byob", async () => { const reader = (await fetch(`${origin}/slow/2/5`)).body.getReader({ mode: "byob" }); const a = await reader.readAtLeast(8, new Uint8Array(100)); return [a.value.length, a.done]; });
  },
  async bodies_read_twice({ url, tries }) {
    const origin = url.searchParams.get("origin");
    await tries("text text", async () => { const r = await fetch(`${origin}/status/200`); await r.text(); return r.text(); });
    await tries("text json", async () => { const r = await fetch(`${origin}/status/200`); await r.text(); return r.json(); });
    await tries("bodyUsed", async () => { const r = await fetch(`${origin}/status/200`); const before = r.bodyUsed; await r.text(); return [before, r.bodyUsed]; });
    await tries("request", async () => { const q = new Request(`${origin}/echo`, { method: "POST", body: "x" }); await fetch(q); return (await fetch(q)).status; });
    await tries("clone after", async () => { const r = await fetch(`${origin}/status/200`); await r.text(); return r.clone(); });
    await tries("locked", async () => { const r = await fetch(`${origin}/status/200`); r.body.getReader(); return r.text(); });
    await tries("json of text", async () => (await fetch(`${origin}/status/200`)).json());
    await tries("formData of text", async () => (await fetch(`${origin}/status/200`)).formData());
    await tries("blob", async () => { const b = await (await fetch(`${origin}/echo`)).blob(); return [b.type, b.size > 0]; });
    await tries("bytes", async () => (await (await fetch(`${origin}/status/200`)).bytes()).length);
  },
  async in_parallel({ url, say }) {
    const origin = url.searchParams.get("origin");
    const all = await Promise.all(Array.from({ length: 30 }, async (_, i) => (await fetch(`${origin}/status/${200 + (i % 4) * 100}`)).status));
    say("statuses", all);
  },
  async unread_bodies_do_not_block({ url, say }) {
    const origin = url.searchParams.get("origin");
    const statuses = [];
    for (let i = 0; i < 20; i++) statuses.push((await fetch(`${origin}/big/1000`)).status);
    say("statuses", statuses.length);
  },
  async proxied({ url }) { return fetch(`${url.searchParams.get("origin")}/headers`); },
  async proxied_slowly({ url }) { return fetch(`${url.searchParams.get("origin")}/slow/4/20`); },
  async proxied_redirect({ url }) { return fetch(`${url.searchParams.get("origin")}/redirect/302/1`, { redirect: "manual" }); },
  async proxied_cut({ url }) { return fetch(`${url.searchParams.get("origin")}/cut`); },
  async proxied_204({ url }) { return fetch(`${url.searchParams.get("origin")}/status/204`); },
  async proxied_304({ url }) { return fetch(`${url.searchParams.get("origin")}/status/304`); },
  async proxied_gzip({ url }) { const r = await fetch(`${url.searchParams.get("origin")}/gzip`); return new Response(r.body, { headers: { "content-type": "text/plain" } }); },
}, { Caller });

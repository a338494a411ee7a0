// objects: Server
// Requests from outside come from requests.mjs; the paths are handlers here.
import { bytes, object, show, text_of, worker } from "../lib/harness.mjs";

const seen = async (request) => {
  const headers = [...request.headers].filter(([name]) => !["connection", "cf-connecting-ip"].includes(name));
  const said = show({
    method: request.method, url: request.url, headers, body: request.body === null ? null : await request.text(), bodyUsed: request.bodyUsed,
    redirect: request.redirect, keepalive: request.keepalive, integrity: request.integrity, aborted: request.signal.aborted,
  });
  return `${said}\ncf: ${typeof request.cf}`;
};

const bodies = {
  string: () => "text", empty: () => "", null: () => null, undefined: () => undefined, bytes: () => new Uint8Array([0, 255, 10]), buffer: () => new ArrayBuffer(3),
  params: () => new URLSearchParams({ a: "1 2" }), blob: () => new Blob(["blob"], { type: "text/x-y" }), number: () => 5, object: () => ({}), unicode: () => "é✓",
  stream: () => new ReadableStream({ start(c) { c.enqueue(bytes("one ")); c.enqueue(bytes("two")); c.close(); } }),
  pulled: () => { let n = 0; return new ReadableStream({ pull(c) { if (n === 3) c.close(); else c.enqueue(bytes(`chunk ${n++};`)); } }); },
  slow: () => { let n = 0; return new ReadableStream({ async pull(c) { await scheduler.wait(5); if (n === 3) c.close(); else c.enqueue(bytes(`chunk ${n++};`)); } }); },
  empty_stream: () => new ReadableStream({ start(c) { c.close(); } }),
  transform: () => { const t = new TransformStream(); const w = t.writable.getWriter(); w.write(bytes("written")).then(() => w.close()); return t.readable; },
  identity: () => { const t = new IdentityTransformStream(); const w = t.writable.getWriter(); w.write(bytes("written")).then(() => w.close()); return t.readable; },
  fixed: () => { const t = new FixedLengthStream(7); const w = t.writable.getWriter(); w.write(bytes("written")).then(() => w.close()); return t.readable; },
  generator: () => ReadableStream.from((async function* () { yield bytes("a"); await scheduler.wait(1); yield bytes("b"); })()),
  big: () => "x".repeat(1_000_000),
};
const broken = {
  stream_of_strings: () => new ReadableStream({ start(c) { c.enqueue("a string"); c.close(); } }),
  failing: () => { let n = 0; return new ReadableStream({ pull(c) { if (n++ === 0) c.enqueue(bytes("so far")); else c.error(new Error("the stream failed")); } }); },
  failing_at_once: () => new ReadableStream({ start(c) { c.error(new Error("the stream failed")); } }),
  too_short: () => { const t = new FixedLengthStream(10); const w = t.writable.getWriter(); w.write(bytes("short")).then(() => w.close()).catch(() => {}); return t.readable; },
  too_long: () => { const t = new FixedLengthStream(3); const w = t.writable.getWriter(); w.write(bytes("too long")).then(() => w.close()).catch(() => {}); return t.readable; },
};

export class Server extends object({
  async echo({ request }) { return new Response(await seen(request)); },
  async stream({}) { return new Response(bodies.slow()); },
  async upload({ request }) { let n = 0; for await (const chunk of request.body) n += chunk.length; return new Response(String(n)); },
  async mirror({ request }) { return new Response(request.body, { headers: { "x-from": "object" } }); },
  async status({ url }) { return new Response(null, { status: Number(url.searchParams.get("code")) }); },
  async cookies({}) { const r = new Response("c"); r.headers.append("set-cookie", "a=1"); r.headers.append("set-cookie", "b=2"); return r; },
  async failing({}) { return new Response(broken.failing()); },
}) {}

export default worker({
  async echo({ request }) { return new Response(await seen(request)); },
  async unread({}) { return new Response("the body was not read"); },
  async some_read({ request }) { const reader = request.body.getReader(); await reader.read(); return new Response("read a chunk"); },
  async mirror({ request }) { return new Response(request.body); },
  async upper({ request }) { return new Response(request.body.pipeThrough(new TransformStream({ transform(chunk, c) { c.enqueue(bytes(new TextDecoder().decode(chunk).toUpperCase())); } }))); },
  async length({ request }) { let n = 0; let chunks = 0; for await (const chunk of request.body) { n += chunk.length; chunks++; } return new Response(`${n} ${chunks > 0}`); },
  async form({ request }) { const form = await request.formData(); const out = []; for (const [k, v] of form) out.push([k, typeof v === "string" ? v : [v.name, v.type, await v.text()]]); return new Response(show(out)); },
  async json({ request, tries }) { await tries("json", () => request.json()); },
  async clone({ request }) { const copy = request.clone(); return new Response(`${await copy.text()}|${await request.text()}`); },
  async twice({ request, tries }) { await tries("first", () => request.text()); await tries("second", () => request.text()); await tries("used", () => request.bodyUsed); },
  async body({ url }) { const body = (bodies[url.searchParams.get("kind")] ?? broken[url.searchParams.get("kind")])(); return new Response(body); },
  async status({ url }) { return new Response(url.searchParams.get("body"), { status: Number(url.searchParams.get("code")), statusText: url.searchParams.get("text") ?? undefined }); },
  async headers({}) { return new Response("x", { headers: [["X-Upper", "V"], ["x-two", "1"], ["x-two", "2"], ["content-type", "a/b"], ["x-empty", ""], ["set-cookie", "a=1"], ["set-cookie", "b=2"]] }); },
  async length_header({ url }) { return new Response("12345", { headers: { "content-length": url.searchParams.get("n") } }); },
  async te_header({}) { return new Response("12345", { headers: { "transfer-encoding": "chunked", connection: "close", "x-a": "1" } }); },
  async json_response({}) { return Response.json({ a: [1, "é"] }, { status: 202, headers: { "x-a": "1" } }); },
  async redirect({}) { return Response.redirect("http://x/y", 302); },
  async error({}) { return Response.error(); },
  async encoded({}) { return new Response("already encoded", { encodeBody: "manual", headers: { "content-encoding": "gzip" } }); },
  async gzip({}) { return new Response("compress me ".repeat(50), { headers: { "content-encoding": "gzip" } }); },
  async null_with_length({}) { return new Response(null, { headers: { "content-length": "5" } }); },
  async throws({}) { return Promise.reject(new Error("thrown")); },
  async used_response({ tries }) { const r = new Response("x"); await r.text(); return r; },
  async object_response({ request, env, url }) { return env.Server.getByName("o").fetch(new Request(`http://x/Server/${url.searchParams.get("to")}?${url.searchParams}`, request)); },
  async object_response_copied({ request, env, url }) { const r = await env.Server.getByName("o").fetch(`http://x/Server/${url.searchParams.get("to")}?${url.searchParams}`, { method: request.method, headers: request.headers, body: request.body }); const c = new Response(r.body, r); c.headers.set("x-via", "worker"); return c; },
  async read_after_response({ request, ctx }) { const { readable, writable } = new TransformStream(); ctx.waitUntil((async () => { const w = writable.getWriter(); let n = 0; for await (const chunk of request.body) n += chunk.length; await w.write(bytes(String(n))); await w.close(); })()); return new Response(readable); },
  async pipe_to({ request }) { const { readable, writable } = new IdentityTransformStream(); request.body.pipeTo(writable); return new Response(readable); },
  async wait_until({ ctx }) { ctx.waitUntil(scheduler.wait(20)); return new Response("at once"); },
  async signal_property({ request, say }) { say("signal", request.signal instanceof AbortSignal); },
}, { Server });

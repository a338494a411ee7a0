// objects: Life
import { object, show, worker } from "../lib/harness.mjs";

let counter = 0;

export class Life extends object({
  async timers_in_an_object({ say, tries }) {
    const log = [];
    setTimeout(() => log.push("20"), 20);
    setTimeout(() => log.push("5"), 5);
    const interval = setInterval(() => log.push("i"), 8);
    await scheduler.wait(30);
    clearInterval(interval);
    say("log", log.filter((x) => x !== "i"));
    say("intervals", log.includes("i"));
  },
  async a_timer_that_throws({ say }) {
    setTimeout(() => { throw new Error("in a timer"); }, 1);
    await scheduler.wait(10);
    say("goes on", true);
  },
  async waitUntil_in_an_object({ ctx, storage, say }) {
    ctx.waitUntil(scheduler.wait(5).then(() => storage.put("later", 1)));
    ctx.waitUntil(Promise.reject(new Error("nobody cares")));
    ctx.waitUntil(5);
    say("now", await storage.get("later"));
  },
  async the_clock_stands_still({ say }) {
    const a = Date.now();
    for (let i = 0, x = 0; i < 3e6; i++) x += i;
    say("same", Date.now() === a && performance.now() === performance.now());
    await scheduler.wait(15);
    say("moves", Date.now() - a >= 10);
  },
}) {}

export default worker({
  async the_clock_stands_still({ say }) {
    const a = Date.now();
    const b = new Date().getTime();
    for (let i = 0, x = 0; i < 3e6; i++) x += i;
    say("same", [Date.now() === a, b === a, performance.now() === performance.now()]);
    await scheduler.wait(15);
    say("moves", Date.now() - a >= 10 && Date.now() - a < 5000);
    say("performance", typeof performance.now());
  },
  async the_clock_moves_in_intervals({ say }) {
    const seen = [];
    await new Promise((done) => { const i = setInterval(() => { seen.push(Date.now()); if (seen.length === 4) { clearInterval(i); done(); } }, 10); });
    say("grows", seen.every((t, i) => i === 0 || t > seen[i - 1]));
  },
  async timers({ say, tries }) {
    const log = [];
    setTimeout(() => log.push("second"), 20);
    setTimeout(() => log.push("first"), 5);
    setTimeout(log.push.bind(log), 8, "argument");
    const gone = setTimeout(() => log.push("never"), 1);
    clearTimeout(gone);
    await scheduler.wait(40);
    say("log", log);
    say("types", [typeof setTimeout(() => {}, 0), typeof setInterval]);
    await tries("string", () => setTimeout("code", 1));
    await tries("nothing", () => setTimeout());
    await tries("negative", () => new Promise((done) => setTimeout(() => done("ran"), -5)));
    await tries("huge", () => { const t = setTimeout(() => {}, 2 ** 40); clearTimeout(t); return "set"; });
    await tries("NaN", () => new Promise((done) => setTimeout(() => done("ran"), NaN)));
    await tries("interval 0", () => new Promise((done) => { let n = 0; const i = setInterval(() => { if (++n === 3) { clearInterval(i); done(n); } }, 0); }));
    await tries("in order", async () => { const order = []; for (let i = 0; i < 5; i++) setTimeout(() => order.push(i), 1); await scheduler.wait(10); return order; });
    await tries("same time in order of delay", async () => { const order = []; setTimeout(() => order.push("b"), 2); setTimeout(() => order.push("a"), 1); await scheduler.wait(15); return order; });
    await tries("clears itself", async () => { let n = 0; const i = setInterval(() => { n++; clearInterval(i); }, 1); await scheduler.wait(15); return n; });
    await tries("immediate", () => typeof setImmediate);
  },
  async setInterval_works({ say }) {
    let n = 0;
    const id = setInterval(() => n++, 1);
    await scheduler.wait(20);
    clearInterval(id);
    say("ran", n > 1);
  },
  async microtasks_before_timers({ say }) {
    const log = [];
    setTimeout(() => log.push("timer"), 0);
    queueMicrotask(() => log.push("microtask"));
    Promise.resolve().then(() => log.push("promise"));
    await new Promise((done) => setTimeout(done, 5));
    say("log", log);
  },
  async timeouts_of_signals({ tries, say }) {
    await tries("timeout", () => new Promise((_, reject) => { const s = AbortSignal.timeout(5); s.addEventListener("abort", () => reject(s.reason)); }));
    await tries("wait aborted", () => scheduler.wait(1000, { signal: AbortSignal.timeout(5) }));
    const c = new AbortController();
    setTimeout(() => c.abort(new Error("mine")), 2);
    await tries("any", () => scheduler.wait(1000, { signal: AbortSignal.any([c.signal, AbortSignal.timeout(500)]) }));
    await tries("throwIfAborted", () => c.signal.throwIfAborted());
    say("event", await new Promise((done) => { const d = new AbortController(); d.signal.onabort = (e) => done([e.type, e.target === d.signal, Object.prototype.toString.call(e)]); d.abort(); }));
  },
  async module_state_is_kept({ say }) {
    counter++;
    say("counted", counter > 0);
  },
  async bindings({ env, say }) {
    say("text", env.TEXT);
    say("object", env.OBJECT);
    say("number", env.NUMBER);
    say("boolean", env.YES);
    say("keys", Object.keys(env).sort());
    say("missing", env.NOTHING);
    say("type", Object.prototype.toString.call(env));
  },
  async bindings_can_be_changed({ env, say, does }) {
    does("set", () => { env.NEW = 1; return env.NEW; });
    delete env.NEW;
    does("mutable", () => { env.OBJECT.a.push(9); const n = env.OBJECT.a.length; env.OBJECT.a.pop(); return n; });
    say("namespace", Object.prototype.toString.call(env.Life));
  },
  async contexts({ ctx, say, does }) {
    say("ctx", Object.prototype.toString.call(ctx));
    does("waitUntil", () => ctx.waitUntil(Promise.resolve()));
    does("waitUntil of a value", () => ctx.waitUntil(5));
    does("waitUntil of nothing", () => ctx.waitUntil());
    does("passThroughOnException", () => ctx.passThroughOnException());
    does("props", () => ctx.props);
    does("detached", () => { const { waitUntil } = ctx; return waitUntil.call(ctx, Promise.resolve()); });
  },
  async a_hung_request_ends() { await new Promise(() => {}); },
  async a_hung_body_ends() { return new Response(new ReadableStream({ pull() { return new Promise(() => {}); } })); },
  async a_waitUntil_that_fails({ ctx, say }) {
    ctx.waitUntil(Promise.reject(new Error("nobody cares")));
    say("answered", true);
  },
  async a_timer_that_throws({ say }) {
    setTimeout(() => { throw new Error("in a timer"); }, 1);
    queueMicrotask(() => { throw new Error("in a microtask"); });
    await scheduler.wait(10);
    say("goes on", true);
  },
  async code_from_strings({ does, tries }) {
    does("eval", () => globalThis.eval("1 + 1"));
    does("indirect eval", () => (0, eval)("1 + 1"));
    does("Function", () => new Function("return 1")());
    does("timer", () => setTimeout("1"));
    does("WebAssembly.Module", () => new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])));
    await tries("WebAssembly.compile", () => WebAssembly.compile(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])));
    await tries("WebAssembly.instantiate", () => WebAssembly.instantiate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])));
    does("generator function", () => Object.getPrototypeOf(function* () {}).constructor("yield 1"));
  },
  async console_of_everything({ say }) {
    const circular = {};
    circular.self = circular;
    for (const value of [undefined, null, 1, "s", Symbol("x"), 1n, circular, [1, [2]], new Map([[1, 2]]), new Error("logged"), () => 1, class A {}, new Proxy({}, { get() { throw new Error("trap"); } }), Promise.reject(1).catch(() => {}), new Request("http://x"), new Response("x"), globalThis]) {
      console.log(value);
      console.error("%s %d %o %%", value, value, value);
    }
    for (const method of ["debug", "info", "warn", "table", "dir", "trace", "group", "groupEnd", "time", "timeEnd", "timeLog", "count", "countReset", "assert", "clear", "dirxml"]) console[method]?.("x");
    say("methods", ["debug", "info", "warn", "table", "dir", "trace", "group", "groupEnd", "groupCollapsed", "time", "timeEnd", "timeLog", "count", "countReset", "assert", "clear", "dirxml"].map((name) => typeof console[name]));
  },
  async globals({ say }) {
    for (const name of ["self", "globalThis", "window", "global", "process", "require", "Buffer", "navigator", "caches", "crypto", "performance", "scheduler", "WebSocketPair", "WebSocket", "HTMLRewriter", "Cache", "URLPattern", "CompressionStream", "DecompressionStream", "EventSource", "MessageChannel", "BroadcastChannel", "Worker", "SharedArrayBuffer", "Atomics", "WebAssembly", "Intl", "WeakRef", "FinalizationRegistry", "reportError", "structuredClone", "setImmediate", "XMLHttpRequest", "document", "Deno", "Bun", "alert", "Float16Array", "Iterator", "native"]) {
      say(name, typeof globalThis[name]);
    }
    say("this", (function () { return this === undefined; })());
    say("user agent", navigator.userAgent);
  },
  async crypto({ say, tries }) {
    const hex = (buffer) => [...new Uint8Array(buffer)].map((b) => b.toString(16).padStart(2, "0")).join("");
    for (const name of ["SHA-1", "SHA-256", "SHA-384", "SHA-512", "MD5"]) await tries(name, async () => hex(await crypto.subtle.digest(name, new Uint8Array(100))));
    await tries("empty", async () => hex(await crypto.subtle.digest("SHA-256", new Uint8Array(0))));
    await tries("view", async () => hex(await crypto.subtle.digest({ name: "sha-256" }, new Uint8Array([0, 1, 2, 3]).subarray(1, 3))));
    await tries("unknown", () => crypto.subtle.digest("SHA-3", new Uint8Array(0)));
    say("uuid", /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()));
    say("differ", crypto.randomUUID() !== crypto.randomUUID());
    await tries("random", () => { const a = new Uint8Array(32); return [crypto.getRandomValues(a) === a, a.some((x) => x !== 0)]; });
    await tries("random big", () => crypto.getRandomValues(new Uint8Array(65537)));
    await tries("random floats", () => crypto.getRandomValues(new Float64Array(1)));
    await tries("random bigints", () => crypto.getRandomValues(new BigUint64Array(2)).length);
    await tries("empty random", () => crypto.getRandomValues(new Uint8Array(0)).length);
  },
  async errors_have_stacks({ say }) {
    function named() { return new TypeError("with a stack"); }
    const { stack } = named();
    say("first", stack.split("\n")[0]);
    say("frame", /^ {4}at named \(.*:\d+:\d+\)$/.test(stack.split("\n")[1]));
    say("limit", stack.split("\n").length <= 11);
    const deep = (n) => (n === 0 ? new Error("deep") : deep(n - 1));
    say("deep", deep(50).stack.split("\n").length);
    say("overflow", (() => { const f = () => f(); try { f(); } catch (e) { return [e.name, e.message]; } })());
  },
  async texts_of_the_engine({ does }) {
    does("undefined call", () => undefined());
    does("property of undefined", () => undefined.x);
    does("property of null", () => null.x);
    does("not a function", () => ({}).f());
    does("not defined", () => nothing_of_this_name);
    does("frozen", () => { "use strict"; Object.freeze([]).push(1); });
    does("bigint", () => 1n + 1);
    does("symbol", () => `${Symbol("x")}`);
    does("array length", () => new Array(-1));
    does("repeat", () => "x".repeat(-1));
    does("toFixed", () => (1).toFixed(101));
    does("json", () => JSON.parse("{"));
    does("json circular", () => { const a = {}; a.a = a; JSON.stringify(a); });
    does("regexp", () => new RegExp("("));
    does("date", () => new Date(NaN).toISOString());
    does("instanceof", () => 1 instanceof 1);
    does("iterable", () => { const [a] = 5; return a; });
    does("class", () => { class A {} return A(); });
    does("new", () => new (() => {})());
    does("private", () => { class A { #x; static f(o) { return o.#x; } } return A.f({}); });
    does("uri", () => decodeURIComponent("%"));
  },
}, { Life });
void show;

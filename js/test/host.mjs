// A host for tests: what js/native.d.ts asks for, in memory and inside Node. It loads the bundled
// prelude into this very context (node --test gives each file its own process), so the globals of
// a test file are those of a Worker once load() has returned.
import { AsyncLocalStorage } from "node:async_hooks";
import { createHash, randomBytes, randomUUID, timingSafeEqual } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { types } from "node:util";
import v8 from "node:v8";
import vm from "node:vm";

const node = { TextDecoder, TextEncoder, setTimeout, clearTimeout, setInterval, structuredClone };
const encoder = new node.TextEncoder();

export async function prelude_text() {
  if (process.env.CELLD_PRELUDE) return readFileSync(process.env.CELLD_PRELUDE, "utf8");
  const { bundle } = await import("../build.mjs");
  const dir = mkdtempSync(join(tmpdir(), "celld-prelude-"));
  try {
    await bundle(join(dir, "prelude.js"));
    return readFileSync(join(dir, "prelude.js"), "utf8");
  } finally {
    rmSync(dir, { recursive: true });
  }
}

class Pipe {
  constructor(length) {
    this.length = length;
    this.chunks = [];
    this.closed = false;
    this.failed = false;
    this.error = undefined;
    this.reader = undefined; // the call that waits for bytes
    this.cancelled = false;
  }
}

export class Host {
  constructor() {
    this.hooks = undefined;
    this.logs = [];
    this.reported = [];
    this.frames = new AsyncLocalStorage();
    this.events = new Map();
    this.last_io = 0;
    this.pipes = new Map();
    this.last_pipe = 0;
    this.kv = new Map(); // cell -> Map
    this.alarms = new Map();
    this.cells = new Map(); // "ns/id" -> { index, ready }
    this.aborted = new Map();
    this.transactions = [];
    this.timers = new Map();
    this.last_timer = 0;
    this.cancelled = [];
    this.sections = [];
    this.on_fetch = undefined; // ({call, method, url, headers, body}) => {status, headers, body}
    this.on_sql = undefined; // (cell, query, bindings) => SqlResult
    this.on_more = undefined; // (cell, cursor, result)
    this.native = this.make_native();
  }

  // --- driving events, as the host would ---

  event(start, cell = -1) {
    const io = ++this.last_io;
    return new Promise((resolve, reject) => {
      this.events.set(io, { resolve, reject, holds: 0, answered: false });
      this.frames.run({ io, cell, map: undefined }, () => start(io));
    });
  }

  settle(io, how, value) {
    const event = this.events.get(io);
    if (event === undefined || event.answered) return;
    event.answered = true;
    event[how](value);
  }

  // A request to the worker; resolves with {status, statusText, headers, body}.
  fetch(url, { method = "GET", headers = "", body = null, entrypoint = "", cf = "" } = {}) {
    return this.event((io) => this.hooks.fetch(io, entrypoint, method, url, headers, body, cf));
  }

  async text(url, init) {
    const answer = await this.fetch(url, init);
    return this.body_text(answer.body);
  }

  async body_text(body) {
    if (body === null) return "";
    if (typeof body === "string") return body;
    if (typeof body !== "number") return new node.TextDecoder().decode(body);
    const pipe = this.pipes.get(body);
    while (!pipe.closed && !pipe.failed) await new Promise((done) => node.setTimeout(done, 1));
    if (pipe.failed) throw pipe.error;
    return Buffer.concat(pipe.chunks).toString();
  }

  pipe_of(...chunks) {
    const id = this.native.pipeCreate(-1);
    const pipe = this.pipes.get(id);
    for (const chunk of chunks) pipe.chunks.push(typeof chunk === "string" ? encoder.encode(chunk) : chunk);
    pipe.closed = true;
    return id;
  }

  async cell(ns, id, name) {
    const key = `${ns}/${id}`;
    let cell = this.cells.get(key);
    if (cell === undefined) {
      cell = { index: this.cells.size, ready: undefined };
      this.cells.set(key, cell);
      this.kv.set(cell.index, new Map());
      cell.ready = this.event((io) => this.hooks.construct(io, cell.index, ns, id, name), cell.index);
      cell.ready.catch(() => {});
    }
    await cell.ready;
    if (this.aborted.has(cell.index)) throw this.aborted.get(cell.index);
    return cell.index;
  }

  later(call, work) {
    Promise.resolve().then(work).then(
      (finish) => finish(),
      (error) => this.hooks.callError(call, error?.name ?? "Error", error?.message ?? String(error), "",
        4 | (error?.durableObjectReset ? 8 : 0)));
  }

  make_native() {
    const host = this;
    const pipe = (id) => {
      const found = host.pipes.get(id);
      if (found === undefined) throw new Error(`no pipe ${id}`);
      return found;
    };
    const store = (cell) => {
      if (host.aborted.has(cell)) throw host.aborted.get(cell);
      return host.kv.get(cell);
    };
    const now = () => host.frames.getStore();
    const serialize = (value) => {
      try {
        return new Uint8Array(v8.serialize(value));
      } catch (error) {
        throw host.hooks.makeError("DataCloneError", error.message, 0);
      }
    };
    return {
      install(hooks) { host.hooks = hooks; },
      respond(io, status, statusText, headers, body) {
        host.settle(io, "resolve", { status, statusText, headers, body });
      },
      replyBytes(io, bytes) { host.settle(io, "resolve", bytes); },
      done(io) { host.settle(io, "resolve", undefined); },
      fail(io, error) { host.settle(io, "reject", error); },
      hold(io) { host.events.get(io).holds++; },
      release(io) { host.events.get(io).holds--; },
      currentIo: () => now()?.io ?? 0,
      currentCell: () => now()?.cell ?? -1,
      contextGet: () => now()?.map,
      contextRun(map, fn, self, args) {
        return host.frames.run({ io: 0, cell: -1, ...now(), map }, () => fn.apply(self, args));
      },
      fetch(call, method, url, headers, body) {
        host.later(call, async () => {
          const r = await host.on_fetch({ call, method, url, headers, body });
          return () => host.hooks.callHead(call, r.status ?? 200, r.statusText ?? "", r.headers ?? "", r.body ?? null);
        });
      },
      stubFetch(call, ns, id, name, method, url, headers, body) {
        host.later(call, async () => {
          const cell = await host.cell(ns, id, name);
          const r = await host.event((io) => host.hooks.cellFetch(io, cell, method, url, headers, body), cell);
          return () => host.hooks.callHead(call, r.status, r.statusText, r.headers, r.body);
        });
      },
      stubRpc(call, ns, id, name, method, args) {
        const copy = args.slice();
        host.later(call, async () => {
          const cell = await host.cell(ns, id, name);
          const bytes = await host.event((io) => host.hooks.cellRpc(io, cell, method, copy), cell);
          return () => host.hooks.callValue(call, bytes);
        });
      },
      cancelCall(call) { host.cancelled.push(call); },
      idFromName: (ns, name) => createHash("sha256").update(`${ns}/${name}`).digest("hex").slice(0, 62) + "0" + ns,
      idUnique: (ns) => randomBytes(31).toString("hex") + "0" + ns,
      idValid: (ns, id) => id.endsWith("0" + ns),
      pipeCreate(length) {
        const id = ++host.last_pipe;
        host.pipes.set(id, new Pipe(length));
        return id;
      },
      pipeWrite(id, chunk, call) {
        const p = pipe(id);
        if (p.cancelled) throw new TypeError("the reader has gone");
        const bytes = typeof chunk === "string" ? encoder.encode(chunk) : chunk.slice();
        if (p.reader !== undefined) {
          const reader = p.reader;
          p.reader = undefined;
          node.setTimeout(() => host.hooks.callValue(reader, bytes), 0);
          return true;
        }
        p.chunks.push(bytes);
        if (p.chunks.length < 4) return true;
        node.setTimeout(() => host.hooks.callValue(call, undefined), 0);
        return false;
      },
      pipeClose(id) {
        const p = pipe(id);
        p.closed = true;
        if (p.reader !== undefined) host.hooks.callValue(p.reader, null);
      },
      pipeAbort(id, reason) {
        const p = pipe(id);
        p.failed = true;
        p.error = reason;
        if (p.reader !== undefined) host.hooks.callError(p.reader, reason.name, reason.message, "", 0);
      },
      pipeRead(id, call) {
        const p = pipe(id);
        if (p.chunks.length > 0) return p.chunks.shift();
        if (p.failed) throw p.error;
        if (p.closed) return null;
        p.reader = call;
        return undefined;
      },
      pipeCancel(id) { pipe(id).cancelled = true; },
      pipeTee(id) {
        const p = pipe(id);
        return [host.pipe_of(...p.chunks), host.pipe_of(...p.chunks)];
      },
      pipeLength: (id) => pipe(id).length,
      pipeOwn() {},
      setTimer(ms, repeat) {
        const id = ++host.last_timer;
        const frame = now();
        const run = () => host.frames.run(frame, () => host.hooks.timer(id));
        host.timers.set(id, repeat ? node.setInterval(run, ms) : node.setTimeout(run, ms));
        return id;
      },
      clearTimer(id) { node.clearTimeout(host.timers.get(id)); },
      performanceNow: () => 5,
      gateRun(cell, fn) {
        host.sections.push(cell);
        return [host.sections.length, fn()];
      },
      gateBusy(cell) { return false; },
      gateEnd(cell, section) { host.sections[section - 1] = undefined; },
      abortCell(cell, reason) { host.aborted.set(cell, reason); },
      kvGet(cell, key) {
        const bytes = store(cell).get(key);
        return bytes === undefined ? undefined : v8.deserialize(bytes);
      },
      kvPut(cell, key, value) { store(cell).set(key, serialize(value)); },
      kvDelete: (cell, key) => store(cell).delete(key),
      kvList(cell, start, after, end, prefix, reverse, limit) {
        const order = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b));
        const keys = [...store(cell).keys()].sort(order).filter((key) =>
          (start === undefined || order(key, start) >= 0) && (after === undefined || order(key, after) > 0) &&
          (end === undefined || order(key, end) < 0) && (prefix === undefined || key.startsWith(prefix)));
        if (reverse) keys.reverse();
        return keys.slice(0, limit).flatMap((key) => [key, v8.deserialize(store(cell).get(key))]);
      },
      deleteAll(cell, alsoAlarm) {
        store(cell).clear();
        if (alsoAlarm) host.alarms.delete(cell);
      },
      alarmGet: (cell) => host.alarms.get(cell) ?? null,
      alarmSet(cell, at) { host.alarms.set(cell, at); },
      sqlExec: (cell, query, bindings) => host.on_sql(cell, query, bindings),
      sqlMore(cell, cursor, result) { host.on_more(cell, cursor, result); },
      sqlDatabaseSize: () => 4096,
      txnBegin(cell) { host.transactions.push(new Map(store(cell))); },
      txnCommit() { host.transactions.pop(); },
      txnRollback(cell) {
        const before = host.transactions.pop();
        if (before === undefined) throw new Error("no such savepoint");
        host.kv.set(cell, before);
      },
      storageSync(cell, call) { node.setTimeout(() => host.hooks.callValue(call, undefined), 0); },
      serialize,
      deserialize: (bytes) => v8.deserialize(bytes),
      structuredClone: (value, transfer) => node.structuredClone(value, { transfer }),
      utf8Encode: (text) => encoder.encode(text),
      utf8EncodeInto(text, target) {
        const { read, written } = encoder.encodeInto(text, target);
        return [read, written];
      },
      utf8Decode: (bytes, fatal, ignoreBOM) => new node.TextDecoder("utf-8", { fatal, ignoreBOM }).decode(bytes),
      decoderCreate(label, fatal, ignoreBOM) {
        try {
          return new node.TextDecoder(label, { fatal, ignoreBOM });
        } catch {
          return undefined;
        }
      },
      decoderName: (decoder) => decoder.encoding,
      decoderDecode: (decoder, bytes, stream) => decoder.decode(bytes, { stream }),
      base64Encode: (text) => Buffer.from(text, "latin1").toString("base64"),
      base64Decode: (text) => Buffer.from(text, "base64").toString("latin1"),
      randomFill(bytes) { bytes.set(randomBytes(bytes.length)); },
      randomUUID: () => randomUUID(),
      digest(name, bytes) {
        return new Uint8Array(createHash(name.replace("-", "").toLowerCase()).update(bytes).digest()).buffer;
      },
      timingSafeEqual: (a, b) => timingSafeEqual(a, b),
      log(level, text) { host.logs.push([level, text]); },
      reportError(error) { host.reported.push(error); },
      promiseState: (value) => (types.isPromise(value) ? ["pending", undefined] : undefined),
      proxyTarget: () => undefined, // out of reach here
    };
  }
}

// Loads the prelude here.
export async function load() {
  const host = new Host();
  const text = await prelude_text();
  globalThis.native = host.native;
  vm.runInThisContext(text, { filename: "prelude.js" });
  return host;
}

// `worker`: the exports of the main module; each name in `namespaces` is a class of it and its binding.
export function start(host, worker, { vars = {}, namespaces = [], date = "2026-11-01", flags = [] } = {}) {
  const problem = host.hooks.setWorker(worker, {
    vars, namespaces: namespaces.map((name) => ({ binding: name, className: name, sql: true })),
    compatibilityDate: date, compatibilityFlags: flags,
  });
  if (problem !== "") throw new Error(problem);
}

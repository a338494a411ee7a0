// The boundary between the TypeScript half of the runtime and the C++ host.
//
// The prelude runs once in every context, with the global `native`, which it must take and delete
// from globalThis. It calls native.install(hooks) at its end. Both sides follow these rules:
//
// * `Io` is the number of an event that runs (a request, an alarm, ...). The host sets the frame
//   of an event (V8's continuation-preserved data) before it calls a hook; natives that need to
//   know "who" read it there, so it survives every await. JavaScript passes `io` only to answer.
// * Asynchronous natives take a `call` number, drawn by JavaScript (from 1 up, per isolate), and end in exactly one of
//   hooks.callHead / callValue / callError for that number, unless cancelled.
// * Header blocks are one string: "name\nvalue\nname\nvalue\n", names in lower case, duplicates
//   kept in order. "" = no headers. Each character is a byte (values are UTF-8 on the wire). The
//   same block passes through untouched where nobody looks.
// * Bodies are `Body`: null, a string (sent as UTF-8), bytes, or the number of a pipe.
// * Nothing here is gated by JavaScript: the host holds every effect that leaves a cell until the
//   commits it could reveal are proven.

type Io = number;
type CallId = number;
type PipeId = number; // >= 1; a one-way byte stream kept by the host, bounded, read once
type CellIndex = number; // a resident cell of this isolate
type HeaderBlock = string;
type Body = null | string | Uint8Array | PipeId;

// Bits of error flags.
//   1 retryable, 2 overloaded, 4 remote, 8 durableObjectReset, 16 unconfirmed
type ErrorFlags = number;

interface Native {
  install(hooks: Hooks): void;

  // --- answering an event (exactly once per event; a second answer is ignored) ---
  respond(io: Io, status: number, statusText: string, headers: HeaderBlock, body: Body): void;
  replyBytes(io: Io, bytes: Uint8Array | null): void; // RPC result as serialize() made it
  done(io: Io): void; // alarm, scheduled, construct: finished well
  // Any event: the handler threw this. `packed`: the same for callError of who called a cell.
  fail(io: Io, error: unknown, packed?: Uint8Array): void;
  // Keeps an event alive after its answer (ctx.waitUntil); each hold needs one release.
  hold(io: Io): void;
  release(io: Io): void;
  // The event of the present frame, 0 when there is none; its cell, or -1.
  currentIo(): Io;
  currentCell(): CellIndex;

  // --- async context (AsyncLocalStorage): the map carried by the present frame ---
  contextGet(): unknown; // undefined when never set
  contextRun(value: unknown, fn: (...a: unknown[]) => unknown, self: unknown, args: unknown[]): unknown;

  // --- calls out ---
  // Answer: hooks.callHead. `redirect` is handled by JavaScript.
  fetch(call: CallId, method: string, url: string, headers: HeaderBlock, body: Body): void;
  // To a Durable Object. `name` is the name the id was made from, if known.
  stubFetch(call: CallId, ns: number, id: string, name: string | undefined, method: string, url: string,
            headers: HeaderBlock, body: Body): void;
  // Answer: hooks.callValue with the bytes of the result for deserialize(); null for undefined.
  // `args` without a byte: the caller reads the property `method` instead of calling it.
  stubRpc(call: CallId, ns: number, id: string, name: string | undefined, method: string,
          args: Uint8Array): void;
  cancelCall(call: CallId): void;

  // --- ids; ns is the index of a namespace in EnvSpec.namespaces ---
  idFromName(ns: number, name: string): string; // 64 hex digits
  idUnique(ns: number): string;
  idValid(ns: number, id: string): boolean; // belongs to this namespace

  // --- pipes ---
  // A pipe that JavaScript writes. length: bytes to come, or -1.
  pipeCreate(length: number): PipeId;
  // true: there is room for more; false: hooks.callValue(call) follows when there is. Throws when
  // the reader has gone or more than `length` is written.
  pipeWrite(pipe: PipeId, chunk: Uint8Array | string, call: CallId): boolean;
  pipeClose(pipe: PipeId): void;
  pipeAbort(pipe: PipeId, reason: unknown): void;
  // bytes, null at the end, undefined: hooks.callValue(call, bytes | null) follows.
  pipeRead(pipe: PipeId, call: CallId): Uint8Array | null | undefined;
  pipeCancel(pipe: PipeId): void;
  // Splits a pipe that nobody has read yet into two.
  pipeTee(pipe: PipeId): [PipeId, PipeId];
  pipeLength(pipe: PipeId): number; // or -1 when unknown
  // Who holds a pipe that can be read: once the collector has found the holder, the pipe is
  // cancelled. undefined: whoever reads it keeps it.
  pipeOwn(pipe: PipeId, holder: object | undefined): void;

  // --- time ---
  setTimer(ms: number, repeat: boolean): number; // > 0; hooks.timer(id) follows
  clearTimer(id: number): void;
  performanceNow(): number; // advances only at I/O, as Date.now() does

  // --- gates of a cell ---
  // From now on only continuations of the present frame's critical section reach the cell.
  // Returns the number of the section. Runs fn inside it, returns its result.
  gateRun(cell: CellIndex, fn: () => unknown): [section: number, result: unknown];
  // Another section than that of the present frame is open: a new one must wait for its end.
  gateBusy(cell: CellIndex): boolean;
  // timeoutMs: the host resets the cell when the section is still open then (30 s).
  gateEnd(cell: CellIndex, section: number): void;
  // Resets the cell: every event of it fails with `reason`; its instance is dropped.
  abortCell(cell: CellIndex, reason: unknown, packed?: Uint8Array): void; // packed: as for fail()

  // --- storage (synchronous; writes of one turn become one commit at its end) ---
  kvGet(cell: CellIndex, key: string): unknown; // undefined when absent
  kvPut(cell: CellIndex, key: string, value: unknown): void;
  kvDelete(cell: CellIndex, key: string): boolean;
  // [key, value, key, value, ...]; absent options are undefined.
  kvList(cell: CellIndex, start: string | undefined, startAfter: string | undefined, end: string | undefined,
         prefix: string | undefined, reverse: boolean, limit: number | undefined): unknown[];
  deleteAll(cell: CellIndex, alsoAlarm: boolean): void;
  alarmGet(cell: CellIndex): number | null;
  alarmSet(cell: CellIndex, atMs: number | null): void;
  // Bindings: null, number, string, ArrayBuffer, ArrayBufferView (bigint and others are refused
  // with workerd's message). Runs at once; rows come in batches.
  sqlExec(cell: CellIndex, query: string, bindings: unknown[]): SqlResult;
  // More rows of an unfinished result; throws when the cursor has been invalidated.
  sqlMore(cell: CellIndex, cursor: number, result: SqlResult): void;
  sqlDatabaseSize(cell: CellIndex): number;
  // Nested transactions as savepoints.
  txnBegin(cell: CellIndex): void;
  txnCommit(cell: CellIndex): void;
  txnRollback(cell: CellIndex): void;
  // hooks.callValue when everything committed so far is proven; callError otherwise.
  storageSync(cell: CellIndex, call: CallId): void;

  // --- values ---
  serialize(value: unknown): Uint8Array; // V8 format; throws DataCloneError
  deserialize(bytes: Uint8Array): unknown;
  structuredClone(value: unknown, transfer: unknown[]): unknown;

  // --- text and bytes ---
  utf8Encode(text: string): Uint8Array;
  utf8EncodeInto(text: string, target: Uint8Array): [read: number, written: number];
  utf8Decode(bytes: Uint8Array, fatal: boolean, keepBom: boolean): string; // throws TypeError if fatal
  // Other encodings of the Encoding Standard: a decoder handle, freed by the collector.
  decoderCreate(label: string, fatal: boolean, keepBom: boolean): object | undefined; // undefined: unknown label
  decoderName(decoder: object): string;
  decoderDecode(decoder: object, bytes: Uint8Array, stream: boolean): string;
  base64Encode(latin1: string): string; // btoa; throws InvalidCharacterError
  base64Decode(text: string): string; // atob

  // --- crypto ---
  randomFill(bytes: Uint8Array): void;
  randomUUID(): string;
  // "SHA-1", "SHA-256", "SHA-384", "SHA-512", "MD5"
  digest(name: string, bytes: Uint8Array): ArrayBuffer;
  timingSafeEqual(a: Uint8Array, b: Uint8Array): boolean;

  // --- diagnostics ---
  log(level: "debug" | "info" | "log" | "warn" | "error", text: string): void;
  // Reports an unhandled rejection or an exception in a timer to the log, source-mapped.
  reportError(error: unknown): void;
  // For console: what a Promise or Proxy holds, constructor names: [state, value] or undefined.
  promiseState(value: unknown): [state: "pending" | "fulfilled" | "rejected", value: unknown] | undefined;
  proxyTarget(value: unknown): object | undefined;
}

interface SqlResult {
  columns: string[]; // with duplicates, as in raw()
  rows: unknown[][];
  cursor: number; // 0 when finished
  rowsRead: number;
  rowsWritten: number;
}

interface EnvSpec {
  vars: Record<string, unknown>;
  // In order: the index is `ns`. sql: false for classes declared with new_classes.
  namespaces: { binding: string; className: string; sql: boolean }[];
  compatibilityDate: string;
  compatibilityFlags: string[];
}

interface Hooks {
  // Built-in modules by specifier: "cloudflare:workers" and others; each value's own enumerable
  // properties are the exports. A specifier that is missing here stops the load by name.
  modules: Record<string, Record<string, unknown>>;
  // Before the main module is evaluated, without a namespace, and after it, with the same env. Returns
  // "" or what is wrong with the module (a bound class that is not exported, ...).
  setWorker(namespace: Record<string, unknown> | undefined, env: EnvSpec): string;

  // --- events. Each ends in one answer native (see above), perhaps later. ---
  fetch(io: Io, entrypoint: string, method: string, url: string, headers: HeaderBlock, body: Body,
        cf: string /* JSON or "" */): void;
  scheduled(io: Io, entrypoint: string, cron: string, scheduledTime: number): void;
  // Makes the instance: new Class(ctx, env). Answer: done or fail.
  construct(io: Io, cell: CellIndex, ns: number, id: string, name: string | undefined): void;
  cellFetch(io: Io, cell: CellIndex, method: string, url: string, headers: HeaderBlock, body: Body): void;
  cellRpc(io: Io, cell: CellIndex, method: string, args: Uint8Array): void; // answer: replyBytes
  cellAlarm(io: Io, cell: CellIndex, retryCount: number, scheduledTime: number): void; // answer: done
  dropCell(cell: CellIndex): void; // forget the instance, its calls and timers; it will not be called again

  // --- completions ---
  callHead(call: CallId, status: number, statusText: string, headers: HeaderBlock, body: Body): void;
  callValue(call: CallId, value: unknown): void;
  // `packed`: what a cell gave to fail().
  callError(call: CallId, name: string, message: string, stack: string, flags: ErrorFlags,
            packed: Uint8Array | undefined): void;
  timer(id: number): void;
  // The client of an event went away before the answer: request.signal.
  disconnected(io: Io): void;
  // The event has ended (answered, no holds left): drop what is kept for it, its calls and timers too.
  ended(io: Io): void;

  // An Error the host throws or rejects with: "TypeError", "DataCloneError" (DOMException), ...
  makeError(name: string, message: string, flags: ErrorFlags): Error;
  // Any value as console shows it, of bounded length; never throws.
  describe(value: unknown): string;
}

declare const native: Native;

// The worker: its entry points, the dispatch of events to them and to the instances of cells.

import { Blob } from "./blob";
import { refuse_over_rpc } from "./clone_check";
import { configure } from "./config";
import { DurableObjectNamespace, make_namespace } from "./durable_objects";
import { deserialize_from_rpc, pack_thrown, plain_thrown, serialize_for_rpc } from "./error_wire";
import { Headers } from "./headers";
import { native } from "./host";
import { cell_dropped, event_ended } from "./owners";
import { Request, client_gone, forget_client, make_request } from "./request";
import { Response, send_response } from "./response";
import { Cell, make_state } from "./state";
import { ReadableStream, WritableStream } from "./streams";
import { INTERNAL, expose, set_own, unsupported, wrong_argument } from "./util";
import { hold_until } from "./wait_until";
import { DurableObject, WorkerEntrypoint, env, loopback } from "./workers";

type ClassExport = new (ctx: unknown, env: unknown) => Record<string, unknown>;

// An export that events may go to: an object of handlers, or a class.
interface Entrypoint {
  handlers: Record<string, unknown> | null;
  constructor_: ClassExport | null;
}

let exports: Record<string, unknown> = {};
const entrypoints = new Map<string, Entrypoint>();
let classes: ClassExport[] = [];
// By index; one is never used twice.
const cells = new Map<CellIndex, Cell>();

export class ExecutionContext {
  readonly props: object = {};
  readonly exports: object = loopback;
  #io: Io;

  constructor(token: unknown, io: Io) {
    if (token !== INTERNAL) throw new TypeError("Illegal constructor");
    this.#io = io;
  }

  waitUntil(promise: unknown): void {
    if (arguments.length === 0) throw wrong_argument("waitUntil", "ExecutionContext", 1, "Promise");
    hold_until(this.#io, promise);
  }
  passThroughOnException(): void {
    void this.#io;
  }
  abort(): never {
    throw unsupported("abort() of ExecutionContext");
  }
}
expose(ExecutionContext as never, "ExecutionContext");

class ScheduledController {
  readonly scheduledTime: number;
  readonly cron: string;
  readonly type = "scheduled";

  constructor(scheduled_time: number, cron: string) {
    this.scheduledTime = scheduled_time;
    this.cron = cron;
  }
  noRetry(): void {}
}
expose(ScheduledController, "ScheduledController");

// The env, which modules may read while they are evaluated.
function prepare(spec: EnvSpec): void {
  configure(spec);
  for (const key of Object.keys(spec.vars)) set_own(env, key, spec.vars[key]);
  for (let ns = 0; ns < spec.namespaces.length; ns++) {
    const { binding, className } = spec.namespaces[ns]!;
    const bound: DurableObjectNamespace = make_namespace(ns);
    if (binding !== "") set_own(env, binding, bound);
    set_own(loopback, className, bound);
  }
}

// By the call before the evaluation.
let prepared = false;

export function set_worker(namespace: Record<string, unknown> | undefined, spec: EnvSpec): string {
  if (!prepared) prepare(spec);
  prepared = namespace === undefined;
  if (namespace === undefined) return "";
  exports = namespace;
  entrypoints.clear();
  const missing = [];
  classes = [];
  for (let ns = 0; ns < spec.namespaces.length; ns++) {
    const { binding, className } = spec.namespaces[ns]!;
    const found = namespace[className];
    if (typeof found !== "function") {
      missing.push(`class "${className}" (bound as "${binding}") is ` +
        (found === undefined ? "not exported by the main module" : "exported, but is not a class"));
      continue;
    }
    classes[ns] = found as ClassExport;
  }
  return missing.join("; ");
}

function entrypoint(name: string): Entrypoint {
  let entry = entrypoints.get(name);
  if (entry === undefined) {
    const found = exports[name === "" ? "default" : name];
    const is_class = typeof found === "function";
    entry = {
      handlers: !is_class && typeof found === "object" && found !== null ? (found as Record<string, unknown>) : null,
      constructor_: is_class ? (found as ClassExport) : null,
    };
    entrypoints.set(name, entry);
  }
  return entry;
}

// Calls a handler of the worker; what it returns or throws is what the event ends with.
function call_handler(io: Io, name: string, handler: string, argument: unknown): unknown {
  const entry = entrypoint(name);
  const context = new ExecutionContext(INTERNAL, io);
  const handlers = entry.handlers;
  if (handlers !== null) {
    const fn = handlers[handler];
    if (typeof fn !== "function") throw no_handler(handler);
    return fn.call(handlers, argument, env, context);
  }
  const constructor_ = entry.constructor_;
  if (constructor_ === null) throw no_handler(handler);
  if (!(constructor_.prototype instanceof WorkerEntrypoint)) {
    throw new TypeError("The entrypoint class must extend WorkerEntrypoint, which can be imported from the module " +
      '"cloudflare:workers".');
  }
  const instance = new constructor_(context, env);
  const fn = instance[handler];
  if (typeof fn !== "function") throw no_handler(handler);
  return fn.call(instance, argument, env, context);
}

function no_handler(name: string): Error {
  return new Error(`Handler does not export a ${name}() function.`);
}

// Ends an event with what it threw. `thrower`: the id of the object whose method was called.
function fail(io: Io, error: unknown, thrower: string | undefined = undefined): void {
  if (native.currentCell() < 0) native.fail(io, error);
  else native.fail(io, plain_thrown(error), pack_thrown(error, thrower));
}

function answer(io: Io, value: unknown): void {
  if (!(value instanceof Response)) {
    fail(io, new TypeError("Incorrect type for Promise: the Promise did not resolve to 'Response'."));
    return;
  }
  try {
    send_response(io, value);
  } catch (error) {
    fail(io, error);
  }
}

// Ends a fetch event with what its handler returned.
function answer_with(io: Io, result: unknown): void {
  if (result instanceof Response) answer(io, result);
  else if (is_thenable(result)) {
    Promise.resolve(result).then((value) => answer(io, value), (error) => fail(io, error));
  } else fail(io, new TypeError("Callback returned incorrect type; expected 'Promise'"));
}

// Ends an event without a result.
function done_with(io: Io, result: unknown): void {
  if (is_thenable(result)) {
    Promise.resolve(result).then(() => native.done(io), (error) => fail(io, error));
  } else native.done(io);
}

function is_thenable(value: unknown): boolean {
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}

export function on_fetch(
  io: Io, name: string, method: string, url: string, headers: HeaderBlock, body: Body, cf: string): void {
  try {
    answer_with(io, call_handler(io, name, "fetch", make_request(io, method, url, headers, body, cf)));
  } catch (error) {
    fail(io, error);
  }
}

export function on_scheduled(io: Io, name: string, cron: string, scheduled_time: number): void {
  try {
    done_with(io, call_handler(io, name, "scheduled", new ScheduledController(scheduled_time, cron)));
  } catch (error) {
    fail(io, error);
  }
}

export function construct(io: Io, cell: CellIndex, ns: number, id: string, name: string | undefined): void {
  try {
    const constructor_ = classes[ns]!;
    const record = new Cell(cell, id, constructor_ as never);
    cells.set(cell, record);
    record.instance = new constructor_(make_state(record, ns, id, name, loopback), env);
    native.done(io);
  } catch (error) {
    cells.delete(cell);
    fail(io, error);
  }
}

function instance_of(cell: CellIndex): Record<string, unknown> {
  const instance = cells.get(cell)?.instance;
  if (instance === undefined || instance === null) throw new Error(`internal error: cell ${cell} has no instance`);
  return instance;
}

export function on_cell_fetch(
  io: Io, cell: CellIndex, method: string, url: string, headers: HeaderBlock, body: Body): void {
  try {
    const instance = instance_of(cell);
    const fn = instance.fetch;
    if (typeof fn !== "function") throw no_handler("fetch");
    answer_with(io, fn.call(instance, make_request(io, method, url, headers, body, "")));
  } catch (error) {
    fail(io, error);
  }
}

const RESERVED = new Set(["fetch", "connect", "alarm", "webSocketMessage", "webSocketClose", "webSocketError", "dup",
  "constructor"]);

function rpc_member(instance: Record<string, unknown>, name: string): unknown {
  if (!(instance instanceof DurableObject)) {
    throw new TypeError("The receiving Durable Object does not support RPC, because its class was not declared with " +
      "`extends DurableObject`. In order to enable RPC, make sure your class extends the special class " +
      '`DurableObject`, which can be imported from the module "cloudflare:workers".');
  }
  if (RESERVED.has(name)) throw new TypeError(`'${name}' is a reserved method and cannot be called over RPC.`);
  // What the classes declare, not what is set on the instance, nor what every object has.
  if (Object.hasOwn(instance, name) || name in Object.prototype || !(name in instance)) {
    throw new TypeError(`The RPC receiver does not implement the method "${name}".`);
  }
  return instance[name];
}

export function on_cell_rpc(io: Io, cell: CellIndex, method: string, args: Uint8Array): void {
  let thrower: string | undefined;
  try {
    const instance = instance_of(cell);
    const member = rpc_member(instance, method);
    let result = member;
    if (args.length > 0) { // else the caller reads a property
      if (typeof member !== "function") throw new TypeError(`"${method}" is not a function.`);
      const given = deserialize_from_rpc(args) as unknown[];
      thrower = cells.get(cell)!.id;
      result = member.apply(instance, given);
    }
    if (is_thenable(result)) {
      Promise.resolve(result).then((value) => reply(io, value), (error) => fail(io, error, thrower));
    } else reply(io, result);
  } catch (error) {
    fail(io, error, thrower);
  }
}

function reply(io: Io, value: unknown): void {
  try {
    if (value === undefined) {
      native.replyBytes(io, null);
      return;
    }
    if (typeof value === "function") throw unsupported("A function as the result of an RPC call");
    native.replyBytes(io, serialize_for_rpc(value));
  } catch (error) {
    fail(io, error);
  }
}

export function on_cell_alarm(io: Io, cell: CellIndex, retry_count: number, scheduled_time: number): void {
  try {
    const instance = instance_of(cell);
    const fn = instance.alarm;
    if (typeof fn !== "function") throw no_handler("alarm");
    done_with(io, fn.call(instance,
      { scheduledTime: scheduled_time, retryCount: retry_count, isRetry: retry_count > 0 }));
  } catch (error) {
    fail(io, error);
  }
}

export function drop_cell(cell: CellIndex): void {
  cells.delete(cell);
  cell_dropped(cell);
}

export function on_ended(io: Io): void {
  forget_client(io);
  event_ended(io);
}

export { client_gone as on_disconnected };

refuse_over_rpc(Blob, "Blob");
refuse_over_rpc(Request, "Request");
refuse_over_rpc(Response, "Response");
refuse_over_rpc(Headers, "Headers");
refuse_over_rpc(ReadableStream, "ReadableStream");
refuse_over_rpc(WritableStream, "WritableStream");

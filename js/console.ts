// console: each call becomes one text for the host's log.

import { format } from "./inspect";
import { native } from "./host";
import { define_global, set_tag } from "./util";

type Level = "debug" | "info" | "log" | "warn" | "error";

let indentation = "";
const counts = new Map<string, number>();
const times = new Map<string, number>();

function write(level: Level, args: unknown[]): void {
  let text = args.length === 1 && typeof args[0] === "string" ? args[0] : format(args);
  if (indentation !== "") text = indentation + text.replaceAll("\n", "\n" + indentation);
  native.log(level, text);
}

const label_of = (label: unknown): string => (label === undefined ? "default" : String(label));

function time_text(label: string, start: number): string {
  return `${label}: ${(native.performanceNow() - start).toFixed(3)}ms`;
}

const console_ = {
  debug: (...args: unknown[]): void => write("debug", args),
  error: (...args: unknown[]): void => write("error", args),
  info: (...args: unknown[]): void => write("info", args),
  log: (...args: unknown[]): void => write("log", args),
  warn: (...args: unknown[]): void => write("warn", args),
  assert(condition: unknown = false, ...args: unknown[]): void {
    if (condition) return;
    if (typeof args[0] === "string") args[0] = "Assertion failed: " + args[0];
    else args.unshift("Assertion failed");
    write("error", args);
  },
  clear(): void {},
  count(label: unknown = undefined): void {
    const key = label_of(label);
    const count = (counts.get(key) ?? 0) + 1;
    counts.set(key, count);
    write("info", [`${key}: ${count}`]);
  },
  countReset(label: unknown = undefined): void {
    counts.delete(label_of(label));
  },
  dir: (value: unknown): void => write("log", [value]),
  dirxml: (...args: unknown[]): void => write("log", args),
  group(...args: unknown[]): void {
    if (args.length > 0) write("log", args);
    indentation += "  ";
  },
  groupCollapsed(...args: unknown[]): void {
    console_.group(...args);
  },
  groupEnd(): void {
    indentation = indentation.slice(2);
  },
  table: (value: unknown): void => write("log", [value]),
  time(label: unknown = undefined): void {
    times.set(label_of(label), native.performanceNow());
  },
  timeLog(label: unknown = undefined, ...args: unknown[]): void {
    const start = times.get(label_of(label));
    if (start !== undefined) write("info", [time_text(label_of(label), start), ...args]);
  },
  timeEnd(label: unknown = undefined): void {
    const start = times.get(label_of(label));
    if (start === undefined) return;
    times.delete(label_of(label));
    write("info", [time_text(label_of(label), start)]);
  },
  timeStamp(): void {},
  trace(...args: unknown[]): void {
    const stack = new Error().stack ?? "";
    write("debug", [`Trace${args.length > 0 ? ": " + format(args) : ""}\n${stack.split("\n").slice(2).join("\n")}`]);
  },
};

set_tag(console_, "console");
define_global("console", console_);

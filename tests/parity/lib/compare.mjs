// Runs the programs of this folder on workerd and on celld, and compares every answer.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request as http_request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startCelld } from "../../e2e/lib/celld.mjs";
import { startWorkerd } from "../../e2e/lib/workerd.mjs";

const ANSWER_MS_MAX = 45_000;
const NO_ANSWER = "no answer in time";
const folder = fileURLToPath(new URL("..", import.meta.url));

// Headers that say how a message travels rather than what it says.
const TRAVEL = new Set(["date", "connection", "keep-alive", "transfer-encoding"]);

// One request and its whole answer. `host` names the worker, so that its URLs are the same everywhere.
export function ask(base, { method = "GET", path, headers = {}, body }) {
  const { port, hostname } = new URL(base);
  return new Promise((resolve, reject) => {
    const request = http_request({ port, hostname, method, path, headers: { host: "parity.test", ...headers } });
    const timer = setTimeout(() => request.destroy(new Error(NO_ANSWER)), ANSWER_MS_MAX);
    const end = (settle, value) => {
      clearTimeout(timer);
      settle(value);
    };
    request.on("error", (error) => end(resolve, { failed: error.code ?? error.message }));
    request.on("response", (response) => {
      const chunks = [];
      const answer = (ended) => {
        const head = {};
        for (let i = 0; i < response.rawHeaders.length; i += 2) {
          const name = response.rawHeaders[i].toLowerCase();
          if (!TRAVEL.has(name)) (head[name] ??= []).push(response.rawHeaders[i + 1]);
        }
        const sorted = Object.fromEntries(Object.entries(head).sort(([a], [b]) => (a < b ? -1 : 1)));
        end(resolve, {
          status: `${response.statusCode} ${response.statusMessage}`, headers: sorted,
          body: Buffer.concat(chunks).toString("latin1"), ...(ended ? {} : { failed: "cut off" }),
        });
      };
      response.on("data", (chunk) => chunks.push(chunk));
      response.on("end", () => answer(response.complete));
      response.on("error", () => answer(false));
    });
    if (typeof body === "function") body(request);
    else request.end(body);
  });
}

// A Wrangler project around programs/NAME.mjs. Its classes are those of the line "// objects: A B".
function make_project(name) {
  const file = join(folder, "programs", `${name}.mjs`);
  const source = readFileSync(file, "utf8");
  const line = (key) => new RegExp(`^// ${key}: (.*)$`, "m").exec(source)?.[1] ?? "";
  const classes = line("objects").split(" ").filter(Boolean);
  const dir = mkdtempSync(join(tmpdir(), `parity-${name}-`));
  mkdirSync(join(dir, "src"));
  writeFileSync(join(dir, "src", "index.mjs"), `export * from ${JSON.stringify(file)};\nexport { default } from ${JSON.stringify(file)};\n`);
  writeFileSync(join(dir, "wrangler.json"), JSON.stringify({
    name: `parity-${name}`,
    main: "src/index.mjs",
    compatibility_date: line("date") || "2026-11-01",
    compatibility_flags: line("flags").split(" ").filter(Boolean),
    vars: { TEXT: "plain", OBJECT: { a: [1, null, "x"] }, NUMBER: 7, YES: true },
    durable_objects: { bindings: classes.map((class_name) => ({ name: class_name, class_name })) },
    migrations: classes.length === 0 ? [] : [{ tag: "v1", new_sqlite_classes: classes }],
  }));
  return dir;
}

// Both hosts with one program: { workerd, celld, stop() }.
export async function start_both(name) {
  const dir = make_project(name);
  const hosts = await Promise.allSettled([startWorkerd(dir), startCelld(dir, { args: ["--no-watch"] })]);
  const stop = async () => {
    for (const host of hosts) await host.value?.stop();
    rmSync(dir, { recursive: true, force: true });
  };
  for (const host of hosts) {
    if (host.status === "rejected") {
      await stop();
      throw host.reason;
    }
  }
  return { workerd: hosts[0].value, celld: hosts[1].value, stop };
}

const MARKS = [": ", " threw: ", " => ", " !! "];
const LINE_CHARS_MAX = 600;

// The label of a line, if it begins with one of these; else the whole line.
function label_of(line, labels) {
  return labels.find((label) => MARKS.some((mark) => line.startsWith(label + mark)));
}

// Ids of objects become numbers in order of appearance: each host has its own.
function as_lines({ body = "", headers = {}, ...rest }) {
  const ids = [];
  const numbered = body.replace(/\b[0-9a-f]{64}\b/g, (id) => {
    if (!ids.includes(id)) ids.push(id);
    return `<id ${ids.indexOf(id)}>`;
  });
  return [
    ...Object.entries(rest).map(([key, value]) => `(${key}) ${value}`),
    ...Object.entries(headers).map(([key, values]) => `(header) ${key}: ${values.join(" | ")}`),
    ...numbered.split("\n"),
  ];
}

// "" when both answers say the same except for the lines that `known` lists, all of which must differ.
export function compare(workerd, celld, known) {
  const labels = Object.keys(known);
  if (workerd.failed === NO_ANSWER) return "workerd did not answer: no case to compare with";
  // How much of a response that breaks off arrives is a matter of timing.
  const broken = (answer) => answer.failed === "cut off" || answer.failed === "ECONNRESET";
  if (broken(workerd) && broken(celld)) return "";
  if (celld.failed !== workerd.failed) return `workerd  ${JSON.stringify(workerd).slice(0, LINE_CHARS_MAX)}\ncelld    ${JSON.stringify(celld).slice(0, LINE_CHARS_MAX)}`;
  // celld dev says what went wrong.
  if (workerd.status?.startsWith("500") && celld.status?.startsWith("500") && workerd.body === "Internal Server Error") return "";
  if (known["*"]) return JSON.stringify(workerd) === JSON.stringify(celld) ? "the listed difference is gone: take it off the list" : "";
  // What differs by intention also differs in length.
  const split = (answer) => {
    const shared = [];
    const listed = {};
    for (const line of as_lines(answer)) {
      const label = label_of(line, labels);
      if (label === undefined && line.startsWith("(header) content-length") && labels.length > 0) continue;
      if (label === undefined) shared.push(line);
      else listed[label] = line;
    }
    return { shared, listed };
  };
  const theirs = split(workerd);
  const ours = split(celld);
  const problems = [];
  const text = (line) => (line === undefined ? "(nothing)" : line.slice(0, LINE_CHARS_MAX));
  for (let a = 0, b = 0; a < theirs.shared.length || b < ours.shared.length;) {
    if (theirs.shared[a] === ours.shared[b]) {
      a++;
      b++;
      continue;
    }
    const only_length = [theirs, ours].every(({ shared }, i) => shared[i === 0 ? a : b]?.startsWith("(header) content-length"));
    if (!only_length || theirs.shared.slice(a + 1).join() === ours.shared.slice(b + 1).join()) {
      problems.push(`workerd  ${text(theirs.shared[a])}`, `celld    ${text(ours.shared[b])}`);
    }
    a++;
    b++;
  }
  for (const label of labels) {
    if (theirs.listed[label] === ours.listed[label]) problems.push(`the listed difference "${label}" is gone: take it off the list`);
  }
  return problems.join("\n");
}

// Wrangler projects made for one test.
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

// Writes `files` (path -> text; objects become JSON) to `folder` and answers it.
export function makeProject(folder, files) {
  for (const [path, content] of Object.entries(files)) {
    const file = join(folder, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, typeof content === "string" ? content : JSON.stringify(content, null, 2));
  }
  return folder;
}

export function config(changes = {}) {
  return {
    name: "tested",
    main: "src/index.js",
    compatibility_date: "2026-01-01",
    durable_objects: { bindings: [{ name: "OBJECT", class_name: "Tested" }] },
    migrations: [{ tag: "v1", new_sqlite_classes: ["Tested"] }],
    ...changes,
  };
}

// A class with `members`, one object per first part of the path, in the files of a project.
export function objectProject(members, { changes, before = "", worker = "" } = {}) {
  return {
    "wrangler.json": config(changes),
    "src/index.js": `import { DurableObject } from "cloudflare:workers";
${before}
export class Tested extends DurableObject {
${members}
}
export default {
  async fetch(request, env, ctx) {
    const url = new URL(request.url);
    ${worker}
    return env.OBJECT.getByName(url.pathname.split("/")[1]).fetch(request);
  },
};
`,
  };
}

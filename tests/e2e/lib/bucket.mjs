// Looks into a bucket in a directory and damages it on purpose. The format: docs/formats/file-store.md.
import { readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";

const HEADER_BYTES = 64;

export class Bucket {
  constructor(dir) {
    this.dir = dir;
    this.url = `file://${dir}`;
    this.objects = join(dir, "objects");
  }

  // The keys that start with `prefix`, sorted. Keys with unusual characters stay as their file has them.
  keys(prefix = "") {
    const found = [];
    const walk = (folder) => {
      let entries = [];
      try {
        entries = readdirSync(folder, { withFileTypes: true });
      } catch (error) {
        if (error.code !== "ENOENT") throw error;  // removed meanwhile
      }
      for (const entry of entries) {
        const path = join(folder, entry.name);
        if (entry.isDirectory()) walk(path);
        else if (entry.name.endsWith("@")) found.push(relative(this.objects, path).slice(0, -1).replaceAll("^/", ""));
      }
    };
    walk(this.objects);
    return found.filter((key) => key.startsWith(prefix)).sort();
  }

  // The longest names are cut into several directories; keys of celld's cells among them.
  path(key) {
    const parts = key.split("/").flatMap((part) => {
      const pieces = [];
      for (; part.length >= 84; part = part.slice(84)) pieces.push(`${part.slice(0, 84)}^`);
      return [...pieces, part];
    });
    return `${join(this.objects, ...parts)}@`;
  }

  read(key) {
    return readFileSync(this.path(key)).subarray(HEADER_BYTES);
  }

  json(key) {
    return JSON.parse(this.read(key).toString());
  }

  size(key) {
    return statSync(this.path(key)).size - HEADER_BYTES;
  }

  remove(key) {
    rmSync(this.path(key));
  }

  // Another writer's work: a new version, whatever it was before.
  replace(key, body) {
    const bytes = Buffer.from(body);
    const version = Array.from({ length: 32 }, () => Math.floor(Math.random() * 16).toString(16)).join("");
    const header = `celld-object 1 ${version} ${bytes.length.toString(16).padStart(15, "0")}\n`;
    const path = this.path(key);
    writeFileSync(`${path}.new`, Buffer.concat([Buffer.from(header), bytes]));
    renameSync(`${path}.new`, path);
  }

  // Rot: the file keeps its version and length, `change` edits the bytes of the body in place.
  rot(key, change) {
    const file = readFileSync(this.path(key));
    change(file.subarray(HEADER_BYTES));
    writeFileSync(this.path(key), file);
  }

  // Flips one bit in the middle of the body.
  flip(key, at = 0.5) {
    this.rot(key, (body) => (body[Math.floor(body.length * at)] ^= 0x10));
  }
}

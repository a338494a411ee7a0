// Azurite, Microsoft's Azure Blob Storage for development, as the other servers here behave: in memory, on
// loopback, and gone when its standard input ends.
//
//   node azurite.mjs [--containers=N]
//
// Makes the containers bucket-1 to bucket-N (1) and prints its port on the first line. The account is
// devstoreaccount1 with the public key of all Azurites.
import { createHmac } from "node:crypto";
import { createRequire } from "node:module";

const account = "devstoreaccount1";
const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const containers = Number(/^--containers=(\d+)$/.exec(process.argv[2] ?? "--containers=1")[1]);

// Azurite says on its standard output where it listens; ours has the port alone.
const listening = new Promise((found, failed) => {
  console.log = (line) => {
    const match = /successfully listens on http:\/\/127\.0\.0\.1:(\d+)/.exec(line);
    if (match) found(Number(match[1]));
  };
  setTimeout(() => failed(new Error("Azurite does not listen")), 30_000).unref();
});
process.argv = [process.argv[0], "azurite", "--inMemoryPersistence", "--blobPort", "0", "--silent", "--disableTelemetry"];
createRequire(import.meta.url)("azurite/dist/src/blob/main.js");
const port = await listening;

async function makeContainer(name) {
  const path = `/${account}/${name}`, date = new Date().toUTCString(), version = "2021-12-02";
  const signed = `PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:${date}\nx-ms-version:${version}\n/${account}${path}\nrestype:container`;
  const signature = createHmac("sha256", Buffer.from(key, "base64")).update(signed).digest("base64");
  const reply = await fetch(`http://127.0.0.1:${port}${path}?restype=container`, {
    method: "PUT",
    headers: { "x-ms-date": date, "x-ms-version": version, authorization: `SharedKey ${account}:${signature}` },
  });
  if (reply.status !== 201) throw new Error(`container ${name}: ${reply.status} ${await reply.text()}`);
}
await Promise.all(Array.from({ length: containers }, (_, i) => makeContainer(`bucket-${i + 1}`)));
process.stdout.write(`${port}\n`);
process.stdin.on("end", () => process.exit(0)).on("error", () => process.exit(0)).resume();

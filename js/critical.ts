// Critical sections of a cell: the input gate is closed until the section ends. Sections that are
// asked for at the same time run one after the other; one inside of another runs within it.

import { native } from "./host";

// What a section knows of its cell.
export interface SectionOwner {
  readonly cell: CellIndex;
  // Who waits for a section to end, in order.
  readonly section_queue: (() => void)[];
}

// Runs `body` in a section, after the present synchronous code as workerd does, and then `leave`
// inside of it: with the error when `body` failed. What `leave` throws is what the promise rejects with.
export async function in_section<T>(
  owner: SectionOwner, body: () => T | Promise<T>, leave: (failed: boolean, error: unknown) => void): Promise<T> {
  const { cell, section_queue } = owner;
  await undefined;
  while (native.gateBusy(cell)) await new Promise<void>((go) => section_queue.push(go));
  const [section, running] = native.gateRun(cell, async () => body()) as [number, Promise<T>];
  try {
    let value: T;
    try {
      value = await running;
    } catch (error) {
      leave(true, error);
      throw error;
    }
    leave(false, undefined);
    return value;
  } finally {
    native.gateEnd(cell, section);
    // Each looks again whether it may run.
    for (const go of section_queue.splice(0)) go();
  }
}

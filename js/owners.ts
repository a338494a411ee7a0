// What belongs to an event or to a cell (calls, timers) and must be forgotten with it: the host drops
// its half without a word about each.

import { native } from "./host";

// A member of its owner's list. `dropped` runs when the owner goes first.
export abstract class Owned {
  #previous: Owned | null = null;
  #next: Owned | null = null;

  abstract dropped(): void;

  // Puts `item` in the list of the cell that runs now, else of the event. Without either it has no owner.
  static own(item: Owned): void {
    const cell = native.currentCell();
    const io = native.currentIo();
    if (cell < 0 && io === 0) return;
    const key = cell < 0 ? io : -1 - cell;
    let head = owners.get(key);
    if (head === undefined) owners.set(key, (head = new Head()));
    const next = head.#next;
    item.#previous = head;
    item.#next = next;
    head.#next = item;
    if (next !== null) next.#previous = item;
  }

  static disown(item: Owned): void {
    const previous = item.#previous;
    if (previous === null) return;
    const next = item.#next;
    previous.#next = next;
    if (next !== null) next.#previous = previous;
    item.#previous = item.#next = null;
  }

  static drop(key: number): void {
    const head = owners.get(key);
    if (head === undefined) return;
    owners.delete(key);
    for (let item = head.#next; item !== null; item = head.#next) {
      Owned.disown(item);
      item.dropped();
    }
  }
}

class Head extends Owned {
  dropped(): void {}
}

// Events by their number, cells by -1 - index.
const owners = new Map<number, Head>();

export function event_ended(io: Io): void {
  Owned.drop(io);
}

export function cell_dropped(cell: CellIndex): void {
  Owned.drop(-1 - cell);
}

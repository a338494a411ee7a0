// Promises that keep their event alive.

import { report_error } from "./errors";
import { native } from "./host";

// Holds the event until `promise` settles; a rejection goes to the log.
export function hold_until(io: Io, promise: unknown): void {
  if (io !== 0) native.hold(io);
  Promise.resolve(promise).then(
    () => {
      if (io !== 0) native.release(io);
    },
    (error) => {
      report_error(error);
      if (io !== 0) native.release(io);
    });
}

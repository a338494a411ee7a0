// What wrangler.jsonc binds.
import type { Guestbook } from "./guestbook";

export interface Env {
  GREETING: string;
  GUESTBOOK: DurableObjectNamespace<Guestbook>;
}

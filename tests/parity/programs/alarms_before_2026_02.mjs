// date: 2026-01-01
// objects: Bell
import { worker } from "../lib/harness.mjs";
import { Bell } from "./alarms.mjs";

export { Bell };
export default worker({
  async deleteAll_keeps_the_alarm({ env, tries }) { await tries("left", () => env.Bell.getByName("n").delete_all()); },
});
